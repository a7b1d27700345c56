"""search_history and read_history: nothing that was compacted is out of the model's reach."""

from __future__ import annotations

from collections.abc import Iterator

from agents.messages import JSON, ContentPart
from agents.tools import Tool, ToolContext, ToolError, ToolResult
from chat import search
from chat.models import Conversation, Message, Turn
from chat.tools.running import in_database

MOST_HITS = 20
MOST_MESSAGES = 200  # read at once
LONGEST_READ = 30_000  # characters of one read
LONGEST_ARGUMENTS = 2_000  # characters of a call that are told
MOST_IMAGES = 3


def search_history(arguments: JSON, context: ToolContext) -> str:
    """What was said about something, with where it stands and who said it."""
    query: str = arguments["query"]
    if len(query) > search.LONGEST_QUERY:
        raise ToolError(f"The query is too long. Use a few words, at most {search.LONGEST_QUERY} characters.")
    hits = search.find(
        [context.conversation_id],
        query,
        limit=min(arguments.get("limit", 10), MOST_HITS),
        before=_asked_at(context),
    )
    if not hits:
        return "Nothing was found. Try other words: names, numbers, or words as they were likely written then."
    first = hits[0].position
    lines = [f"{len(hits)} messages, best first. Read around one with read_history, for example first={first}."]
    for hit in hits:
        who = _who(hit.role, hit.author, hit.tool)
        lines.append(f"\n#{hit.position} {who}{', compacted' if hit.is_compacted else ''}:\n{hit.excerpt}")
    return "\n".join(lines)


def read_history(arguments: JSON, context: ToolContext) -> ToolResult:
    """The originals of a range of positions, word for word."""
    first: int = arguments["first"]
    last: int = max(first, arguments.get("last", first))
    offset: int = arguments.get("offset", 0)
    rows = Message.objects.filter(
        conversation=context.conversation_id,
        position__range=(first, last),
        is_summary=False,
        retired_at__isnull=True,
    ).exclude(role="system")
    found = list(rows.exclude(status="streaming").order_by("position")[: MOST_MESSAGES + 1])
    if not found:
        newest = Message.objects.filter(conversation=context.conversation_id, position__isnull=False)
        position = newest.order_by("-position").values_list("position", flat=True).first() or 0
        raise ToolError(f"There is no message from #{first} to #{last}. The newest is #{position}.")
    return ToolResult(_told(found, last, offset), parts=_images(found, context))


def _told(rows: list[Message], last: int, offset: int) -> str:
    """The messages as text of bounded length, and how to read on."""
    blocks: list[str] = []
    left = LONGEST_READ
    for number, row in enumerate(rows):
        text = "\n".join(_lines(row))[offset if number == 0 else 0 :]
        done = offset if number == 0 else 0
        if number == MOST_MESSAGES or left < 200:
            blocks.append(f"[Read on with first={row.position}, last={last}]")
            break
        blocks.append(f"#{row.position} {_who(row.role, row.author_name, row.tool_name)}:\n{text[:left]}")
        if len(text) > left:
            blocks.append(f"[Read on with first={row.position}, last={last}, offset={done + left}]")
            break
        left -= len(text)
    return "\n\n".join(blocks)


def _lines(row: Message) -> Iterator[str]:
    if row.content:
        yield row.content
    for part in row.parts:
        size = f", {part['width']}x{part['height']}" if part.get("width") else ""
        if part.get("kind") == "text":
            yield part.get("text", "")
        else:
            yield f"[{part.get('kind')}: {part.get('name', '')}{size}]"
    for call in row.tool_calls:
        function = call.get("function") or {}
        yield f"[calls {function.get('name')}({(function.get('arguments') or '')[:LONGEST_ARGUMENTS]})]"


def _images(rows: list[Message], context: ToolContext) -> tuple[ContentPart, ...]:
    """Of few messages also their images, for a model that sees."""
    parts = [part for row in rows for part in row.parts if part.get("kind") == "image" and part.get("url")]
    if not parts or len(rows) > MOST_IMAGES:
        return ()
    agent = Conversation.objects.select_related("agent__channel").get(pk=context.conversation_id).agent
    return tuple(ContentPart.from_json(part) for part in parts[:MOST_IMAGES]) if agent.can_see else ()


def _who(role: str, author: str, tool: str) -> str:
    if role == "tool":
        return f"result of {tool or 'a tool'}"
    return f"{author or 'a person'} (user)" if role == "user" else "you (assistant)"


def _asked_at(context: ToolContext) -> int | None:
    """The position of the question being answered: it holds every word that is looked for, and tells nothing new."""
    if context.turn_id is None:
        return None
    return Turn.objects.filter(pk=context.turn_id).values_list("user_message__position", flat=True).first()


TOOLS = (
    Tool(
        "search_history",
        "Search the whole conversation, also the messages a summary stands for. Finds words with their inflections, "
        "best match first, with the message's number.",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1, "description": "Words to look for: names, numbers, terms"},
                "limit": {"type": "integer", "minimum": 1, "maximum": MOST_HITS},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        in_database(search_history),
        by_default=True,
    ),
    Tool(
        "read_history",
        "Read original messages of this conversation word for word by their numbers (#), also compacted ones.",
        {
            "type": "object",
            "properties": {
                "first": {"type": "integer", "minimum": 1, "description": "Number of the first message"},
                "last": {
                    "type": "integer",
                    "minimum": 1,
                    "description": "Number of the last; only the first if left out",
                },
                "offset": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Character of the first message to begin at",
                },
            },
            "required": ["first"],
            "additionalProperties": False,
        },
        in_database(read_history),
        by_default=True,
    ),
)
