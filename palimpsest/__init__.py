"""The Django project: settings, URLs, ASGI, Celery and the embedded server."""

from palimpsest.celery import app as celery_app

__all__ = ["celery_app"]
