"""A conversation is read a page at a time: compacted (what is live) or full (everything there ever was)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast, Length

from chat.errors import Invalid, NotFound
from chat.models import LIVE, Conversation, Message
from compaction.models import Compaction

View = Literal["compacted", "full"]

LARGEST_PAGE: Final = 200  # messages
PAGE: Final = 50  # messages


@dataclass(frozen=True, slots=True)
class Page:
    """Messages in reading order. `next` is the cursor of the following page in the direction that was read."""

    rows: list[Message]
    next: str | None


def read_page(
    conversation: Conversation, view: View, *, before: str | None = None, after: str | None = None, limit: int = PAGE
) -> Page:
    """The newest messages, or the newest before a cursor, or the first after one. One query, whatever the length."""
    limit = max(1, min(limit, LARGEST_PAGE))
    rows = _visible(conversation, view)
    if after is not None:
        found = list(_later(rows, after).order_by("position", "is_summary", "id")[: limit + 1])
        shown = found[:limit]
        return Page(shown, cursor_of(shown[-1]) if len(found) > limit else None)
    if before is not None:
        rows = _earlier(rows, before)
    found = list(rows.order_by("-position", "-is_summary", "-id")[: limit + 1])
    shown = found[:limit][::-1]
    return Page(shown, cursor_of(shown[0]) if len(found) > limit else None)


def how_many_fit(conversation: Conversation, view: View, *, limit: int, characters: int) -> int:
    """How many of the newest messages, `limit` at most, have so many characters together; at least one."""
    sizes = Length("content") + Length("thinking") + Length(Cast("tool_calls", TextField()))
    newest = _visible(conversation, view).order_by("-position", "-is_summary", "-id").values_list(sizes, flat=True)
    for count, size in enumerate(newest[:limit]):
        characters -= size
        if characters < 0:
            return max(1, count)
    return limit


def cursor_of(row: Message) -> str:
    """The place of a message in the order (position, is_summary, id)."""
    return f"{row.position}.{int(row.is_summary)}.{row.pk}"


def _visible(conversation: Conversation, view: View) -> QuerySet[Message]:
    rows = Message.objects.filter(conversation=conversation)
    return rows.filter(LIVE) if view == "compacted" else rows.filter(position__isnull=False)


def _place(cursor: str) -> tuple[int, bool, int]:
    """A cursor as its three values; a bare position is a cursor too, before every message that stands there."""
    try:
        position, summary, key = (
            [*map(int, cursor.split(".")), 0, 0][:3] if "." not in cursor else map(int, cursor.split("."))
        )
    except ValueError:
        raise Invalid(code="bad_cursor") from None
    return position, bool(summary), key


def _earlier(rows: QuerySet[Message], cursor: str) -> QuerySet[Message]:
    position, summary, key = _place(cursor)
    not_before = Q(position=position) & (Q(is_summary__gt=summary) | Q(is_summary=summary, id__gte=key))
    return rows.filter(position__lte=position).exclude(not_before)


def _later(rows: QuerySet[Message], cursor: str) -> QuerySet[Message]:
    position, summary, key = _place(cursor)
    not_after = Q(position=position) & (Q(is_summary__lt=summary) | Q(is_summary=summary, id__lte=key))
    return rows.filter(position__gte=position).exclude(not_after)


def read_summary(conversation: Conversation, summary_id: int) -> Message:
    """A summary of this conversation, an undone or superseded one too."""
    row = Message.objects.filter(conversation=conversation, pk=summary_id, is_summary=True).first()
    if row is None:
        raise NotFound
    return row


def read_originals(conversation: Conversation, summary: Message, *, after: str | None, limit: int = PAGE) -> Page:
    """What a summary stands for, down to the messages themselves: an earlier summary it covers is looked through."""
    limit = max(1, min(limit, LARGEST_PAGE))
    rows = Message.objects.filter(conversation=conversation, is_summary=False, position__isnull=False)
    if summary.retired_at is None:
        covered_by = _covered_summaries(conversation, summary.pk)
        stood_for = rows.filter(position__lte=summary.position, compacted_into__in=covered_by)
    else:  # undone
        stood_for = rows.filter(position__range=_covered_range(summary))
    stood_for = _later(stood_for, after) if after else stood_for
    found = list(stood_for.order_by("position", "is_summary", "id")[: limit + 1])
    shown = found[:limit]
    return Page(shown, cursor_of(shown[-1]) if len(found) > limit else None)


def _covered_summaries(conversation: Conversation, summary_id: int) -> set[int]:
    """A summary and all earlier ones it stands for."""
    pairs = Message.objects.filter(conversation=conversation, is_summary=True).values_list("id", "compacted_into_id")
    covered, parents = {summary_id}, dict(pairs)
    for key in sorted(parents, reverse=True):
        if parents[key] in covered:
            covered.add(key)
    return covered


def _covered_range(summary: Message) -> tuple[int, int]:
    """The positions an undone summary stood for; empty where its compaction is not known any more."""
    ranges = Compaction.objects.filter(summary_message=summary).values_list("covered_from", "covered_to")
    covered_from, covered_to = ranges.first() or (None, None)
    return (covered_from, covered_to) if covered_from is not None and covered_to is not None else (0, -1)
