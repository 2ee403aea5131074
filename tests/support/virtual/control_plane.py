"""A control plane in this process, called over HTTP without a socket."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

import httpx

from lcm.control_plane.app import make_app
from lcm.control_plane.auth.oidc.command_line import CommandLineSignIns
from lcm.control_plane.auth.oidc.renewal import SessionRenewal
from lcm.control_plane.auth.rate_limit import SignInRateLimiter
from lcm.control_plane.auth.security_log import SecurityLog
from lcm.control_plane.auth.session_record import SESSIONS
from lcm.control_plane.auth.sessions import SessionService
from lcm.control_plane.auth.sign_in_links import SignInLinks
from lcm.control_plane.auth.teams import TeamDirectory
from lcm.control_plane.auth.tokens import TOKENS, TokenService
from lcm.control_plane.context import ControlPlaneContext
from lcm.control_plane.fleet.system import ensure_installation
from lcm.control_plane.fleet.templates import seed_templates
from lcm.control_plane.http import routing
from lcm.control_plane.http.deps import Authenticator
from lcm.control_plane.http.direct_routes import DirectRoute, plan_route
from lcm.control_plane.journal.feed import POLL_SECONDS, JournalFeed
from lcm.control_plane.journal.sse import EventStream
from lcm.control_plane.notifications.lease import AlwaysHeld
from lcm.control_plane.notifications.sender import NotificationSender, SenderConfig, TargetFactory
from lcm.control_plane.records.kinds import ALL_KINDS
from lcm.control_plane.records.unit_of_work import UnitOfWork
from lcm.control_plane.secrets.encryption import SecretBox
from lcm.control_plane.secrets.keys import generate_key, parse_key
from lcm.control_plane.services import Services
from lcm.control_plane.store.memory.store import MemoryDisk, MemoryStore
from lcm.model.access import Role
from lcm.model.audit import Actor, ActorKind
from tests.support.network.webhook_receiver import Receivers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from fastapi import FastAPI
    from fastapi.routing import APIRoute

    from lcm.control_plane.auth.oidc.sign_in import OidcSignIn
    from lcm.control_plane.store.port import Store

SYSTEM = Actor(kind=ActorKind.SYSTEM, name="test")
VERSION = "0.0.0"
_LONG_POLL = 60.0
LEADER = {"X-LCM-Controller": "worker-controller", "X-LCM-Leader-Term": "5"}


_PLANS: dict[int, tuple[APIRoute, DirectRoute | None]] = {}


def plan_once(route: APIRoute) -> DirectRoute | None:
    """The plan of a route. All apps share their routes, and the plans of all of them take longer than most tests."""
    if id(route) not in _PLANS:
        _PLANS[id(route)] = route, plan_route(route)
    return _PLANS[id(route)][1]


patch.object(routing, "plan_route", plan_once).start()


@cache
def api_document() -> dict[str, Any]:
    """The OpenAPI document, which depends on the routes alone: made once, because it takes more than a second."""
    return make_app(cast("Services", None), VERSION).openapi()


class TestPlane:
    """The app, and a client for each role."""

    __test__ = False

    def __init__(
        self, app: FastAPI, services: Services, tokens: dict[Role, str], feed: JournalFeed, receivers: Receivers
    ) -> None:
        self.app = app
        self.receivers = receivers
        self.feed = feed
        self.services = services
        self.tokens = tokens

    async def ask(self, method: str, path: str, *, role: Role | None = Role.OPERATOR, **options: Any) -> httpx.Response:
        """One request in a role; without a token if None. Controllers send the headers of a leader."""
        headers: dict[str, str] = dict(options.pop("headers", {}))
        if role is not None:
            headers.setdefault("Authorization", f"Bearer {self.tokens[role]}")
        if role is Role.CONTROLLER:
            headers = {**LEADER, **headers}
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://lcm.test") as client:
            return await client.request(method, path, headers=headers, **options)

    async def create(self, name: str = "alpha", **body: Any) -> dict[str, Any]:
        """Create a worker."""
        response = await self.ask("POST", "/api/workers", json={"name": name, "template_name": "small", **body})
        assert response.status_code == 201, response.text
        created: dict[str, Any] = response.json()
        return created

    async def report(self, worker: dict[str, Any], status: str, **body: Any) -> dict[str, Any]:
        """A controller's status write that must succeed."""
        update = {"status": status, "version": worker["version"], "reason": "seen", **body}
        path = f"/api/internal/workers/{worker['id']}/status"
        response = await self.ask("POST", path, role=Role.CONTROLLER, json=update)
        assert response.status_code == 200, response.text
        written: dict[str, Any] = response.json()
        return written

    async def running(self, name: str = "alpha", **body: Any) -> dict[str, Any]:
        """A worker that a controller has brought up."""
        worker = await self.report(await self.create(name, **body), "PROVISIONING", instance_id=f"i-{name}")
        worker = await self.report(worker, "STARTING")
        return await self.report(worker, "RUNNING", public_ip="192.0.2.7")


@asynccontextmanager
async def serving_plane(
    disk: MemoryDisk | None = None,
    store: Store | None = None,
    make_sign_in: Callable[[SecretBox], OidcSignIn] | None = None,
) -> AsyncIterator[TestPlane]:
    """A control plane, with templates and a token for each role. On a store that is given, it does not follow it.

    `make_sign_in` makes the sign-in with an identity provider.
    """
    follows = store is None
    store = store or MemoryStore(disk)
    await store.open([*ALL_KINDS, TOKENS, SESSIONS])
    # The commits of this plane wake it: on a disk of its own it need not look every second, for hours.
    feed = JournalFeed(store, poll=POLL_SECONDS if disk else _LONG_POLL)
    unit_of_work = UnitOfWork(store, feed.wake)
    await unit_of_work.run(SYSTEM, lambda tx: ensure_installation(tx, None))
    await unit_of_work.run(SYSTEM, lambda tx: seed_templates(tx, None))
    box = SecretBox([parse_key(generate_key(), "test")])
    tokens = TokenService(store)
    sign_in = None if make_sign_in is None else make_sign_in(box)
    renewal = None if sign_in is None else SessionRenewal(store, box, sign_in)
    sessions = SessionService(store, tokens, box, renewal)
    authenticator = Authenticator(
        tokens,
        sessions,
        SignInRateLimiter(),
        SignInLinks(store),
        SecurityLog(store),
        sign_in=sign_in,
        command_line=None if sign_in is None else CommandLineSignIns(sign_in, sessions, box),
        teams=TeamDirectory(store),
    )
    stream = EventStream(store, feed)
    context = ControlPlaneContext(store, unit_of_work, box, ("eu-west-1", "us-east-1"))
    receivers = Receivers()
    sender = NotificationSender(
        context, feed, AlwaysHeld(), TargetFactory(context, receivers, SenderConfig()), receivers
    )
    services = Services.create(context, authenticator, stream, sender=sender)
    secrets = {role: (await tokens.create(role.value, role, created_by="test"))[1].reveal() for role in Role}
    if follows:
        await feed.start()
        await stream.start()
        await sender.start()
    app = make_app(services, VERSION)
    app.openapi = api_document  # type: ignore[method-assign]
    yield TestPlane(app, services, secrets, feed, receivers)
    await sender.stop()
    await stream.stop()
    await feed.stop()
    await tokens.close()
    await sessions.close()
    if sign_in is not None:
        await sign_in.close()
    await store.close()
