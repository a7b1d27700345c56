"""The one in-memory form of a message, shared by every package (OpenAI chat semantics).

Rows become `Message` in `chat/history.py` and nowhere else; what a provider is sent is `Message.to_openai()`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from agents.values import value

Role = Literal["system", "user", "assistant", "tool"]
PartKind = Literal["text", "image", "file"]

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ContentPart:
    """One piece of a message that is not plain text alone.

    `tokens` is the flat cost of an image or the counted cost of a file (tokens); a text part costs what its text does.
    `url` is what the provider is sent for an image: a data URL or an address it can fetch.
    """

    kind: PartKind
    text: str = ""
    url: str = ""
    name: str = ""
    mime: str = ""
    width: int = 0
    height: int = 0
    tokens: int = 0
    attachment: str = ""

    def to_openai(self) -> JSON:
        """The part as the chat-completions API takes it; a file is sent as its extracted text."""
        if self.kind == "image":
            return {"type": "image_url", "image_url": {"url": self.url}}
        if self.kind == "file":
            return {"type": "text", "text": f'<file name="{self.name}">\n{self.text}\n</file>'}
        return {"type": "text", "text": self.text}

    def to_json(self) -> JSON:
        """A stable, minimal form for storage: fields at their default are left out."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) not in ("", 0)}

    @classmethod
    def from_json(cls, stored: JSON) -> ContentPart:
        return cls(**stored)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call a model asked for. `arguments` is the JSON text exactly as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"

    def to_openai(self) -> JSON:
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}

    @classmethod
    def from_openai(cls, call: JSON) -> ToolCall:
        function = call.get("function") or {}
        return cls(
            id=call.get("id") or "", name=function.get("name") or "", arguments=function.get("arguments") or "{}"
        )


@value
class Message:
    """One message of a request. `thinking` is kept for people and never sent unless the supplier needs it back."""

    role: Role
    content: str = ""
    parts: tuple[ContentPart, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    thinking: str = ""

    def to_openai(self) -> JSON:
        """The message in OpenAI chat form: a pure function of its fields, with a fixed order of keys."""
        message: JSON = {"role": self.role}
        if self.parts:
            text = [{"type": "text", "text": self.content}] if self.content else []
            message["content"] = text + [part.to_openai() for part in self.parts]
        elif self.tool_calls and not self.content:
            message["content"] = None
        else:
            message["content"] = self.content
        if self.tool_calls:
            message["tool_calls"] = [call.to_openai() for call in self.tool_calls]
        if self.role == "tool":
            message["tool_call_id"] = self.tool_call_id
        if self.name and self.role == "user":
            message["name"] = self.name
        return message

    def to_json(self) -> JSON:
        """A stable, minimal form for storage (`Compaction.prefix`); `from_json` gives back an equal message."""
        stored: JSON = {"role": self.role, "content": self.content}
        if self.parts:
            stored["parts"] = [part.to_json() for part in self.parts]
        if self.tool_calls:
            stored["tool_calls"] = [call.to_openai() for call in self.tool_calls]
        for name in ("tool_call_id", "name", "thinking"):
            if value := getattr(self, name):
                stored[name] = value
        return stored

    @classmethod
    def from_json(cls, stored: JSON) -> Message:
        return cls(
            role=stored["role"],
            content=stored.get("content") or "",
            parts=tuple(ContentPart.from_json(part) for part in stored.get("parts", ())),
            tool_calls=tuple(ToolCall.from_openai(call) for call in stored.get("tool_calls", ())),
            tool_call_id=stored.get("tool_call_id", ""),
            name=stored.get("name", ""),
            thinking=stored.get("thinking", ""),
        )
