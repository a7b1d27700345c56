"""The compaction app."""

from __future__ import annotations

from django.apps import AppConfig


class CompactionConfig(AppConfig):
    name = "compaction"
