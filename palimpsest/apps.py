"""The project as an app: its commands, its checks."""

from __future__ import annotations

from django.apps import AppConfig


class PalimpsestConfig(AppConfig):
    name = "palimpsest"
    label = "palimpsest"
