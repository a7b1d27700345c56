"""/agents: who can be talked to."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from ninja import Router

from agents.models import Agent
from chat.api.answers import LARGEST_PAGE, answer, listing
from chat.api.schemas import AgentOut, Id, Page
from chat.errors import NotFound
from chat.presenting import present_agent

router = Router(tags=["agents"])


@router.get("", response=Page[AgentOut], summary="Agents to choose from")
def list_agents(request: HttpRequest, after: Id = 0, limit: int = 100) -> HttpResponse:
    limit = max(1, min(limit, LARGEST_PAGE))
    rows = Agent.objects.select_related("channel").filter(enabled=True, channel__enabled=True, pk__gt=after)
    found = list(rows.order_by("pk")[: limit + 1])
    cursor = str(found[limit - 1].pk) if len(found) > limit else None
    return listing([present_agent(row) for row in found[:limit]], cursor)


@router.get("/{int:agent_id}", response=AgentOut, summary="One agent")
def read_agent(request: HttpRequest, agent_id: Id) -> HttpResponse:
    row = Agent.objects.select_related("channel").filter(pk=agent_id, enabled=True).first()
    if row is None:
        raise NotFound
    return answer(present_agent(row))
