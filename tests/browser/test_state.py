"""What the page computes from a snapshot and events, without a page."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = 'import { run, tests } from "./state.test.mjs"; console.log(JSON.stringify([Object.keys(tests).length, run()]));'


def _files() -> dict[str, str]:
    files = {name: (ROOT / "static" / "js" / name).read_text() for name in ("stream.js", "store.js")}
    return files | {"state.test.mjs": (Path(__file__).parent / "state.test.mjs").read_text()}


def _run_with_node(folder: Path) -> tuple[int, list[str]]:
    for name, text in (_files() | {"run.mjs": RUN, "package.json": '{"type": "module"}'}).items():
        (folder / name).write_text(text)
    done = subprocess.run(["node", "run.mjs"], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    count, failed = json.loads(done.stdout)
    return count, failed


def _run_in_chromium(browser: Any) -> tuple[int, list[str]]:
    files = _files() | {"": "<!doctype html><title>state</title>"}
    page = browser.new_page()

    def serve(route: Any) -> None:
        name = route.request.url.rsplit("/", 1)[1]
        kind = "text/javascript" if name else "text/html"
        route.fulfill(body=files[name], content_type=kind) if name in files else route.abort()

    page.route("**/*", serve)
    page.goto("http://state.test/")
    count, failed = page.evaluate(
        "import('/state.test.mjs').then(({ run, tests }) => [Object.keys(tests).length, run()])"
    )
    page.close()
    return count, failed


@pytest.mark.skipif(not shutil.which("node"), reason="needs node; the same runs in Chromium")
def test_snapshot_before_and_event_give_snapshot_after(tmp_path: Path) -> None:
    count, failed = _run_with_node(tmp_path)

    assert failed == []
    assert count > 15


@pytest.mark.browser
def test_the_same_in_the_browser(browser: Any) -> None:
    count, failed = _run_in_chromium(browser)

    assert failed == []
    assert count > 15
