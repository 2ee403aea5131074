"""Limits on bodies, before a request reaches the app (api.md#limits)."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import structlog.testing

from lcm.http.callers import is_in_process, mark_in_process
from lcm.http.request_limits import RequestLimitsMiddleware

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

LIMIT = 1000


class App:
    """Reads the whole body of each request, as all our apps do."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            assert message["type"] == "http.request"
            body += message["body"]
            more = message["more_body"]
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Exchange:
    """One request whose body arrives in chunks; None stands for a client that goes away, a number for a pause."""

    def __init__(self, chunks: Iterable[bytes | float | None], length: int | None = None, path: str = "/x") -> None:
        self._chunks = list(chunks)
        header = (b"transfer-encoding", b"chunked") if length is None else (b"content-length", b"%d" % length)
        self.scope: dict[str, Any] = {
            "type": "http",
            "path": path,
            "query_string": b"",
            "headers": [header],
            "client": ("192.0.2.1", 1),
        }
        self.read = 0
        self.messages: list[Any] = []

    async def receive(self) -> MutableMapping[str, Any]:
        while self._chunks:
            chunk = self._chunks.pop(0)
            if chunk is None:
                return {"type": "http.disconnect"}
            if isinstance(chunk, bytes):
                self.read += len(chunk)
                return {"type": "http.request", "body": chunk, "more_body": bool(self._chunks)}
            await asyncio.sleep(chunk)
        await asyncio.Event().wait()
        raise AssertionError

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.messages.append(message)

    async def through(self, app: Callable[[Any, Any, Any], Awaitable[None]]) -> Exchange:
        await app(self.scope, self.receive, self.send)
        return self

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def problem(self) -> dict[str, Any]:
        assert not self.messages[-1]["more_body"], "the response ends"
        return json.loads(b"".join(message.get("body", b"") for message in self.messages))  # type: ignore[no-any-return]


def limited(app: App, **options: Any) -> RequestLimitsMiddleware:
    return RequestLimitsMiddleware(app, lambda path: LIMIT * 2 if path == "/big" else LIMIT, **options)


async def test_a_body_within_the_limit_reaches_the_app() -> None:
    app = App()
    for exchange in (Exchange([b"a" * 400, b"b" * 600]), Exchange([b"c" * LIMIT], LIMIT), Exchange([b""], 0)):
        assert (await exchange.through(limited(app))).status == 200
    assert [len(body) for body in app.bodies] == [1000, 1000, 0]


async def test_an_announced_length_above_the_limit_is_refused_before_a_byte_is_read() -> None:
    app = App()
    exchange = await Exchange([60.0, b"x"], 10**8).through(limited(app))
    assert (exchange.status, exchange.read, app.bodies) == (413, 0, [])
    assert exchange.problem["code"] == "too_large"
    assert (b"connection", b"close") in exchange.messages[0]["headers"]


async def test_a_chunked_body_is_counted_while_it_arrives() -> None:
    app = App()
    exchange = await Exchange([b"x" * 600, b"x" * 600, *([3.0] * 100), b"x"]).through(limited(app))
    assert (exchange.status, exchange.read, app.bodies) == (413, 1200, [])


async def test_paths_have_limits_of_their_own() -> None:
    app = App()
    assert (await Exchange([b"x" * 1500], 1500, path="/big").through(limited(app))).status == 200
    assert (await Exchange([b"x" * 1500], 1500).through(limited(app))).status == 413


async def test_a_slow_body_is_refused_after_thirty_seconds() -> None:
    app = App()
    began = asyncio.get_running_loop().time()
    exchange = await Exchange([step for _ in range(100) for step in (b"x", 1.0)], 500).through(limited(app))
    assert (exchange.status, exchange.problem["code"], app.bodies) == (408, "request_timeout", [])
    assert asyncio.get_running_loop().time() - began == pytest.approx(31.0)


async def test_an_aborted_upload_is_no_error() -> None:
    app = App()
    with structlog.testing.capture_logs() as logged:
        exchange = await Exchange([b"x" * 10, None], 500).through(limited(app))
    assert (exchange.messages, app.bodies) == ([], [])
    assert [(entry["log_level"], "exc_info" in entry) for entry in logged] == [("info", False)]


async def test_all_bodies_together_are_bounded() -> None:
    """Many slow uploads hold at most a total; those beyond it are asked to come again."""
    app = App()
    limits = limited(app, max_buffered=2000)
    slow = [Exchange([b"x" * 900, 5.0, b"x" * 50], 950) for _ in range(4)]
    await asyncio.gather(*(exchange.through(limits) for exchange in slow))
    assert sorted(exchange.status for exchange in slow) == [200, 200, 503, 503]
    assert (await Exchange([b"x" * 900, 1.0, b"x"], 901).through(limits)).status == 200, "what was held is given back"


async def test_requests_without_a_body_pass_untouched() -> None:
    exchange = Exchange([])
    exchange.scope["headers"] = []
    seen: list[Any] = []

    async def app(_scope: Any, receive: Any, _send: Any) -> None:
        seen.append(receive)

    await exchange.through(RequestLimitsMiddleware(app))
    assert seen == [exchange.receive]


async def test_only_code_of_this_process_is_in_process() -> None:
    seen: list[bool] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(is_in_process(scope))

    exchange = Exchange([])
    exchange.scope["headers"] = [(b"lcm.in_process", b"True"), (b"x-forwarded-for", b"in-process")]
    await exchange.through(app)
    await exchange.through(mark_in_process(app))
    assert seen == [False, True]
