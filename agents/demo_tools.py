"""When the demo model calls a tool: only when a person asks for it plainly, with arguments taken from their words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from agents.messages import JSON, ToolCall

_FILE = r"[\"'`“「]?([\w@./-]+\.[A-Za-z0-9]{1,8})[\"'`”」]?"
_REST = r"[\"'`“「]?(.+?)[\"'`”」]?\s*[.?!。？！]*\s*$"


@dataclass(frozen=True, slots=True)
class _Intent:
    """Words that ask for one of these tools; the groups of the pattern become its arguments."""

    tools: tuple[str, ...]
    pattern: re.Pattern[str]


def _intent(tools: str, *patterns: str) -> _Intent:
    return _Intent(tuple(tools.split()), re.compile("|".join(patterns), re.IGNORECASE | re.DOTALL))


_HISTORY = r"(?:the |our |my )?(?:chat |message |earlier )?(?:history|conversation|messages|originals)"
_INTENTS = (
    _intent(
        "read_history",
        rf"\bread\b.{{0,20}}?{_HISTORY}\D{{0,20}}(\d+)\D{{1,8}}(\d+)",
        r"(?:阅读|读取|查看)历史\D*(\d+)\D+(\d+)",
    ),
    _intent(
        "search_history",
        rf"\bsearch\b.{{0,20}}?{_HISTORY} (?:for|about) {_REST}",
        rf"(?:搜索|查找|检索)历史(?:消息|记录)?(?:中|里)?(?:的|：|:)?\s*{_REST}",
    ),
    _intent(
        "search_files",
        rf"\bsearch\b.{{0,12}}\bfiles? (?:for|about) {_REST}",
        rf"(?:搜索|查找)文件(?:中|里)?(?:的|：|:)?\s*{_REST}",
    ),
    _intent("list_files", r"\b(?:list|show)\b.{0,16}\bfiles\b|\bwhat files\b", r"(?:列出|显示|有哪些).{0,6}文件"),
    _intent(
        "write_file",
        rf"\b(?:write|create|save)\b.{{0,24}}?{_FILE}\s*(?:with|containing|saying|:|：)\s*(.+)$",
        rf"(?:写入|创建|保存)(?:文件)?\s*{_FILE}\s*，?(?:内容)?(?:为|：|:)\s*(.+)$",
    ),
    _intent(
        "edit_file",
        rf"\b(?:in|edit) {_FILE}[,:]?\s*(?:replace|change)\s+[\"'`“]?(.+?)[\"'`”]?\s+(?:with|to|by)\s+{_REST}",
        rf"把\s*{_FILE}\s*(?:中|里)的\s*(.+?)\s*(?:改成|换成|替换为)\s*{_REST}",
    ),
    _intent("read_file", rf"\b(?:read|open|show)\b.{{0,24}}?{_FILE}", rf"(?:读取|打开|查看|阅读)(?:文件)?\s*{_FILE}"),
    _intent(
        "fetch_url", r"\b(?:fetch|open|read|get)\b.{0,20}?(https?://\S+)", r"(?:打开|读取|抓取).{0,8}?(https?://\S+)"
    ),
)
_BY_NAME = re.compile(
    r"\b(?:call|use|run|invoke)\b(?: the)?(?: tool)? `?([\w-]+)`?|(?:调用|使用)(?:工具)?\s*`?([\w-]+)`?", re.I
)


def wanted_calls(text: str, tools: Sequence[JSON], turn: int = 0) -> tuple[ToolCall, ...]:
    """The calls a person's message asks for, among the tools that are offered; usually none.

    `turn` makes the ids of one conversation differ.
    """
    offered = {tool["function"]["name"]: tool["function"] for tool in tools if tool.get("function")}
    if not offered:
        return ()
    calls = list(_named_calls(text, offered)) or list(_intended_calls(text, offered))[:1]
    return tuple(
        ToolCall(f"call_demo_{turn}_{number}", name, orjson.dumps(arguments).decode())
        for number, (name, arguments) in enumerate(calls, start=1)
    )


def _named_calls(text: str, offered: dict[str, JSON]) -> Iterator[tuple[str, JSON]]:
    """Tools called by their name, each with the JSON or the words that follow it."""
    for match in _BY_NAME.finditer(text):
        name = match[1] or match[2]
        if name not in offered:
            continue
        rest = text[match.end() :]
        given = _json_in(rest)
        if given is None:
            words = re.sub(r"^\s*(?:with|for|on|to|and|:|：|，|,)?\s*", "", rest.split("\n")[0])
            given = _fill(offered[name], [words.strip(" .。") or "demo"])
        yield name, given


def _intended_calls(text: str, offered: dict[str, JSON]) -> Iterator[tuple[str, JSON]]:
    for intent in _INTENTS:
        name = next((name for name in intent.tools if name in offered), "")
        if name and (match := intent.pattern.search(text.strip())):
            yield name, _fill(offered[name], [group.strip() for group in match.groups() if group])


def _json_in(text: str) -> JSON | None:
    """The JSON object that follows a tool's name, if there is one."""
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start or text[:start].strip(" \n:：`json"):
        return None
    try:
        value = orjson.loads(text[start : end + 1])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _fill(function: JSON, values: list[str]) -> JSON:
    """Arguments by the tool's own schema: values go to the required properties of their type in order, then others."""
    schema = function.get("parameters") or {}
    properties: dict[str, Any] = schema.get("properties") or {}
    required = [name for name in schema.get("required", ()) if name in properties]
    optional = [name for name in properties if name not in required]
    left = list(values)
    filled: JSON = {}
    for name in (*required, *optional):
        kind = properties[name].get("type") if isinstance(properties[name], dict) else None
        at = next((at for at, value in enumerate(left) if _fits(value, kind)), None)
        if at is not None:
            filled[name] = int(left.pop(at)) if kind in ("integer", "number") else left.pop(at)
        elif name in required:
            filled[name] = _anything(properties[name], values)
    return filled


def _fits(value: str, kind: Any) -> bool:
    return value.isdecimal() if kind in ("integer", "number") else kind in ("string", None)


def _anything(schema: JSON, values: list[str]) -> Any:
    """Some value of the type that is required, where the person gave none."""
    if enum := schema.get("enum"):
        return enum[0]
    match schema.get("type"):
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case "array":
            return []
        case "object":
            return {}
    return values[0] if values else "demo"
