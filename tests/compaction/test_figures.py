"""The commands that make the figures in the documentation run, on the real transcripts where they are there."""

from __future__ import annotations

import json

import pytest

from bench import compaction_figures, nested
from tests.compaction.builders import conversations


def test_the_figures_of_one_compaction(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    next(conversations("pi_sessions"))
    monkeypatch.setattr("sys.argv", ["compaction_figures"])
    monkeypatch.setattr(compaction_figures, "CASES", (("pi_sessions", 64_000),))

    compaction_figures.main()

    rows = capsys.readouterr().out.strip().split("\n")[1:]
    assert [row.split()[2] for row in rows] == ["balanced", "conservative", "aggressive", "extractive"]
    for row in rows:
        before, after = (int(figure.replace(",", "")) for figure in row.split()[3:5])
        assert after < before


def test_facts_of_the_first_part_do_not_fade(tmp_path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:  # type: ignore[no-untyped-def]
    [conversation, *_] = conversations("longmemeval_3")
    folder = tmp_path / "transcripts"
    folder.mkdir()
    (folder / "short.jsonl").write_text(json.dumps({**conversation, "messages": conversation["messages"][:200]}))
    monkeypatch.setattr("sys.argv", ["nested", "--data", str(tmp_path)])
    monkeypatch.setattr(nested, "FILES", (("short", 24_000),))
    monkeypatch.setattr(nested, "STAGES", (1, 2))

    nested.main()

    rows = [row.replace(" %", "%").split() for row in capsys.readouterr().out.strip().split("\n")[1:]]
    assert [row[1] for row in rows] == ["1", "2"]
    assert all(row[5] == "100%" for row in rows)
