"""A new conversation from the originals of another one, up to a message of choice, as its branch stood."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from django.db import connection, transaction
from django.db.models.expressions import RawSQL

from chat import context, lineage
from chat.models import Attachment, Conversation, Message, Participant, Role
from chat.prepared import key, without

if TYPE_CHECKING:
    from django.contrib.auth.models import User

Kept = tuple[str, list[Any]]  # the ids of what is copied, as a piece of SQL with its values

# What a copy does not take over: it has not been compacted, cleared, answered or sent here.
_LEFT_BEHIND = frozenset(
    {
        "turn_id",
        "compacted_at",
        "compacted_into_id",
        "cleared_at",
        "retired_at",
        "retired_by_id",
        "follows",
        "client_id",
    }
)


def copy_originals(user: User, source: Conversation, up_to: int, *, included: bool = True) -> Conversation:
    """A conversation of this person with the branch of what stands at a position, up to there; summaries stay behind.

    Without `included`, what stands there stays behind too.
    """
    kept = lineage.branch(source, up_to, included=included)
    with transaction.atomic():
        made = Conversation.objects.create(owner=user, agent=source.agent, title=source.title)
        Participant.objects.create(conversation=made, user=user, role=Role.OWNER)
        made.last_position = _copy_rows(made, kept)
        copied = copy_files(source, made)
        _copy_written(source, made, kept, copied)
        made.live_tokens = context.recount_live_tokens(made)
        made.save(update_fields=["last_position", "live_tokens"])
    made.accessed_as = Role.OWNER
    return made


def _copy_rows(made: Conversation, kept: Kept) -> int:
    """Copied where they are, so that a hundred thousand messages never travel; returns how many."""

    def quote(name: str | None) -> str:
        return connection.ops.quote_name(name or "")

    fields = [field for field in Message._meta.local_concrete_fields if not field.primary_key]
    given = {
        "conversation_id": "made.id",
        "position": "ROW_NUMBER() OVER (ORDER BY old.position)",
        "metadata": without("old.metadata", "earlier_answers"),  # they stay behind
    }
    taken = [
        given.get(field.attname, "NULL" if field.attname in _LEFT_BEHIND else f"old.{quote(field.column)}")
        for field in fields
    ]
    columns = ", ".join(quote(field.column) for field in fields)
    table, conversations = quote(Message._meta.db_table), quote(Conversation._meta.db_table)
    ids, values = kept
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({columns}) SELECT {', '.join(taken)} "  # noqa: S608
            f"FROM {table} AS old, {conversations} AS made WHERE made.id = %s AND old.id IN ({ids})",
            [key(Conversation, made.pk), *values],
        )
        return int(cursor.rowcount)


def copy_files(source: Conversation, made: Conversation) -> set[str]:
    """Files get rows of their own here, under the same stored bytes. Returns the ids of those that did."""
    rows = [row for row in Message.objects.filter(conversation=made).exclude(parts=[]) if row.parts]
    wanted = {part["attachment"] for row in rows for part in row.parts if part.get("attachment")}
    if not wanted:
        return set()
    copies = {}
    for file in Attachment.objects.filter(conversation=source, pk__in=wanted).order_by("created_at", "id"):
        copies[str(file.pk)] = file
        file.pk, file.conversation, file.message = uuid.uuid4(), made, None
    for row in rows:
        for part in row.parts:
            copy = copies.get(part.get("attachment", ""))
            if copy is not None:
                part["attachment"] = str(copy.pk)
                copy.message = row
    for file in copies.values():
        file._state.adding = True
    Attachment.objects.bulk_create(copies.values())
    Message.objects.bulk_update(rows, ["parts"], batch_size=200)
    return set(copies)


def _copy_written(source: Conversation, made: Conversation, kept: Kept, copied: set[str]) -> None:
    """Files that tools wrote stand in no message's parts; they follow the message that wrote them."""
    rows = Attachment.objects.filter(conversation=source, owner=None, message__role="assistant")
    rows = rows.filter(message__in=RawSQL(*kept))  # noqa: S611
    written = [row for row in rows.order_by("created_at", "id") if str(row.pk) not in copied]
    if not written:
        return
    originals = Message.objects.filter(pk__in=RawSQL(*kept)).order_by("position")  # noqa: S611
    places = {message: place for place, message in enumerate(originals.values_list("id", flat=True), start=1)}
    wanted = {places[file.message_id] for file in written if file.message_id in places}
    copies = Message.objects.filter(conversation=made, position__in=wanted, is_summary=False)
    messages = {row.position: row for row in copies.only("id", "position")}
    new_keys: dict[str, str] = {}
    for file in written:
        file.message = messages.get(places.get(file.message_id or 0))
        key = new_keys[str(file.pk)] = str(uuid.uuid4())
        file.pk, file.conversation, file._state.adding = uuid.UUID(key), made, True
    Attachment.objects.bulk_create(file for file in written if file.message is not None)
    _rename_kept(made, new_keys)


def _rename_kept(made: Conversation, new_keys: dict[str, str]) -> None:
    """Results of tools that were too long to show name the file they are kept in."""
    rows = [
        row
        for row in Message.objects.filter(conversation=made, role="tool").exclude(metadata={}).only("metadata")
        if row.metadata.get("kept", {}).get("attachment") in new_keys
    ]
    for row in rows:
        kept = row.metadata["kept"]
        row.metadata = {**row.metadata, "kept": {**kept, "attachment": new_keys[kept["attachment"]]}}
    Message.objects.bulk_update(rows, ["metadata"], batch_size=200)
