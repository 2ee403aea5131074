"""Following the event stream across lost connections."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import httpx
import pytest

from lcm.client.errors import ProtocolError, ServiceUnavailableError, UnauthenticatedError, UnreachableError
from lcm.control_plane.journal.sse_client import format_event, format_notice
from tests.unit.client.fakes import FakeStreamServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lcm.client import Client, Event

GREETING = b"retry: 2000\nid: 10\n\n"
BROKEN = httpx.ReadError("the connection broke")


def event_frame(cursor: int) -> bytes:
    return format_event("worker_changed", b'{"n": %d}' % cursor, str(cursor))


def refusing(status: int, code: str) -> Callable[[], httpx.Response]:
    body = {"title": "No", "status": status, "code": code, "detail": "not you"}
    return lambda: httpx.Response(status, json=body)


async def take(client: Client, count: int, **options: Any) -> list[Event]:
    """The first events."""
    found: list[Event] = []
    async with aclosing(client.events.follow(**options)) as events:
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    return found


async def test_events_have_their_id_and_filters_are_sent(connect: Callable[..., Client]) -> None:
    server = FakeStreamServer(
        [GREETING, b": still here\n\n", b"event: heartbeat\ndata: {}\n\n", event_frame(11), event_frame(12), 5.0]
    )
    events = await take(connect(server, "my-token"), 2, worker_id=["w-1", "w-2"], topic=["audit"])
    assert [(event.id, event.name, event.data) for event in events] == [
        ("11", "worker_changed", {"n": 11}),
        ("12", "worker_changed", {"n": 12}),
    ]
    request = server.requests[0]
    assert str(request.url).endswith("/api/events/stream?worker_id=w-1&worker_id=w-2&topic=audit")
    assert request.headers["Authorization"] == "Bearer my-token"
    assert "Last-Event-ID" not in request.headers
    assert server.bodies[0].closed


async def test_a_lost_connection_is_resumed_where_it_broke(connect: Callable[..., Client]) -> None:
    server = FakeStreamServer(
        [GREETING, event_frame(11), BROKEN], [GREETING[:12], event_frame(12)], [event_frame(13), 5.0]
    )
    told: list[bool] = []
    events = await take(connect(server), 3, on_connection=told.append)
    assert [event.id for event in events] == ["11", "12", "13"]
    assert told == [True, False, True, False, True]
    assert [request.headers.get("Last-Event-ID") for request in server.requests] == [None, "11", "12"]
    assert server.times[1] - server.times[0] == pytest.approx(2, rel=0.11)


async def test_a_connection_lost_before_the_first_event_misses_nothing(connect: Callable[..., Client]) -> None:
    server = FakeStreamServer([GREETING, BROKEN], [event_frame(11), 5.0])
    assert [event.id for event in await take(connect(server), 1)] == ["11"]
    assert server.requests[1].headers["Last-Event-ID"] == "10"


async def test_an_earlier_position_can_be_given(connect: Callable[..., Client]) -> None:
    server = FakeStreamServer([event_frame(4), 5.0])
    await take(connect(server), 1, last_event_id="3")
    assert server.requests[0].headers["Last-Event-ID"] == "3"


@pytest.mark.parametrize("word", ["overflow", "shutdown", "unavailable"])
async def test_closing_events_are_not_delivered_and_lose_none(word: str, connect: Callable[..., Client]) -> None:
    server = FakeStreamServer([GREETING, event_frame(11), format_notice(word, "come back")], [event_frame(12), 5.0])
    assert [event.name for event in await take(connect(server), 2)] == ["worker_changed", "worker_changed"]
    assert server.requests[1].headers["Last-Event-ID"] == "11"


async def test_a_reset_is_delivered(connect: Callable[..., Client]) -> None:
    server = FakeStreamServer([format_notice("reset", "too old", "50"), BROKEN], [event_frame(51), 5.0])
    reset, after = await take(connect(server), 2, last_event_id="1")
    assert (reset.is_reset, reset.data["reason"], after.is_reset) == (True, "too old", False)
    assert server.requests[1].headers["Last-Event-ID"] == "50"


async def test_a_reset_without_an_id_drops_the_old_one(connect: Callable[..., Client]) -> None:
    server = FakeStreamServer([format_notice("reset", "not known"), BROKEN], [event_frame(1), 5.0])
    await take(connect(server), 2, last_event_id="zzz")
    assert "Last-Event-ID" not in server.requests[1].headers


async def test_silence_is_a_lost_connection(connect: Callable[..., Client]) -> None:
    server = FakeStreamServer([GREETING, 3600.0, event_frame(11)], [event_frame(12), 5.0])
    assert [event.id for event in await take(connect(server), 1)] == ["12"]
    assert server.times[1] - server.times[0] == pytest.approx(47, abs=0.3)
    assert server.bodies[0].closed


async def test_pauses_grow_while_there_is_no_response(connect: Callable[..., Client]) -> None:
    server = FakeStreamServer([GREETING], [], [], refusing(503, "unavailable"), [event_frame(11), 5.0])
    await take(connect(server), 1)
    pauses = [after - before for before, after in zip(server.times, server.times[1:], strict=False)]
    assert pauses == [pytest.approx(seconds, rel=0.11) for seconds in (2, 4, 8, 16)]


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (refusing(503, "unavailable"), ServiceUnavailableError),
        (refusing(401, "unauthenticated"), UnauthenticatedError),
        (lambda: httpx.Response(200, html="<html>hello</html>"), ProtocolError),
        (lambda: httpx.Response(502, html="<html>hello</html>"), UnreachableError),
    ],
    ids=["busy", "unknown", "html", "gateway"],
)
async def test_the_first_connection_must_succeed(
    script: Callable[[], httpx.Response], kind: type[Exception], connect: Callable[..., Client]
) -> None:
    with pytest.raises(kind):
        await take(connect(FakeStreamServer(script)), 1)
    with pytest.raises(UnreachableError):
        await take(connect(FakeStreamServer()), 1)


async def test_a_revoked_token_ends_it(connect: Callable[..., Client]) -> None:
    server = FakeStreamServer([GREETING, BROKEN], refusing(401, "unauthenticated"))
    with pytest.raises(UnauthenticatedError):
        await take(connect(server), 1)


@pytest.mark.parametrize("nonsense", [b"data: {not json\n\n", b"data: " + b"x" * 2_000_000])
async def test_malformed_events_end_the_stream(nonsense: bytes, connect: Callable[..., Client]) -> None:
    with pytest.raises(ProtocolError):
        await take(connect(FakeStreamServer([nonsense, 5.0])), 1)


@pytest.mark.parametrize("moment", [1.0, 11.0], ids=["listening", "pausing"])
async def test_it_ends_cleanly_when_cancelled(moment: float, connect: Callable[..., Client]) -> None:
    server = FakeStreamServer([GREETING, 10.0, BROKEN])
    task = asyncio.create_task(take(connect(server), 1))
    await asyncio.sleep(moment)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.bodies[0].closed
    assert asyncio.all_tasks() == {asyncio.current_task()}
