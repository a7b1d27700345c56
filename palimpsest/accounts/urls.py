"""Addresses of accounts that django-allauth does not have."""

from __future__ import annotations

from django.urls import path

from palimpsest.accounts.first import first_administrator

urlpatterns = [path("first/<str:token>/", first_administrator, name="first_administrator")]
