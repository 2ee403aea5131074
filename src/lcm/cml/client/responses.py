"""What an answer is worth: the content of a good one, the right error for any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lcm.cml.client.json_values import Misshapen, parse
from lcm.cml.errors import (
    AuthFailed,
    CMLError,
    Conflict,
    Invalid,
    NotFound,
    NotReady,
    OutcomeUnknown,
    ProtocolError,
    Throttled,
    Unauthorized,
)

_BY_STATUS: dict[int, type[CMLError]] = {
    400: Invalid,
    401: Unauthorized,
    403: AuthFailed,
    404: NotFound,
    409: Conflict,
    413: Invalid,
    414: Invalid,
    422: Invalid,
    429: Throttled,
    431: Invalid,
}
_ANY_SERVERS = (400, 413, 414, 429, 431)  # what the web server in front may say of a request in its own name
_GATEWAY = (502, 503, 504)
_LONGEST_TEXT = 500


@dataclass(frozen=True, slots=True)
class Answer:
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
class Reply:
    """A good answer: its status and its JSON, None where it has no content."""

    status: int
    content: Any


def judge(address: str, method: str, answer: Answer) -> Reply:
    """The reply of a good answer; raises the error that fits any other."""
    if answer.status in _GATEWAY:
        raise _from_gateway(address, method, answer)
    if 300 <= answer.status < 400:
        target = readable(answer.location) or "nowhere"
        raise ProtocolError(address, f"redirects to {target}; redirects are never followed")
    if answer.kind == "text/html" and answer.status not in _ANY_SERVERS:
        raise _web_page(address, method, answer)
    if answer.status == 404 and answer.kind != "application/json":
        raise ProtocolError(address, "HTTP 404 that is not CML's: it proves the absence of nothing")
    if not 200 <= answer.status < 300:
        error = _BY_STATUS.get(answer.status, ProtocolError)
        raise error(address, f"HTTP {answer.status}: {_description(answer)}")
    if not answer.body:
        return Reply(answer.status, None)
    if answer.kind != "application/json" and not answer.kind.endswith("+json"):
        raise ProtocolError(address, f"answers with {readable(answer.content_type) or 'no type'}, not with JSON")
    try:
        return Reply(answer.status, parse(answer.body))
    except Misshapen as error:
        raise ProtocolError(address, f"answer is {error}") from None


def readable(text: str) -> str:
    """Text of others, fit for a message: one line, not too long."""
    line = "".join(char if char.isprintable() else " " for char in text[:_LONGEST_TEXT])
    return line + ("…" if len(text) > _LONGEST_TEXT else "")


def _web_page(address: str, method: str, answer: Answer) -> NotReady:
    cause = f"answers with a web page (HTTP {answer.status}) where JSON belongs: CML is not up behind its web server"
    if method == "GET" or 400 <= answer.status < 500:
        return NotReady(address, cause)
    return OutcomeUnknown(address, f"{cause}; the request may have taken effect")


def _from_gateway(address: str, method: str, answer: Answer) -> NotReady:
    cause = f"HTTP {answer.status} from the web server in front of CML"
    if method == "GET" or answer.status == 503:
        return NotReady(address, cause)
    # The web server passed the request on and lost sight of it: CML may have acted on it.
    return OutcomeUnknown(address, f"{cause}; the request may have taken effect")


def _description(answer: Answer) -> str:
    try:
        content = parse(answer.body)
    except Misshapen:
        return "no reason given"
    found = content.get("description") if isinstance(content, dict) else None
    return readable(found) if isinstance(found, str) and found else "no reason given"
