"""What is asked of a model, and how each supplier wants it said: the few parameters in which they differ."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import orjson

from agents.errors import AgentsError
from agents.messages import JSON, ContentPart, Message

if TYPE_CHECKING:
    from agents.models import Channel


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model at one provider. The key never shows in a representation or a log."""

    base_url: str
    api_key: str = field(repr=False)
    model: str
    supplier: str = "other"
    channel_id: int | None = None

    @classmethod
    def of(cls, channel: Channel, model: str = "") -> Endpoint:
        """The endpoint of a channel; an empty model is the channel's first."""
        model = model or next(iter(channel.models), "")
        if not model:
            raise AgentsError("no_model")
        return cls(channel.base_url, channel.api_key, model, str(channel.supplier), channel.pk)


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """One call to a model.

    `timeout_seconds` is the longest silence allowed, `deadline_seconds` the longest call (seconds). `thinking` switches
    reasoning on or off where the supplier has a switch; None leaves it to the model.
    """

    endpoint: Endpoint
    messages: tuple[Message, ...]
    tools: tuple[JSON, ...] = ()
    temperature: float | None = None
    max_output_tokens: int | None = None
    thinking: bool | None = None
    timeout_seconds: float = 300.0
    deadline_seconds: float | None = None
    tool_choice: str | JSON | None = None
    attempts: int = 3


# Parameters that a call can do without: one that a provider refuses is left out, and left out from then on.
OPTIONAL = frozenset(
    {
        "stream_options",
        "temperature",
        "max_tokens",
        "max_completion_tokens",
        "tool_choice",
        "reasoning_effort",
        "reasoning",
        "thinking",
        "enable_thinking",
        "chat_template_kwargs",
    }
)
IMAGES_OF_TOOLS = "[The images of the tool results above.]"
_LIMIT_NAMES = ("max_tokens", "max_completion_tokens")
_NEWER_LIMIT = {"openai", "azure"}
_MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")


def body(request: CompletionRequest, without: Collection[str] = ()) -> JSON:
    """The JSON body of the call, without the parameters this endpoint is known to refuse."""
    supplier = request.endpoint.supplier
    made: JSON = {
        "model": request.endpoint.model,
        "messages": messages(request.messages, supplier, request.thinking),
        "stream": True,
    }
    if request.tools:
        made["tools"] = list(request.tools)
        if request.tool_choice is not None:
            made["tool_choice"] = request.tool_choice
    if request.temperature is not None:
        made["temperature"] = request.temperature
    if request.max_output_tokens and (name := _limit_name(supplier, without)):
        made[name] = request.max_output_tokens
    if request.thinking is not None:
        made |= _thinking_switch(supplier, request.endpoint.model, request.thinking)
    made["stream_options"] = {"include_usage": True}
    return {name: value for name, value in made.items() if name not in without}


def encode(made: JSON) -> bytes:
    """The body as it is sent. What orjson refuses, such as half a surrogate pair in a schema, is escaped instead."""
    try:
        return orjson.dumps(made)
    except TypeError:
        return json.dumps(made).encode()


def messages(sent: Sequence[Message], supplier: str, thinking: bool | None = None) -> list[JSON]:
    """The messages in OpenAI form, with what this supplier needs besides."""
    sent = with_images_apart(sent)
    made = [message.to_openai() for message in sent]
    if supplier == "mistral":
        for message in made:
            _shorten_call_ids(message)
    if supplier == "deepseek" and thinking is not False:
        _give_reasoning_back(sent, made)
    return made


def with_images_apart(sent: Sequence[Message]) -> tuple[Message, ...]:
    """Results of tools may hold text alone; their images follow in a user's message after the last of them."""
    if not any(message.role == "tool" and message.parts for message in sent):
        return tuple(sent)
    made: list[Message] = []
    images: list[ContentPart] = []
    for message in sent:
        if message.role != "tool" and images:
            made.append(Message("user", IMAGES_OF_TOOLS, parts=tuple(images)))
            images = []
        if message.role == "tool" and message.parts:
            images += [part for part in message.parts if part.kind == "image"]
            others = [part.text for part in message.parts if part.kind != "image"]
            message = replace(message, content="\n".join([message.content, *others]), parts=())
        made.append(message)
    if images:
        made.append(Message("user", IMAGES_OF_TOOLS, parts=tuple(images)))
    return tuple(made)


def _limit_name(supplier: str, without: Collection[str]) -> str:
    """How the longest answer is called here; the other name is tried where the first was refused."""
    names = _LIMIT_NAMES[::-1] if supplier in _NEWER_LIMIT else _LIMIT_NAMES
    return next((name for name in names if name not in without), "")


def _thinking_switch(supplier: str, model: str, on: bool) -> JSON:
    """The parameters that switch reasoning on or off; nothing where the supplier has no switch."""
    match supplier:
        case "deepseek" | "anthropic" if not on:
            return {"thinking": {"type": "disabled"}}
        case "deepseek":
            return {"thinking": {"type": "enabled"}}
        case "alibaba":
            return {"enable_thinking": on}
        case "openrouter":
            return {"reasoning": {"enabled": on}}
        case "vllm":
            return {"chat_template_kwargs": {"enable_thinking": on}}
        case "google" | "groq" | "ollama" if not on:
            return {"reasoning_effort": "none"}
        case "openai" | "azure" if not on:
            return _least_effort(model.rpartition("/")[2])
    return {}


def _least_effort(model: str) -> JSON:
    """The least reasoning that OpenAI's reasoning models take; others refuse the parameter."""
    if re.match(r"o\d", model):
        return {"reasoning_effort": "low"}
    if version := re.match(r"gpt-5(?:\.(\d))?(?!.*chat)", model):
        return {"reasoning_effort": "none" if version[1] else "minimal"}
    return {}


def _shorten_call_ids(message: JSON) -> None:
    """Mistral takes ids of nine letters and digits only; a conversation may have begun with another supplier."""
    for call in message.get("tool_calls", ()):
        call["id"] = _nine_characters(call["id"])
    if "tool_call_id" in message:
        message["tool_call_id"] = _nine_characters(message["tool_call_id"])


def _nine_characters(call_id: str) -> str:
    if _MISTRAL_ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


def _give_reasoning_back(sent: Sequence[Message], made: list[dict[str, Any]]) -> None:
    """DeepSeek wants the reasoning of the tool rounds of the current turn back, and none from earlier turns."""
    for message, sent_message in zip(reversed(sent), reversed(made), strict=True):
        if message.role == "user":
            return
        if message.role == "assistant" and message.tool_calls and message.thinking:
            sent_message["reasoning_content"] = message.thinking
