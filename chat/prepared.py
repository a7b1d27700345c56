"""Statements of the ways that must be quick, written once: building them anew would take longer than answering them.

From a message to its first token, and a compaction. Rows still become ordinary model objects, with the columns and
conversions the models declare.

PostgreSQL keeps their plans for each connection (a third of their time). Behind a pooler that hands out another
connection for every transaction that cannot work: DATABASE_PREPARE=0 switches it off.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import chain, islice
from typing import Any

import orjson
from django.db import DEFAULT_DB_ALIAS, connection
from django.db.models import Field, JSONField, Model
from django.db.models.expressions import Col

Converter = Callable[[Any], Any]
Values = Mapping[str, Any] | Sequence[Any]


@contextmanager
def executed(sql: str, values: Values) -> Iterator[Any]:
    """A cursor on which a statement has been executed whose text is always the same; the plan is kept."""
    with _cursor() as cursor:
        cursor.execute(sql, values)
        yield cursor


def streamed(sql: str, values: Values, size: int) -> Generator[list[tuple[Any, ...]], None, None]:
    """The rows in batches of `size`, each as soon as it is there: the database goes on sending while it is worked on.

    No other statement may be executed until the last batch was taken. Only PostgreSQL gives more than one.
    """
    with _cursor() as cursor:
        if not _can_stream():
            cursor.execute(sql, values)
            yield cursor.fetchall()
            return

        opened: Any = connection.connection
        stream: Any = None

        def begin(sql: str, values: Values, many: bool, context: object) -> Iterator[tuple[Any, ...]]:
            nonlocal stream
            stream = cursor.cursor.stream(sql, values, size=size)
            return chain(list(islice(stream, size)), stream)

        execute: Any = begin
        for wrapper in reversed(connection.execute_wrappers):
            execute = partial(wrapper, execute)
        with connection.wrap_database_errors:
            try:
                rows = execute(sql, values, False, {"connection": connection, "cursor": cursor})
                while batch := list(islice(rows, size)):
                    yield batch
            finally:
                if stream is not None:
                    stream.close()
                    # Else a statement that is sent ahead next would come in batches too: libpq leaves them behind only
                    # when one is sent that is not.
                    opened.pgconn.exec_(b"")


@contextmanager
def sent_ahead() -> Iterator[None]:
    """What is executed in it is sent at once and waited for where its rows are asked for, at the end at the latest.

    For statements that take long, with work beside them that does not need their answer. Only PostgreSQL does so.
    """
    if not _has_own_cursors():
        yield
        return
    connection.ensure_connection()
    with connection.wrap_database_errors, connection.connection.pipeline():
        yield


def _cursor() -> Any:
    if not _has_own_cursors():
        return connection.cursor()
    # Django's own cursors put the values into the text, so that every statement is a new one to PostgreSQL.
    from django.db.backends.postgresql.base import ServerBindingCursor

    connection.ensure_connection()
    opened: Any = connection
    return opened._prepare_cursor(ServerBindingCursor(opened.connection))  # type: ignore[call-arg]


def _has_own_cursors() -> bool:
    return connection.vendor == "postgresql" and not connection.queries_logged  # only Django's can show what they sent


def _can_stream() -> bool:
    """Whether PostgreSQL's library, since its version 17, hands over rows in batches."""
    if not _has_own_cursors():
        return False
    from psycopg import capabilities

    return capabilities.has_stream_chunked()


@dataclass(frozen=True, slots=True)
class Part:
    """One table of the statement. `attach` is the path of relations from the first table's object to this one's; its
    last name may also be an attribute that is no relation.
    """

    model: type[Model]
    alias: str
    attach: tuple[str, ...] = ()


class Prepared:
    """`SELECT <columns of all parts> FROM <rest>`; `rest` names its values as %(name)s.

    `besides` are expressions whose values the first object gets as attributes, as the database gives them; a function
    makes one that differs between databases.
    """

    def __init__(self, rest: str, *parts: Part, **besides: str | Callable[[], str]) -> None:
        self.parts = parts
        self._rest = rest
        self._besides = besides
        self._converters: dict[str, list[tuple[int, list[Converter]]]] = {}

    def fetch(self, *, lock: str = "", **values: Any) -> list[Any]:
        """The objects of the first part, the others attached to them; `lock` is the table whose rows are locked."""
        sql = self._sql
        if lock and connection.features.has_select_for_update:  # SQLite has locked everything already
            sql = f"{sql} FOR UPDATE OF {lock}"
        with executed(sql, values) as cursor:
            rows = cursor.fetchall()
        if not rows:
            return []
        conversions = self._conversions()
        return [self._object(row, conversions) for row in rows]

    @cached_property
    def _sql(self) -> str:
        quote = connection.ops.quote_name
        columns = [
            f"{part.alias}.{quote(field.column or '')}"
            for part in self.parts
            for field in part.model._meta.concrete_fields
        ]
        columns += [besides if isinstance(besides, str) else besides() for besides in self._besides.values()]
        return f"SELECT {', '.join(columns)} FROM {self._rest}"  # noqa: S608

    @cached_property
    def _layout(self) -> list[tuple[Part, list[str], int, int]]:
        layout, start = [], 0
        for part in self.parts:
            names = [field.attname for field in part.model._meta.concrete_fields]
            layout.append((part, names, start, start + len(names)))
            start += len(names)
        return layout

    @property
    def _width(self) -> int:
        """How many columns the parts have."""
        return self._layout[-1][3]

    def _conversions(self) -> list[tuple[int, list[Converter]]]:
        """What each database gives differently: JSON as text, UUIDs and times of SQLite."""
        vendor = connection.vendor
        if vendor not in self._converters:
            fields = [field for part in self.parts for field in part.model._meta.concrete_fields]
            found = []
            for number, field in enumerate(fields):
                column: Col = field.get_col("")  # of a relation: the key it points to
                converters = connection.ops.get_db_converters(column) + column.get_db_converters(connection)
                if converters:
                    found.append((number, [_bound(one, column) for one in converters]))
            self._converters[vendor] = found
        return self._converters[vendor]

    def _object(self, row: Sequence[Any], conversions: list[tuple[int, list[Converter]]]) -> Any:
        values = list(row)
        for number, converters in conversions:
            for convert in converters:
                values[number] = convert(values[number])
        first: Any = None
        for part, names, start, end in self._layout:
            # Of an outer join that found nothing, even the key is null.
            made = part.model.from_db(DEFAULT_DB_ALIAS, names, values[start:end]) if values[start] is not None else None
            if not part.attach:
                first = made
                continue
            owner = first
            for name in part.attach[:-1]:
                owner = getattr(owner, name)
            if owner is None:
                continue
            model: type[Model] = type(owner)
            if part.attach[-1] in _relations(model):
                owner._state.fields_cache[part.attach[-1]] = made
            else:
                setattr(owner, part.attach[-1], made)
        for name, value in zip(self._besides, row[self._width :], strict=True):
            setattr(first, name, value)
        return first


@cache
def _relations(model: type[Model]) -> frozenset[str]:
    return frozenset(field.name for field in model._meta.concrete_fields if field.is_relation)


def _bound(converter: Any, column: Col) -> Converter:
    return lambda value: converter(value, column, connection)


def insert(row: Model, *, unless_known: bool = False) -> bool:
    """`row.save(force_insert=True)` without signals; the row gets its key.

    With `unless_known` a row that some unique constraint knows already is not stored, and False returned.
    """
    quote = connection.ops.quote_name
    fields = [field for field in row._meta.concrete_fields if not (field.primary_key and row.pk is None)]
    values = [_stored(field, field.pre_save(row, True)) for field in fields]
    columns = ", ".join(quote(field.column or "") for field in fields)
    key_column = quote(row._meta.pk.column or "")
    sql = (
        f"INSERT INTO {quote(row._meta.db_table)} ({columns}) "  # noqa: S608
        f"VALUES ({', '.join(['%s'] * len(fields))}) {'ON CONFLICT DO NOTHING ' if unless_known else ''}"
        f"RETURNING {key_column}"
    )
    with executed(sql, values) as cursor:
        made = cursor.fetchone()
    if made is None and unless_known:
        return False
    row.pk = made[0]
    row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS
    return True


def _stored(field: Field[Any, Any], value: Any) -> Any:
    """A value as the database takes it; JSON from a writer that is ten times as quick as Django's."""
    if isinstance(field, JSONField) and value is not None:
        try:
            return orjson.dumps(value).decode()
        except TypeError:
            pass  # what it refuses, such as integers of more than 64 bits, the field may still know to write
    return field.get_db_prep_save(value, connection)


def clock(seconds: int = 0) -> str:
    """The moment in so many seconds by the database's clock, as a piece of SQL."""
    if connection.vendor == "postgresql":
        return f"STATEMENT_TIMESTAMP() + INTERVAL '{seconds} seconds'"
    return f"STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW', '{seconds:+d} seconds')"


def first_of(column: str) -> str:
    """The first element of a column that holds a JSON list of texts, as a piece of SQL; NULL of an empty one."""
    return f"{column}->>0" if connection.vendor == "postgresql" else f"JSON_EXTRACT({column}, '$[0]')"


def without(column: str, name: str) -> str:
    """A column that holds a JSON object, less one of its names, as a piece of SQL."""
    return f"{column} - '{name}'" if connection.vendor == "postgresql" else f"JSON_REMOVE({column}, '$.{name}')"


def write(row: Model, names: Sequence[str], **guard: Any) -> bool:
    """`row.save(update_fields=names)` without signals, built in a tenth of the time.

    `guard`: what columns must hold for the write to count; answers whether they did.
    """
    quote, pk = connection.ops.quote_name, row._meta.pk
    fields = [row._meta.get_field(name) for name in names]
    columns = ", ".join(f"{quote(field.column)} = %s" for field in fields)  # type: ignore[union-attr,arg-type]
    values = [_stored(field, getattr(row, field.attname)) for field in fields]  # type: ignore[arg-type,union-attr]
    held = "".join(f" AND {quote(name)} = %s" for name in guard)
    where = f"WHERE {quote(pk.column or '')} = %s{held} RETURNING 1"
    sql = f"UPDATE {quote(row._meta.db_table)} SET {columns} {where}"  # noqa: S608
    with executed(sql, [*values, key(type(row), row.pk), *guard.values()]) as cursor:
        return cursor.fetchone() is not None


def key(model: type[Model], value: Any) -> Any:
    """A primary key as this database stores it."""
    pk = model._meta.pk
    return pk.get_db_prep_value(pk.to_python(value), connection) if pk is not None else value
