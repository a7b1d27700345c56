"""Channels: the key goes in and never comes out; the connection can be tested."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from agents.models import Agent, Channel, SiteSettings
from tests.admin.conftest import Pages
from tests.builders import make_agent, make_channel
from tests.upstream import Provider

pytestmark = pytest.mark.django_db

KEY = "sk-very-secret-1234"


@pytest.fixture
def channels(pages_of: Callable[..., Pages]) -> Pages:
    return pages_of(
        "agents/channel",
        name="Main",
        supplier="other",
        base_url="http://127.0.0.1:9/v1",
        models="one\ntwo\n\none",
        enabled="on",
        new_api_key="",
    )


def test_a_key_is_stored_encrypted_and_shown_nowhere(channels: Pages) -> None:
    channels.add(new_api_key=KEY)
    channel = Channel.objects.get(name="Main")
    assert channel.api_key == KEY
    assert KEY not in channel.api_key_encrypted
    assert channel.models == ["one", "two"]
    assert KEY not in channels.shown(channel)


def test_an_empty_field_keeps_the_key_and_a_tick_removes_it(channels: Pages) -> None:
    channel = make_channel(name="Main", api_key=KEY)
    channels.change(channel)
    assert Channel.objects.get().api_key == KEY
    channels.change(channel, remove_api_key="on")
    assert Channel.objects.get().api_key == ""


def test_another_address_clears_the_key_and_says_so(channels: Pages) -> None:
    channel = make_channel(name="Main", api_key=KEY)
    page = channels.change(channel, base_url="http://elsewhere:9/v1")
    assert Channel.objects.get().api_key == ""
    assert "The stored key was cleared" in page


@pytest.mark.parametrize("address", ["ftp://x/v1", "nonsense", "http://user:pw@host/v1", "http:///v1", "http://a b/v1"])
def test_what_is_no_address_is_refused(channels: Pages, address: str) -> None:
    channels.add(base_url=address)
    assert not Channel.objects.exists()


def test_auxiliary_is_a_column_and_a_filter(root: Client) -> None:
    make_channel(name="plain")
    make_channel(name="helper", is_auxiliary=True)
    page = root.get("/admin/agents/channel/?is_auxiliary__exact=1").content.decode()
    assert "helper" in page
    assert "plain" not in page


def test_the_connection_is_tested_from_the_page_and_the_list(channels: Pages, upstream: Provider) -> None:
    channel = make_channel(name="Main", base_url=upstream.base_url, api_key="any")
    assert "connected" in channels.change(channel, base_url=upstream.base_url, models="fast", _test="1")
    assert "connected" in channels.act("test_connection", channel)


def test_a_failed_test_says_why(channels: Pages) -> None:
    channel = make_channel(name="Main")
    page = channels.change(channel, _test="1")
    assert "Main: " in page
    assert 'class="error"' in page


def test_switching_off_a_channel_names_the_agents_that_need_it(channels: Pages) -> None:
    channel = make_channel(name="Main", is_auxiliary=True)
    make_agent(name="Guide", channel=channel)
    make_agent(name="Scribe", auxiliary_channel=channel)
    page = channels.change(channel, enabled="", is_auxiliary="on")
    assert "The agent “Guide” cannot answer" in page
    assert "The agent “Scribe” cannot be compacted" in page


def test_a_channel_in_use_is_not_deleted_and_an_auxiliary_one_stays_chosen(root: Client) -> None:
    used, helper = make_channel(name="used"), make_channel(name="helper", is_auxiliary=True)
    agent = make_agent(channel=used, auxiliary_channel=helper)
    for channel in (used, helper):
        root.post(f"/admin/agents/channel/{channel.pk}/delete/", {"post": "yes"})
    assert list(Channel.objects.all()) == [used]
    assert Agent.objects.get(pk=agent.pk).auxiliary_channel_id == helper.pk


def test_the_site_has_one_page_of_settings(root: Client) -> None:
    helper = make_channel(is_auxiliary=True, models=["small"])
    page = root.get("/admin/agents/sitesettings/", follow=True)
    path = page.redirect_chain[-1][0]
    root.post(path, {"default_auxiliary_channel": helper.pk, "default_auxiliary_model": "smal"})
    assert SiteSettings.current().default_auxiliary_channel is None
    root.post(path, {"default_auxiliary_channel": helper.pk, "default_auxiliary_model": "small"})
    assert SiteSettings.current().default_auxiliary_channel == helper
    assert root.get("/admin/agents/sitesettings/add/").status_code == 403


def test_prices_are_written_one_model_a_line(root: Client, channels: Pages) -> None:
    channels.add(prices="one 0.4 1.6\na model/with spaces 2 8\n")
    channel = Channel.objects.get(name="Main")

    assert channel.prices == {"one": [0.4, 1.6], "a model/with spaces": [2.0, 8.0]}
    assert "one 0.4 1.6\na model/with spaces 2 8" in root.get(channels.of(channel)).content.decode().replace("\r", "")


@pytest.mark.parametrize("line", ["one", "one 0.4", "one cheap 2", "one -1 2", "one nan 1", "one inf 1"])
def test_what_is_no_price_is_refused(channels: Pages, line: str) -> None:
    assert "is not a model" in channels.add(prices=line)
    assert not Channel.objects.filter(name="Main").exists()
