"""How the index of what was said is built: an FTS5 table or a table of tsvectors, kept by triggers.

Triggers, because messages are written in many ways (one by one, in bulk, by plain SQL, copied inside the database) and
none of them may forget the index. A message is indexed once it has a place and is no longer being written.
"""

# ruff: noqa: S608 - the statements are put together from constants

from __future__ import annotations

from typing import Any, Final

from chat.search_words import UNSPACED

SETTLED: Final = "NEW.position IS NOT NULL AND NEW.status <> 'streaming' AND NOT NEW.is_summary"
COLUMNS: Final = "position, status, content, tool_calls"
CHANGED: Final = "OLD.content <> NEW.content OR OLD.tool_calls <> NEW.tool_calls"

_SQLITE_TABLE: Final = (
    # detail=none: which messages hold a word is all that is asked of it.
    "CREATE VIRTUAL TABLE chat_search USING fts5("
    "words, detail=none, columnsize=0, tokenize='porter unicode61 remove_diacritics 2')"
)
_SQLITE_TRIGGERS: Final = [
    f"CREATE TRIGGER IF NOT EXISTS chat_search_insert AFTER INSERT ON chat_message WHEN {SETTLED} BEGIN "
    "INSERT INTO chat_search(rowid, words) "
    "VALUES (NEW.id, chat_search_words(NEW.conversation_id, NEW.content, NEW.tool_calls)); END",
    f"CREATE TRIGGER IF NOT EXISTS chat_search_update AFTER UPDATE OF {COLUMNS} ON chat_message "
    f"WHEN {SETTLED} AND (OLD.position IS NULL OR OLD.status = 'streaming' OR {CHANGED}) BEGIN "
    "DELETE FROM chat_search WHERE rowid = OLD.id; "
    "INSERT INTO chat_search(rowid, words) "
    "VALUES (NEW.id, chat_search_words(NEW.conversation_id, NEW.content, NEW.tool_calls)); END",
    "CREATE TRIGGER IF NOT EXISTS chat_search_delete AFTER DELETE ON chat_message BEGIN "
    "DELETE FROM chat_search WHERE rowid = OLD.id; END",
]
_SQLITE_FILL: Final = (
    "INSERT INTO chat_search(rowid, words) SELECT id, chat_search_words(conversation_id, content, tool_calls) "
    f"FROM chat_message AS new WHERE {SETTLED}"
)
_NO_SQLITE: Final = [
    "DROP TRIGGER chat_search_insert",
    "DROP TRIGGER chat_search_update",
    "DROP TRIGGER chat_search_delete",
    "DROP TABLE chat_search",
]

PIECE: Final = 40_000  # characters in one tsvector, which must stay below 1 MB
PIECES: Final = 50

_POSTGRESQL: Final = [
    # English without stop words, so that both databases find the same.
    "CREATE TEXT SEARCH DICTIONARY chat_stem (TEMPLATE = snowball, Language = english)",
    "CREATE TEXT SEARCH CONFIGURATION chat_words (COPY = pg_catalog.simple)",
    "ALTER TEXT SEARCH CONFIGURATION chat_words ALTER MAPPING FOR asciiword, word, hword, hword_part, hword_asciipart, "
    "asciihword WITH chat_stem",
    f"""
    CREATE FUNCTION chat_search_pairs(body text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT coalesce(array_agg(DISTINCT substr(run, n, 2)), '{{}}')
        FROM (SELECT DISTINCT found[1] AS run FROM regexp_matches(body, '[{UNSPACED}]{{1,100}}', 'g') AS found) AS runs,
            generate_series(1, length(run)) AS n
    $$
    """,
    # PostgreSQL's parser reads paths, addresses and hyphens as one word each; here they are several.
    f"""
    CREATE FUNCTION chat_search_words(conversation uuid, body text) RETURNS tsvector
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
    DECLARE
        spaced text := body;
        lexemes text[] := ARRAY['c' || replace(conversation::text, '-', '') || 'q'];
    BEGIN
        IF octet_length(body) > length(body) THEN
            spaced := normalize(body, NFKC);
            IF spaced ~ '[{UNSPACED}]' THEN
                lexemes := lexemes || chat_search_pairs(spaced);
                spaced := regexp_replace(spaced, '[{UNSPACED}]+', ' ', 'g');
            END IF;
        END IF;
        RETURN strip(to_tsvector('chat_words', regexp_replace(spaced, '[!-/:-@[-`{{-~]+', ' ', 'g')))
            || array_to_tsvector(lexemes);
    END $$
    """,
    "CREATE TABLE chat_search (message_id bigint NOT NULL, piece smallint NOT NULL, words tsvector NOT NULL, "
    "PRIMARY KEY (message_id, piece))",
    # Without a pending list, so that no search and no unlucky message has to work it off.
    "CREATE INDEX chat_search_words_gin ON chat_search USING gin (words) WITH (fastupdate = off)",
    f"""
    CREATE FUNCTION chat_search_keep(id bigint, conversation uuid, content text, calls jsonb) RETURNS void
    LANGUAGE sql AS $$
        INSERT INTO chat_search (message_id, piece, words)
        SELECT id, piece, chat_search_words(conversation, substr(body, piece * {PIECE} + 1, {PIECE}))
        FROM (
            SELECT content || coalesce(
                (SELECT string_agg(' ' || regexp_replace(call->'function'->>'arguments', '\\\\[nt]', ' ', 'g'), '')
                 FROM jsonb_array_elements(calls) AS call), '') AS body
        ) AS text, generate_series(0, least(length(body) / {PIECE}, {PIECES} - 1)) AS piece
        WHERE body <> ''
    $$
    """,
    """
    CREATE FUNCTION chat_search_stored() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'UPDATE' THEN
            DELETE FROM chat_search WHERE message_id = OLD.id;
        END IF;
        PERFORM chat_search_keep(NEW.id, NEW.conversation_id, NEW.content, NEW.tool_calls);
        RETURN NULL;
    END $$
    """,
    """
    CREATE FUNCTION chat_search_removed() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'TRUNCATE' THEN
            TRUNCATE chat_search;
        ELSE
            DELETE FROM chat_search WHERE message_id = OLD.id;
        END IF;
        RETURN NULL;
    END $$
    """,
    f"CREATE TRIGGER chat_search_insert AFTER INSERT ON chat_message FOR EACH ROW WHEN ({SETTLED}) "
    "EXECUTE FUNCTION chat_search_stored()",
    f"CREATE TRIGGER chat_search_update AFTER UPDATE OF {COLUMNS} ON chat_message FOR EACH ROW "
    f"WHEN ({SETTLED} AND (OLD.position IS NULL OR OLD.status = 'streaming' OR {CHANGED})) "
    "EXECUTE FUNCTION chat_search_stored()",
    "CREATE TRIGGER chat_search_delete AFTER DELETE ON chat_message FOR EACH ROW "
    "EXECUTE FUNCTION chat_search_removed()",
    "CREATE TRIGGER chat_search_truncate AFTER TRUNCATE ON chat_message FOR EACH STATEMENT "
    "EXECUTE FUNCTION chat_search_removed()",
    """
    CREATE FUNCTION chat_search_query(kind text, word text) RETURNS tsquery LANGUAGE sql IMMUTABLE AS $$
        SELECT CASE kind
            WHEN 'word' THEN plainto_tsquery('chat_words', word)
            WHEN 'beginning' THEN (quote_literal(word) || ':*')::tsquery
            ELSE quote_literal(word)::tsquery
        END
    $$
    """,
    # The planner takes a common word for a reason to read the whole table; with a limit that is never right here.
    "CREATE FUNCTION chat_search_find(query tsquery, most int) RETURNS SETOF bigint LANGUAGE sql STABLE "
    "SET enable_seqscan = off AS $$ SELECT message_id FROM chat_search WHERE words @@ query LIMIT most $$",
    f"SELECT chat_search_keep(id, conversation_id, content, tool_calls) FROM chat_message AS new WHERE {SETTLED}",
]
_NO_POSTGRESQL: Final = [
    "DROP TRIGGER chat_search_insert ON chat_message",
    "DROP TRIGGER chat_search_update ON chat_message",
    "DROP TRIGGER chat_search_delete ON chat_message",
    "DROP TRIGGER chat_search_truncate ON chat_message",
    "DROP FUNCTION chat_search_stored, chat_search_removed, chat_search_keep, chat_search_find, "
    "chat_search_query, chat_search_words, chat_search_pairs",
    "DROP TABLE chat_search",
    "DROP TEXT SEARCH CONFIGURATION chat_words",
    "DROP TEXT SEARCH DICTIONARY chat_stem",
]


def make(connection: Any) -> None:
    """Build the index and fill it with what there is."""
    sqlite = [_SQLITE_TABLE, *_SQLITE_TRIGGERS, _SQLITE_FILL]
    _run(connection, sqlite if connection.vendor == "sqlite" else _POSTGRESQL)


def remove(connection: Any) -> None:
    """Take the index away; the messages stay."""
    _run(connection, _NO_SQLITE if connection.vendor == "sqlite" else _NO_POSTGRESQL)


def keep_triggers(connection: Any) -> None:
    """After migrations: SQLite changes a table by making it anew, and the triggers of the old one are gone."""
    if connection.vendor == "sqlite" and "chat_search" in connection.introspection.table_names():
        _run(connection, _SQLITE_TRIGGERS)


def _run(connection: Any, statements: list[str]) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
