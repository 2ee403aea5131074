"""What an answer is worth: the content of a good one, the right error for any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lcm.cml.client.json_values import MalformedResponseError, parse_json
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
_PROXY_STATUSES = (400, 413, 414, 429, 431)  # what the web server in front may say of a request in its own name
_GATEWAY_STATUSES = (502, 503, 504)
_MAX_TEXT_LENGTH = 500


@dataclass(frozen=True, slots=True)
class RawResponse:
    """What came over the wire, whole and within bounds."""

    status: int
    content_type: str
    body: bytes
    location: str = ""

    @property
    def kind(self) -> str:
        """The media type alone."""
        return self.content_type.partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class CMLResponse:
    """A good answer: its status and its JSON, None where it has no content."""

    status: int
    content: Any


def parse_response(address: str, method: str, answer: RawResponse) -> CMLResponse:
    """The reply of a good answer; raises the error that fits any other."""
    if answer.status in _GATEWAY_STATUSES:
        raise _gateway_error(address, method, answer)
    if 300 <= answer.status < 400:
        target = printable_text(answer.location) or "nowhere"
        raise CMLProtocolError(address, f"redirects to {target}; redirects are never followed")
    if answer.kind == "text/html" and answer.status not in _PROXY_STATUSES:
        raise _html_error(address, method, answer)
    if answer.status == 404 and answer.kind != "application/json":
        raise CMLProtocolError(address, "HTTP 404 that is not CML's: it proves the absence of nothing")
    if not 200 <= answer.status < 300:
        error = _ERROR_BY_STATUS.get(answer.status, CMLProtocolError)
        raise error(address, f"HTTP {answer.status}: {_description(answer)}")
    if not answer.body:
        return CMLResponse(answer.status, None)
    if answer.kind != "application/json" and not answer.kind.endswith("+json"):
        raise CMLProtocolError(
            address, f"answers with {printable_text(answer.content_type) or 'no type'}, not with JSON"
        )
    try:
        return CMLResponse(answer.status, parse_json(answer.body))
    except MalformedResponseError as error:
        raise CMLProtocolError(address, f"answer is {error}") from None


def printable_text(text: str) -> str:
    """Text of others, fit for a message: one line, not too long."""
    line = "".join(char if char.isprintable() else " " for char in text[:_MAX_TEXT_LENGTH])
    return line + ("…" if len(text) > _MAX_TEXT_LENGTH else "")


def _html_error(address: str, method: str, answer: RawResponse) -> CMLNotReadyError:
    cause = f"answers with a web page (HTTP {answer.status}) where JSON belongs: CML is not up behind its web server"
    if method == "GET" or 400 <= answer.status < 500:
        return CMLNotReadyError(address, cause)
    return CMLOutcomeUnknownError(address, f"{cause}; the request may have taken effect")


def _gateway_error(address: str, method: str, answer: RawResponse) -> CMLNotReadyError:
    cause = f"HTTP {answer.status} from the web server in front of CML"
    if method == "GET" or answer.status == 503:
        return CMLNotReadyError(address, cause)
    # The web server passed the request on and lost sight of it: CML may have acted on it.
    return CMLOutcomeUnknownError(address, f"{cause}; the request may have taken effect")


def _description(answer: RawResponse) -> str:
    try:
        content = parse_json(answer.body)
    except MalformedResponseError:
        return "no reason given"
    found = content.get("description") if isinstance(content, dict) else None
    return printable_text(found) if isinstance(found, str) and found else "no reason given"
