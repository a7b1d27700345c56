"""Channels (where models live) and agents (who answers)."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any, Self
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from agents import known_models, secrets, tools


class Supplier(models.TextChoices):
    """Whose endpoint it is: decides the few parameters in which OpenAI-compatible servers differ."""

    OPENAI = "openai", "OpenAI"
    AZURE = "azure", "Azure OpenAI"
    ANTHROPIC = "anthropic", "Anthropic"
    GOOGLE = "google", "Google"
    DEEPSEEK = "deepseek", "DeepSeek"
    ALIBABA = "alibaba", "Alibaba"
    GROQ = "groq", "Groq"
    XAI = "xai", "xAI"
    MISTRAL = "mistral", "Mistral"
    OPENROUTER = "openrouter", "OpenRouter"
    OLLAMA = "ollama", "Ollama"
    VLLM = "vllm", "vLLM"
    DEMO = "demo", _("Built-in demo model")
    OTHER = "other", _("Other, OpenAI-compatible")


def validate_address(address: str) -> None:
    """An http address with a host. Names without a dot are common inside a network of containers, so they are fine."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or any(c.isspace() for c in address):
        raise ValidationError(_("Give an address such as https://api.example.com/v1."), code="address")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValidationError(_("Give the bare address: no user, no password, no question mark."), code="address")


class Channel(models.Model):
    """A provider's endpoint. Its key is encrypted at rest and can be written but never read back."""

    name = models.CharField(_("name"), max_length=100, unique=True)
    supplier = models.CharField(_("supplier"), max_length=20, choices=Supplier, default=Supplier.OTHER)
    base_url = models.CharField(
        _("base URL"),
        max_length=500,
        validators=[validate_address],
        help_text=_("The address that ends in /v1."),
    )
    api_key_encrypted = models.TextField(blank=True, editable=False)
    is_auxiliary = models.BooleanField(
        _("auxiliary"), default=False, help_text=_("May be used to write the summaries of compactions.")
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    prices = models.JSONField(
        _("prices"),
        default=dict,
        db_default={},
        blank=True,
        help_text=_("US dollars for a million tokens read and for a million written, by model."),
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    # Last, because from here on the name no longer means django.db.models in this class.
    models = models.JSONField(
        _("models"), default=list, blank=True, help_text=_("Names of models, the first is the default.")
    )

    _stored_address: tuple[str, str] | None = None
    _key_is_new = False

    class Meta:
        ordering = ["name"]
        verbose_name = _("channel")
        verbose_name_plural = _("channels")

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Clears the key when supplier or address change, so that no key is ever sent to another server."""
        stored = self._stored_address or Channel.objects.filter(pk=self.pk).values_list("supplier", "base_url").first()
        if stored not in (None, (self.supplier, self.base_url)) and not self._key_is_new:
            self.api_key_encrypted = ""
            if kwargs.get("update_fields") is not None:
                kwargs["update_fields"] = {*kwargs["update_fields"], "api_key_encrypted"}
        super().save(*args, **kwargs)
        self._stored_address = (self.supplier, self.base_url)
        self._key_is_new = False

    @classmethod
    def from_db(cls, db: str | None, field_names: Collection[str], values: Collection[Any], **options: Any) -> Self:
        channel = super().from_db(db, field_names, values, **options)
        if {"supplier", "base_url"} <= channel.__dict__.keys():
            channel._stored_address = (channel.supplier, channel.base_url)
        return channel

    def cost_of(self, model: str, usage: Mapping[str, Any]) -> Decimal | None:
        """What a call cost (US dollars) by the prices that were entered; None where there are none or nothing was used.

        Tokens read from a cache count in full: what they cost less, no supplier's answer says.
        """
        price, used = self.prices.get(model), (usage.get("prompt_tokens"), usage.get("completion_tokens"))
        if not price or used == (None, None):
            return None
        parts = (Decimal(str(each)) * (tokens or 0) for each, tokens in zip(price, used, strict=True))
        total = sum(parts, Decimal(0))
        return (total / 1_000_000).quantize(Decimal("0.000001"))

    @property
    def api_key(self) -> str:
        """The key in the clear, for the call alone; empty where none is set."""
        return secrets.decrypt(self.api_key_encrypted) if self.api_key_encrypted else ""

    @api_key.setter
    def api_key(self, key: str) -> None:
        self.api_key_encrypted = secrets.encrypt(key) if key else ""
        self._key_is_new = True


def _minutes_or_off(value: int) -> None:
    if value == 0 or value < -1:
        raise ValidationError(_("Give a number of minutes, or -1 to switch this off."), code="minutes_or_off")


def _count_or_off(value: int) -> None:
    if value == 0 or value < -1:
        raise ValidationError(_("Give a number above 0, or -1 to switch this off."), code="count_or_off")


def tools_by_default() -> list[str]:
    """What a new agent may use: what is in reach of its own conversation and nothing else."""
    return [tool.name for tool in tools.all_tools() if tool.by_default]


class WholeNumberField(models.PositiveSmallIntegerField):  # type: ignore[type-arg]
    """A small number that is never cut to one: 0.7 would become 0, which switches off what was meant to be a share."""

    def to_python(self, value: Any) -> Any:
        if isinstance(value, float) and not value.is_integer():
            raise ValidationError(_("Give a whole number, not %(value)s.") % {"value": value}, code="whole_number")
        return super().to_python(value)

    def get_prep_value(self, value: Any) -> Any:
        if isinstance(value, float) and not value.is_integer():
            raise ValueError(f"{self.name} is a whole number, not {value}")
        return super().get_prep_value(value)

    def deconstruct(self) -> Any:
        """To the database it is the number it always was."""
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.PositiveSmallIntegerField", args, kwargs


class Agent(models.Model):
    """Who answers: a model with its instructions, and how its conversations are compacted."""

    name = models.CharField(_("name"), max_length=100, unique=True)
    description = models.CharField(_("description"), max_length=300, blank=True)
    system_prompt = models.TextField(_("system prompt"), blank=True)
    hide_system_prompt = models.BooleanField(_("hide the system prompt from people"), default=False)
    channel = models.ForeignKey(Channel, on_delete=models.PROTECT, related_name="agents", verbose_name=_("channel"))
    model = models.CharField(_("model"), max_length=200, blank=True, help_text=_("Empty: the channel's first."))
    temperature = models.FloatField(
        _("temperature"), null=True, blank=True, validators=[MinValueValidator(0.0), MaxValueValidator(2.0)]
    )
    max_output_tokens = models.PositiveIntegerField(_("longest answer (tokens)"), null=True, blank=True)
    context_window = models.PositiveIntegerField(
        _("context window (tokens)"),
        default=128_000,
        validators=[MinValueValidator(1_000), MaxValueValidator(2_000_000)],
    )
    window_source = models.CharField(_("source of the window"), max_length=200, blank=True)
    sees_images = models.BooleanField(_("sees images"), default=False)
    tools = models.JSONField(
        _("tools"), default=tools_by_default, blank=True, help_text=_("Names of the tools it may use.")
    )
    keeps_text_with_supplier = models.BooleanField(
        _("keep its text with its supplier"),
        default=False,
        help_text=_("Summaries are written by the agent's own channel, not by the site's auxiliary channel."),
    )
    enabled = models.BooleanField(_("enabled"), default=True)

    compaction_threshold = WholeNumberField(
        # xgettext:no-python-format
        _("compaction threshold (% of the window)"),
        null=True,
        blank=True,
        validators=[MaxValueValidator(100)],
        help_text=_("Empty: the built-in ladder. 1-100: percent of the window. 0: no automatic compaction."),
    )
    compaction_keep_recent = models.PositiveSmallIntegerField(
        _("messages kept word for word"), default=4, validators=[MinValueValidator(2), MaxValueValidator(20)]
    )
    compaction_strategy = models.CharField(_("compaction strategy"), max_length=40, default="balanced")
    # No database constraint: a chosen channel that was deleted must stay chosen, so that its summaries fail with
    # `auxiliary_unavailable` and never go silently to another supplier.
    auxiliary_channel = models.ForeignKey(
        Channel,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("auxiliary channel"),
        limit_choices_to={"is_auxiliary": True},
    )
    auxiliary_model = models.CharField(_("auxiliary model"), max_length=200, blank=True)
    clear_thinking_after_minutes = models.IntegerField(
        _("clear thinking after (minutes)"), default=5, validators=[_minutes_or_off]
    )
    clear_tool_results_after_minutes = models.IntegerField(
        _("clear tool results after (minutes)"), default=60, validators=[_minutes_or_off]
    )
    tool_results_to_keep = models.IntegerField(_("tool results to keep"), default=5, validators=[_count_or_off])
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = _("agent")
        verbose_name_plural = _("agents")
        constraints = [
            models.CheckConstraint(
                condition=models.Q(compaction_threshold__isnull=True) | models.Q(compaction_threshold__lte=100),
                name="agent_threshold_is_a_percentage",
            ),
            models.CheckConstraint(
                condition=models.Q(compaction_keep_recent__gte=2, compaction_keep_recent__lte=20),
                name="agent_keep_recent_2_to_20",
            ),
            models.CheckConstraint(
                condition=~models.Q(clear_thinking_after_minutes=0)
                & ~models.Q(clear_tool_results_after_minutes=0)
                & ~models.Q(tool_results_to_keep=0),
                name="agent_clearing_is_not_zero",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def model_name(self) -> str:
        """The model that answers: the agent's own, else the channel's first, else empty."""
        return self.model or next(iter(self.channel.models), "")

    @property
    def can_see(self) -> bool:
        """Whether images may be sent: it was said so, or the model is known to see."""
        return self.sees_images or known_models.sees_images(self.model_name)


class McpTransport(models.TextChoices):
    """How a server of tools is reached."""

    HTTP = "http", _("Streamable HTTP")
    STDIO = "stdio", _("Program on this machine (stdio)")


class McpServer(models.Model):
    """A server of tools (MCP). Its headers or environment are encrypted at rest and can be written but never read."""

    name = models.CharField(
        _("name"),
        max_length=20,
        unique=True,
        validators=[
            RegexValidator(
                r"^[a-z0-9]+(?:[_-][a-z0-9]+)*\Z",
                _("Lower-case letters and digits, with single _ or - between them."),
            )
        ],
        help_text=_("Stands before the names of its tools, as in github__search."),
    )
    transport = models.CharField(_("transport"), max_length=10, choices=McpTransport, default=McpTransport.HTTP)
    url = models.CharField(_("address"), max_length=500, blank=True, validators=[validate_address])
    command = models.JSONField(_("command"), default=list, blank=True)
    secrets_encrypted = models.TextField(blank=True, editable=False)
    clearable = models.BooleanField(
        _("old results may be cleared"),
        default=True,
        help_text=_("After idleness the model no longer sees old results of these tools; people still do."),
    )
    keep_results = models.BooleanField(
        _("keep results when compacting"),
        default=False,
        help_text=_("The summariser reads the results of these tools whole."),
    )
    keep_session = models.BooleanField(
        _("one session for a whole answer"),
        default=False,
        db_default=False,
        help_text=_(
            "For servers that remember something between calls, such as a browser or a login. "
            "Their calls then run one after the other."
        ),
    )
    call_timeout_seconds = models.PositiveSmallIntegerField(
        _("longest call (seconds)"), default=60, validators=[MinValueValidator(1), MaxValueValidator(600)]
    )
    enabled = models.BooleanField(_("enabled"), default=True)
    tools = models.JSONField(_("tools"), default=list, blank=True, editable=False)
    tools_read_at = models.DateTimeField(_("tools read at"), null=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    _secrets_are_new = False

    class Meta:
        ordering = ["name"]
        verbose_name = _("tool server (MCP)")
        verbose_name_plural = _("tool servers (MCP)")

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Clears secrets and tools when the server is another one, so that no secret is ever sent elsewhere."""
        if self.pk and kwargs.get("update_fields") is None:
            stored = McpServer.objects.filter(pk=self.pk).values_list("transport", "url", "command").first()
            if stored not in (None, (self.transport, self.url, self.command)):
                self.tools, self.tools_read_at = [], None
                if not self._secrets_are_new:
                    self.secrets_encrypted = ""
        super().save(*args, **kwargs)
        self._secrets_are_new = False

    def clean(self) -> None:
        """Raises ValidationError where the server has no address, or a program is not allowed."""
        if self.transport == McpTransport.HTTP and not self.url:
            raise ValidationError({"url": _("Give the server's address, such as https://tools.example.com/mcp.")})
        if self.transport == McpTransport.STDIO:
            if not settings.MCP_STDIO:
                raise ValidationError(
                    {"transport": _("Programs on this machine are not allowed as servers; MCP_STDIO allows them.")}
                )
            if not self.command:
                raise ValidationError({"command": _("Give the program and its arguments, one a line.")})

    @property
    def secrets(self) -> dict[str, str]:
        """Headers, or the environment of a program, in the clear: for the call alone."""
        if not self.secrets_encrypted:
            return {}
        stored: dict[str, str] = json.loads(secrets.decrypt(self.secrets_encrypted))
        return stored

    @secrets.setter
    def secrets(self, values: dict[str, str]) -> None:
        self.secrets_encrypted = secrets.encrypt(json.dumps(values)) if values else ""
        self._secrets_are_new = True

    def note_tools(self, found: list[dict[str, Any]]) -> None:
        """Store the tools the server has now."""
        self.tools, self.tools_read_at = found, timezone.now()
        self.save(update_fields=["tools", "tools_read_at", "updated_at"])


class Calibration(models.Model):
    """How a model's own token counts relate to ours: a moving average of reported / estimated (0.5-2.0)."""

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="calibrations")
    model = models.CharField(max_length=200)
    factor = models.FloatField(default=1.0)
    reports = models.PositiveIntegerField(default=0)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["channel", "model"], name="one_calibration_per_channel_and_model")
        ]

    def __str__(self) -> str:
        return f"{self.channel}/{self.model}: {self.factor:.2f}"


class SiteSettings(models.Model):
    """What holds for the whole site; one row."""

    default_auxiliary_channel = models.ForeignKey(
        Channel,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        verbose_name=_("default auxiliary channel"),
        limit_choices_to={"is_auxiliary": True},
    )
    default_auxiliary_model = models.CharField(_("default auxiliary model"), max_length=200, blank=True)

    class Meta:
        verbose_name = _("site settings")
        verbose_name_plural = _("site settings")
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="one_row_of_site_settings")]

    def __str__(self) -> str:
        return str(_("Site settings"))

    @classmethod
    def current(cls) -> SiteSettings:
        """The one row; made on first use."""
        return cls.objects.get_or_create(id=1)[0]
