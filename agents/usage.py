"""What a provider reports about the tokens of one call, brought into one form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Usage:
    """Reported tokens of one call (tokens).

    `prompt_tokens` includes what was read from a cache and `completion_tokens` includes reasoning, whatever the
    provider's own habit, so that nothing is counted twice or forgotten.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    audio_tokens: int = 0

    @classmethod
    def from_openai(cls, reported: dict[str, Any]) -> Usage:
        """Reads the `usage` object of an OpenAI-compatible answer, with the differences between suppliers."""
        prompt_details = _object(reported, "prompt_tokens_details", "input_tokens_details")
        completion_details = _object(reported, "completion_tokens_details", "output_tokens_details")
        prompt = _number(reported, "prompt_tokens", "input_tokens")
        completion = _number(reported, "completion_tokens", "output_tokens")
        cache_read = _number(reported, "cache_read_input_tokens")
        cached = _number(prompt_details, "cached_tokens") or _number(reported, "prompt_cache_hit_tokens") or cache_read
        reasoning = _number(completion_details, "reasoning_tokens") or _number(reported, "reasoning_tokens")
        if "prompt_tokens" not in reported:  # Anthropic's own form: what the cache held is not among the input tokens
            prompt += cache_read + _number(reported, "cache_creation_input_tokens")
        elif cached > prompt:
            prompt += cached
        if _excludes_reasoning(_number(reported, "total_tokens"), prompt, completion, reasoning):
            completion += reasoning
        return cls(
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=cached,
            reasoning_tokens=reasoning,
            audio_tokens=_number(prompt_details, "audio_tokens") + _number(completion_details, "audio_tokens"),
        )

    @property
    def total_tokens(self) -> int:
        """Everything read and written, reasoning included (tokens)."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def context_tokens(self) -> int:
        """What this call leaves in the context of the next: reasoning is not sent again (tokens)."""
        return max(0, self.prompt_tokens + self.completion_tokens - self.reasoning_tokens)

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def to_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Usage:
        return cls(**{name: int(stored.get(name) or 0) for name in cls.__slots__})


def _excludes_reasoning(total: int, prompt: int, completion: int, reasoning: int) -> bool:
    """xAI reports the answer without its reasoning: visible in the total, or in reasoning beyond the completion."""
    return reasoning > completion or (reasoning > 0 and total == prompt + completion + reasoning)


def _object(reported: dict[str, Any], *names: str) -> dict[str, Any]:
    return next((value for name in names if isinstance(value := reported.get(name), dict)), {})


def _number(reported: dict[str, Any], *names: str) -> int:
    for name in names:
        value = reported.get(name)
        if isinstance(value, (int, float)) and value > 0:
            return int(value)
    return 0
