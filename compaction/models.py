"""One run of a compaction, kept for ever: what was covered, what the model sees instead, what it cost."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


class Reason(models.TextChoices):
    MANUAL = "manual", _("asked for")
    AUTO = "auto", _("automatic")
    HARD = "hard", _("window nearly full")
    OVERFLOW = "overflow", _("refused by the provider as too long")


class State(models.TextChoices):
    QUEUED = "queued", _("queued")
    RUNNING = "running", _("running")
    READY = "ready", _("ready")
    APPLIED = "applied", _("applied")
    FAILED = "failed", _("failed")
    STALE = "stale", _("overtaken by a change")
    CANCELLED = "cancelled", _("cancelled")
    SKIPPED = "skipped", _("not needed or not possible")
    UNDONE = "undone", _("undone")


UNFINISHED_STATES = (State.QUEUED, State.RUNNING)
OPEN_STATES = (State.QUEUED, State.RUNNING, State.READY)


class Compaction(models.Model):
    """One run. Every attempt leaves a row, failures too; a refusal leaves one `skipped` row per code and situation."""

    conversation = models.ForeignKey("chat.Conversation", on_delete=models.CASCADE, related_name="compactions")
    reason = models.CharField(_("reason"), max_length=10, choices=Reason)
    strategy = models.CharField(_("strategy"), max_length=40, default="balanced")
    generation = models.PositiveIntegerField(default=1)
    state = models.CharField(_("state"), max_length=10, choices=State, default=State.QUEUED)
    blocking = models.BooleanField(default=False)
    instructions = models.TextField(_("what to keep"), blank=True)

    # The run: claimed by compare-and-set on (state, attempt), alive while `heartbeat_at` is young.
    attempt = models.PositiveIntegerField(default=0)
    worker = models.CharField(max_length=200, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    stage = models.CharField(max_length=20, blank=True)
    fraction = models.FloatField(default=0.0)

    # What was covered; positions are inclusive. The hash guards the commit.
    covered_from = models.PositiveIntegerField(null=True, blank=True)
    covered_to = models.PositiveIntegerField(null=True, blank=True)
    covered_ids = models.JSONField(default=list, blank=True)
    asked_at_position = models.PositiveIntegerField(default=0)  # where its card stands when nothing was covered
    covered_hash = models.CharField(max_length=64, blank=True)
    covered_count = models.PositiveIntegerField(_("messages compacted"), default=0)
    keep_recent_count = models.PositiveIntegerField(_("messages kept"), default=0)
    prefix = models.JSONField(null=True, blank=True)
    summary_message = models.OneToOneField(
        "chat.Message", on_delete=models.SET_NULL, null=True, blank=True, related_name="compaction"
    )

    # Tokens as the meter counted them.
    tokens_before = models.PositiveIntegerField(_("tokens before"), null=True, blank=True)
    tokens_after = models.PositiveIntegerField(_("tokens after"), null=True, blank=True)
    floor = models.PositiveIntegerField(_("floor (tokens)"), null=True, blank=True)
    gain = models.IntegerField(_("gain (tokens)"), null=True, blank=True)
    quality = models.JSONField(_("quality"), default=dict, blank=True)

    # Who received the text, and what it cost.
    channel = models.ForeignKey(
        "agents.Channel", on_delete=models.SET_NULL, null=True, blank=True, related_name="+", verbose_name=_("channel")
    )
    channel_name = models.CharField(max_length=100, blank=True)
    model = models.CharField(_("model"), max_length=200, blank=True)
    usage = models.JSONField(default=dict, blank=True)
    cost = models.DecimalField(_("cost"), max_digits=12, decimal_places=6, null=True, blank=True)
    duration_ms = models.PositiveIntegerField(_("duration (ms)"), null=True, blank=True)

    # Why it did not happen. Sentences are made from code and figures when they are shown; the text is that of the log.
    error_code = models.CharField(_("code"), max_length=60, blank=True)
    error_text = models.TextField(_("why"), blank=True)
    error_figures = models.JSONField(default=dict, db_default={}, blank=True)
    retryable = models.BooleanField(default=False)
    # Why the summary was made without a model, where one was wanted.
    fallback_code = models.CharField(
        _("made without a model because of"), max_length=60, blank=True, default="", db_default=""
    )
    fallback_figures = models.JSONField(default=dict, db_default={}, blank=True)
    situation = models.CharField(max_length=64, blank=True, help_text="What a refusal was about: one row for each.")

    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    undo_requested_at = models.DateTimeField(null=True, blank=True)
    undo_requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(_("asked at"), auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    applied_at = models.DateTimeField(null=True, blank=True)
    undone_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        verbose_name = _("compaction")
        verbose_name_plural = _("compactions")
        constraints = [
            models.UniqueConstraint(
                fields=["conversation"],
                condition=Q(state__in=["queued", "running", "ready"]),
                name="one_open_compaction",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["ready", "applied"]) | Q(prefix__isnull=False),
                name="ready_compaction_has_prefix",
            ),
        ]
        indexes = [
            models.Index(fields=["conversation", "-id"], name="compaction_of_conversation"),
            models.Index(fields=["heartbeat_at"], condition=Q(state="running"), name="running_compactions"),
            models.Index(fields=["created_at"], condition=Q(state="queued"), name="queued_compactions"),
            models.Index(
                fields=["conversation"],
                condition=Q(undo_requested_at__isnull=False, undone_at__isnull=True),
                name="undos_waiting",
            ),
        ]

    def __str__(self) -> str:
        return f"#{self.pk} {self.get_reason_display()}: {self.get_state_display()}"
