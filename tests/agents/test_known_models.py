"""Windows of known models, for prefilling."""

from __future__ import annotations

import pytest

from agents.known_models import first_factor, known_model, max_output_of, sees_images, window_of


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-4o-2024-11-20", 128_000),
        ("openai/gpt-4.1-mini", 1_047_576),
        ("gpt-4", 8_192),
        ("gpt-4-turbo-preview", 128_000),
        ("gpt-5-mini", 400_000),
        ("gpt-5-chat-latest", 128_000),
        ("o3", 200_000),
        ("o4-mini", 200_000),
        ("anthropic/claude-sonnet-4-5-20250929", 200_000),
        ("models/gemini-2.5-flash", 1_048_576),
        ("deepseek-chat", 128_000),
        ("qwen3-max", 262_144),
        ("qwen/qwen3-32b", 131_072),
        ("grok-4-1-fast-reasoning", 2_000_000),
        ("grok-3-mini", 131_072),
        ("meta-llama/Llama-3.3-70B-Instruct", 131_072),
        ("llama3.1:8b", 131_072),
        ("llama3:8b", 8_192),
        ("kimi-k2-0905-preview", 262_144),
        ("moonshot-v1-32k", 32_768),
        ("glm-4.6", 200_000),
        ("demo-16k", 16_000),
        ("demo-128k", 128_000),
    ],
)
def test_window(model: str, window: int) -> None:
    found = window_of(model)
    assert found is not None
    assert found[0] == window
    assert found[1]


def test_unknown_models_and_local_ones_are_not_guessed() -> None:
    assert window_of("my-own-model") is None
    assert max_output_of("") is None
    assert window_of("llama3.1:8b", supplier="ollama") is None


def test_answers_are_never_longer_than_windows() -> None:
    from agents.known_models import _MODELS

    for _, known in _MODELS:
        assert 0 < known.max_output <= known.window <= 2_000_000


def test_images() -> None:
    assert sees_images("gpt-4o")
    assert not sees_images("gpt-3.5-turbo")
    assert known_model("demo-16k") is not None


# Tokens of each maker's published tokenizer for each of o200k's (docs/compaction.md): the least and the most of
# English, code, Chinese, Japanese and Korean.
MEASURED = {
    "claude-sonnet-4-5": (1.07, 1.78),
    "deepseek-chat": (0.75, 1.19),
    "qwen3-32b": (0.82, 1.11),
    "mistral-large-2411": (1.04, 1.25),
    "open-mixtral-8x7b": (1.13, 1.86),
}


@pytest.mark.parametrize("model", MEASURED)
def test_a_first_send_is_counted_within_a_quarter_in_any_language(model: str) -> None:
    least, most = MEASURED[model]

    assert first_factor(model) <= least * 1.25
    assert first_factor(model) >= most * 0.75


@pytest.mark.parametrize("model", ["gpt-4o", "unheard-of"])
def test_what_is_not_known_to_count_otherwise_counts_as_o200k(model: str) -> None:
    assert first_factor(model) == 1.0
