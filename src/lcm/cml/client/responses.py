"""Checks a response of a CML server: returns the content of a good one and raises the matching error for any other."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lcm.cml.errors import (
    CMLAuthenticationError,
    CMLConflictError,
    CMLError,
    CMLInvalidRequestError,
    CMLNotFoundError,
    CMLNotReadyError,
    CMLOutcomeUnknownError,
    CMLProtocolError,
    CMLThrottledError,
    CMLUnauthorizedError,
)
from lcm.core.text import single_line

_PROXY_STATUSES = (400, 413, 414, 429, 431)  # the web server in front of CML may reject a request with these by itself
_GATEWAY_STATUSES = (502, 503, 504)
_MAX_TEXT_LENGTH = 500


MAX_DEPTH = 32
_MAX_TIMESTAMP_LENGTH = 40


class MalformedResponseError(Exception):
    """A value does not have the expected type; the message says where."""


def parse_json(body: bytes) -> Any:
    """Parse JSON of bounded depth; NaN and Infinity are rejected."""
    try:
        value = json.loads(body, parse_constant=reject_constant)
    except (ValueError, RecursionError) as error:
        raise MalformedResponseError(f"not JSON ({error})") from None
    if isinstance(value, dict | list) and not check_depth(value):
        raise MalformedResponseError(f"nested deeper than {MAX_DEPTH} levels")
    return value


def reject_constant(name: str) -> None:
    """NaN and Infinity are not JSON, though Python's parser accepts them."""
    raise ValueError(f"{name} is not a number")


def check_depth(value: dict[str, Any] | list[Any]) -> bool:
    """Whether a value is nested no deeper than allowed."""
    return not _is_deeper_than(value, MAX_DEPTH)


def _is_deeper_than(value: dict[str, Any] | list[Any], levels: int) -> bool:
    if levels == 0:
        return True
    inner = [item for item in (value.values() if isinstance(value, dict) else value) if isinstance(item, dict | list)]
    return any(_is_deeper_than(item, levels - 1) for item in inner)


def as_object(value: Any, where: str) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise MalformedResponseError(f"{where} is {_type_name(value)}, not an object")
    return value


def nested_object(value: dict[str, Any], key: str) -> dict[str, Any]:
    """A nested object; empty if it is missing or null."""
    inner = value.get(key)
    return {} if inner is None else as_object(inner, key)


def as_list(value: Any, where: str) -> list[Any]:
    """A JSON list."""
    if not isinstance(value, list):
        raise MalformedResponseError(f"{where} is {_type_name(value)}, not a list")
    return value


def get_text(value: dict[str, Any], key: str, default: str | None = None) -> str:
    """A string; required unless a default is given."""
    found = value.get(key)
    if found is None and default is not None:
        return default
    if not isinstance(found, str):
        raise MalformedResponseError(f"{key} is {_type_name(found)}, not a string")
    return found


def optional_text(value: dict[str, Any], key: str) -> str | None:
    """A string, or None for anything else."""
    found = value.get(key)
    return found if isinstance(found, str) else None


def get_bool(value: dict[str, Any], key: str) -> bool:
    """A required boolean."""
    found = value.get(key)
    if not isinstance(found, bool):
        raise MalformedResponseError(f"{key} is {_type_name(found)}, not true or false")
    return found


def optional_bool(value: dict[str, Any], key: str) -> bool | None:
    """A boolean, or None for anything else."""
    found = value.get(key)
    return found if isinstance(found, bool) else None


def optional_number(value: dict[str, Any], key: str) -> float | None:
    """A finite number, or None for anything else: servers send integers as floats and omit some values."""
    found = value.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        number = float(found)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def optional_int(value: dict[str, Any], key: str) -> int | None:
    """An integer, or None for anything else."""
    number = optional_number(value, key)
    return None if number is None else int(number)


def parse_time(value: Any) -> datetime | None:
    """A time in UTC; None for anything else. A time without a zone is taken as UTC."""
    found = parse_timestamp(value)
    return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found


def parse_timestamp(value: Any) -> datetime | None:
    """A time in any format that servers use: in UTC, or without a zone if it names none; None for anything else."""
    if not isinstance(value, str) or len(value) > _MAX_TIMESTAMP_LENGTH:
        return None
    try:
        found = datetime.fromisoformat(value.strip())
        return found if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _type_name(value: Any) -> str:
    if value is None:
        return "missing"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")


_ERROR_BY_STATUS: dict[int, type[CMLError]] = {
    400: CMLInvalidRequestError,
    401: CMLUnauthorizedError,
    403: CMLAuthenticationError,
    404: CMLNotFoundError,
    409: CMLConflictError,
    413: CMLInvalidRequestError,
    414: CMLInvalidRequestError,
    422: CMLInvalidRequestError,
    429: CMLThrottledError,
    431: CMLInvalidRequestError,
}


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A complete response, as received."""

    status: int
    content_type: str
    body: bytes
    location: str = ""

    @property
    def kind(self) -> str:
        """The media type without parameters."""
        return self.content_type.partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class CMLResponse:
    """A successful response: its status and its JSON content, None if it has no content.

    `certificate` is the fingerprint of the server's certificate where certificates are pinned.
    """

    status: int
    content: Any
    certificate: str | None = None


def parse_response(address: str, method: str, response: RawResponse) -> CMLResponse:
    """Parse a successful response; raises the matching error for any other."""
    check_response(address, method, response)
    if not response.body:
        return CMLResponse(response.status, None)
    try:
        return CMLResponse(response.status, parse_json(response.body))
    except MalformedResponseError as error:
        raise CMLProtocolError(address, f"the response is {error}") from None


def check_response(address: str, method: str, response: RawResponse) -> None:
    """Raise the matching error unless the response is a success, with JSON or without content."""
    if response.status in _GATEWAY_STATUSES:
        raise _gateway_error(address, method, response)
    if 300 <= response.status < 400:
        target = printable_text(response.location) or "nowhere"
        raise CMLProtocolError(address, f"redirects to {target}; redirects are never followed")
    if response.kind == "text/html" and response.status not in _PROXY_STATUSES:
        raise _html_error(address, method, response)
    if response.status == 404 and response.kind != "application/json":
        raise CMLProtocolError(address, "HTTP 404 that is not from CML: it does not prove that the object is missing")
    if not 200 <= response.status < 300:
        error = _ERROR_BY_STATUS.get(response.status, CMLProtocolError)
        raise error(address, f"HTTP {response.status}: {_description(response)}")
    if response.body and response.kind != "application/json" and not response.kind.endswith("+json"):
        raise CMLProtocolError(
            address, f"the content type is {printable_text(response.content_type) or 'missing'}, not JSON"
        )


def printable_text(text: str) -> str:
    """External text made fit for a message: one printable line of bounded length."""
    # Cut first: the text comes from a server that is not trusted and may have megabytes.
    return single_line(text[: _MAX_TEXT_LENGTH + 1], _MAX_TEXT_LENGTH)


def _html_error(address: str, method: str, response: RawResponse) -> CMLNotReadyError:
    cause = f"returned a web page (HTTP {response.status}) instead of JSON: CML is not running behind its web server"
    if method == "GET" or 400 <= response.status < 500:
        return CMLNotReadyError(address, cause)
    return CMLOutcomeUnknownError(address, f"{cause}; the request may have taken effect")


def _gateway_error(address: str, method: str, response: RawResponse) -> CMLNotReadyError:
    cause = f"HTTP {response.status} from the web server in front of CML"
    if method == "GET" or response.status == 503:
        return CMLNotReadyError(address, cause)
    # The web server forwarded the request and lost track of it: CML may have acted on it.
    return CMLOutcomeUnknownError(address, f"{cause}; the request may have taken effect")


def _description(response: RawResponse) -> str:
    try:
        content = parse_json(response.body)
    except MalformedResponseError:
        return "no reason given"
    found = content.get("description") if isinstance(content, dict) else None
    return printable_text(found) if isinstance(found, str) and found else "no reason given"
