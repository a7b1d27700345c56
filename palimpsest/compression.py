"""How PostgreSQL compresses long texts: with LZ4 where it can, which is several times as quick as its own way.

Only what is written from then on; SQLite compresses nothing.
"""

from __future__ import annotations

from typing import Any

_KNOWS_LZ4 = "SELECT 1 FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals)"


def use_lz4(connection: Any, table: str, *columns: str) -> None:
    """For these columns; does nothing before PostgreSQL 14 and where it was built without."""
    _set(connection, table, columns, "lz4")


def use_default(connection: Any, table: str, *columns: str) -> None:
    """The way back."""
    _set(connection, table, columns, "default")


def _set(connection: Any, table: str, columns: tuple[str, ...], method: str) -> None:
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute(_KNOWS_LZ4)
        if cursor.fetchone() is None:
            return
        for column in columns:
            cursor.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET COMPRESSION {method}")
