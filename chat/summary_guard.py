"""The database refuses to delete a summary that messages are still flagged with, whoever asks it to.

That is what a foreign key is for, but one is looked at for every message that is flagged: a tenth of a compaction. This
trigger is looked at when a summary is deleted, which is when it matters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from django.db import connections
from django.db.models.signals import post_migrate

# By place, since no index holds what covers a row: a summary stands at the last position it covers.
_STANDS: Final = (
    "EXISTS (SELECT 1 FROM chat_message AS covered WHERE covered.conversation_id = OLD.conversation_id "
    "AND covered.position <= OLD.position AND covered.compacted_into_id = OLD.id)"
)

_SQLITE: Final = (
    "CREATE TRIGGER IF NOT EXISTS chat_summary_stands BEFORE DELETE ON chat_message "
    f"WHEN OLD.is_summary AND {_STANDS} BEGIN SELECT RAISE(ABORT, 'the summary stands for messages'); END"
)
_POSTGRESQL: Final = (
    f"""
    CREATE FUNCTION chat_summary_stands() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF {_STANDS} THEN
            RAISE foreign_key_violation USING MESSAGE = 'the summary ' || OLD.id || ' stands for messages';
        END IF;
        RETURN NULL;
    END $$
    """,
    # At the end of the transaction, like a foreign key: both may go in it, in any order.
    "CREATE CONSTRAINT TRIGGER chat_summary_stands AFTER DELETE ON chat_message DEFERRABLE INITIALLY DEFERRED "
    "FOR EACH ROW WHEN (OLD.is_summary) EXECUTE FUNCTION chat_summary_stands()",
)


def make(connection: Any) -> None:
    """Put the trigger in its place."""
    _run(connection, [_SQLITE] if connection.vendor == "sqlite" else _POSTGRESQL)


def remove(connection: Any) -> None:
    """Take it away."""
    on_table = "" if connection.vendor == "sqlite" else " ON chat_message"
    _run(connection, [f"DROP TRIGGER IF EXISTS chat_summary_stands{on_table}"])
    if connection.vendor == "postgresql":
        _run(connection, ["DROP FUNCTION chat_summary_stands"])


def connect() -> None:
    """SQLite changes a table by making it anew, and the triggers of the old one are gone. Call once, at the start."""
    post_migrate.connect(_keep, dispatch_uid="chat.summary_guard")


def _keep(sender: Any, using: str, **kwargs: Any) -> None:
    connection = connections[using]
    made_anew = sender.label == "chat" and connection.vendor == "sqlite"
    if made_anew and "chat_message" in connection.introspection.table_names():
        make(connection)


def _run(connection: Any, statements: Iterable[str]) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
