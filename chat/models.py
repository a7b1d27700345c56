"""Conversations, the people in them, messages, turns and files. DESIGN section 3 has the rules behind every column."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _


class Conversation(models.Model):
    """A chat with one agent. The row is also the conversation's lock (see `chat/locking.py`).

    `version` grows with every durable event, `epoch` only when an already sent prefix changes. `live_tokens` is the
    raw o200k count of all live messages (tokens), kept so that no turn recounts old history. `base` is the provider's
    last report: {"tokens", "position", "epoch", "channel", "model"}.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="conversations")
    agent = models.ForeignKey("agents.Agent", on_delete=models.PROTECT, related_name="conversations")
    title = models.CharField(_("title"), max_length=200, blank=True)
    pinned = models.BooleanField(_("pinned"), default=False)
    archived = models.BooleanField(_("archived"), default=False)
    deleted_at = models.DateTimeField(null=True, blank=True)

    version = models.PositiveBigIntegerField(default=0)
    epoch = models.PositiveBigIntegerField(default=0)
    live_tokens = models.PositiveBigIntegerField(default=0)
    last_position = models.PositiveIntegerField(default=0)
    base = models.JSONField(null=True, blank=True)

    # Compaction's memory of this conversation.
    paused = models.BooleanField(_("automatic compaction paused"), default=False)
    breaker = models.JSONField(default=dict, blank=True)

    last_answer_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now_add=True)

    accessed_as: str = ""  # the role of the person who asked for it; set by chat/access.py, stored nowhere

    class Meta:
        verbose_name = _("conversation")
        verbose_name_plural = _("conversations")
        permissions = [
            ("view_content", _("Can read what conversations say")),
            ("purge_conversation", _("Can remove conversations for ever")),
            ("erase_message", _("Can erase single messages")),
        ]
        indexes = [
            models.Index(
                fields=["owner", "-pinned", "-updated_at"],
                condition=Q(deleted_at__isnull=True),
                name="conversations_of_owner",
            ),
            models.Index(fields=["deleted_at"], condition=Q(deleted_at__isnull=False), name="conversations_to_purge"),
        ]

    def __str__(self) -> str:
        return str(self.id)  # never the title: it repeats what was said, and this text goes into logs and the admin


class Role(models.TextChoices):
    OWNER = "owner", _("owner")
    MEMBER = "member", _("member")
    VIEWER = "viewer", _("viewer")


class Participant(models.Model):
    """A person in a conversation; the owner is one too, so that every query starts from here."""

    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="participants")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="participations")
    role = models.CharField(max_length=10, choices=Role, default=Role.MEMBER)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["conversation", "user"], name="one_role_per_person")]

    def __str__(self) -> str:
        return f"{self.user}: {self.role}"


class Invitation(models.Model):
    """A link that lets whoever has it join. Only the token's SHA-256 is stored: the link is shown only once."""

    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=10, choices=Role, default=Role.MEMBER)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    uses = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"#{self.pk} {self.role}"


class TurnState(models.TextChoices):
    QUEUED = "queued", _("queued")
    RUNNING = "running", _("running")
    DONE = "done", _("done")
    STOPPED = "stopped", _("stopped")
    FAILED = "failed", _("failed")
    INTERRUPTED = "interrupted", _("interrupted")


class Turn(models.Model):
    """One answer, start to end. Claimed by compare-and-set on (state, attempt) with the database's clock."""

    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="turns")
    user_message = models.ForeignKey(
        "Message", on_delete=models.CASCADE, null=True, blank=True, related_name="answered_by"
    )
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    state = models.CharField(max_length=12, choices=TurnState, default=TurnState.QUEUED)
    attempt = models.PositiveIntegerField(default=0)
    worker = models.CharField(max_length=200, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    stop_requested_at = models.DateTimeField(null=True, blank=True)
    has_output = models.BooleanField(default=False)  # something was checkpointed or a tool ran: never run again
    continues = models.BooleanField(default=False)  # goes on after an interrupted answer, without a new question
    waits_for = models.ForeignKey(
        "compaction.Compaction", on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    rounds = models.PositiveIntegerField(default=0)
    error_code = models.CharField(max_length=60, blank=True)
    error_text = models.TextField(blank=True)
    retryable = models.BooleanField(default=False)
    usage = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    claimed_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["conversation"], condition=Q(state="running"), name="one_running_turn")
        ]
        indexes = [
            models.Index(fields=["conversation", "-id"], name="turns_newest_first"),
            models.Index(fields=["conversation", "id"], condition=Q(state="queued"), name="queued_turns"),
            models.Index(fields=["created_at"], condition=Q(state="queued"), name="queued_turns_by_age"),
            models.Index(fields=["lease_until"], condition=Q(state="running"), name="running_turns_by_lease"),
        ]

    def __str__(self) -> str:
        return f"#{self.pk} {self.state}"


class Usage(Turn):
    """Turns as the usage page counts them."""

    class Meta:
        proxy = True
        verbose_name = _("usage")
        verbose_name_plural = _("usage")


class MessageStatus(models.TextChoices):
    COMPLETE = "complete", _("complete")
    STREAMING = "streaming", _("streaming")
    INTERRUPTED = "interrupted", _("interrupted")
    FAILED = "failed", _("failed")


LIVE = Q(position__isnull=False, retired_at__isnull=True, compacted_into__isnull=True)

# Rows of answers that said nothing were put away and belong to nobody.
SAID_NOTHING = Q(
    role="assistant", retired_at__isnull=False, retired_by__isnull=True, content="", thinking="", tool_calls=[]
)


class Message(models.Model):
    """One message. Its content never changes once its turn has started (a person's) or ended (an agent's).

    Order is (position, is_summary, id). Without a position it is a queued draft outside every view and count.
    `token_count` is raw o200k (tokens); `usage` what the provider reported for it. `follows` is noted when it is
    retired: the position of the message before it, 0 for none (see `chat/lineage.py`).
    """

    # Every compaction writes its rows anew into each index: those that hold a relation hold only rows that have it.
    conversation = models.ForeignKey(
        Conversation, on_delete=models.CASCADE, related_name="messages", db_index=False
    )  # the indexes below begin with it
    turn = models.ForeignKey(
        Turn, on_delete=models.SET_NULL, null=True, blank=True, related_name="messages", db_index=False
    )
    position = models.PositiveIntegerField(null=True, blank=True)
    role = models.CharField(max_length=10)
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+", db_index=False
    )
    author_name = models.CharField(max_length=150, blank=True)
    content = models.TextField(blank=True)
    parts = models.JSONField(default=list, blank=True)
    tool_calls = models.JSONField(default=list, blank=True)
    tool_call_id = models.CharField(max_length=200, blank=True)
    tool_name = models.CharField(max_length=200, blank=True)
    is_error = models.BooleanField(default=False)
    thinking = models.TextField(blank=True)
    status = models.CharField(max_length=12, choices=MessageStatus, default=MessageStatus.COMPLETE)
    token_count = models.PositiveIntegerField(default=0)
    usage = models.JSONField(null=True, blank=True)

    compacted_at = models.DateTimeField(null=True, blank=True)
    compacted_into = models.ForeignKey(
        "self",
        on_delete=models.DO_NOTHING,  # chat/summary_guard.py
        null=True,
        blank=True,
        related_name="originals",
        db_index=False,  # what a summary stands for is found by its place
        db_constraint=False,
    )
    is_summary = models.BooleanField(default=False)
    pinned = models.BooleanField(default=False)
    cleared_at = models.DateTimeField(null=True, blank=True)
    retired_at = models.DateTimeField(null=True, blank=True)
    retired_by = models.ForeignKey(
        Turn, on_delete=models.SET_NULL, null=True, blank=True, related_name="retires", db_index=False
    )
    follows = models.IntegerField(null=True, blank=True)  # without a check: adding one would read the whole table

    client_id = models.CharField(max_length=100, null=True, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["position", "is_summary", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["conversation", "position"],
                condition=Q(is_summary=False, position__isnull=False),
                name="one_message_per_position",
            ),
            models.UniqueConstraint(
                fields=["conversation", "author", "client_id"],
                condition=Q(client_id__isnull=False),
                name="one_message_per_client_id",
            ),
            models.CheckConstraint(
                condition=Q(compacted_at__isnull=True, compacted_into__isnull=True)
                | Q(compacted_at__isnull=False, compacted_into__isnull=False),
                name="compacted_at_with_compacted_into",
            ),
            models.CheckConstraint(
                condition=Q(compacted_into__isnull=True) | ~Q(compacted_into=F("id")), name="no_summary_of_itself"
            ),
        ]
        indexes = [
            models.Index(fields=["conversation", "position", "is_summary", "id"], name="messages_in_order"),
            # In the whole order: PostgreSQL, before it knows its tables, would sort all of them for the newest fifty.
            models.Index(
                fields=["conversation", "position", "is_summary", "id"], condition=LIVE, name="live_messages_in_order"
            ),
            models.Index(fields=["conversation", "position"], condition=Q(pinned=True), name="pinned_messages"),
            models.Index(fields=["conversation", "id"], condition=Q(is_summary=True), name="summaries"),
            models.Index(fields=["turn"], condition=Q(turn__isnull=False), name="messages_of_turn"),
            models.Index(fields=["author"], condition=Q(author__isnull=False), name="messages_of_author"),
            models.Index(fields=["retired_by"], condition=Q(retired_by__isnull=False), name="retired_by_turn"),
        ]

    def __str__(self) -> str:
        return f"#{self.pk} {self.role} at {self.position}"


class AttachmentKind(models.TextChoices):
    TEXT = "text", _("text")
    IMAGE = "image", _("image")
    DOCUMENT = "document", _("document")


class Attachment(models.Model):
    """A file of a conversation, served only to its people.

    `text` is what was extracted and `token_cost` what all of it costs; `sent_tokens` what the message that brought it
    carries: of a long text its beginning, of what a tool wrote nothing.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="attachments")
    message = models.ForeignKey(Message, on_delete=models.CASCADE, null=True, blank=True, related_name="attachments")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    file = models.FileField(upload_to="conversations/")
    name = models.CharField(max_length=255)
    kind = models.CharField(max_length=10, choices=AttachmentKind)
    mime = models.CharField(max_length=100)
    size = models.PositiveBigIntegerField()
    sha256 = models.CharField(max_length=64)
    text = models.TextField(blank=True)
    token_cost = models.PositiveIntegerField(default=0)
    sent_tokens = models.PositiveIntegerField(default=0, db_default=0)
    width = models.PositiveIntegerField(default=0)
    height = models.PositiveIntegerField(default=0)
    pages = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["conversation", "created_at"], name="attachments_in_order")]

    def __str__(self) -> str:
        return self.name
