"""Signs a person in at the identity provider, through the control plane: with a code, or with a browser beside it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit

from pydantic import SecretStr

from lcm.cli.errors import CommandError
from lcm.client.errors import (
    ApiError,
    ClientError,
    NotFoundError,
    OutcomeUnknownError,
    UnauthenticatedError,
    UnreachableError,
)
from lcm.core import clock
from lcm.core.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from lcm.client import Client
    from lcm.model.access import CommandLineSession, DeviceSignIn

A = TypeVar("A")

SLOW_DOWN_SECONDS = 5.0
MAX_PAUSE = 30.0
BROWSER_SECONDS = 600.0
_RANDOM_BYTES = 32
_REQUEST_SECONDS = 5.0
_MAX_REQUEST_BYTES = 32 * 1024
_ARRIVED = "You can close this page and go back to the command line."
_STRANGER = "No sign-in is waiting at this address. Run lcm login again and open the address that it prints."


async def sign_in(client: Client, *, with_browser: bool = False) -> CommandLineSession | None:
    """The session of the person; None if the control plane has no identity provider."""
    try:
        started = await _explained(client.access.start_sign_in())
    except NotFoundError:
        return None
    if started.device is not None and not with_browser:
        return await _sign_in_with_code(client, started.device)
    return await _sign_in_with_browser(client, started.browser_url)


async def _sign_in_with_code(client: Client, device: DeviceSignIn) -> CommandLineSession:
    _say(f"On any device, open {device.verification_uri}", f"and enter the code {device.user_code}")
    if device.verification_uri_complete is not None:
        _say(f"or open {device.verification_uri_complete}")
    _say(f"Waiting up to {max(1, round(device.expires_in / 60))} minutes. Press Ctrl-C to cancel.")
    now = asyncio.get_running_loop().time
    deadline, interval = now() + device.expires_in, device.interval
    pause, noticed = interval, False
    while now() + pause < deadline:
        await asyncio.sleep(pause)
        try:
            polled = await client.access.poll_sign_in(device.handle)
        except (OutcomeUnknownError, UnreachableError) as error:
            if not noticed:
                _say(f"{_reason(error).rstrip('.')}. Still waiting.")
            pause, noticed = min(2 * pause, MAX_PAUSE), True
            continue
        except ApiError as error:
            raise CommandError(error.detail) from None
        if polled.session is not None:
            return polled.session
        interval += SLOW_DOWN_SECONDS if polled.slow_down else 0.0
        pause, noticed = interval, False
    raise CommandError("the code expired before it was entered; run lcm login again")


async def _sign_in_with_browser(client: Client, page: str) -> CommandLineSession:
    """Wait at a random port of this computer for the code that a browser brings (RFC 8252), bound to us by PKCE."""
    verifier, state = _random_text(), _random_text()
    received: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(
        lambda reader, writer: _serve(reader, writer, state, received), "127.0.0.1", 0, limit=_MAX_REQUEST_BYTES
    )
    async with server:
        port = server.sockets[0].getsockname()[1]
        challenge = _encode(hashlib.sha256(verifier.encode()).digest())
        query = urlencode({"port": port, "code_challenge": challenge, "state": state})
        _say("Open this address in a browser on this computer:", f"  {page}?{query}")
        _say(f"Waiting up to {round(BROWSER_SECONDS / 60)} minutes. Press Ctrl-C to cancel.")
        try:
            async with asyncio.timeout(BROWSER_SECONDS):
                code = await received
        except TimeoutError:
            raise CommandError("the sign-in was not completed in time; run lcm login again") from None
    return await _explained(client.access.redeem_sign_in(SecretStr(code), SecretStr(verifier)))


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: str, received: asyncio.Future[str]
) -> None:
    """Take the code from the request that has our state; anything else gets a 404 and changes nothing."""
    try:
        code = None
        with suppress(TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            async with asyncio.timeout(_REQUEST_SECONDS):
                code = _code_of(await reader.readuntil(b"\r\n\r\n"), state)
        writer.write(_page("200 OK", _ARRIVED) if code else _page("404 Not Found", _STRANGER))
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(_REQUEST_SECONDS):
                await writer.drain()
        if code and not received.done():
            received.set_result(code)
    finally:
        writer.close()


def _code_of(request: bytes, state: str) -> str | None:
    method, _, rest = request.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    parsed = urlsplit(rest.partition(" ")[0])
    if method != "GET" or parsed.path != "/":
        return None
    fields = parse_qs(parsed.query)
    sent = fields.get("state", [""])[0]
    if not hmac.compare_digest(sent.encode("utf-8", "surrogatepass"), state.encode()):
        return None
    return fields.get("code", [""])[0] or None


def _page(status: str, text: str) -> bytes:
    body = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>lcm login</title><p>{text}</p></html>'.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


async def _explained(call: Awaitable[A]) -> A:
    """The answer; a refusal of the identity provider is shown as the control plane explains it."""
    try:
        return await call
    except OutcomeUnknownError as error:
        if error.server_error is None:
            raise
        raise CommandError(error.server_error.detail) from None
    except UnauthenticatedError as error:
        raise CommandError(error.detail) from None


def _reason(error: ClientError) -> str:
    cause = error.server_error if isinstance(error, OutcomeUnknownError) else None
    return cause.detail if cause is not None else "The control plane did not respond"


def _say(*lines: str) -> None:
    for line in lines:
        sys.stderr.write(f"{escape_unprintable(line)}\n")
    sys.stderr.flush()


def _random_text() -> str:
    return _encode(clock.rng().randbytes(_RANDOM_BYTES))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
