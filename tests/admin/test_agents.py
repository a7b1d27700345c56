"""Agents: every setting, the ladder they come to, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from agents.models import Agent, Channel
from compaction.thresholds import compute_thresholds
from tests.builders import make_agent, make_channel

pytestmark = pytest.mark.django_db


def _form(channel: Channel, **fields: Any) -> dict[str, Any]:
    return {
        "name": "Guide",
        "channel": channel.pk,
        "model": "",
        "context_window": "128000",
        "compaction_threshold": "",
        "compaction_strategy": "balanced",
        "compaction_keep_recent": "4",
        "auxiliary": "",
        "clear_thinking_after_minutes": "5",
        "clear_tool_results_after_minutes": "60",
        "tool_results_to_keep": "5",
        "enabled": "on",
        **fields,
    }


def _add(root: Client, **fields: Any) -> str:
    channel = fields.pop("channel", None) or make_channel()
    return root.post("/admin/agents/agent/add/", _form(channel, **fields), follow=True).content.decode()


def test_every_setting_of_an_agent_has_its_field(root: Client) -> None:
    page = root.get("/admin/agents/agent/add/").content.decode()
    hidden = {"id", "created_at", "updated_at", "window_source", "auxiliary_channel"}
    for field in Agent._meta.fields:
        if field.name not in hidden:
            assert f'name="{field.name}"' in page or field.name == "tools", field.name
    assert 'name="auxiliary"' in page


def test_an_agent_is_made(root: Client) -> None:
    helper = make_channel(is_auxiliary=True, models=["small"])
    _add(
        root, compaction_threshold="60", compaction_strategy="aggressive", auxiliary=helper.pk, auxiliary_model="small"
    )
    agent = Agent.objects.get()
    assert (agent.compaction_threshold, agent.compaction_strategy) == (60, "aggressive")
    assert (agent.auxiliary_channel, agent.auxiliary_model) == (helper, "small")
    assert agent.window_source == "set by an administrator"


def test_tools_keep_their_order(root: Client) -> None:
    agent = make_agent(name="Guide", tools=["search_history", "read_history", "gone"])
    chosen = ["list_files", "read_history", "search_history"]
    root.post(f"/admin/agents/agent/{agent.pk}/change/", _form(agent.channel, tools=chosen))
    assert Agent.objects.get().tools == ["search_history", "read_history", "list_files"]


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("compaction_threshold", "101", "less than or equal to 100"),
        ("compaction_threshold", "-1", "greater than or equal to 0"),
        ("compaction_keep_recent", "1", "greater than or equal to 2"),
        ("compaction_keep_recent", "21", "less than or equal to 20"),
        ("clear_thinking_after_minutes", "0", "or -1 to switch this off"),
        ("clear_tool_results_after_minutes", "0", "or -1 to switch this off"),
        ("tool_results_to_keep", "0", "or -1 to switch this off"),
        ("tool_results_to_keep", "-2", "or -1 to switch this off"),
        ("max_output_tokens", "0", "above 0"),
        ("max_output_tokens", "128000", "smaller than the context window"),
        ("temperature", "2.5", "less than or equal to 2"),
        ("compaction_strategy", "magic", "not one of the available choices"),
        ("context_window", "10", "greater than or equal to 1000"),
        ("context_window", "", "not known here"),
        ("name", "", "required"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(root: Client, field: str, value: str, sentence: str) -> None:
    assert sentence in _add(root, **{field: value})
    assert not Agent.objects.exists()


def test_the_window_of_a_known_model_is_filled_in_with_its_source(root: Client) -> None:
    _add(root, model="gpt-4o-mini", context_window="", channel=make_channel(models=["gpt-4o-mini"]))
    agent = Agent.objects.get()
    assert agent.context_window == 128_000
    assert "OpenAI" in agent.window_source


def test_minus_one_switches_clearing_off(root: Client) -> None:
    _add(root, clear_thinking_after_minutes="-1", clear_tool_results_after_minutes="-1", tool_results_to_keep="-1")
    assert Agent.objects.get().tool_results_to_keep == -1


@pytest.mark.parametrize(("percent", "shown"), [(None, "95,000"), (50, "64,000"), (0, "off")])
def test_the_page_shows_the_ladder_in_numbers(root: Client, percent: int | None, shown: str) -> None:
    agent = make_agent(compaction_threshold=percent)
    page = root.get(f"/admin/agents/agent/{agent.pk}/change/").content.decode()
    assert f'data-rung="auto">{shown}<' in page
    assert "admin-ladder.js" in page


def test_a_clamped_threshold_says_why(root: Client) -> None:
    page = _add(root, compaction_threshold="100")
    assert "Compaction starts at 105,000 at the latest" in page


def test_a_floor_above_the_trigger_is_pointed_out(root: Client) -> None:
    page = _add(root, context_window="4000", system_prompt="many words " * 3_000)
    assert "Compaction cannot help here" in page


def test_an_unusable_auxiliary_channel_is_pointed_out_and_kept(root: Client) -> None:
    helper = make_channel(name="helper", is_auxiliary=True)
    agent = make_agent(name="Guide", auxiliary_channel=helper)
    path = f"/admin/agents/agent/{agent.pk}/change/"
    Channel.objects.filter(pk=helper.pk).update(enabled=False)
    assert "is switched off: compactions fail" in root.get(path).content.decode()
    helper.delete()
    page = root.get(path).content.decode()
    assert "was deleted: compactions fail" in page
    assert "a channel that was deleted" in page
    root.post(path, _form(agent.channel, auxiliary=str(agent.auxiliary_channel_id), description="changed"))
    agent.refresh_from_db()
    assert (agent.description, agent.auxiliary_channel_id is None) == ("changed", False)


def test_the_list_counts_what_is_wrong(root: Client) -> None:
    make_agent(name="fine")
    make_agent(name="broken", channel=make_channel(enabled=False))
    page = root.get("/admin/agents/agent/").content.decode()
    assert page.count("ladder-warning") == 1


def test_an_agent_with_conversations_is_not_deleted(root: Client) -> None:
    from tests.builders import make_conversation

    agent = make_conversation().agent
    root.post(f"/admin/agents/agent/{agent.pk}/delete/", {"post": "yes"})
    assert Agent.objects.filter(pk=agent.pk).exists()


def test_the_ladder_can_be_asked_for(root: Client) -> None:
    for window, percent, reply in ((128_000, None, None), (64_000, 50, 2_000), (32_000, 0, None)):
        query = {"window": window, "percent": "" if percent is None else percent, "reply": reply or ""}
        shown = root.get("/api/v1/thresholds", query).json()
        ladder = compute_thresholds(window, percent, reply)
        assert (shown["warn"], shown["auto"], shown["hard"], shown["block"]) == (
            ladder.warn,
            ladder.auto,
            ladder.hard,
            ladder.block,
        )


@pytest.mark.parametrize(
    "query", [{}, {"window": "x"}, {"window": "-1"}, {"window": "1000", "percent": "101"}, {"window": "9" * 30}]
)
def test_figures_that_are_none_are_refused(root: Client, query: dict[str, str]) -> None:
    answer = root.get("/api/v1/thresholds", query)
    assert answer.status_code == 422
    assert set(answer.json()) == {"code", "message"}


def test_strangers_get_no_ladder(client: Client, db: None) -> None:
    assert client.get("/api/v1/thresholds", {"window": 1_000}).status_code == 401
