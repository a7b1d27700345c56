"""The first channel and agents: from OPENAI_* in the environment, else the demo model that runs inside `serve`."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from urllib.parse import urlsplit

from agents.known_models import DEMO_WINDOWS
from agents.models import Agent, Channel, Supplier
from palimpsest import environment

logger = logging.getLogger(__name__)

_OPENAI_URL = "https://api.openai.com/v1"
_DEFAULT_MODEL = "gpt-5-mini"
_DEFAULT_WINDOW = 128_000  # tokens
_NOWHERE = "http://127.0.0.1:1/v1"  # until the demo model has started

Stop = Callable[[], object]


def prepare() -> Stop | None:
    """Called at each start of `serve`, before the worker takes its first turn; what stops the demo model again."""
    from_environment()
    if not Agent.objects.exists():
        make_demo_agents()
    if Channel.objects.filter(supplier=Supplier.DEMO, enabled=True).exists():
        return start_demo_model()
    return None


def from_environment() -> Channel | None:
    """The channel that OPENAI_* names, and its agent; None where they name none."""
    api_key = environment.text("OPENAI_API_KEY")
    if not api_key:
        return None
    base_url = environment.text("OPENAI_BASE_URL") or _OPENAI_URL
    return channel_from_environment(api_key, base_url, environment.text("OPENAI_MODEL") or _DEFAULT_MODEL)


def channel_from_environment(api_key: str, base_url: str, model: str) -> Channel:
    """The channel of OPENAI_BASE_URL, with the key of the environment, and an agent if there is none.

    The environment's key is written at every start, so that changing it there is enough; all else that an administrator
    changed stays.
    """
    channel = Channel.objects.filter(base_url=base_url).exclude(supplier=Supplier.DEMO).order_by("id").first()
    if channel is None:
        supplier = Supplier.OPENAI if base_url == _OPENAI_URL else Supplier.OTHER
        channel = Channel(name=_free_name(base_url), supplier=supplier, base_url=base_url, is_auxiliary=True)
    if model not in channel.models:
        channel.models = [*channel.models, model]
    channel.api_key = api_key
    channel.save()
    if not Agent.objects.filter(channel=channel).exists():
        window, source = _window(model)
        Agent.objects.create(
            name=_free_agent_name(model),
            channel=channel,
            model=model,
            context_window=window,
            window_source=source,
        )
        logger.info("agent made from the environment", extra={"model": model, "window": window})
    return channel


def make_demo_agents() -> None:
    """An agent for each demo model: a small window, where compaction comes soon, and a usual one."""
    channel, _ = Channel.objects.get_or_create(
        supplier=Supplier.DEMO,
        defaults={"name": "Demo", "base_url": _NOWHERE, "models": list(DEMO_WINDOWS), "is_auxiliary": True},
    )
    for model, window in DEMO_WINDOWS.items():
        Agent.objects.get_or_create(
            name=f"Demo ({window // 1000}k)",
            defaults={
                "channel": channel,
                "description": f"Offline demo model with a window of {window:,} tokens, to try things out.",
                "model": model,
                "context_window": window,
                "window_source": "demo",
                "sees_images": True,  # it takes them, and says that it cannot see
            },
        )


def start_demo_model() -> Stop:
    """Start the demo model on a free port of loopback, with a key made now, and tell its channel where it is."""
    from agents.demo import DemoServer
    from chat.loop import process_loop

    key = secrets.token_urlsafe(24)
    server = DemoServer(key)
    loop = process_loop()
    base_url = loop.submit(server.start()).result(20)
    for channel in Channel.objects.filter(supplier=Supplier.DEMO):
        channel.base_url = base_url
        channel.api_key = key
        channel.save()
    logger.info("demo model ready", extra={"address": base_url})
    return lambda: loop.submit(server.stop()).result(3)


def _window(model: str) -> tuple[int, str]:
    from agents.known_models import window_of

    return window_of(model) or (_DEFAULT_WINDOW, "unknown model, a usual size")


def _free_name(base_url: str) -> str:
    wanted = "OpenAI" if base_url == _OPENAI_URL else (urlsplit(base_url).hostname or "Provider")
    return _free(wanted, lambda name: Channel.objects.filter(name=name).exists())


def _free_agent_name(model: str) -> str:
    return _free(model, lambda name: Agent.objects.filter(name=name).exists())


def _free(wanted: str, is_taken: Callable[[str], bool]) -> str:
    name, number = wanted[:90], 1
    while is_taken(name):
        number += 1
        name = f"{wanted[:90]} {number}"
    return name
