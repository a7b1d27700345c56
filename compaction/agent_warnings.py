"""What is wrong with an agent's settings, in sentences for the administrator who can set it right."""

from __future__ import annotations

from django.utils.translation import gettext as _

from agents import mcp_tools, tokens, tools
from agents.messages import Message
from agents.models import Agent, Channel, SiteSettings
from compaction.strategies import is_strategy
from compaction.thresholds import Thresholds, ladder_for


def ladder_of(agent: Agent) -> Thresholds:
    """The agent's ladder, from its window, threshold and longest answer."""
    return ladder_for(agent.context_window, agent.compaction_threshold, agent.max_output_tokens)


def warnings_of(agent: Agent) -> list[str]:
    """Everything about an agent that will hinder its answers or its compactions."""
    ladder = ladder_of(agent)
    found = [*_answering(agent), *_summarising(agent), *_room(agent, ladder)]
    if not is_strategy(agent.compaction_strategy):
        text = _("Its compaction strategy “%(name)s” does not exist: compactions fail until you choose another one.")
        found.append(text % {"name": agent.compaction_strategy})
    if ladder.clamp_reason:
        found.append(ladder.clamp_reason)
    return found


def floor_of(agent: Agent) -> tuple[int, int]:
    """What the system prompt and the tool schemas take of every request (tokens, raw)."""
    prompt = agent.system_prompt
    system = tokens.count_message(Message("system", prompt)) if prompt else 0
    mcp_tools.keep_current(agent.tools)
    return system, tokens.count_tools(tools.schemas(agent.tools)) if agent.tools else 0


def _answering(agent: Agent) -> list[str]:
    found = []
    if not agent.channel.enabled:
        found.append(_("Its channel “%(channel)s” is switched off: it cannot answer.") % {"channel": agent.channel})
    if not agent.model_name:
        found.append(_("Neither the agent nor its channel names a model: it cannot answer."))
    elif agent.model and agent.channel.models and agent.model not in agent.channel.models:
        found.append(_("Its channel does not list the model “%(model)s”. Check the spelling.") % {"model": agent.model})
    mcp_tools.keep_current(agent.tools)
    missing = sorted(name for name in agent.tools if tools.tool(name) is None)
    if missing:
        found.append(_("These tools do not exist any more: %(tools)s.") % {"tools": ", ".join(missing)})
    return found


def _summarising(agent: Agent) -> list[str]:
    """A chosen auxiliary channel that cannot serve is never replaced by another supplier, so it must be pointed out."""
    if agent.compaction_strategy == "extractive":
        return []
    if agent.auxiliary_channel_id is not None:
        channel = Channel.objects.filter(pk=agent.auxiliary_channel_id).first()
        if channel is None:
            return [_("Its auxiliary channel was deleted: compactions fail until you choose another one.")]
        return _unusable(agent, channel, agent.auxiliary_model)
    site = SiteSettings.objects.select_related("default_auxiliary_channel").first()
    if agent.keeps_text_with_supplier or site is None or site.default_auxiliary_channel is None:
        return []
    return _unusable(agent, site.default_auxiliary_channel, site.default_auxiliary_model)


def _unusable(agent: Agent, channel: Channel, model: str) -> list[str]:
    reasons = []
    if not channel.enabled:
        reasons.append(_("is switched off"))
    if not channel.is_auxiliary and channel.pk != agent.channel_id:
        reasons.append(_("may no longer be used for summaries"))
    if not channel.models and not model:
        reasons.append(_("has no models"))
    text = _("Its auxiliary channel “%(channel)s” %(reason)s: compactions fail until that is changed.")
    return [text % {"channel": channel, "reason": ", ".join(reasons)}] if reasons else []


def _room(agent: Agent, ladder: Thresholds) -> list[str]:
    """Whether a compaction could ever free enough: what it cannot remove, against the trigger."""
    system, tool = floor_of(agent)
    floor = system + tool
    if floor + ladder.least_gain <= ladder.trigger:
        return []
    text = _(
        "Compaction cannot help here: system prompt (%(system)s) and tools (%(tools)s) take %(floor)s of the "
        "%(trigger)s tokens at which it starts. Shorten the prompt, take fewer tools or give a larger window."
    )
    figures = {"system": system, "tools": tool, "floor": floor, "trigger": ladder.trigger}
    return [text % {name: f"{figure:,}" for name, figure in figures.items()}]
