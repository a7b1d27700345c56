"""The files the browser gets: vendored ones are what vendor.lock says, texts are translated, nothing is inline."""

from __future__ import annotations

import ast
import gettext
import hashlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VENDOR = ROOT / "static" / "vendor"
CATALOGUE = ROOT / "locale" / "zh_Hans" / "LC_MESSAGES" / "djangojs.mo"
TEXT = re.compile(r"""(?<![\w$])(?:_|ngettext)\(\s*("(?:[^"\\]|\\.)*")(?:,\s*("(?:[^"\\]|\\.)*"))?""")


def locked_files() -> dict[str, str]:
    lock = json.loads((VENDOR / "vendor.lock").read_text())
    return {entry["file"]: entry["sha256"] for library in lock["libraries"] for entry in library["files"]}


def scripts() -> list[Path]:
    return sorted((ROOT / "static" / "js").glob("*.js"))


def test_vendored_files_are_what_the_lock_says() -> None:
    found = {
        str(path.relative_to(VENDOR)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.rglob("*")
        if path.is_file() and path.name != "vendor.lock"
    }

    assert found == locked_files()


def test_every_library_names_its_version_and_licence() -> None:
    for library in json.loads((VENDOR / "vendor.lock").read_text())["libraries"]:
        assert set(library) == {"npm", "version", "licence", "files"}
        assert any("LICENSE" in entry["file"] for entry in library["files"])


def test_no_file_points_to_a_source_map() -> None:
    assert [path.name for path in (ROOT / "static").rglob("*.js") if "sourceMappingURL=" in path.read_text()] == []


def test_no_template_has_inline_script_or_style() -> None:
    inline = re.compile(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)|<style|\sstyle=|\son\w+=|javascript:")

    assert [path.name for path in (ROOT / "templates").rglob("*.html") if inline.search(path.read_text())] == []


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.name)
def test_every_text_of_the_page_is_translated(path: Path) -> None:
    with CATALOGUE.open("rb") as file:
        known = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    missing = []
    for one, many in TEXT.findall(path.read_text()):
        text = ast.literal_eval(one)
        if not known.get((text, 0) if many and (text, 0) in known else text):
            missing.append(text)

    assert missing == []


def test_modules_import_only_what_is_there() -> None:
    for path in scripts():
        for name in re.findall(r"""(?:from|import)\s*\(?\s*"(\.[^"]+)\"""", path.read_text()):
            assert (path.parent / name).resolve().is_file(), f"{path.name} imports {name}"


def test_every_module_is_short_enough_to_read() -> None:
    assert {path.name: lines for path in scripts() if (lines := len(path.read_text().splitlines())) > 500} == {}
