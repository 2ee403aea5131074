"""Calls to an app in the same process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lcm.http.in_process import InProcessTransport
from lcm.http.transport import ConnectionLostError, HttpRequest
from tests.support.network.scripted_server import call

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

START: dict[str, Any] = {"type": "http.response.start", "status": 201, "headers": [(b"X-A", b"1"), (b"x-a", b"2")]}


async def test_an_app_receives_the_request_and_responds() -> None:
    received: dict[str, Any] = {}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        received.update(scope, body=(await receive())["body"])
        await send(START)
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await send({"type": "http.response.body", "body": b"b"})
        assert (await receive())["type"] == "http.disconnect"

    request = HttpRequest("PUT", "http://lcm.test/a%20b?c=d", {"X-B": "3"}, b"{}")
    response = await InProcessTransport(app).send(request)
    assert (response.status, response.header("X-a")) == (201, "1")
    assert b"".join([chunk async for chunk in response.chunks()]) == b"ab"
    assert (received["method"], received["path"], received["query_string"]) == ("PUT", "/a b", b"c=d")
    assert (b"x-b", b"3") in received["headers"]
    assert received["body"] == b"{}"


@pytest.mark.parametrize("fails", [True, False])
async def test_a_response_without_an_end_is_none(*, fails: bool) -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(START)
        if fails:
            raise OSError("disk full")

    with pytest.raises(ConnectionLostError):
        await call(InProcessTransport(app), "http://lcm.test/", "POST")


async def test_an_error_after_the_response_does_not_take_it_back() -> None:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send(START)
        await send({"type": "http.response.body", "body": b"done"})
        raise OSError("disk full")

    assert await call(InProcessTransport(app), "http://lcm.test/") == (201, b"done")


async def test_the_last_check_comes_before_the_app() -> None:
    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise AssertionError("called")

    def refuse() -> None:
        raise PermissionError("no longer leader")

    with pytest.raises(PermissionError):
        await call(InProcessTransport(app), "http://lcm.test/", before_send=refuse)
