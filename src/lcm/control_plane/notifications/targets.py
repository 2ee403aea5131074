"""Where notifications are sent: webhooks and chats over HTTP. `smtp` has e-mail."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from lcm.control_plane.notifications.messages import slack_body, teams_body, webex_body, webhook_body
from lcm.control_plane.notifications.signing import signature_headers
from lcm.core import clock
from lcm.core.text import single_line
from lcm.core.version import installed_version
from lcm.http.transport import HttpRequest, HttpTransportError
from lcm.model.notification.subscription import TargetKind

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence

    from lcm.control_plane.notifications.messages import Links, Notification
    from lcm.control_plane.secrets.encryption import Secret
    from lcm.http.transport import HttpResponse, HttpTransport

SEND_SECONDS: Final = 20.0
_CONNECT_SECONDS: Final = 5.0
_READ_SECONDS: Final = 10.0
_BODY_SECONDS: Final = 5.0
_MAX_ANSWER_BYTES: Final = 2048
_MAX_ANSWER_TEXT: Final = 200
_MIN_SECRET_PART: Final = 16  # shorter parts of a URL are words
_MAX_RETRY_AFTER: Final = 3600.0
_TOO_LARGE: Final = 413
_REJECTING_STATUSES: Final = (400, _TOO_LARGE, 415, 422)
_CHAT_BODIES: Mapping[TargetKind, Callable[[Notification, Links], bytes]] = {
    TargetKind.SLACK: slack_body,
    TargetKind.TEAMS: teams_body,
    TargetKind.WEBEX: webex_body,
}


class DeliveryError(Exception):
    """A notification was not delivered. `rejected`: the target will not accept this message, whenever it is sent.

    `too_large`: it may accept a smaller one.
    """

    def __init__(
        self, answer: str, *, rejected: bool = False, too_large: bool = False, retry_after: float = 0.0
    ) -> None:
        super().__init__(answer)
        self.rejected = rejected
        self.too_large = too_large
        self.retry_after = retry_after


class Target(Protocol):
    """Sends notifications to one place."""

    async def send(self, notification: Notification, before_send: Callable[[], None] | None = None) -> str:
        """Send it and return what the target responded; raises `DeliveryError`.

        `before_send` is called right before the first byte of the message; an error that it raises leaves it unsent.
        """


class HttpTarget:
    """A webhook, or the incoming webhook of a chat."""

    def __init__(
        self,
        kind: TargetKind,
        url: Secret,
        signing_secrets: Sequence[Secret],
        transport: HttpTransport,
        links: Links,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._kind = kind
        self._url = url
        self._signing_secrets = signing_secrets
        self._transport = transport
        self._links = links
        self._tls = tls

    async def send(self, notification: Notification, before_send: Callable[[], None] | None = None) -> str:
        body, headers = self._message(notification)
        request = HttpRequest(
            method="POST",
            url=self._url.reveal(),
            headers=headers,
            body=body,
            connect_seconds=_CONNECT_SECONDS,
            read_seconds=_READ_SECONDS,
            tls=self._tls,
            before_send=before_send,
        )
        try:
            async with asyncio.timeout(SEND_SECONDS):
                response = await self._transport.send(request)
                try:
                    text = await _read_text(response)
                finally:
                    await response.aclose()
        except TimeoutError:
            raise DeliveryError(f"no complete response within {SEND_SECONDS:g} s") from None
        except HttpTransportError as error:
            raise DeliveryError(self._without_url(str(error) or type(error).__name__)) from None
        answer = self._without_url(f"{response.status} {text}".strip())
        if 200 <= response.status < 300:
            return answer
        raise DeliveryError(
            answer,
            rejected=response.status in _REJECTING_STATUSES,
            too_large=response.status == _TOO_LARGE,
            retry_after=_retry_after(response),
        )

    def _message(self, notification: Notification) -> tuple[bytes, dict[str, str]]:
        headers = {"Content-Type": "application/json", "User-Agent": f"lcm/{installed_version()}"}
        make_body = _CHAT_BODIES.get(self._kind)
        if make_body is not None:
            return make_body(notification, self._links), headers
        body = webhook_body(notification, self._links)
        return body, {**headers, **signature_headers(notification.id, clock.now(), body, self._signing_secrets)}

    def _without_url(self, text: str) -> str:
        """The URL may be a credential, and a server may repeat it, or the part that is one."""
        url = self._url.reveal()
        path = url.removeprefix(f"{urlsplit(url).scheme}://{urlsplit(url).netloc}").lstrip("/?")
        parts = [each for each in re.split(r"[/?&=#]", path) if len(each) >= _MIN_SECRET_PART]
        for hidden in (url, path, *sorted(parts, key=len, reverse=True)):
            text = text.replace(hidden, "***") if len(hidden) > 1 else text
        return text


async def _read_text(response: HttpResponse) -> str:
    """The beginning of the body on one line. One that does not come changes nothing: the status is the answer."""
    received = b""
    with suppress(TimeoutError, HttpTransportError):
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in response.chunks():
                received += chunk
                if len(received) >= _MAX_ANSWER_BYTES:
                    break
    return single_line(received[:_MAX_ANSWER_BYTES].decode(errors="replace"), _MAX_ANSWER_TEXT)


def _retry_after(response: HttpResponse) -> float:
    """The seconds that the target asks to be left alone, which it may give as a date."""
    value = (response.header("retry-after") or "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value), _MAX_RETRY_AFTER)
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    left = (until.replace(tzinfo=until.tzinfo or UTC) - clock.now()).total_seconds()
    return min(max(left, 0.0), _MAX_RETRY_AFTER)
