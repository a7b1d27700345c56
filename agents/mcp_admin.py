"""Servers of tools (MCP) in Django's admin: connected, tested, their tools listed. Agents choose among the tools."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agents import mcp_tools
from agents.errors import AgentsError
from agents.models import McpServer, McpTransport
from agents.tools import ToolError

if TYPE_CHECKING:
    _ServerForm = forms.ModelForm[McpServer]
    _ServerAdmin = admin.ModelAdmin[McpServer]
else:  # these classes take no type at run time
    _ServerForm = forms.ModelForm
    _ServerAdmin = admin.ModelAdmin

_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e]+)")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)")


class ArgumentsField(forms.CharField):
    """A program and its arguments, one a line."""

    widget = forms.Textarea(attrs={"rows": 4, "cols": 60})

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value

    def clean(self, value: Any) -> list[str]:
        return [line.strip() for line in (super().clean(value) or "").splitlines() if line.strip()]


class McpServerForm(_ServerForm):
    """Secrets can be written and removed here, never read."""

    command = ArgumentsField(
        label=gettext_lazy("Command"),
        required=False,
        help_text=gettext_lazy("Of a program on this machine: the program, then its arguments, one a line."),
    )
    new_secrets = forms.CharField(
        label=gettext_lazy("Headers or environment"),
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60, "autocomplete": "off", "spellcheck": "false"}),
    )
    remove_secrets = forms.BooleanField(label=gettext_lazy("Remove the stored ones"), required=False)

    class Meta:
        model = McpServer
        fields = (
            "name",
            "transport",
            "url",
            "command",
            "clearable",
            "keep_results",
            "keep_session",
            "call_timeout_seconds",
            "enabled",
        )
        widgets = {"url": forms.TextInput(attrs={"size": 60, "placeholder": "https://"})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["url"].help_text = _("Of a server over HTTP, such as https://tools.example.com/mcp.")
        lines = _("One a line: “Authorization: Bearer …” over HTTP, “NAME=value” for a program.")
        stored = bool(self.instance.secrets_encrypted)
        kept = (
            _("Some are stored, encrypted. Leave this empty to keep them; another address clears them.")
            if stored
            else _("None are stored. They are encrypted and can never be read back.")
        )
        self.fields["new_secrets"].help_text = f"{lines} {kept}"
        if not stored:
            self.fields["remove_secrets"].widget = forms.HiddenInput()
        if not settings.MCP_STDIO and self.instance.transport != McpTransport.STDIO:
            self._offer_http_alone()

    def _offer_http_alone(self) -> None:
        field = self.fields["transport"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [(McpTransport.HTTP.value, McpTransport.HTTP.label)]
        self.fields["command"].widget = forms.HiddenInput()

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if cleaned.get("new_secrets") and cleaned.get("remove_secrets"):
            self.add_error("remove_secrets", _("Either give new ones or remove the stored ones."))
        elif given := cleaned.get("new_secrets"):
            cleaned["secrets"] = self._read_secrets(given, cleaned.get("transport", ""))
        return cleaned

    def save(self, commit: bool = True) -> McpServer:
        if found := self.cleaned_data.get("secrets"):
            self.instance.secrets = found
        elif self.cleaned_data.get("remove_secrets"):
            self.instance.secrets = {}
        return super().save(commit)

    def _read_secrets(self, text: str, transport: str) -> dict[str, str]:
        """The lines as names and values. What was typed is never repeated in an error."""
        form = _VARIABLE if transport == McpTransport.STDIO else _HEADER
        found: dict[str, str] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                continue
            match = form.fullmatch(line.strip())
            if match is None:
                wanted = "NAME=value" if form is _VARIABLE else "Name: value"
                self.add_error("new_secrets", _("Line %(n)s is not “%(form)s”.") % {"n": number, "form": wanted})
                return {}
            found[match[1]] = match[2].strip()
        return found


@admin.register(McpServer)
class McpServerAdmin(_ServerAdmin):
    form = McpServerForm
    change_form_template = "admin/agents/mcpserver/change_form.html"
    list_display = ("name", "place", "tool_count", "enabled")
    list_filter = ("enabled", "transport")
    search_fields = ("name", "url")
    actions = ("test_connection",)
    readonly_fields = ("tools_shown", "tools_read_at")
    fields = (
        "name",
        "transport",
        "url",
        "command",
        ("new_secrets", "remove_secrets"),
        "call_timeout_seconds",
        "keep_session",
        "clearable",
        "keep_results",
        "enabled",
        "tools_read_at",
        "tools_shown",
    )

    @admin.display(description=gettext_lazy("address"))
    def place(self, server: McpServer) -> str:
        return server.url if server.transport == McpTransport.HTTP else " ".join(server.command)[:100]

    @admin.display(description=gettext_lazy("tools"))
    def tool_count(self, server: McpServer) -> int:
        return len(server.tools)

    @admin.display(description=gettext_lazy("tools"))
    def tools_shown(self, server: McpServer) -> SafeString | str:
        rows = [(tool.name, tool.description.splitlines()[0][:200]) for tool in mcp_tools.tools_of(server)]
        if not rows:
            return _("None are known. “Save and test connection” asks the server; agents then choose among them.")
        return format_html_join("", "<div><code>{}</code> – {}</div>", rows)

    @admin.action(description=gettext_lazy("Test connection"))
    def test_connection(self, request: HttpRequest, servers: QuerySet[McpServer]) -> None:
        for server in servers[:5]:
            self._test(request, server)

    def response_change(self, request: HttpRequest, obj: McpServer) -> HttpResponse:
        if "_test" in request.POST:
            self._test(request, obj)
            return HttpResponseRedirect(request.path)
        return super().response_change(request, obj)

    def response_add(self, request: HttpRequest, obj: McpServer, post_url_continue: str | None = None) -> HttpResponse:
        if "_test" in request.POST:
            self._test(request, obj)
            return HttpResponseRedirect(reverse("admin:agents_mcpserver_change", args=[obj.pk]))
        return super().response_add(request, obj, post_url_continue)

    def save_model(self, request: HttpRequest, obj: McpServer, form: Any, change: bool) -> None:
        had_secrets = bool(change and McpServer.objects.get(pk=obj.pk).secrets_encrypted)
        super().save_model(request, obj, form, change)
        if had_secrets and not obj.secrets_encrypted and not form.cleaned_data.get("remove_secrets"):
            text = _("The stored headers or environment were cleared, because the server is another one. Enter them.")
            self.message_user(request, text, messages.WARNING)

    def _test(self, request: HttpRequest, server: McpServer) -> None:
        """Ask the server for its tools, store them and say what came of it."""
        try:
            refused = mcp_tools.read_tools(server)
        except (ToolError, AgentsError) as error:
            why = error.message if isinstance(error, AgentsError) else str(error)
            self.message_user(request, _("%(name)s: %(message)s") % {"name": server, "message": why}, messages.ERROR)
            return
        names = ", ".join(tool["public"] for tool in server.tools[:40]) or "–"
        named = {"name": server, "tools": names}
        text = _("%(name)s: connected. Its tools: %(tools)s. Switch them on for the agents that may use them.")
        self.message_user(request, text % named, messages.SUCCESS)
        if refused:
            text = _("These cannot be used, their description is too large or broken: %(tools)s.")
            self.message_user(request, text % {"tools": ", ".join(refused[:20])}, messages.WARNING)
