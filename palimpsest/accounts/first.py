"""The first administrator comes in by a signed link, printed where the server was started."""

from __future__ import annotations

from django.contrib.auth import get_user_model, login
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import BaseUserCreationForm
from django.contrib.auth.models import User
from django.core import signing
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

_SALT = "palimpsest.first-administrator"
VALID_SECONDS = 24 * 60 * 60


class FirstAdministratorForm(BaseUserCreationForm):  # type: ignore[type-arg]
    """User name and password, by Django's own rules."""

    class Meta(BaseUserCreationForm.Meta):
        fields = ("username",)


def has_administrator() -> bool:
    return get_user_model().objects.filter(is_superuser=True, is_active=True).exists()


def link_path() -> str:
    """The path of a link for the first administrator. It ends with the day, or as soon as there is one."""
    return reverse("first_administrator", args=[signing.dumps("first", salt=_SALT)])


def is_valid(token: str) -> bool:
    try:
        signing.loads(token, salt=_SALT, max_age=VALID_SECONDS)
    except signing.BadSignature:
        return False
    return True


def make_administrator(form: FirstAdministratorForm) -> User | None:
    """The administrator, or None where somebody else was first."""
    with transaction.atomic():
        _lock_people()
        if has_administrator():
            return None
        user: User = form.save(commit=False)
        user.is_staff = user.is_superuser = True
        user.save()
    return user


def _lock_people() -> None:
    """Of two people with the link only one gets in: SQLite's IMMEDIATE does it, PostgreSQL is asked to."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLE {get_user_model()._meta.db_table} IN SHARE ROW EXCLUSIVE MODE")


@never_cache
@sensitive_post_parameters()
@login_not_required
@require_http_methods(["GET", "POST"])
def first_administrator(request: HttpRequest, token: str) -> HttpResponse:
    """The page behind the link."""
    if has_administrator():
        return redirect("account_login")
    if not is_valid(token):
        return _page(request, None, status=403)
    form = FirstAdministratorForm(request.POST or None)
    if request.method != "POST" or not form.is_valid():
        return _page(request, form)
    user = make_administrator(form)
    if user is None:
        return redirect("account_login")
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return HttpResponseRedirect("/")


def _page(request: HttpRequest, form: FirstAdministratorForm | None, status: int = 200) -> HttpResponse:
    problem = "" if form else _("This link is no longer valid. Start Palimpsest again to get a new one.")
    return render(request, "account/first_administrator.html", {"form": form, "problem": problem}, status=status)
