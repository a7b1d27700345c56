"""What makes a person lose access, wherever it happens: a page, the admin, a command."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.auth.signals import user_logged_out
from django.db.models.signals import post_delete, post_save, pre_save
from django.dispatch import receiver

from palimpsest.accounts.access import access_lost
from palimpsest.accounts.models import ApiKey

_DECIDES_ACCESS = ("password", "is_active")


@receiver(user_logged_out)
def signed_out(user: AbstractBaseUser | None, **_: Any) -> None:
    if user is not None and user.pk is not None:
        access_lost(user.pk)


@receiver(pre_save, sender=get_user_model())
def compare_access(instance: Any, update_fields: Any = None, **_: Any) -> None:
    """Remember whether this save takes access away; a mere `last_login` is not worth a query."""
    instance.loses_access = False
    if instance.pk is None or (update_fields is not None and not set(update_fields) & set(_DECIDES_ACCESS)):
        return
    stored = type(instance).objects.filter(pk=instance.pk).values_list(*_DECIDES_ACCESS).first()
    instance.loses_access = stored is not None and stored != (instance.password, instance.is_active)


@receiver(post_save, sender=get_user_model())
def access_saved(instance: Any, **_: Any) -> None:
    if getattr(instance, "loses_access", False):
        access_lost(instance.pk)


@receiver(post_delete, sender=get_user_model())
def person_deleted(instance: Any, **_: Any) -> None:
    access_lost(instance.pk)


@receiver([post_save, post_delete], sender=ApiKey)
def key_changed(instance: ApiKey, created: bool = False, **_: Any) -> None:
    if not created:
        access_lost(instance.user_id)
