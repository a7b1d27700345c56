"""A channel's key: write-only, encrypted, and never sent to another server than the one it was given for."""

from __future__ import annotations

import pytest

from agents.models import Channel

pytestmark = pytest.mark.django_db


def make_channel() -> Channel:
    channel = Channel(name="Main", supplier="openai", base_url="https://one.example/v1")
    channel.api_key = "sk-secret"
    channel.save()
    return channel


def test_the_key_is_encrypted_at_rest() -> None:
    channel = make_channel()
    assert "sk-secret" not in channel.api_key_encrypted
    assert Channel.objects.get().api_key == "sk-secret"


@pytest.mark.parametrize(("field", "value"), [("supplier", "groq"), ("base_url", "https://two.example/v1")])
def test_another_address_clears_the_key(field: str, value: str) -> None:
    make_channel()
    channel = Channel.objects.get()
    setattr(channel, field, value)
    channel.save(update_fields=[field])
    assert Channel.objects.get().api_key == ""


def test_a_new_key_given_with_the_new_address_is_kept() -> None:
    channel = make_channel()
    channel.base_url, channel.api_key = "https://two.example/v1", "sk-other"
    channel.save()
    assert Channel.objects.get().api_key == "sk-other"


def test_a_partly_loaded_channel_keeps_its_key_when_saved() -> None:
    make_channel()
    channel = Channel.objects.only("name").get()
    channel.name = "Renamed"
    channel.save()
    assert Channel.objects.get().api_key == "sk-secret"


def test_a_partly_loaded_channel_loses_its_key_with_its_address() -> None:
    make_channel()
    channel = Channel.objects.only("name").get()
    channel.base_url = "https://two.example/v1"
    channel.save()
    assert Channel.objects.get().api_key == ""
