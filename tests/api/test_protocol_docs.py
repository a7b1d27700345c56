"""docs/protocol.md says what the code does: its tables are compared with the events, the commands and the API."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from django.conf import settings

from chat import requests
from chat.api.site import api
from chat.events import CLIENT_COMMANDS, EVENTS

DOCUMENT: Path = settings.BASE_DIR / "docs" / "protocol.md"


def events_table() -> list[str]:
    """One line an event: name, whether it carries a `seq`, its fields."""
    return [
        f"| `{name}` | {'yes' if event.durable else 'no'} | {_names(field.name for field in fields)} |"
        for name, event in EVENTS.items()
        for fields in [dataclasses.fields(event)]
    ]


def commands_table() -> list[str]:
    """One line a command: name and the fields of its data."""
    return [f"| `{name}` | {_names(_data(name).model_fields)} |" for name in CLIENT_COMMANDS]


def addresses_table() -> list[str]:
    """One line an operation: method, address, what it does."""
    lines = []
    for path, methods in api.get_openapi_schema(path_prefix="/api/v1/")["paths"].items():
        short = path.removeprefix("/api/v1").replace("/conversations/{conversation_id}", "…")
        for method, operation in methods.items():
            lines.append(f"| {method.upper()} | `{short}` | {operation['summary']} |")
    return lines


TABLES = {"events": events_table, "commands": commands_table, "addresses": addresses_table}


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_of_the_protocol_are_those_of_the_code(name: str) -> None:
    block = re.search(f"<!-- {name} -->\n(.*?)<!-- end -->", DOCUMENT.read_text(), re.DOTALL)
    assert block, f"docs/protocol.md has no table of {name}"
    written = [line for line in block[1].splitlines() if line.startswith("| ") and not line.startswith("| ---")][1:]
    assert written == TABLES[name]()


def _names(names: object) -> str:
    return ", ".join(f"`{name}`" for name in names) or "–"  # type: ignore[attr-defined]


def _data(command: str) -> type[requests._Data]:
    return getattr(requests, f"{command.capitalize()}Data")
