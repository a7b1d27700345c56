"""Agents in Django's admin, with all their settings and the ladder these come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.forms.widgets import Script
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agents import mcp_tools, tools
from agents.known_models import known_model, window_of
from agents.models import Agent, Channel
from compaction.agent_warnings import ladder_of, warnings_of
from compaction.strategies import strategies
from compaction.thresholds import Thresholds

if TYPE_CHECKING:
    _AgentForm = forms.ModelForm[Agent]
    _AgentAdmin = admin.ModelAdmin[Agent]
else:  # these classes take no type at run time
    _AgentForm = forms.ModelForm
    _AgentAdmin = admin.ModelAdmin


class AgentForm(_AgentForm):
    """An agent's settings, each checked with a sentence that says what would be right."""

    context_window = forms.IntegerField(
        label=gettext_lazy("Context window (tokens)"),
        required=False,
        min_value=1_000,
        max_value=2_000_000,
        help_text=gettext_lazy(
            "Empty: what is known of the model. Local servers often run with less than it can take."
        ),
    )
    compaction_strategy = forms.ChoiceField(label=gettext_lazy("Compaction strategy"), widget=forms.RadioSelect)
    auxiliary = forms.ChoiceField(
        label=gettext_lazy("Auxiliary channel"),
        required=False,
        help_text=gettext_lazy("Writes the summaries. Only channels marked as auxiliary can be chosen."),
    )
    tools = forms.MultipleChoiceField(
        label=gettext_lazy("Tools"), required=False, widget=forms.CheckboxSelectMultiple, choices=()
    )

    class Meta:
        model = Agent
        exclude = ("window_source", "auxiliary_channel")
        widgets = {"system_prompt": forms.Textarea(attrs={"rows": 10, "cols": 90})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._offer_strategies()
        self._offer_channels()
        self._offer_tools()

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        self._clean_window(cleaned)
        self._clean_reply(cleaned)
        self._clean_auxiliary(cleaned)
        return cleaned

    def save(self, commit: bool = True) -> Agent:
        chosen = self.cleaned_data.get("auxiliary")
        self.instance.auxiliary_channel_id = int(chosen) if chosen else None
        self.instance.window_source = _source(self.instance)
        return super().save(commit)

    def _offer_strategies(self) -> None:
        shown = [(strategy.name, f"{strategy.title} – {strategy.keeps}") for strategy in strategies()]
        field = self.fields["compaction_strategy"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = shown

    def _offer_channels(self) -> None:
        """Also what was chosen and is no longer usable: leaving the page as it is must not change the supplier."""
        chosen = self.instance.auxiliary_channel_id
        rows = {row.pk: row for row in Channel.objects.all() if row.is_auxiliary or row.pk == chosen}
        shown = [(str(row.pk), _channel_label(row)) for row in rows.values()]
        if chosen is not None and chosen not in rows:
            shown.append((str(chosen), _("a channel that was deleted")))
        field = self.fields["auxiliary"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", _("The site's default, else the agent's own channel")), *shown]
        self.initial.setdefault("auxiliary", str(chosen) if chosen is not None else "")

    def _offer_tools(self) -> None:
        """Our own, then those of each server, and what was chosen and is gone."""
        mcp_tools.refresh()
        groups: dict[str, list[tuple[str, str]]] = {_("Built in"): []}
        for tool in tools.all_tools():
            server = mcp_tools.server_of(tool.name)
            group = _("Tool server “%(name)s”") % {"name": server} if server else _("Built in")
            groups.setdefault(group, []).append((tool.name, f"{tool.name} – {tool.description.splitlines()[0]}"))
        gone = [name for name in self.instance.tools or () if tools.tool(name) is None]
        if gone:
            groups[_("Do not exist any more")] = [(name, name) for name in gone]
        field = self.fields["tools"]
        assert isinstance(field, forms.MultipleChoiceField)
        field.choices = list(groups.items())

    def clean_tools(self) -> list[str]:
        """Those it had before in their order: requests begin with the tools, and providers cache their beginning."""
        chosen: list[str] = self.cleaned_data["tools"]
        before = [name for name in self.instance.tools or () if name in chosen]
        return [*before, *(name for name in chosen if name not in before)]

    def _clean_window(self, cleaned: dict[str, Any]) -> None:
        if cleaned.get("context_window") or "context_window" in self.errors or not cleaned.get("channel"):
            return
        channel: Channel = cleaned["channel"]
        model = cleaned.get("model") or next(iter(channel.models), "")
        known = window_of(model, channel.supplier)
        if known is None:
            self.add_error("context_window", _("The window of this model is not known here. Give it in tokens."))
        else:
            cleaned["context_window"] = known[0]

    def _clean_reply(self, cleaned: dict[str, Any]) -> None:
        reply, window = cleaned.get("max_output_tokens"), cleaned.get("context_window")
        if reply == 0:
            self.add_error("max_output_tokens", _("Give a number of tokens above 0, or leave this empty."))
        elif reply and window and reply >= window:
            self.add_error("max_output_tokens", _("The longest answer must be smaller than the context window."))

    def _clean_auxiliary(self, cleaned: dict[str, Any]) -> None:
        chosen, model = cleaned.get("auxiliary"), cleaned.get("auxiliary_model")
        channel = Channel.objects.filter(pk=int(chosen)).first() if chosen else None
        if channel and model and channel.models and model not in channel.models:
            text = _("“%(channel)s” has no model “%(model)s”; it has %(models)s.")
            figures = {"channel": channel, "model": model, "models": ", ".join(channel.models[:10])}
            self.add_error("auxiliary_model", text % figures)


@admin.register(Agent)
class AgentAdmin(_AgentAdmin):
    form = AgentForm
    list_display = ("name", "channel", "model_shown", "window", "trigger", "strategy", "auxiliary", "state", "enabled")
    list_filter = ("enabled", "channel", "compaction_strategy")
    list_select_related = ("channel",)
    search_fields = ("name", "description")
    readonly_fields = ("window_source", "ladder")
    save_on_top = True
    fieldsets = (
        (None, {"fields": ("name", "description", "enabled")}),
        (gettext_lazy("Instructions"), {"fields": ("system_prompt", "hide_system_prompt")}),
        (
            gettext_lazy("Model"),
            {
                "fields": (
                    ("channel", "model"),
                    ("context_window", "window_source"),
                    ("max_output_tokens", "temperature"),
                    "sees_images",
                    "tools",
                )
            },
        ),
        (
            gettext_lazy("Compaction"),
            {
                "fields": (
                    "compaction_threshold",
                    "ladder",
                    "compaction_strategy",
                    "compaction_keep_recent",
                    ("auxiliary", "auxiliary_model"),
                    "keeps_text_with_supplier",
                )
            },
        ),
        (
            gettext_lazy("Clearing after a pause"),
            {
                "fields": (
                    "clear_thinking_after_minutes",
                    "clear_tool_results_after_minutes",
                    "tool_results_to_keep",
                ),
                "description": gettext_lazy("-1 switches one off. People always keep seeing what was cleared."),
            },
        ),
    )

    class Media:
        js = (Script("js/admin-ladder.js", type="module"),)
        css = {"all": ("css/admin-ladder.css",)}

    @admin.display(description=gettext_lazy("ladder"))
    def ladder(self, agent: Agent) -> SafeString:
        """Where this agent's conversations are warned about, compacted and made to wait; redrawn as one types."""
        agent.context_window = agent.context_window or 128_000
        return _draw(ladder_of(agent))

    @admin.display(description=gettext_lazy("model"))
    def model_shown(self, agent: Agent) -> str:
        return agent.model_name or "–"

    @admin.display(description=gettext_lazy("window"), ordering="context_window")
    def window(self, agent: Agent) -> str:
        return f"{agent.context_window:,}"

    @admin.display(description=gettext_lazy("compacts at"))
    def trigger(self, agent: Agent) -> str:
        auto = ladder_of(agent).auto
        return _("off") if auto is None else f"{auto:,}"

    @admin.display(description=gettext_lazy("strategy"), ordering="compaction_strategy")
    def strategy(self, agent: Agent) -> str:
        return agent.compaction_strategy

    @admin.display(description=gettext_lazy("auxiliary channel"))
    def auxiliary(self, agent: Agent) -> str:
        if agent.auxiliary_channel_id is None:
            return "–"
        channel = Channel.objects.filter(pk=agent.auxiliary_channel_id).first()
        return str(channel) if channel else _("deleted")

    @admin.display(description=gettext_lazy("state"))
    def state(self, agent: Agent) -> str | SafeString:
        found = warnings_of(agent)
        if not found:
            return _("fine")
        return format_html('<span class="ladder-warning" title="{}">⚠ {}</span>', "\n".join(found), len(found))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Agent]:
        return super().get_queryset(request).select_related("channel")

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        agent = self.get_object(request, object_id)
        if request.method == "GET" and agent is not None:
            self._warn(request, agent)
        return super().change_view(request, object_id, form_url, extra_context)

    def response_add(self, request: HttpRequest, obj: Agent, post_url_continue: str | None = None) -> HttpResponse:
        self._warn(request, obj)
        return super().response_add(request, obj, post_url_continue)

    def response_change(self, request: HttpRequest, obj: Agent) -> HttpResponse:
        if "_continue" not in request.POST:
            self._warn(request, obj)
        return super().response_change(request, obj)

    def _warn(self, request: HttpRequest, agent: Agent) -> None:
        for text in warnings_of(agent):
            self.message_user(request, f"{agent}: {text}", messages.WARNING)


def _source(agent: Agent) -> str:
    """Where the figure of the window is from: what we know of the model, or the administrator."""
    known = window_of(agent.model_name, agent.channel.supplier)
    if known and known[0] == agent.context_window:
        return known[1]
    model = known_model(agent.model_name)
    if model is None:
        return _("set by an administrator")
    return _("set by an administrator; the model is known for %(window)s") % {"window": f"{model.window:,}"}


def _channel_label(channel: Channel) -> str:
    notes = []
    if not channel.enabled:
        notes.append(_("switched off"))
    if not channel.is_auxiliary:
        notes.append(_("not marked as auxiliary"))
    return f"{channel.name} ({', '.join(notes)})" if notes else channel.name


def _draw(ladder: Thresholds) -> SafeString:
    """The ladder in numbers. `admin-ladder.js` writes the same cells anew from the endpoint."""
    rungs = [
        ("warn", _("warns at"), ladder.warn),
        ("auto", _("compacts at"), ladder.auto),
        ("hard", _("compacts by force at"), ladder.hard),
        ("block", _("a message waits at"), ladder.block),
        ("window", _("window"), ladder.window),
    ]
    rows = format_html_join(
        "\n",
        '<tr><th scope="row">{}</th><td data-rung="{}">{}</td>'
        '<td><meter data-meter="{}" max="{}" value="{}"></meter></td></tr>',
        (
            (label, name, _("off") if tokens is None else f"{tokens:,}", name, ladder.window, tokens or 0)
            for name, label, tokens in rungs
        ),
    )
    return format_html(
        '<table id="ladder" data-url="{}" data-off="{}"><tbody>{}</tbody></table>'
        '<p id="ladder-note" role="status">{}</p>',
        reverse("thresholds"),
        _("off"),
        rows,
        ladder.clamp_reason,
    )
