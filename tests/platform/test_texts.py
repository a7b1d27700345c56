"""Every text people read exists in Simplified Chinese, and the compiled catalogue is the one that was written."""

from __future__ import annotations

import ast
import gettext
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "locale" / "zh_Hans" / "LC_MESSAGES"
ENTRY = re.compile(r'^(msgid|msgid_plural|msgstr(?:\[0\])?) (".*")$', re.MULTILINE)


def entries(name: str) -> dict[str, str]:
    """Source text and translation of every entry but the head."""
    found = {}
    for block in (FOLDER / f"{name}.po").read_text().split("\n\n")[1:]:
        fields = {field: ast.literal_eval(text) for field, text in ENTRY.findall(block)}
        found[fields["msgid"]] = fields.get("msgstr", fields.get("msgstr[0]", ""))
    return found


@pytest.mark.parametrize("name", ["django", "djangojs"])
def test_nothing_is_left_untranslated(name: str) -> None:
    assert [text for text, translation in entries(name).items() if not translation] == []


@pytest.mark.parametrize("name", ["django", "djangojs"])
def test_translations_fill_the_same_places(name: str) -> None:
    places = re.compile(r"%\(\w+\)[sd]|\{\w+\}")
    differing = {
        text: translation
        for text, translation in entries(name).items()
        if not set(places.findall(translation)) <= set(places.findall(text)) | {"{n}"}
    }

    assert differing == {}


@pytest.mark.parametrize("name", ["django", "djangojs"])
def test_the_compiled_catalogue_is_up_to_date(name: str) -> None:
    with (FOLDER / f"{name}.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    for text, translation in entries(name).items():
        assert (compiled.get(text) or compiled.get((text, 0))) == translation
