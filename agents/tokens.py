"""Counting tokens: always o200k_base, raw; other tokenizers are reached by a factor when the count is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from agents import vocabulary
from agents.messages import ContentPart, Message

if TYPE_CHECKING:
    import tiktoken

DEFAULT_ENCODING = "o200k_base"
IMAGE_TOKENS = 1600  # flat, whatever the size: never the length of base64 (tokens)
MESSAGE_OVERHEAD = 4  # role and separators (tokens)
NAME_OVERHEAD = 1
CALL_OVERHEAD = 20  # what surrounds a tool call; suppliers differ from about 10 to 45 (tokens)
TOOL_OVERHEAD = 8  # the wrapping of one tool's schema (tokens)

# tiktoken's regular expression overflows its stack (a panic that no `except Exception` sees) on about a million spaces,
# and its merging slows down on very long words. Neither is met below this length (characters).
LONGEST_RUN = 20_000
_LONG_RUN = re.compile(rf"\s{{{LONGEST_RUN},}}|\S{{{LONGEST_RUN},}}")
# Between a letter and one of these signs both vocabularies always begin a new piece, so a cut there changes no count.
_SEAM = re.compile(r"[^\W\d_](?=[,.;:!?()\[\]{}\"“”、。，；：？！…—])")


def count_text(text: str) -> int:
    """Tokens of a text in o200k_base; special tokens such as <|endoftext|> count as the plain text they are."""
    if not text:
        return 0
    encode = _encoding(DEFAULT_ENCODING).encode_ordinary
    if len(text) < LONGEST_RUN or not _has_long_run(text):
        return len(encode(text))
    return sum(len(encode(piece)) for piece in _without_long_runs(text))


def count_message(message: Message) -> int:
    """Tokens a message adds to a request; thinking is not sent again and not counted."""
    tokens = MESSAGE_OVERHEAD + count_text(message.content)
    if message.name:
        tokens += NAME_OVERHEAD + count_text(message.name)
    for part in message.parts:
        tokens += count_part(part)
    for call in message.tool_calls:
        tokens += CALL_OVERHEAD + count_text(call.name) + count_text(call.arguments)
    return tokens


def count_messages(messages: Iterable[Message]) -> int:
    """Tokens of several messages in a row."""
    return sum(map(count_message, messages))


def count_part(part: ContentPart) -> int:
    """Tokens of one part: an image costs a flat price, a file what was counted at its upload or its text."""
    if part.kind == "image":
        return part.tokens or IMAGE_TOKENS
    return part.tokens or count_text(part.to_openai()["text"])


def count_tools(schemas: Iterable[dict[str, Any]]) -> int:
    """Tokens that the schemas of the offered tools take in a request."""
    return sum(_count_schema(orjson.dumps(schema.get("function", schema))) for schema in schemas)


def encoding_for(model: str) -> tiktoken.Encoding:
    """The vocabulary of a model; unknown ones are counted with o200k_base."""
    return _encoding(_encoding_name(model.rpartition("/")[2]))


def encoding(name: str) -> tiktoken.Encoding:
    """A vocabulary by its own name; raises `unknown_encoding` for one that is not shipped."""
    return _encoding(name)


def ensure_vocabularies() -> None:
    """Unpacks and checks every vocabulary now, so that a full disk shows at start and not in mid-conversation."""
    for name in vocabulary.VOCABULARIES:
        vocabulary.ensure(name)


@lru_cache(maxsize=8)
def _encoding(name: str) -> tiktoken.Encoding:
    vocabulary.ensure(name)
    import tiktoken  # here, because it takes a fifth of a second and many processes never count

    return tiktoken.get_encoding(name)


def _encoding_name(model: str) -> str:
    import tiktoken

    try:
        name = tiktoken.encoding_name_for_model(model)
    except KeyError:
        return DEFAULT_ENCODING
    return name if name in vocabulary.VOCABULARIES else DEFAULT_ENCODING


@lru_cache(maxsize=512)
def _count_schema(schema: bytes) -> int:
    return TOOL_OVERHEAD + count_text(schema.decode())


def _has_long_run(text: str) -> bool:
    """Whether a search for long runs can find any: told by the lengths of the words, which is several times faster."""
    words = [len(word) for word in text.split()]
    return max(words, default=0) >= LONGEST_RUN or len(text) - sum(words) >= LONGEST_RUN


def _without_long_runs(text: str) -> Iterator[str]:
    """The text in pieces none of which holds a run beyond LONGEST_RUN, cut where no token is split if possible."""
    start = 0
    for run in _LONG_RUN.finditer(text):
        position = run.start()
        while run.end() - position > LONGEST_RUN:
            position = _cut(text, position, position + LONGEST_RUN)
            yield text[start:position]
            start = position
    yield text[start:]


def _cut(text: str, start: int, limit: int) -> int:
    """The last seam within the second half of text[start:limit], or the limit itself."""
    cut = limit
    for seam in _SEAM.finditer(text, start + LONGEST_RUN // 2, limit):
        cut = seam.end()
    return cut
