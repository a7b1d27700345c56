"""The log: one line for each step, so that a chat or a compaction reads like a story.

    logger.info("turn done", extra={"conversation": conversation_id, "turn": 7, "tokens": 512, "ms": 2103})
    2026-11-21 10:12:03 INFO  turn done  conversation=5a0c… turn=7 tokens=512 ms=2103

Fields travel in `extra`, never in the sentence, so that LOG_FORMAT=json has them too. Keys never reach a line: what
looks like one is blanked. Contents of messages are not logged at all.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import RequestAborted

# What every record has; the rest came in `extra`.
_OWN = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "request", "server_time"}
_SECRET = re.compile(r"(?i)\b(bearer\s+|sk-|pal_|/first/)[\w.~+/:=-]{6,}")
_PLAIN = re.compile(r"[\w.,:/@%+-]+")


def configuration(*, json: bool, level: str) -> dict[str, Any]:
    """Django's LOGGING: everything to stderr, our steps from `level` on, other people's libraries from WARNING on."""
    quiet = (
        "asyncio",
        "aiohttp",
        "celery",
        "daphne",
        "django.channels",
        "httpx",
        "httpx2",
        "kombu",
        "mcp",
        "openai",
        "twisted",
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": "palimpsest.logs.JsonLine" if json else "palimpsest.logs.TextLine"}},
        "filters": {"gone": {"()": "palimpsest.logs.NobodyWaits"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["gone"]}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            **{name: {"level": "WARNING"} for name in quiet},
            # Celery logs a lost broker as a traceback for every attempt; /readyz and one line of ours say it as well.
            "django": {"handlers": [], "level": "INFO", "propagate": True},
            "django.request": {"level": "ERROR"},
            "django.security.DisallowedHost": {"level": "ERROR"},
        },
    }


def fields(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a record, in the order in which they were given."""
    return {name: value for name, value in record.__dict__.items() if name not in _OWN and value is not None}


def without_secrets(line: str) -> str:
    return _SECRET.sub(lambda found: f"{found[1]}…", line)


class NobodyWaits(logging.Filter):
    """Drops what asyncio says of a request whose sender has gone: nothing failed, and nobody waits for an answer."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.name == "asyncio" and record.exc_info and record.exc_info[0] is RequestAborted)


class TextLine(logging.Formatter):
    """For people: time, level, sentence, fields."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).strftime("%Y-%m-%d %H:%M:%S")
        pairs = " ".join(f"{name}={_word(value)}" for name, value in fields(record).items())
        line = f"{time} {record.levelname:<7} {record.getMessage()}" + (f"  {pairs}" if pairs else "")
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return without_secrets(line)


class JsonLine(logging.Formatter):
    """For machines: one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return without_secrets(json.dumps(line, ensure_ascii=False, default=str))


def _word(value: Any) -> str:
    text = f"{value:.1f}" if isinstance(value, float) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
