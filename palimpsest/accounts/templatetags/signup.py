"""What the entrance pages ask: may anyone make an account here?"""

from __future__ import annotations

from django import template
from django.conf import settings

register = template.Library()


@register.simple_tag
def signup_is_open() -> bool:
    return bool(settings.SIGNUP == "open")
