"""Reads what providers say when they refuse: an answer's status and body, or an error in mid-stream."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from django.utils import timezone

from agents.errors import ProviderError
from agents.text import clean

LONGEST_DETAIL = 300  # characters of a provider's own words that people are shown

_CONTEXT_CODES = {
    "context_length_exceeded",
    "context_window_exceeded",
    "model_context_window_exceeded",
    "exceed_context_size_error",
    "request_too_large",
    "max_tokens_exceeded",
    "tokens_limit_reached",
    "1261",
}
# The same fact in the words of OpenAI, vLLM, Anthropic, Google, Mistral, xAI, Alibaba, Cohere, Bedrock, llama.cpp,
# Ollama, LM Studio, Hugging Face, Moonshot, MiniMax, Zhipu and others.
_CONTEXT_WORDS = re.compile(
    r"context[ _-]?(length|window|size|limit)s?\b.{0,80}(exceed|overflow|too (long|large|small))"
    r"|(exceed|longer than|greater than|larger than|over|beyond|too (long|large) for).{0,80}"
    r"context[ _-]?(length|window|size|limit)"
    r"|maximum (context|prompt|input|model) length"
    r"|(prompt|input|request|conversation|messages?)( is| are|s)? too (long|large)"
    r"|(input|prompt) (token count|length).{0,60}exceed"
    r"|token count .{0,60}exceeds"
    r"|exceed(s|ed)?.{0,60}max(imum)?[ _-]?(input |prompt |model )?(length|tokens?|number of tokens)"
    r"|exceed(s|ed)?.{0,60}model token limit"
    r"|range of input length should be"
    r"|too many (input )?tokens"
    r"|too large for model with \d+ maximum"
    r"|reduce the length of (the|your) (messages|prompt|input)"
    r"|`?inputs`? (tokens|must have less)"
    r"|上下文.{0,10}(超|过长)|输入.{0,12}(超过|超出|过长)|超(过|出).{0,12}(上下文|最大长度|长度限制)",
    re.IGNORECASE | re.DOTALL,
)
_RATE_WORDS = re.compile(
    r"rate.?limit|per (minute|second|hour|day)|\b[TR]P[MDS]\b|too many requests|overloaded|concurren", re.I
)
_QUOTA_WORDS = re.compile(
    r"insufficient.{0,12}(quota|balance|credit|funds)|billing|credit balance|out of credits|欠费|余额", re.I
)
_KEY_WORDS = re.compile(
    r"(api[ _-]?key|(access|bearer|auth\w*) token|credential).{0,30}"
    r"(not valid|invalid|incorrect|expired|missing|not found|required)"
    r"|(invalid|incorrect|expired|missing|no|wrong) (api[ _-]?key|credential|authentication)|unauthorized",
    re.I,
)
_FILTER_WORDS = re.compile(
    r"content[_ ]?(filter|policy|management)|data_inspection_failed|responsible.?ai|safety system|moderation"
    r"|sensitive_words|内容安全|敏感",
    re.I,
)
_MODEL_WORDS = re.compile(
    r"model.{0,80}(not (found|exist|supported|available)|does ?n[o']t exist|unknown|not a valid)"
    r"|(unknown|invalid|no such|unsupported) model|not a valid model|模型不存在",
    re.I | re.DOTALL,
)
_WAIT_WORDS = re.compile(
    r"(?:try again|retry) (?:in|after) (?:(\d+)m(?!s))?([\d.]+)\s*(ms|s|seconds?)\b|\"?retryDelay\"?\W+([\d.]+)s", re.I
)
_SECRET = re.compile(r"\b(sk|pk|key|xai|gsk|AIza)[-_][\w*.-]{6,}|\bAIza[\w-]{10,}|Bearer\s+\S+", re.I)
_OUTPUT_WORDS = re.compile(r"max_(completion_)?tokens|(completion|output) tokens", re.I)
_MARKUP = re.compile(r"<!doctype|<html|<head|<body", re.I)


def rejection(
    status: int, body: Any, headers: Mapping[str, str] | None = None, *, model: str = "", secret: str = ""
) -> ProviderError:
    """The error behind an HTTP answer that is not a success. `body` is parsed JSON or text."""
    code, words = code_and_words(body)
    found = _code(status, code, words)
    return ProviderError(
        found,
        detail=shown(words, secret),
        model=model,
        retry_after=retry_after(headers or {}, words),
        status=status,
    )


def fault_in_stream(body: Any, *, model: str = "") -> ProviderError:
    """The error behind an `error` object that came in the middle of a stream."""
    code, words = code_and_words(body)
    status = _status_in(body)
    found = _code(status, code, words)
    return ProviderError(
        found, detail=shown(words), model=model, retry_after=retry_after({}, words), status=status or None
    )


def code_and_words(body: Any) -> tuple[str, str]:
    """The provider's own code (several joined) and message, wherever it put them."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return "", str(body or "")
    error = body.get("error", body)
    if not isinstance(error, dict):
        return str(body.get("code") or body.get("type") or ""), str(error)
    inner = error.get("innererror")
    codes = [
        error.get("code"),
        error.get("type"),
        error.get("status"),
        inner.get("code") if isinstance(inner, dict) else None,
    ]
    words = error.get("message") or error.get("detail") or error.get("msg") or error.get("title") or ""
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and metadata.get("raw"):  # OpenRouter wraps the words of the provider behind it
        words = f"{words}: {metadata['raw']}"
    if isinstance(words, list):
        words = "; ".join(_validation_words(line) for line in words)
    return " ".join(str(code) for code in codes if code is not None), str(words)


def shown(words: str, secret: str = "") -> str:
    """The provider's words as people may see them: short, on one line, without markup and keys."""
    if _MARKUP.search(words[:2000]):
        return ""
    words = clean(words)
    if secret:
        words = words.replace(secret, "•••")
    words = " ".join(_SECRET.sub("•••", words).split())
    return words if len(words) <= LONGEST_DETAIL else words[: LONGEST_DETAIL - 1] + "…"


def retry_after(headers: Mapping[str, str], words: str = "") -> float | None:
    """How long the provider asks to wait (seconds), from its headers or its words."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name) or ""
        try:
            return max(0.0, float(value) / unit)
        except ValueError:
            pass
        if value and name == "retry-after" and (seconds := _seconds_until(value)) is not None:
            return seconds
    if match := _WAIT_WORDS.search(words):
        minutes, number, unit_name, delay = match.groups()
        if delay:
            return float(delay)
        return (int(minutes or 0) * 60 + float(number.rstrip("."))) / (1000.0 if unit_name == "ms" else 1.0)
    return None


def rejected_parameter(body: Any, sent: frozenset[str]) -> str:
    """The optional parameter of `sent` that the provider does not take, or nothing."""
    code, words = code_and_words(body)
    if is_context_exceeded(code, words):
        return ""
    error = body.get("error", body) if isinstance(body, dict) else {}
    named = str(error.get("param") or "") if isinstance(error, dict) else ""
    if named.split(".")[0] in sent:
        return named.split(".")[0]
    text = f"{code} {words} {body}".lower()
    return next((name for name in sorted(sent, key=len, reverse=True) if name in text), "")


def largest_output(body: Any, asked: int) -> int | None:
    """The limit named in words such as "max_tokens: 100000 > 8192, which is the maximum allowed number"."""
    code, words = code_and_words(body)
    if not _OUTPUT_WORDS.search(words) or is_context_exceeded(code, words):
        return None
    named = (int(number) for number in re.findall(r"(?<![\w.-])\d{2,7}(?![\w-])", words.replace(",", "")))
    return max((number for number in named if number < asked), default=None)


def is_context_exceeded(code: str, words: str) -> bool:
    """Whether these are the words for "the request is longer than the model's window"."""
    if any(part in _CONTEXT_CODES for part in code.split()):
        return True
    return bool(_CONTEXT_WORDS.search(words)) and not _RATE_WORDS.search(f"{code} {words}")


def _code(status: int, code: str, words: str) -> str:
    """Our code. The provider's words come before the status: many answer 400 or 500 to everything."""
    both = f"{code} {words}"
    if is_context_exceeded(code, words):
        return "context_exceeded"
    if status == 402 or _QUOTA_WORDS.search(both):
        return "quota_exceeded"
    if status == 429 or (_RATE_WORDS.search(both) and status in (0, 400, 403, 413)):
        return "provider_unavailable" if "overloaded" in both.lower() else "rate_limited"
    if status == 401 or "authentication_error" in code or (status in (0, 400, 403) and _KEY_WORDS.search(both)):
        return "provider_auth"
    if _FILTER_WORDS.search(both):
        return "content_filtered"
    if "model_not_found" in code or (status in (0, 400, 404, 422) and _MODEL_WORDS.search(words)):
        return "model_not_found"
    return _code_of_status(status, code)


def _code_of_status(status: int, code: str) -> str:
    if status == 403:
        return "provider_forbidden"
    if status == 404:
        return "address_not_found"
    if status == 413:
        return "context_exceeded"
    if status in (408, 504) or "timeout" in code:
        return "provider_timeout"
    if status in (409, 425) or status >= 500 or status == 0:
        return "provider_unavailable"
    if 300 <= status < 400:
        return "redirected"
    return "provider_rejected"


def _status_in(body: Any) -> int:
    """An HTTP status given as the error's code, as OpenRouter and Google do; 0 where there is none."""
    error = body.get("error", body) if isinstance(body, dict) else None
    if isinstance(error, dict):
        for name in ("status_code", "code", "status"):
            value = error.get(name)
            if isinstance(value, (int, str)) and str(value).isdecimal() and 400 <= int(value) < 600:
                return int(value)
    return 0


def _validation_words(line: Any) -> str:
    """One line of a FastAPI validation error: where and what."""
    if not isinstance(line, dict):
        return str(line)
    return f"{'.'.join(map(str, line.get('loc', ())))}: {line.get('msg', '')}"


def _seconds_until(http_date: str) -> float | None:
    try:
        return max(0.0, (parsedate_to_datetime(http_date) - timezone.now()).total_seconds())
    except (ValueError, TypeError):
        return None
