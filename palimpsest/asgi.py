"""ASGI entry point, for any ASGI server: HTTP goes to Django, sockets to the chat."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "palimpsest.settings")
http = get_asgi_application()

# Only now are the apps loaded that the rest imports.
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402

from chat.routing import websocket_urlpatterns  # noqa: E402
from palimpsest.accounts.asgi import SameOrigin, SocketAuth, SocketLanguage  # noqa: E402

sockets = SameOrigin(SocketAuth(SocketLanguage(URLRouter(websocket_urlpatterns))))
application = ProtocolTypeRouter({"http": http, "websocket": sockets})
