"""Channels in Django's admin. Agents are administered in `compaction/admin.py`, where their ladder can be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agents.mcp_admin import McpServerAdmin
from agents.models import Agent, Channel, SiteSettings
from agents.provider import test_connection
from agents.requests import Endpoint

__all__ = ["ChannelAdmin", "McpServerAdmin", "SiteSettingsAdmin"]

if TYPE_CHECKING:
    _ChannelForm = forms.ModelForm[Channel]
    _SettingsForm = forms.ModelForm[SiteSettings]
    _ChannelAdmin = admin.ModelAdmin[Channel]
    _SettingsAdmin = admin.ModelAdmin[SiteSettings]
else:  # these classes take no type at run time
    _ChannelForm = _SettingsForm = forms.ModelForm
    _ChannelAdmin = _SettingsAdmin = admin.ModelAdmin


class LinesField(forms.CharField):
    """A list of names, one a line."""

    widget = forms.Textarea(attrs={"rows": 5, "cols": 60})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def clean(self, value: Any) -> list[str]:
        lines = (line.strip() for line in (super().clean(value) or "").splitlines())
        return list(dict.fromkeys(line for line in lines if line))


class PricesField(LinesField):
    """Prices by model, one a line: its name, what a million tokens read cost, what a million written."""

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return "\n".join(f"{model} {read:g} {written:g}" for model, (read, written) in value.items())

    def clean(self, value: Any) -> Any:
        return dict(self._price(line) for line in super().clean(value))

    def _price(self, line: str) -> tuple[str, list[float]]:
        try:
            model, read, written = line.rsplit(maxsplit=2)
            price = [float(read), float(written)]
        except ValueError:
            price = []
        if not price or not all(0 <= each < 1_000_000 for each in price):
            raise forms.ValidationError(
                _("“%(line)s” is not a model's name and two prices.") % {"line": line}, code="price"
            )
        return model, price


class ChannelForm(_ChannelForm):
    """The key can be written and removed here, never read."""

    models = LinesField(
        label=gettext_lazy("Models"),
        required=False,
        help_text=gettext_lazy("One name a line; the first is the default. “Test connection” lists what there is."),
    )
    prices = PricesField(
        label=gettext_lazy("Prices"),
        required=False,
        help_text=gettext_lazy(
            "One model a line with two prices: US dollars for a million tokens read and for a million written, as in "
            "“small-model 0.4 1.6”. Only models with a price have a cost."
        ),
    )
    new_api_key = forms.CharField(
        label=gettext_lazy("API key"),
        required=False,
        strip=True,
        max_length=2_000,
        widget=forms.PasswordInput(render_value=False, attrs={"autocomplete": "new-password", "size": 60}),
    )
    remove_api_key = forms.BooleanField(label=gettext_lazy("Remove the stored key"), required=False)

    class Meta:
        model = Channel
        fields = ("name", "supplier", "base_url", "models", "prices", "is_auxiliary", "enabled")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        stored = bool(self.instance.api_key_encrypted)
        self.fields["new_api_key"].help_text = (
            _("A key is stored, encrypted. Leave this empty to keep it; a new supplier or address clears it.")
            if stored
            else _("None is stored. It is encrypted and can never be read back.")
        )
        if not stored:
            self.fields["remove_api_key"].widget = forms.HiddenInput()

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("enabled") and not cleaned.get("models") and "models" in cleaned:
            self.add_error("models", _("Name at least one model, or switch the channel off."))
        if cleaned.get("new_api_key") and cleaned.get("remove_api_key"):
            self.add_error("remove_api_key", _("Either give a new key or remove the stored one."))
        return cleaned

    def save(self, commit: bool = True) -> Channel:
        if key := self.cleaned_data.get("new_api_key"):
            self.instance.api_key = key
        elif self.cleaned_data.get("remove_api_key"):
            self.instance.api_key = ""
        return super().save(commit)


@admin.register(Channel)
class ChannelAdmin(_ChannelAdmin):
    form = ChannelForm
    change_form_template = "admin/agents/channel/change_form.html"
    list_display = ("name", "supplier", "base_url", "has_key", "is_auxiliary", "enabled", "default_model", "used_by")
    list_filter = ("is_auxiliary", "enabled", "supplier")
    search_fields = ("name", "base_url")
    actions = ("test_connection",)
    fields = (
        "name",
        "supplier",
        "base_url",
        ("new_api_key", "remove_api_key"),
        "models",
        "prices",
        "is_auxiliary",
        "enabled",
    )

    @admin.display(boolean=True, description=gettext_lazy("key"))
    def has_key(self, channel: Channel) -> bool:
        return bool(channel.api_key_encrypted)

    @admin.display(description=gettext_lazy("default model"))
    def default_model(self, channel: Channel) -> str:
        more = len(channel.models) - 1
        return f"{channel.models[0]} (+{more})" if more > 0 else next(iter(channel.models), "–")

    @admin.display(description=gettext_lazy("agents"))
    def used_by(self, channel: Channel) -> str:
        url = reverse("admin:agents_agent_changelist")
        return format_html('<a href="{}?channel__id__exact={}">{}</a>', url, channel.pk, channel.agents.count())

    @admin.action(description=gettext_lazy("Test connection"))
    def test_connection(self, request: HttpRequest, channels: QuerySet[Channel]) -> None:
        for channel in channels[:10]:
            self._test(request, channel)

    def response_change(self, request: HttpRequest, obj: Channel) -> HttpResponse:
        if "_test" in request.POST:
            self._test(request, obj)
            return HttpResponseRedirect(request.path)
        return super().response_change(request, obj)

    def response_add(self, request: HttpRequest, obj: Channel, post_url_continue: str | None = None) -> HttpResponse:
        if "_test" in request.POST:
            self._test(request, obj)
            return HttpResponseRedirect(reverse("admin:agents_channel_change", args=[obj.pk]))
        return super().response_add(request, obj, post_url_continue)

    def save_model(self, request: HttpRequest, obj: Channel, form: Any, change: bool) -> None:
        had_key = bool(change and form.initial and Channel.objects.get(pk=obj.pk).api_key_encrypted)
        super().save_model(request, obj, form, change)
        if had_key and not obj.api_key_encrypted and not form.cleaned_data.get("remove_api_key"):
            text = _("The stored key was cleared, because supplier or address changed. Enter the key for the new one.")
            self.message_user(request, text, messages.WARNING)
        for agent in Agent.objects.filter(Q(channel=obj) | Q(auxiliary_channel=obj)):
            for text in _left_without(agent, obj):
                self.message_user(request, text, messages.WARNING)

    def _test(self, request: HttpRequest, channel: Channel) -> None:
        """Ask the provider and say what came of it."""
        report = test_connection(Endpoint.of(channel))
        if report.ok:
            text = _("%(name)s: connected, the model answered in %(ms)s ms.")
            self.message_user(request, text % {"name": channel, "ms": f"{report.latency_ms:,}"}, messages.SUCCESS)
        else:
            text = _("%(name)s: %(message)s")
            self.message_user(request, text % {"name": channel, "message": report.message}, messages.ERROR)
        if report.models:
            shown = ", ".join(report.models[:40]) + (" …" if len(report.models) > 40 else "")
            self.message_user(request, _("Models there: %(models)s") % {"models": shown}, messages.INFO)


def _left_without(agent: Agent, channel: Channel) -> list[str]:
    """What a changed channel means for an agent that uses it."""
    texts = []
    if agent.channel_id == channel.pk and not channel.enabled:
        texts.append(_("The agent “%(agent)s” cannot answer while this channel is off.") % {"agent": agent})
    if agent.auxiliary_channel_id == channel.pk and not (channel.enabled and channel.is_auxiliary and channel.models):
        texts.append(_("The agent “%(agent)s” cannot be compacted: this is its auxiliary channel.") % {"agent": agent})
    return texts


class SiteSettingsForm(_SettingsForm):
    class Meta:
        model = SiteSettings
        fields = ("default_auxiliary_channel", "default_auxiliary_model")
        help_texts = {
            "default_auxiliary_channel": gettext_lazy(
                "Writes the summaries of agents that have no auxiliary channel of their own and do not keep their text "
                "with their supplier. Empty: each agent's own channel."
            ),
            "default_auxiliary_model": gettext_lazy("Empty: the channel's first."),
        }

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        channel, model = cleaned.get("default_auxiliary_channel"), cleaned.get("default_auxiliary_model")
        if channel and not channel.enabled:
            self.add_error("default_auxiliary_channel", _("This channel is switched off."))
        if channel and model and model not in channel.models:
            self.add_error("default_auxiliary_model", _("This channel has no model of that name."))
        if model and not channel:
            self.add_error("default_auxiliary_model", _("Choose a channel for this model first."))
        return cleaned


@admin.register(SiteSettings)
class SiteSettingsAdmin(_SettingsAdmin):
    """One row: its list is its page."""

    form = SiteSettingsForm

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: SiteSettings | None = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:agents_sitesettings_change", args=[SiteSettings.current().pk]))
