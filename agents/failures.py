"""Turns what the SDK and the connection raise into a ProviderError: refusals by their words, the rest by cause."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any

import orjson

from agents.errors import ProviderError
from agents.rejections import largest_output, rejected_parameter, rejection, shown
from agents.requests import OPTIONAL, Endpoint


def failure_of_call(error: BaseException, endpoint: Endpoint) -> ProviderError:
    """Why a call could not be opened."""
    import openai

    if isinstance(error, ProviderError):
        return error
    if isinstance(error, openai.APIStatusError):
        return _refusal(error, endpoint)
    if not _is_of_the_connection(error):
        raise error  # a mistake of ours, not the provider's
    return _transport_failure(error, endpoint, "provider_unreachable")


def failure_in_stream(error: BaseException, endpoint: Endpoint) -> ProviderError:
    """Why an open stream broke off."""
    if isinstance(error, ProviderError):
        return error
    if not _is_of_the_connection(error):
        raise error
    return _transport_failure(error, endpoint, "stream_cut")


def _is_of_the_connection(error: BaseException) -> bool:
    import aiohttp
    import httpx2
    import openai

    return isinstance(error, (openai.OpenAIError, httpx2.HTTPError, httpx2.InvalidURL, aiohttp.ClientError, OSError))


def refused_parameter(error: BaseException, sent: frozenset[str]) -> str:
    """The optional parameter because of which the provider refused the call, or nothing."""
    import openai

    if not isinstance(error, openai.APIStatusError) or error.response.status_code not in (400, 404, 415, 422):
        return ""
    return rejected_parameter(_body(error), sent & OPTIONAL)


def output_limit(error: BaseException, asked: int | None) -> int | None:
    """The longest answer the model can give (tokens), where it was asked for a longer one and says so."""
    import openai

    if not asked or not isinstance(error, openai.APIStatusError) or error.response.status_code not in (400, 422):
        return None
    return largest_output(_body(error), asked)


def _refusal(error: Any, endpoint: Endpoint) -> ProviderError:
    response = error.response
    failure = rejection(
        response.status_code, _body(error), response.headers, model=endpoint.model, secret=endpoint.api_key
    )
    if failure.code == "redirected":
        address = shown(response.headers.get("location") or "?", endpoint.api_key)
        return ProviderError("redirected", detail=address, status=response.status_code)
    return failure


def _body(error: Any) -> Any:
    """The JSON of an error answer, or its text."""
    try:
        content = error.response.content
    except Exception:  # the answer broke off before its body was read
        return error.body
    try:
        return orjson.loads(content)
    except ValueError:
        return str(content.decode("utf-8", "replace"))


def _transport_failure(error: BaseException, endpoint: Endpoint, otherwise: str) -> ProviderError:
    """By the innermost cause: the layers above call a closed connection a time-out."""
    import aiohttp

    code, detail = otherwise, ""
    for cause in _causes(error):
        if isinstance(cause, (ssl.SSLError, aiohttp.ClientSSLError)):
            code, detail = "provider_unreachable", shown(str(cause))
            break
        if isinstance(cause, (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError)):
            code = "provider_unreachable"
            break
        if isinstance(cause, aiohttp.InvalidURL):
            return ProviderError("address_not_found", detail=shown(endpoint.base_url), retryable=False)
        if isinstance(cause, (aiohttp.ServerTimeoutError, TimeoutError)) or "ReadTimeout" in type(cause).__name__:
            code = "provider_timeout"
            break
    return ProviderError(code, detail=detail, model=endpoint.model)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what caused it, innermost first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return iter(reversed(chain))
