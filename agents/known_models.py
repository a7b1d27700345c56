"""Context windows and longest answers of models we know, to prefill an agent; the administrator has the last word."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.utils.translation import gettext as _

DEMO_WINDOWS = {"demo-16k": 16_000, "demo-128k": 128_000}  # (tokens)
_YEAR = 2025


@dataclass(frozen=True, slots=True)
class KnownModel:
    """What a maker's documentation says of a model (tokens).

    `factor`: its tokens for each of o200k's, which holds until its provider has reported some. One figure for all
    languages, so it lies between what English and Chinese, Japanese and Korean need; docs/compaction.md has both.
    """

    maker: str
    window: int
    max_output: int
    sees_images: bool = False
    factor: float = 1.0


_FACTORS = {"Anthropic": 1.335, "DeepSeek": 0.9, "Alibaba": 0.95, "Mistral": 1.1}


def _model(
    pattern: str, maker: str, window: int, output: int, sees: bool = False, factor: float | None = None
) -> tuple[re.Pattern[str], KnownModel]:
    factor = _FACTORS.get(maker, 1.0) if factor is None else factor
    return re.compile(pattern), KnownModel(maker, window, output, sees, factor)


# The first pattern that fits the beginning of the name holds: the special before the general.
_MODELS = (
    _model(r"demo-16k", "Palimpsest", DEMO_WINDOWS["demo-16k"], 4_096),
    _model(r"demo-128k", "Palimpsest", DEMO_WINDOWS["demo-128k"], 16_384),
    _model(r"gpt-5[\w.]*-chat|chatgpt-4o|gpt-4o|gpt-4\.5", "OpenAI", 128_000, 16_384, True),
    _model(r"gpt-5", "OpenAI", 400_000, 128_000, True),
    _model(r"gpt-4\.1", "OpenAI", 1_047_576, 32_768, True),
    _model(r"gpt-4-turbo|gpt-4-(1106|0125)", "OpenAI", 128_000, 4_096, True),
    _model(r"gpt-4-32k", "OpenAI", 32_768, 8_192),
    _model(r"gpt-4", "OpenAI", 8_192, 8_192),
    _model(r"gpt-3\.?5", "OpenAI", 16_385, 4_096),
    _model(r"gpt-oss", "OpenAI", 131_072, 32_768),
    _model(r"o1-mini", "OpenAI", 128_000, 65_536),
    _model(r"o1-preview", "OpenAI", 128_000, 32_768),
    _model(r"o[134](-|$)", "OpenAI", 200_000, 100_000, True),
    _model(r"claude-(opus-4-[01]|opus-4$|opus-4-2025)", "Anthropic", 200_000, 32_000, True),
    _model(r"claude-(opus|sonnet|haiku)-[4-9]|claude-3[-.]7", "Anthropic", 200_000, 64_000, True),
    _model(r"claude-3[-.]5", "Anthropic", 200_000, 8_192, True),
    _model(r"claude", "Anthropic", 200_000, 4_096, True),
    _model(r"gemini-(2\.5|3)", "Google", 1_048_576, 65_536, True),
    _model(r"gemini-1\.5-pro", "Google", 2_000_000, 8_192, True),
    _model(r"gemini", "Google", 1_048_576, 8_192, True),
    _model(r"gemma-?3", "Google", 131_072, 8_192, True),
    _model(r"gemma", "Google", 8_192, 8_192),
    _model(r"deepseek-(reasoner|r1)", "DeepSeek", 128_000, 64_000),
    _model(r"deepseek", "DeepSeek", 128_000, 8_192),
    _model(r"qwen3-max|qwen3-coder", "Alibaba", 262_144, 65_536),
    _model(r"qwen-(plus|turbo|flash)|qwen3\.?5?-(plus|flash)", "Alibaba", 1_000_000, 16_384),
    _model(r"qwen-max", "Alibaba", 32_768, 8_192),
    _model(r"qwen[\w.-]*-?vl|qvq", "Alibaba", 131_072, 8_192, True),
    _model(r"qwen-?[23]|qwq", "Alibaba", 131_072, 8_192),
    _model(r"grok-4[\w.-]*-fast", "xAI", 2_000_000, 30_000, True),
    _model(r"grok-4", "xAI", 256_000, 64_000, True),
    _model(r"grok-code", "xAI", 256_000, 10_000),
    _model(r"grok", "xAI", 131_072, 16_384),
    _model(r"codestral", "Mistral", 256_000, 16_384),
    _model(r"(open-)?mixtral-8x22b", "Mistral", 65_536, 8_192, factor=1.4),
    _model(r"(open-)?(mixtral|mistral-7b)", "Mistral", 32_768, 8_192, factor=1.4),
    _model(r"pixtral|mistral-(medium|small)", "Mistral", 131_072, 16_384, True),
    _model(r"mistral|ministral|magistral|devstral", "Mistral", 131_072, 16_384),
    _model(r"(meta-)?llama-?4", "Meta", 1_000_000, 8_192, True),
    _model(r"(meta-)?llama-?3\.2[\w.:-]*vision", "Meta", 131_072, 8_192, True),
    _model(r"(meta-)?llama-?v?3[.p][1-9]", "Meta", 131_072, 8_192),
    _model(r"(meta-)?llama-?3", "Meta", 8_192, 8_192),
    _model(r"(moonshot|kimi)[\w.-]*-8k", "Moonshot", 8_192, 4_096),
    _model(r"(moonshot|kimi)[\w.-]*-32k", "Moonshot", 32_768, 8_192),
    _model(r"kimi-k2[\w.-]*(0905|thinking|turbo)|kimi-k2\.5", "Moonshot", 262_144, 32_768),
    _model(r"moonshot|kimi", "Moonshot", 131_072, 16_384),
    _model(r"glm-4\.[6-9]|glm-[5-9]", "Zhipu", 200_000, 131_072),
    _model(r"glm-4\.5", "Zhipu", 131_072, 98_304),
    _model(r"glm-4", "Zhipu", 128_000, 4_096),
    _model(r"minimax-m", "MiniMax", 196_608, 65_536),
    _model(r"command-a", "Cohere", 256_000, 8_192),
    _model(r"command-r", "Cohere", 128_000, 4_096),
    _model(r"(amazon\.)?nova-micro", "Amazon", 128_000, 5_120),
    _model(r"(amazon\.)?nova-(lite|pro)", "Amazon", 300_000, 5_120, True),
    _model(r"phi-?4", "Microsoft", 16_384, 4_096),
    _model(r"phi-?3", "Microsoft", 131_072, 4_096),
)


def known_model(model: str) -> KnownModel | None:
    """What we know of a model by its name, with or without the supplier before it."""
    name = model.lower().rpartition("/")[2].removeprefix("ft:")
    return next((known for pattern, known in _MODELS if pattern.match(name)), None)


def window_of(model: str, supplier: str = "") -> tuple[int, str] | None:
    """The context window (tokens) and where the figure is from; None for a model we do not know.

    Ollama serves every model with the window it was configured with, whatever the model could take.
    """
    known = known_model(model)
    if known is None or supplier == "ollama":
        return None
    if known.maker == "Palimpsest":
        return known.window, _("built in")
    return known.window, _("documentation of %(maker)s, %(year)s") % {"maker": known.maker, "year": _YEAR}


def max_output_of(model: str) -> int | None:
    """The longest answer of a model (tokens); None for a model we do not know."""
    known = known_model(model)
    return known.max_output if known else None


def first_factor(model: str) -> float:
    """Its tokens for each of o200k's, before its provider has reported any; 1.0 for a model we do not know."""
    known = known_model(model)
    return known.factor if known else 1.0


def sees_images(model: str) -> bool:
    """Whether a model is known to take images."""
    known = known_model(model)
    return known is not None and known.sees_images
