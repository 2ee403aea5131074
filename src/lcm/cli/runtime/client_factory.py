"""The API client of commands: error messages, and dry runs that stop before the first change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx

from lcm.cli.errors import CommandError
from lcm.client import ApiError, Client, ClientError, Limits, OutcomeUnknownError, UnreachableError
from lcm.client.errors import ClientTimeoutError, InvalidAddressError, InvalidRequestError, UnauthenticatedError

if TYPE_CHECKING:
    from lcm.cli.runtime.session import Session
    from lcm.cli.runtime.target import Target

_MASK = "***"
_READ_ONLY_POSTS = ("/api/lablets/preview", "/api/settings/preview")  # these change nothing
_SECRET_FIELDS = ("license_token", "cml_password", "token")


class DryRunStopError(Exception):
    """A dry run reached the request that would change something. It was not sent."""

    def __init__(self, method: str, path: str, body: Any) -> None:
        super().__init__(f"{method} {path}")
        self.method = method
        self.path = path
        self.body = body


class ReadOnlyTransport(httpx.AsyncBaseTransport):
    """Passes requests that only read; stops at the first one that would change something."""

    def __init__(self, wire: httpx.AsyncBaseTransport) -> None:
        self._wire = wire

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET" or request.url.path in _READ_ONLY_POSTS:
            return await self._wire.handle_async_request(request)
        content = await request.aread()
        raise DryRunStopError(
            request.method, request.url.raw_path.decode(), _mask_secrets(json.loads(content or b"null"))
        )

    async def aclose(self) -> None:
        await self._wire.aclose()


def make_client(target: Target, *, dry_run: bool = False, retry: bool = False) -> Client:
    """A client without log output. With `retry`, requests without a response are retried where that is safe."""
    if retry:
        silence_logs()
    # Loading certificates takes time, and plain HTTP needs none.
    verify = target.url.lower().startswith("https:")
    wire = ReadOnlyTransport(httpx.AsyncHTTPTransport(verify=verify, trust_env=False)) if dry_run else None
    try:
        return Client(
            target.url,
            target.token,
            limits=Limits(attempts=3 if retry else 1),
            wire=wire,
            verify=verify,
            with_metrics=False,
        )
    except InvalidAddressError as error:
        raise CommandError(f"{target.source}: {error}") from None
    except ValueError as error:  # about the token, which may have another source than the address
        raise CommandError(str(error)) from None


def describe_error(error: Exception, target: Target) -> str | None:
    """The message for the user; None for an unexpected error."""
    if not isinstance(error, ClientError):
        return None
    if isinstance(error, UnauthenticatedError):
        return f"{error.detail.rstrip('.')}. Sign in: lcm login {target.url}"
    if isinstance(error, ApiError):
        problems = [f"{each.field}: {each.message}" for each in error.errors]
        return "\n".join(problems) if isinstance(error, InvalidRequestError) and problems else error.detail
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


def show_dry_run(session: Session, stop: DryRunStopError) -> None:
    """Show the request that a dry run stopped at, and its expected effect."""
    printer = session.printer
    if not printer.for_people:
        request = {"method": stop.method, "path": stop.path, "body": stop.body}
        printer.data({"dry_run": True, "server": session.target.url, "request": request, **dict(session.forecast)})
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
