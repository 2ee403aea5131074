"""A control plane with two teams. Whatever the people of the first must not see has `secret` in its name."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx

from lcm.control_plane.journal.sse_client import EventFilter, StreamAccess
from lcm.core import clock
from lcm.model.access import Role
from tests.support.virtual.control_plane import serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.control_plane.auth.roles import Caller
    from tests.support.virtual.control_plane import TestPlane

TOPOLOGY = "lab: {version: 0.2.2}\nnodes:\n- {id: n0, label: R1}\n"

SMALL = {"license": False, "cpu_cores": 1, "memory_gb": 1, "storage_gb": 5}
BOOKED = (
    ("alpha-class", "ospf", "blue"),
    ("secret-class", "secret-bgp", "secret-team"),
    ("secret-evening", "secret-open", None),
)


def booking_request(name: str, definition: str, team: str | None, **more: Any) -> dict[str, Any]:
    """Two seats for an hour, three hours from now."""
    start = (clock.now() + timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M")
    when = {"start": start, "zone": "UTC", "duration_minutes": 60}
    whose = {} if team is None else {"team": team}
    return {"name": name, "definition": definition, "seats": 2, **when, **whose, **more}


class School:
    """The people by name, and what each of them may see."""

    def __init__(self, plane: TestPlane) -> None:
        self.plane = plane
        self.tokens: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.teams: dict[str, str] = {}
        self.bookings: dict[str, str] = {}
        self.before = ""
        self.visible_to = {"instructor": ["alpha-mine", "alpha-other"], "learner": ["alpha-mine"]}
        self._transport = httpx.ASGITransport(plane.app, raise_app_exceptions=False)

    @property
    def foreign(self) -> tuple[str, str, str, str]:
        """A lablet, a definition, a team and a booking that neither of them may see."""
        return self.ids["secret-b"], "secret-bgp", self.teams["secret-team"], self.bookings["secret-class"]

    async def open(self) -> None:
        for name in ("blue", "secret-team"):
            team = await self.admin("POST", "/api/teams", name=name, description=f"{name} team", members=[])
            self.teams[name] = team["id"]
        people = {"instructor": "instructor", "learner": "learner", "other": "learner"}
        for name, role in people.items():
            self.tokens[name] = await self.token(f"blue-{name}", role, "blue")
        self.tokens["secret-person"] = await self.token("secret-person", "instructor", "secret-team")
        newest = await self.plane.services.context.store.read_journal(newest_first=True, limit=1)
        self.before = newest[0].cursor
        await self.define("ospf", "blue")
        await self.define("ospf", "secret-team")
        await self.define("secret-bgp", "secret-team")
        await self.define("secret-open", None)
        mine, other = await self.identity("learner"), await self.identity("other")
        await self.lablet("alpha-mine", "ospf", team="blue", owner=mine)
        await self.lablet("alpha-other", "ospf", team="blue", owner=other)
        await self.lablet("secret-b", "secret-bgp", team="secret-team")
        await self.lablet("secret-none", "secret-open")
        for name, definition, team in BOOKED:
            made = await self.admin("POST", "/api/bookings", **booking_request(name, definition, team))
            self.bookings[name] = made["id"]
        await self.plane.create("lab-1")
        worker = await self.plane.create("secret-worker")
        await self.admin("PATCH", f"/api/workers/{worker['id']}", team="secret-team")

    async def admin(self, method: str, path: str, **body: Any) -> Any:
        """A request of an admin, which must succeed."""
        response = await self.plane.ask(method, path, role=Role.ADMIN, json=body)
        assert response.is_success, (path, response.text)
        return response.json() if response.content else None

    async def token(self, name: str, role: str, team: str) -> str:
        made = await self.admin("POST", "/api/tokens", name=name, role=role, team=team)
        return str(made["token"])

    async def caller(self, name: str) -> Caller:
        authenticator = self.plane.services.authenticator
        return await authenticator.in_teams(await authenticator.tokens.verify(self.tokens[name]))

    async def identity(self, name: str) -> str:
        return (await self.caller(name)).identity

    async def define(self, name: str, team: str | None) -> None:
        body = {"name": name, "version": "1", "topology": TOPOLOGY, "requirements": SMALL}
        await self.admin("POST", "/api/lablet-definitions", **body, **({} if team is None else {"team": team}))

    async def lablet(self, name: str, definition: str, **body: Any) -> str:
        made = await self.admin("POST", "/api/lablets", name=name, definition=definition, **body)
        self.ids[name] = made["id"]
        return str(made["id"])

    async def ask(self, name: str, method: str, path: str, *, html: bool = False, **options: Any) -> httpx.Response:
        """A request of one of the people: by token, or as a browser."""
        headers: dict[str, str] = {"Authorization": f"Bearer {self.tokens[name]}"}
        if html:
            session = await self.plane.services.authenticator.sessions.begin(await self.caller(name))
            csrf = {} if method == "GET" else {"X-LCM-CSRF": session.csrf.reveal()}
            headers = {"Accept": "text/html", "Cookie": f"lcm_session={session.id.reveal()}", **csrf}
        if path.endswith("/preview") and "definitions" in path:
            options.setdefault("json", {"action": "disable"})
        if path.startswith("/api/") and path.endswith(("/extend", "/extend/preview")):
            options.setdefault("json", {"minutes": 30})
        moves = method == "PATCH" or ("/occurrences/" in path and path.endswith("/preview"))
        if path.startswith("/api/bookings/") and moves:
            options.setdefault("json", {"start": "2998-01-01T09:00"})
        async with httpx.AsyncClient(transport=self._transport, base_url="http://lcm.test") as client:
            return await client.request(method, path, headers=headers, **options)

    async def stream(self, name: str, after: str | None) -> str:
        """What the person's event stream has of everything that happened since then, or that happens now."""

        async def valid() -> bool:
            return True

        access = StreamAccess(name, valid, (await self.caller(name)).scope)
        parts: list[bytes] = []

        async def read() -> None:
            async for part in self.plane.services.stream.subscribe(EventFilter(), after, access):
                parts.append(part)  # noqa: PERF401 - what came before the end counts

        task = asyncio.create_task(read())
        await asyncio.sleep(1)
        for lablet in self.ids.values():
            await self.admin("POST", f"/api/lablets/{lablet}/terminate", reason="end of the lesson")
        await asyncio.sleep(3)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return b"".join(parts).decode()


@asynccontextmanager
async def open_school() -> AsyncIterator[School]:
    """The school with everything in it."""
    async with serving_plane() as plane:
        school = School(plane)
        await school.open()
        yield school
