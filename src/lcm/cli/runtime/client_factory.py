"""The typed client as commands use it: what goes wrong in words, and a dry run that stops before the first change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx

from lcm.cli.errors import CommandError
from lcm.client import ApiError, Client, ClientError, Limits, OutcomeUnknownError, UnreachableError
from lcm.client.errors import ClientTimeoutError, InvalidRequestError, UnauthenticatedError

if TYPE_CHECKING:
    from lcm.cli.runtime.session import Session
    from lcm.cli.runtime.target import Target

_MASK = "***"
_READ_ONLY_POSTS = ("/api/lablets/preview",)  # asked with a body, and yet only a look
_SECRET_FIELDS = ("license_token", "cml_password", "token")


class DryRunStopError(Exception):
    """A dry run has come to the change. It was not sent."""

    def __init__(self, method: str, path: str, body: Any) -> None:
        super().__init__(f"{method} {path}")
        self.method = method
        self.path = path
        self.body = body


class ReadOnlyTransport(httpx.AsyncBaseTransport):
    """Lets what only reads pass, and nothing else."""

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


def make_client(reach: Target, *, dry_run: bool = False, patient: bool = False) -> Client:
    """A client that says nothing by itself. `patient`: what got no answer is asked again where that is safe."""
    if patient:
        silence_logs()
    # Certificates take time to load, and plain HTTP has none.
    verify = reach.url.lower().startswith("https:")
    wire = ReadOnlyTransport(httpx.AsyncHTTPTransport(verify=verify, trust_env=False)) if dry_run else None
    try:
        return Client(
            reach.url, reach.token, limits=Limits(attempts=3 if patient else 1), wire=wire, verify=verify, counted=False
        )
    except ValueError as error:
        about_address = "address" in str(error)  # else it is about the token, which may be from elsewhere
        raise CommandError(f"{reach.source}: {error}" if about_address else str(error)) from None


def describe_error(error: Exception, reach: Target) -> str | None:
    """What happened, for the person who asked; None: nobody foresaw it."""
    if not isinstance(error, ClientError):
        return None
    if isinstance(error, UnauthenticatedError):
        return f"{error.detail.rstrip('.')}. Sign in: lcm login {reach.url}"
    if isinstance(error, ApiError):
        problems = [f"{each.field}: {each.message}" for each in error.errors]
        return "\n".join(problems) if isinstance(error, InvalidRequestError) and problems else error.detail
    if isinstance(error, ClientTimeoutError):
        return f"the control plane at {reach.url} did not answer in time; try again, or look at its /ready"
    if isinstance(error, UnreachableError):
        return (
            f"no control plane answers at {reach.url} (from {reach.source}): start one here with `lcm up`,"
            " or sign in to another with `lcm login URL`"
        )
    if isinstance(error, OutcomeUnknownError):
        return f"{error}. Look before you ask again"
    return str(error)


def show_dry_run(session: Session, would: DryRunStopError) -> None:
    """What would be sent, and what would follow."""
    screen = session.screen
    if not screen.for_people:
        request = {"method": would.method, "path": would.path, "body": would.body}
        screen.data({"dry_run": True, "server": session.reach.url, "request": request, **dict(session.forecast)})
        return
    screen.say("Dry run: nothing was changed.")
    body = "" if would.body in (None, {}, {"reason": None}) else f" {json.dumps(would.body, ensure_ascii=False)}"
    screen.facts([("would send", f"{would.method} {would.path}{body}"), ("to", session.reach.url), *session.forecast])


def _mask_secrets(body: Any) -> Any:
    if isinstance(body, dict):
        return {
            name: _MASK if name in _SECRET_FIELDS and value else _mask_secrets(value) for name, value in body.items()
        }
    return body


def silence_logs() -> None:
    """Let nothing be logged: it would stand between the lines of a table."""
    import logging

    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
