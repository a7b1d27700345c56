"""JSON schemas: whether something is one, and what is wrong with a value by it, in words."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

import orjson
from django.utils.translation import gettext as _
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from agents.messages import JSON

logger = logging.getLogger(__name__)

_MOST_FAULTS = 5


def is_schema(value: Any) -> bool:
    """Whether values can be checked against it."""
    try:
        Draft202012Validator.check_schema(value)
    except SchemaError:
        return False
    return True


def faults(value: Any, schema: JSON) -> list[str]:
    """What is wrong with a value by a JSON schema, in words, the first few."""
    try:
        found = list(_validator(orjson.dumps(schema)).iter_errors(value))
    except Unresolvable:  # the tool itself must then judge what it is given
        logger.warning("a tool's schema refers to what it does not hold; its arguments go unchecked")
        return []
    errors = sorted(found, key=lambda error: list(map(str, error.path)))
    return [_in_words(error) for error in errors[:_MOST_FAULTS]]


def _in_words(error: ValidationError) -> str:
    """One fault without the value itself, which may be huge."""
    place = ".".join(map(str, error.absolute_path)) or _("the object")
    wanted: Any = error.validator_value
    match error.validator:
        case "required":
            missing = [name for name in wanted if isinstance(error.instance, dict) and name not in error.instance]
            return _("%(place)s lacks %(names)s") % {"place": place, "names": ", ".join(map(repr, missing))}
        case "type":
            kinds = wanted if isinstance(wanted, str) else " or ".join(wanted)
            return _("%(place)s must be of type %(kinds)s") % {"place": place, "kinds": kinds}
        case "enum":
            return _("%(place)s must be one of %(values)s") % {"place": place, "values": _short(wanted)}
        case "additionalProperties":
            allowed = sorted(error.schema.get("properties", {})) if isinstance(error.schema, dict) else []
            return _("%(place)s may only hold %(names)s") % {"place": place, "names": ", ".join(allowed) or "nothing"}
        case "minimum" | "maximum" | "minLength" | "maxLength" | "minItems" | "maxItems" | "pattern":
            return f"{place}: {error.validator} {_short(wanted)}"
    return f"{place}: {_short(error.message)}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:199] + "…"


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Draft202012Validator:
    # With a registry of its own: by default a `$ref` to an address would be fetched from there.
    return Draft202012Validator(orjson.loads(schema), registry=Registry())
