"""Which model writes an agent's summaries, in a fixed order, and never silently another supplier's."""

from __future__ import annotations

from dataclasses import dataclass

from agents.known_models import max_output_of, window_of
from agents.models import Agent, Channel, SiteSettings
from chat.compaction_words import refused
from compaction.errors import CompactionError


@dataclass(frozen=True, slots=True)
class Summariser:
    """Who receives the text. `window` (tokens): None where nobody knows it; `is_other`: not the agent's channel."""

    channel: Channel
    model: str
    window: int | None
    max_output: int | None
    is_other: bool


def summariser_of(agent: Agent, own: Channel | None, site: SiteSettings | None) -> Summariser:
    """The agent's own choice; its main channel where its text stays with its supplier; the site's; the main channel.

    `own` is the channel that the agent's choice points to, None where it was deleted; `site` the site's settings.
    What was chosen but cannot be used raises `auxiliary_unavailable` instead of moving on to the next.
    """
    if agent.auxiliary_channel_id is not None:
        return _chosen(agent, own, agent.auxiliary_model)
    if not agent.keeps_text_with_supplier and site is not None and site.default_auxiliary_channel is not None:
        return _chosen(agent, site.default_auxiliary_channel, site.default_auxiliary_model)
    if not agent.channel.enabled:
        raise _unavailable("switched_off", agent.channel)
    return _summariser(agent, agent.channel, agent.auxiliary_model or agent.model_name)


def _chosen(agent: Agent, channel: Channel | None, model: str) -> Summariser:
    if channel is None:
        raise _unavailable("deleted")
    if not channel.enabled:
        raise _unavailable("switched_off", channel)
    if not channel.is_auxiliary and channel.pk != agent.channel_id:
        raise _unavailable("not_auxiliary", channel)
    return _summariser(agent, channel, model)


def _summariser(agent: Agent, channel: Channel, model: str) -> Summariser:
    model = model or next(iter(channel.models), "")
    if not model:
        raise _unavailable("no_models", channel)
    same = channel.pk == agent.channel_id
    known = window_of(model, channel.supplier)
    window = agent.context_window if same and model == agent.model_name else known[0] if known else None
    return Summariser(channel, model, window, max_output_of(model), is_other=not same)


def _unavailable(because: str, channel: Channel | None = None) -> CompactionError:
    return refused("auxiliary_unavailable", because=because, name=channel.name if channel else "")
