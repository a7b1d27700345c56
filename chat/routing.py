"""The addresses of sockets."""

from __future__ import annotations

from django.urls import path

from chat.consumers import ConversationConsumer

websocket_urlpatterns = [path("ws/conversations/<uuid:conversation>/", ConversationConsumer.as_asgi())]
