"""Everything that can go wrong with a model, each with a code for programs and a sentence a person can act on."""

from __future__ import annotations

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

# Codes whose cause may pass by itself, so that the same request may succeed later.
RETRYABLE = frozenset(
    {
        "rate_limited",
        "provider_unavailable",
        "provider_unreachable",
        "provider_timeout",
        "stream_cut",
        "stream_invalid",
    }
)

SENTENCES: dict[str, str | Promise] = {
    "provider_auth": _("The provider did not accept the key of this channel. An administrator can enter a new one."),
    "provider_forbidden": _("The provider does not allow this key to use the model “%(model)s”."),
    "quota_exceeded": _("The account of this channel has no credit left at its provider."),
    "model_not_found": _("The provider does not know the model “%(model)s”."),
    "address_not_found": _("Nothing answers at this channel's address. Does its base URL end in /v1?"),
    "not_an_api": _("A web page answered at this channel's address, not a model. Does its base URL end in /v1?"),
    "redirected": _("The provider has moved to another address (%(detail)s). Set it as the channel's base URL."),
    "rate_limited": _("The provider is receiving too many requests. Try again in a moment."),
    "provider_unavailable": _("The provider has trouble at the moment. Try again in a moment."),
    "provider_unreachable": _("The provider could not be reached. Is its address right, and is it running?"),
    "provider_timeout": _("The provider took too long to answer. Try again."),
    "stream_cut": _("The connection to the provider broke off before the answer was complete."),
    "stream_invalid": _("The provider sent something that is not an answer. Try again."),
    "context_exceeded": _("The conversation is longer than the model “%(model)s” can take."),
    "content_filtered": _("The provider's content filter refused this request."),
    "provider_rejected": _("The provider refused the request."),
    "no_model": _("No model is set for this agent, and its channel lists none."),
    "unknown_encoding": _("There is no token vocabulary named “%(detail)s”."),
    "vocabulary_damaged": _("The token vocabulary %(detail)s is damaged. Install Palimpsest again."),
    "vocabulary_unwritable": _("The token vocabulary could not be written: %(detail)s."),
    "secret_unreadable": _(
        "The stored key cannot be read with the encryption keys of this installation. Enter it again."
    ),
    "no_encryption_key": _("No encryption key is set. Set PALIMPSEST_ENCRYPTION_KEYS."),
    "bad_encryption_key": _("PALIMPSEST_ENCRYPTION_KEYS holds something that is not a key: 32 bytes in base64 each."),
}


class AgentsError(Exception):
    """`detail` is what the other side said, cleaned and shortened; `retry_after` in seconds."""

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        detail: str = "",
        model: str = "",
        retryable: bool | None = None,
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        self.code = code
        self.detail = detail
        self.model = model
        self.message = message or sentence(code, detail=detail, model=model)
        self.retryable = code in RETRYABLE if retryable is None else retryable
        self.retry_after = retry_after
        self.status = status
        super().__init__(f"{code}: {self.message}")


class ProviderError(AgentsError):
    """A call to a model that did not end well."""


def sentence(code: str, *, detail: str = "", model: str = "") -> str:
    """The sentence for a code in the language that is active now; the provider's own words follow where they help."""
    template = str(SENTENCES.get(code, SENTENCES["provider_rejected"]))
    text = template % {"detail": detail, "model": model or "?"}
    if detail and "%(detail)s" not in template:
        text = f"{text} ({detail})"
    return text
