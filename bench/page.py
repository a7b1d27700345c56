"""`docs/benchmarks.md`: the figures of the last full run, between the lines that a person wrote."""

from __future__ import annotations

from pathlib import Path

from bench.figures import Report, commit, machine

BEGIN, END = "<!-- figures: {way} -->", "<!-- end of figures: {way} -->"


def write_page(path: Path, reports: list[Report]) -> None:
    """Put each report's table between its two marker lines; the rest of the page stays."""
    page = path.read_text()
    for report in reports:
        begin, end = BEGIN.format(way=report.way), END.format(way=report.way)
        if begin not in page or end not in page:
            raise SystemExit(f"{path} has no place for the figures of “{report.way}”.")
        before, rest = page.split(begin, 1)
        after = rest.split(end, 1)[1]
        page = f"{before}{begin}\n{_section(report)}\n{end}{after}"
    path.write_text(page)


def _section(report: Report) -> str:
    head = f"`{report.command}` at commit {commit()} on {machine()}."
    remarks = "".join(f"\n- {remark}" for remark in report.remarks)
    return f"\n{head}\n\n{report.table()}\n{remarks}"
