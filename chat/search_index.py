"""Asking the index which messages hold a word. Migration 0005 makes the index, triggers keep it, each database its way.

Only membership is asked, with a limit: what many messages hold tells little, and a question must cost the same in a
conversation of a hundred messages and of a hundred thousand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from django.db import connection, connections
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate

from chat import search_schema
from chat.search_words import Term, indexed, scope_word

MOST_HOLDERS: Final = 400  # messages; a word that more of them hold is common

_POSTGRESQL: Final = """
    SELECT asked.n, message
    FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS asked(kind, word, n),
        LATERAL (SELECT chat_search_query(asked.kind, asked.word) AS query) AS made,
        LATERAL chat_search_find(%s::tsquery && made.query, %s) AS message
    WHERE numnode(made.query) > 0
"""


def connect() -> None:
    """SQLite's triggers call a function of ours; every connection gets it. Call once, when the app is ready."""
    connection_created.connect(_teach, dispatch_uid="chat.search")
    post_migrate.connect(_keep, dispatch_uid="chat.search")


def holders(scope: Sequence[UUID], terms: Sequence[Term], most: int = MOST_HOLDERS) -> list[set[int]]:
    """For each term the messages of these conversations that hold it, about `most` of them where there are more."""
    if connection.vendor == "sqlite":
        return [_matching(_match(scope, [term]), most) for term in terms]
    found: list[set[int]] = [set() for _ in terms]
    with connection.cursor() as cursor:
        kinds, words = [term.kind for term in terms], [term.text for term in terms]
        # A long message stands there in several pieces, and the limit counts pieces.
        cursor.execute(_POSTGRESQL, [kinds, words, _scope(scope), most + search_schema.PIECES])
        for number, message in cursor.fetchall():
            found[number - 1].add(message)
    return found


def holders_of_all(scope: Sequence[UUID], terms: Sequence[Term], most: int = MOST_HOLDERS) -> set[int]:
    """The messages that hold every one of these terms."""
    if connection.vendor == "sqlite":
        return _matching(_match(scope, terms), most)
    asked = " && ".join(["chat_search_query(%s, %s)"] * len(terms))
    with connection.cursor() as cursor:
        values = [value for term in terms for value in (term.kind, term.text)]
        cursor.execute(f"SELECT chat_search_find(%s::tsquery && {asked}, %s)", [_scope(scope), *values, most])
        return {row[0] for row in cursor.fetchall()}


def _scope(scope: Sequence[UUID]) -> str:
    return " | ".join(f"'{scope_word(str(key))}'" for key in scope)


# SQLite


def _match(scope: Sequence[UUID], terms: Sequence[Term]) -> str:
    """Terms consist of letters and digits alone, so that quotes are enough to keep them words."""
    where = " OR ".join(f'"{scope_word(str(key))}"' for key in scope)
    what = " AND ".join(f'"{term.text}"{"*" if term.kind == "beginning" else ""}' for term in terms)
    return f"({where}) AND {what}"


def _matching(match: str, most: int) -> set[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT rowid FROM chat_search WHERE chat_search MATCH %s LIMIT %s", [match, most])
        return {row[0] for row in cursor.fetchall()}


def _teach(sender: Any, connection: Any, **kwargs: Any) -> None:
    if connection.vendor == "sqlite":
        connection.connection.create_function("chat_search_words", 3, indexed, deterministic=True)


def _keep(sender: Any, using: str, **kwargs: Any) -> None:
    if sender.label == "chat":
        search_schema.keep_triggers(connections[using])
