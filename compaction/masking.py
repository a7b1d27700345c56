"""Hiding what looks like a key, token or password before text leaves for another provider."""

from __future__ import annotations

import re

MASK = "[secret masked]"

_SHAPES = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[\s\S]{0,8000}?-----END [A-Z ]{0,30}PRIVATE KEY-----"
    r"|\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}|\bglpat-[A-Za-z0-9_-]{16,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[A-Za-z0-9_-]{30,}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\bhf_[A-Za-z0-9]{20,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[A-Za-z0-9_-]{30,}"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"
)
# A value named as a secret; the name and what joins it to the value stay readable.
_NAMED = re.compile(
    r"(?i)((?:\b|_)(?:api[_-]?key|access[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|client[_-]?secret|auth[_-]?token"
    r"|access[_-]?token|refresh[_-]?token|token|passwd|password|passphrase|密码|口令|密钥)[\"']?\s{0,3}(?:[:=：]|\bis\b|是|为)\s{0,3}[\"']?)"
    r"(?!\[secret)([^\s\"',;，。；]{6,200})"
)
_BEARER = re.compile(r"(?i)(\b(?:bearer|basic)\s{1,3})([A-Za-z0-9._~+/=-]{16,})")
_ADDRESS = re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{1,100}:)([^\s:/@]{3,200})(@)")


def mask(text: str) -> str:
    """The text with every likely secret replaced; what only names a secret stays."""
    text = _SHAPES.sub(MASK, text)
    text = _NAMED.sub(rf"\1{MASK}", text)
    text = _BEARER.sub(rf"\1{MASK}", text)
    return _ADDRESS.sub(rf"\1{MASK}\3", text)
