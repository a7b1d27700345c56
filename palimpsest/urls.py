"""The addresses of the site. /healthz, /readyz and /metrics are answered before any of these (palimpsest/health.py)."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.decorators import login_not_required
from django.urls import include, path
from django.views.decorators.cache import cache_control
from django.views.i18n import JSONCatalog, set_language

urlpatterns = [
    path("accounts/", include("palimpsest.accounts.urls")),
    path("accounts/", include("allauth.urls")),
    path("admin/", admin.site.urls),
    path("language/", login_not_required(set_language), name="set_language"),
    path("catalogue.json", cache_control(private=True, max_age=3600)(JSONCatalog.as_view()), name="catalogue"),
    path("", include("chat.urls")),
]
