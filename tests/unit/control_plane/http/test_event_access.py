"""Event streams end with the token or session that opened them, and are limited in number (api.md#events)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.auth.session_cookies import session_cookie
from lcm.control_plane.auth.session_record import session_token
from lcm.core import clock
from lcm.model.access import CallerKind, Role
from tests.support.auth.scripted_provider import ScriptedProvider
from tests.support.virtual.control_plane import TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest


class OpenStream:
    """A request for the stream that stays open."""

    def __init__(self, plane: TestPlane, header: tuple[str, str]) -> None:
        self.received = b""
        self.status = 0
        self._scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "path": "/api/events/stream",
            "raw_path": b"/api/events/stream",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [(b"host", b"lcm.test"), (header[0].encode(), header[1].encode())],
            "client": ("192.0.2.1", 1),
            "server": ("lcm.test", 80),
        }
        self._gone = asyncio.Event()
        self._task = asyncio.create_task(plane.app(self._scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.received += message.get("body", b"")

    @property
    def is_open(self) -> bool:
        return not self._task.done()

    async def close(self) -> None:
        self._gone.set()
        await self._task


async def opened(plane: TestPlane, *headers: tuple[str, str]) -> AsyncIterator[OpenStream]:
    for header in headers:
        stream = OpenStream(plane, header)
        await asyncio.sleep(0.01)
        yield stream


def bearer(token: str) -> tuple[str, str]:
    return "authorization", f"Bearer {token}"


async def test_a_stream_ends_with_its_token() -> None:
    async with serving_plane() as plane:
        tokens = plane.services.authenticator.tokens
        info, revoked = await tokens.create("one", Role.VIEWER, created_by="test")
        expires_at = clock.now() + timedelta(seconds=60)
        _, expiring = await tokens.create("two", Role.VIEWER, created_by="test", expires_at=expires_at)
        headers = [bearer(revoked.reveal()), bearer(expiring.reveal()), bearer(plane.tokens[Role.VIEWER])]
        first, second, third = [stream async for stream in opened(plane, *headers)]
        await asyncio.sleep(30)
        assert (first.is_open, second.is_open, third.is_open) == (True, True, True)
        await tokens.revoke(info.id, revoked_by="test")
        await asyncio.sleep(11)
        assert (first.is_open, second.is_open, third.is_open) == (False, True, True)
        assert b"event: signed_out" in first.received
        await asyncio.sleep(30)
        assert (second.is_open, third.is_open) == (False, True)
        await third.close()


async def test_a_stream_ends_with_its_session() -> None:
    async with serving_plane() as plane:
        sessions, tokens = plane.services.authenticator.sessions, plane.services.authenticator.tokens
        caller = await tokens.verify(plane.tokens[Role.VIEWER])
        ended, other = await sessions.begin(caller), await sessions.begin(caller)
        cookies = [("cookie", session_cookie(each, secure=False).partition(";")[0]) for each in (ended, other)]
        first, second = [stream async for stream in opened(plane, *cookies)]
        await sessions.end(ended.id.reveal())
        await asyncio.sleep(11)
        assert (first.is_open, second.is_open) == (False, True)
        assert b"event: signed_out" in first.received
        await asyncio.sleep(13 * 3600)
        assert not second.is_open, "reading a stream is no use of a session"


async def test_a_stream_of_a_command_line_ends_with_its_session() -> None:
    provider = ScriptedProvider()
    provider.device_answer = "approved"
    async with serving_plane(make_sign_in=provider.sign_in) as plane:
        sign_ins = plane.services.authenticator.command_line
        assert sign_ins is not None
        headers = []
        for _ in range(2):
            started = await sign_ins.start("192.0.2.1")
            assert started is not None
            await asyncio.sleep(5)
            session = (await sign_ins.poll(started.handle.reveal(), "192.0.2.1")).session
            assert session is not None
            headers.append(bearer(session_token(session.id.reveal()).reveal()))
        first, second = [stream async for stream in opened(plane, *headers)]
        ended = await plane.ask("DELETE", "/api/session", role=None, headers={"Authorization": headers[0][1]})
        assert ended.status_code == 204
        await asyncio.sleep(11)
        assert (first.is_open, second.is_open) == (False, True)
        assert b"event: signed_out" in first.received
        provider.claims["groups"] = ["students"]
        await asyncio.sleep(300)
        assert not second.is_open, "the group is lost, and so is the stream"


async def test_a_stream_ends_when_what_its_person_may_see_changes() -> None:
    """Who leaves a team, gets another role in it, or loses it with its group; others go on (teams.md#members)."""
    async with serving_plane() as plane:
        groups = {"left": "learner", "raised": "learner", "stays": "learner"}
        members = {name: {"role": role, "group": name} for name, role in groups.items()}
        team = {"name": "blue", "members": list(members.values())}
        assert (await plane.ask("POST", "/api/teams", role=Role.ADMIN, json=team)).status_code == 201
        streams = {}
        for name in groups:
            person = Caller(name, CallerKind.OIDC, None, subject=f"https://id.example#{name}", groups=(name,))
            session = await plane.services.authenticator.sessions.begin(person)
            cookie = "cookie", session_cookie(session, secure=False).partition(";")[0]
            (streams[name],) = [stream async for stream in opened(plane, cookie)]
        await asyncio.sleep(30)
        assert all(stream.is_open for stream in streams.values())
        changed = {"members": [members["raised"] | {"role": "instructor"}, members["stays"]]}
        await plane.ask("PATCH", "/api/teams/blue", role=Role.ADMIN, json=changed)
        await asyncio.sleep(11)
        assert {name: stream.is_open for name, stream in streams.items()} == {
            "left": False,
            "raised": False,
            "stays": True,
        }
        assert b"event: signed_out" in streams["left"].received
        await streams["stays"].close()


async def test_streams_are_limited_in_all_whoever_opens_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving_plane() as plane:
        stream = plane.services.stream
        monkeypatch.setattr(stream, "_settings", replace(stream._settings, max_clients=3))
        roles = [Role.VIEWER, Role.OPERATOR, Role.ADMIN, Role.VIEWER, Role.OPERATOR]
        streams = [each async for each in opened(plane, *(bearer(plane.tokens[role]) for role in roles))]
        assert [each.status for each in streams] == [200] * 3 + [429] * 2
        assert b"3 event streams are open, which is the limit; try again later" in streams[-1].received
        assert (stream.clients, stream.counters.refused) == (3, 2)
        await streams[0].close()
        at_once = [OpenStream(plane, bearer(plane.tokens[Role.ADMIN])) for _ in range(9)]
        await asyncio.sleep(1)
        assert [each.status for each in at_once] == [200] + [429] * 8, "there is room for one again"
        again = at_once[0]
        for each in [*streams[1:3], again]:
            await each.close()


async def test_streams_are_limited_per_caller() -> None:
    async with serving_plane() as plane:
        viewer = [bearer(plane.tokens[Role.VIEWER])] * 60
        streams = [stream async for stream in opened(plane, *viewer)]
        assert [stream.status for stream in streams] == [200] * 50 + [429] * 10
        assert b"too_many_streams" in streams[-1].received
        other = [stream async for stream in opened(plane, bearer(plane.tokens[Role.ADMIN]))]
        assert other[0].status == 200
        await streams[0].close()
        again = [stream async for stream in opened(plane, viewer[0])]
        assert again[0].status == 200
        for stream in [*streams[1:50], *other, *again]:
            await stream.close()
