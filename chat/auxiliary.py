"""Which model writes an agent's summaries, in a fixed order, and never silently another supplier's."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _

from agents.known_models import max_output_of, window_of
from agents.models import Agent, Channel, SiteSettings
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
        raise _unavailable(_("“%(name)s” is switched off") % {"name": agent.channel.name})
    return _summariser(agent, agent.channel, agent.auxiliary_model or agent.model_name)


def _chosen(agent: Agent, channel: Channel | None, model: str) -> Summariser:
    if channel is None:
        raise _unavailable(_("the chosen channel was deleted"))
    if not channel.enabled:
        raise _unavailable(_("“%(name)s” is switched off") % {"name": channel.name})
    if not channel.is_auxiliary and channel.pk != agent.channel_id:
        raise _unavailable(_("“%(name)s” may not be used for summaries any more") % {"name": channel.name})
    return _summariser(agent, channel, model)


def _summariser(agent: Agent, channel: Channel, model: str) -> Summariser:
    model = model or next(iter(channel.models), "")
    if not model:
        raise _unavailable(_("“%(name)s” lists no models") % {"name": channel.name})
    same = channel.pk == agent.channel_id
    known = window_of(model, channel.supplier)
    window = agent.context_window if same and model == agent.model_name else known[0] if known else None
    return Summariser(channel, model, window, max_output_of(model), is_other=not same)


def _unavailable(why: str) -> CompactionError:
    text = _("The channel that should write summaries cannot be used: %(why)s. An administrator can choose another.")
    return CompactionError("auxiliary_unavailable", text % {"why": why}, retryable=True)
