"""The addresses of the chat: its pages and, under /api/v1/, its API."""

from __future__ import annotations

from django.urls import include, path, re_path

from chat import pages
from chat.api.site import nothing_here, routes

urlpatterns = [
    path("", pages.home, name="home"),
    path("c/<uuid:conversation_id>", pages.conversation, name="conversation"),
    path("join/<str:token>", pages.join, name="join"),
    path("api/v1/", include("compaction.urls")),
    path("api/v1/", include((routes, "api"))),
    re_path(r"^api/", nothing_here),
]
