"""Files: taken in within limits, their type found from their content, given out harmlessly."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from PIL import Image

from chat import extracting, files
from chat.api.schemas import AttachmentOut
from chat.models import Attachment, Conversation, Message
from tests.api.conftest import Answer, Caller, expect

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chat.sending.wake", lambda *_: None)


def _upload(who: Caller, here: str, name: str, content: bytes) -> Answer:
    file = SimpleUploadedFile("x", content)
    file.name = name  # as a client that does not behave sends it
    return Answer(who.client.post(f"/api/v1{here}/attachments", {"file": file}))


def _image(width: int = 60, height: int = 40, kind: str = "JPEG", **extra: Any) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), "teal").save(out, kind, **extra)
    return out.getvalue()


def _docx(text: str) -> bytes:
    import docx

    document = docx.Document()
    document.add_paragraph(text)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def _pdf(text: str) -> bytes:
    stream = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET".encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    out, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj%s endobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 6\n0000000000 65535 f \n%strailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
    return out + end % (table, len(out))


def test_members_upload_viewers_do_not(people: dict[str, Caller], here: str) -> None:
    expect(people, lambda who: _upload(who, here, "a.txt", b"hello"), alice=201, bob=201, vera=403)


def test_its_people_get_it_as_a_harmless_download(people: dict[str, Caller], here: str) -> None:
    made = _upload(people["bob"], here, "page.html", b"<script>alert(1)</script>").json
    AttachmentOut.model_validate(made)
    path = f"{here}/attachments/{made['id']}"
    expect(people, lambda who: who.get(path), alice=200, bob=200, vera=200)
    response = people["vera"].get(path).response
    assert response.content == b"<script>alert(1)</script>"
    assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert response.headers["Content-Disposition"] == 'attachment; filename="page.html"'
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in response.headers["Content-Security-Policy"]


def test_a_file_of_another_conversation_is_not_found(alice: Caller, conversation: Conversation, here: str) -> None:
    from tests.builders import make_conversation

    made = _upload(alice, here, "a.txt", b"hello").json
    elsewhere = make_conversation(owner=alice.user)
    assert alice.get(f"/conversations/{elsewhere.pk}/attachments/{made['id']}").status == 404


def test_27_a_summarys_link_to_another_persons_file_leads_nowhere(alice: Caller, charlie: Caller, here: str) -> None:
    from tests.builders import make_conversation

    private = make_conversation(owner=charlie.user)
    made = _upload(charlie, f"/conversations/{private.pk}", "secret.txt", b"hello").json

    for link in (f"/conversations/{private.pk}/attachments/{made['id']}", f"{here}/attachments/{made['id']}"):
        assert alice.get(link).status == 404
        assert alice.get(f"{link}/text").status == 404


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\evil.txt", "evil.txt"),
        ("a\u202etxt.exe", "atxt.exe"),
        ("line\nbreak.txt", "linebreak.txt"),
        ("...", "file"),
        ("x" * 300 + ".txt", "x" * 196 + ".txt"),
    ],
)
def test_names_lead_nowhere(name: str, shown: str) -> None:
    assert files.safe_name(name) == shown


def test_the_place_in_the_storage_is_made_of_ids(alice: Caller, conversation: Conversation, here: str) -> None:
    made = _upload(alice, here, "../../x.txt", b"hello").json
    stored = Attachment.objects.get(pk=made["id"]).file.name
    assert stored == f"conversations/{conversation.pk}/{made['id']}"


@pytest.mark.parametrize(
    ("content", "kind", "mime", "text"),
    [
        ("größe 你好".encode(), "text", "text/plain", "größe 你好"),
        ("\ufeffa,b".encode(), "text", "text/plain", "a,b"),
        ("你好，世界".encode("gb18030"), "text", "text/plain", "你好，世界"),
        ("hi".encode("utf-16"), "text", "text/plain", "hi"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"><script/></svg>', "text", "text/plain", "<svg"),
        (_pdf("harbour plan"), "document", "application/pdf", "harbour plan"),
        (_docx("harbour plan"), "document", "officedocument", "harbour plan"),
    ],
)
def test_the_type_is_found_from_the_content(content: bytes, kind: str, mime: str, text: str) -> None:
    found = extracting.extract(content)
    assert found.kind == kind
    assert mime in found.mime
    assert text in found.text
    assert found.tokens > 0


def test_images_are_made_smaller_and_lose_their_metadata(settings: Any) -> None:
    exif = Image.Exif()
    exif[0x010E] = "secret place"
    found = extracting.extract(_image(4_000, 1_000, exif=exif))
    assert (found.kind, found.width, found.height, found.tokens) == ("image", 2_048, 512, settings.IMAGE_TOKENS)
    assert b"secret place" not in found.content
    assert Image.open(io.BytesIO(found.content)).size == (2_048, 512)


def _bomb() -> bytes:
    """A DOCX whose text unpacks to far more than it is."""
    out = io.BytesIO(_docx("small"))
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/media/zeros", b"\0" * 150_000_000)
    return out.getvalue()


def _huge_image() -> bytes:
    """A PNG that claims 50,000 x 50,000 pixels."""
    import struct
    import zlib

    header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 1_000)), (b"IEND", b"")]
    chunks = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: b"", "file_empty"),
        (lambda: b"\x7fELF" + bytes(200), "file_type"),
        (lambda: bytes(range(256)) * 20, "file_type"),
        (lambda: b"PK\x03\x04" + b"x" * 100, "file_type"),
        (lambda: b"%PDF-1.7 broken", "file_broken"),
        (lambda: _image()[:100], "file_broken"),
        (_huge_image, "image_too_large"),
        (_bomb, "archive_too_large"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_sentence(make: Any, code: str) -> None:
    with pytest.raises(extracting.FileRefused) as refused:
        extracting.extract(make())
    assert refused.value.code == code


def test_a_parser_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extracting, "SECONDS", 0.01)
    with pytest.raises(extracting.FileRefused, match="too much memory or time"):
        extracting.extract(_pdf("x"))


def test_too_large_is_refused_before_it_is_read(alice: Caller, here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chat.files.LARGEST_FILE", 1_000)
    assert _upload(alice, here, "a.txt", b"x" * 1_001).code == "file_too_large"
    response = alice.client.generic(
        "POST", f"/api/v1{here}/attachments", b"", "multipart/form-data; boundary=x", CONTENT_LENGTH="200000000"
    )
    assert response.status_code == 413
    assert not Attachment.objects.exists()


def test_what_is_sent_of_a_long_text_is_its_beginning_and_said_before(alice: Caller, here: str) -> None:
    short = _upload(alice, here, "short.txt", b"the harbour").json
    long = _upload(alice, here, "long.txt", b"harbour " * 30_000).json
    image = _upload(alice, here, "a.png", _image(kind="PNG")).json
    assert short["sent_tokens"] == short["tokens"] == 2
    assert (image["sent_tokens"], image["tokens"]) == (1_600, 1_600)
    assert long["tokens"] > 30_000
    assert 1_000 < long["sent_tokens"] < 3_000
    sent = alice.post(f"{here}/messages", {"content": "Look", "attachments": [long["id"]]}).json["message"]
    assert 0 < sent["token_count"] - long["sent_tokens"] < 50
    text = Message.objects.get(pk=sent["id"]).parts[0]["text"]
    assert text.endswith(f"{long['tokens']} tokens in all. Read on with the tool read_file: long.txt]")


def test_too_many_files_are_refused(alice: Caller, here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chat.files.MOST_FILES", 1)
    assert _upload(alice, here, "a.txt", b"hello").status == 201
    assert _upload(alice, here, "b.txt", b"hello").code == "too_many_files"


def test_a_form_without_a_file_is_refused(alice: Caller, here: str) -> None:
    assert Answer(alice.client.post(f"/api/v1{here}/attachments", {})).code == "no_file"


def test_files_are_sent_with_a_message_once(alice: Caller, bob: Caller, here: str) -> None:
    text = _upload(alice, here, "notes.txt", b"the harbour").json["id"]
    image = _upload(alice, here, "view.png", _image(kind="PNG")).json["id"]
    assert bob.post(f"{here}/messages", {"content": "mine", "attachments": [text]}).status == 404
    sent = alice.post(f"{here}/messages", {"content": "Look", "attachments": [text, image]})
    assert sent.status == 202
    assert [part["kind"] for part in sent.json["message"]["parts"]] == ["file", "image"]
    assert "url" not in sent.json["message"]["parts"][1]
    assert "text" not in sent.json["message"]["parts"][0]
    stored = Message.objects.get(pk=sent.json["message"]["id"])
    assert stored.parts[1]["url"].startswith("data:image/png;base64,")
    assert alice.post(f"{here}/messages", {"content": "again", "attachments": [text]}).status == 404
    assert alice.delete(f"{here}/attachments/{text}").code == "file_sent"


def test_an_unsent_file_is_taken_back_by_who_uploaded_it(alice: Caller, bob: Caller, here: str) -> None:
    made = _upload(bob, here, "a.txt", b"hello").json["id"]
    stored = Attachment.objects.get().file.name
    assert alice.delete(f"{here}/attachments/{made}").status == 404
    assert bob.delete(f"{here}/attachments/{made}").status == 204
    assert not default_storage.exists(stored)


def test_files_are_listed_with_what_was_found_in_them(people: dict[str, Caller], here: str) -> None:
    made = _upload(people["bob"], here, "a.txt", b"hello").json
    for path in ("attachments", f"attachments/{made['id']}/details", f"attachments/{made['id']}/text"):
        expect(people, lambda who, path=path: who.get(f"{here}/{path}"), alice=200, bob=200, vera=200)
    assert people["vera"].get(f"{here}/attachments").json["items"] == [made]
    assert people["vera"].get(f"{here}/attachments/{made['id']}/text").json["text"] == "hello"
