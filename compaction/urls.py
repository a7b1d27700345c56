"""The address of the ladder: what a window and a threshold come to, before they are stored."""

from __future__ import annotations

from django.urls import path

from compaction import views

urlpatterns = [path("thresholds", views.thresholds, name="thresholds")]
