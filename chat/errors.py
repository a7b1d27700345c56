"""What can go wrong in a conversation, each with a code and a sentence a person can act on."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _


class ChatError(Exception):
    """A refusal. `status` is the HTTP status; `code` stays the same in every language."""

    code = "chat_error"
    status = 400
    message = _("That did not work.")

    def __init__(self, message: object = None, *, code: str | None = None, status: int | None = None) -> None:
        self.message = message or self.message  # type: ignore[assignment]
        self.code = code or self.code
        self.status = status or self.status
        super().__init__(str(self.message))


class NotFound(ChatError):
    code = "not_found"
    status = 404
    message = _("This does not exist, or you are not part of it.")


class Forbidden(ChatError):
    code = "forbidden"
    status = 403
    message = _("Your role in this conversation does not allow that.")


class Conflict(ChatError):
    code = "conflict"
    status = 409
    message = _("The conversation has changed in the meantime. Look again and repeat what you wanted.")


class Invalid(ChatError):
    code = "invalid"
    status = 422
    message = _("Something in the request is missing or has the wrong form.")
