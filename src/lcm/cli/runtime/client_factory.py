"""The API client of commands: error messages, and dry runs that stop before the first change."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lcm.cli.errors import CommandError
from lcm.cli.runtime.target import CA_VARIABLE
from lcm.client import ApiError, Client, ClientError, Limits, OutcomeUnknownError, UnreachableError
from lcm.client.errors import (
    ClientTimeoutError,
    InvalidAddressError,
    InvalidRequestError,
    UnauthenticatedError,
    UntrustedCertificateError,
)
from lcm.core import clock
from lcm.http.network import NetworkTransport, make_tls

if TYPE_CHECKING:
    import ssl

    from lcm.cli.runtime.session import Session
    from lcm.cli.runtime.target import Target
    from lcm.http.transport import HttpRequest, HttpResponse, HttpTransport

_MASK = "***"
_IDLE_SECONDS = 3.0  # shorter than the keep-alive of the server
_PREVIEW = "/preview"  # the end of the paths that are posted to and change nothing
_SECRET_FIELDS = ("license_token", "cml_password", "token")


class DryRunStopError(Exception):
    """A dry run reached the request that would change something. It was not sent."""

    def __init__(self, method: str, path: str, body: Any) -> None:
        super().__init__(f"{method} {path}")
        self.method = method
        self.path = path
        self.body = body


class ReadOnlyTransport:
    """Passes requests that only read; stops at the first one that would change something."""

    def __init__(self, wire: HttpTransport) -> None:
        self._wire = wire

    async def send(self, request: HttpRequest) -> HttpResponse:
        parsed = urlsplit(request.url)
        if request.method == "GET" or parsed.path.endswith(_PREVIEW):
            return await self._wire.send(request)
        path = parsed.path + (f"?{parsed.query}" if parsed.query else "")
        raise DryRunStopError(request.method, path, _mask_secrets(json.loads(request.body or b"null")))

    def discard(self, tls: ssl.SSLContext) -> None:
        self._wire.discard(tls)

    async def aclose(self) -> None:
        await self._wire.aclose()


def make_client(target: Target, *, dry_run: bool = False, retry: bool = False, seconds: float | None = None) -> Client:
    """A client without log output. With `retry`, requests without a response are retried where that is safe.

    `seconds` is the longest time for one attempt, if it is not the usual one.
    """
    if retry:
        silence_logs()
    try:
        tls = make_tls(target.url, _ca_file())
    except ValueError as error:
        raise CommandError(f"{CA_VARIABLE}: {error}") from None
    limits = Limits(attempts=3 if retry else 1)
    wire = ReadOnlyTransport(NetworkTransport(idle_seconds=_IDLE_SECONDS, max_idle=1)) if dry_run else None
    try:
        return Client(
            target.url,
            target.token,
            limits=limits if seconds is None else replace(limits, attempt=seconds),
            wire=wire,
            tls=tls,
            with_metrics=False,
        )
    except InvalidAddressError as error:
        raise CommandError(f"{target.source}: {error}") from None
    except ValueError as error:  # about the token, which may have another source than the address
        raise CommandError(str(error)) from None


def _ca_file() -> Path | None:
    given = os.environ.get(CA_VARIABLE)
    return Path(given).expanduser() if given else None


def describe_error(error: Exception, target: Target) -> str | None:
    """The message for the user; None for an unexpected error."""
    if not isinstance(error, ClientError):
        return None
    if isinstance(error, UnauthenticatedError):
        return _describe_sign_out(error, target)
    if isinstance(error, ApiError):
        problems = [f"{each.field}: {each.message}" for each in error.errors]
        return "\n".join(problems) if isinstance(error, InvalidRequestError) and problems else error.detail
    if isinstance(error, UntrustedCertificateError):
        return str(error)
    if isinstance(error, ClientTimeoutError):
        return f"the control plane at {target.url} did not respond in time; try again, or check its /ready"
    if isinstance(error, UnreachableError):
        return (
            f"no control plane responds at {target.url} (from {target.source}): start one here with `lcm up`,"
            " or sign in to another with `lcm login URL`"
        )
    if isinstance(error, OutcomeUnknownError):
        return f"{error}. Check the current state before you retry"
    return str(error)


def _describe_sign_out(error: UnauthenticatedError, target: Target) -> str:
    from lcm.cli.output.durations import format_time_with_zone
    from lcm.model.access import SESSION_TOKEN_PREFIX

    if target.token is None:
        return f"you are not signed in to {target.url}. Sign in: lcm login {target.url}"
    if not target.token.startswith(SESSION_TOKEN_PREFIX):
        return f"{error.detail.rstrip('.')}. Sign in: lcm login {target.url}"
    if target.session_ends_at is not None and target.session_ends_at <= clock.now():
        return f"your session ended at {format_time_with_zone(target.session_ends_at)}: run `lcm login {target.url}`"
    return (
        "your session has ended early: you or an admin ended it, or the identity provider no longer lets you in."
        f" Run `lcm login {target.url}`"
    )


def show_dry_run(session: Session, stop: DryRunStopError) -> None:
    """Show the request that a dry run stopped at, and its expected effect."""
    printer = session.printer
    if not printer.for_people:
        request = {"method": stop.method, "path": stop.path, "body": stop.body}
        forecast: dict[str, str] = {}
        for label, text in session.forecast:  # a label may repeat, such as that of each effect
            forecast[label] = f"{forecast[label]} {text}" if label in forecast else text
        printer.data({"dry_run": True, "server": session.target.url, "request": request, **forecast})
        return
    printer.line("Dry run: no changes made.")
    body = "" if stop.body in (None, {}, {"reason": None}) else f" {json.dumps(stop.body, ensure_ascii=False)}"
    printer.details([("would send", f"{stop.method} {stop.path}{body}"), ("to", session.target.url), *session.forecast])


def _mask_secrets(body: Any) -> Any:
    if isinstance(body, dict):
        return {
            name: _MASK if name in _SECRET_FIELDS and value else _mask_secrets(value) for name, value in body.items()
        }
    return body


def silence_logs() -> None:
    """Turn logging off: log lines would appear inside tables."""
    import logging

    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
