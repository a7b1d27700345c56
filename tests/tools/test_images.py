"""Images go to models that see, and are kindly refused or named for those that do not."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from agents.messages import ContentPart, Message
from agents.requests import IMAGES_OF_TOOLS, messages
from chat import history, sending
from chat.extracting import extract
from chat.files import store
from chat.models import Conversation
from chat.models import Message as Row
from tests.builders import add_messages, make_agent, make_conversation
from tests.tools.conftest import Use

PICTURE = ContentPart("image", url="data:image/png;base64,AAAA", name="seal.png", width=60, height=40, tokens=1600)


def picture(side: int = 60, kind: str = "PNG", *, noise: bool = False) -> bytes:
    image = Image.effect_noise((side, side), 90).convert("RGB") if noise else Image.new("RGB", (side, side), "teal")
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def with_picture(*, sees: bool) -> Conversation:
    """A conversation in which a picture was sent."""
    conversation = make_conversation(["hello", "hi"], agent=make_agent(sees_images=sees, tools=["read_file"]))
    (row,) = add_messages(conversation, [Message("user", "Look.", parts=(PICTURE,))])
    store(conversation, conversation.owner, "seal.png", extract(picture()), message=row)
    return conversation


@pytest.mark.django_db
def test_an_image_is_refused_kindly_for_a_model_that_does_not_see() -> None:
    conversation = make_conversation(agent=make_agent(sees_images=False))
    row = store(conversation, conversation.owner, "seal.png", extract(picture()))

    with pytest.raises(sending.ImagesNotSeen, match="cannot see images"):
        sending.send_message(conversation.owner, conversation.pk, "Look.", [row.pk])

    assert not Row.objects.filter(conversation=conversation).exists()


@pytest.mark.django_db
def test_a_known_model_sees_without_being_told() -> None:
    assert make_agent(model="gpt-4o").can_see
    assert not make_agent(model="gpt-3.5-turbo").can_see


@pytest.mark.django_db
def test_earlier_images_are_named_for_a_model_that_does_not_see() -> None:
    seen, _ = history.request_for(with_picture(sees=True))
    named, _ = history.request_for(with_picture(sees=False))

    assert seen[-1].parts == (PICTURE,)
    assert named[-1].parts == (ContentPart("text", "[image: seal.png, 60x40; this model cannot see images]"),)


@pytest.mark.django_db
def test_an_image_can_be_asked_for_again(use: Use) -> None:
    conversation = with_picture(sees=True)

    read = use(conversation, "read_file", name="seal.png")
    told = use(conversation, "read_history", first=3)

    assert read.parts[0].url.startswith("data:image/png;base64,")
    assert told.parts == (PICTURE,)
    assert "[image: seal.png, 60x40]" in told.content


@pytest.mark.django_db
def test_a_model_that_does_not_see_is_told_so(use: Use) -> None:
    result = use(with_picture(sees=False), "read_file", name="seal.png")

    assert result.is_error
    assert "cannot see images" in result.content


def test_images_of_tools_follow_the_results_of_their_round() -> None:
    sent = messages(
        [
            Message("user", "Show both."),
            Message("tool", "seal.png, 60x40", parts=(PICTURE,), tool_call_id="a"),
            Message("tool", "nothing", tool_call_id="b"),
            Message("assistant", "There."),
        ],
        "openai",
    )

    assert [message["role"] for message in sent] == ["user", "tool", "tool", "user", "assistant"]
    assert sent[1]["content"] == "seal.png, 60x40"
    assert sent[3]["content"][0]["text"] == IMAGES_OF_TOOLS
    assert sent[3]["content"][1]["image_url"]["url"] == PICTURE.url


@pytest.mark.django_db
def test_an_image_that_stays_large_is_kept_as_a_photograph() -> None:
    found = extract(picture(1_500, noise=True))

    assert found.mime == "image/jpeg"
    assert len(found.content) < 1_500_000
