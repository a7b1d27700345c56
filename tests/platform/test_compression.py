"""Long texts are compressed in PostgreSQL's quicker way, where it has one."""

from __future__ import annotations

import pytest
from django.db import connection

from palimpsest import compression

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL compresses"),
]


def compressed_by(table: str, column: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attcompression FROM pg_attribute WHERE attrelid = %s::regclass AND attname = %s", [table, column]
        )
        return str(cursor.fetchone()[0])


@pytest.fixture
def knows_lz4() -> None:
    with connection.cursor() as cursor:
        cursor.execute(compression._KNOWS_LZ4)
        if cursor.fetchone() is None:
            pytest.skip("this PostgreSQL was built without LZ4")


@pytest.mark.parametrize(
    ("table", "column"),
    [("chat_message", "content"), ("chat_attachment", "text"), ("compaction_compaction", "prefix")],
)
def test_long_texts_are_compressed_with_lz4(table: str, column: str, knows_lz4: None) -> None:
    assert compressed_by(table, column) == "l"


def test_there_is_a_way_back(knows_lz4: None) -> None:
    compression.use_default(connection, "chat_message", "content")

    assert not compressed_by("chat_message", "content")


def test_a_server_without_it_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "_KNOWS_LZ4", "SELECT 1 WHERE false")

    compression.use_lz4(connection, "chat_message", "no_such_column")
