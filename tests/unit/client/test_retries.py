"""What is retried, how often and when, as the server sees it; and what a lost response means."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.client import Leader, Limits, OutcomeUnknownError, UnreachableError
from lcm.client.errors import (
    ClientTimeoutError,
    InvalidRequestError,
    NotFoundError,
    ProtocolError,
    ServerError,
    ServiceUnavailableError,
    TooManyAttemptsError,
)
from lcm.model.access import Role
from lcm.model.worker.requests import CreateWorkerRequest, HoldRequest, UpdateWorkerRequest, WorkerStatusUpdate
from lcm.model.worker.status import WorkerStatus
from tests.unit.client.fakes import FakeResponse, FaultyNetwork, ScriptedServer, json_response, problem_response

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx
    from prometheus_client import CollectorRegistry

    from lcm.client import Client
    from tests.support.virtual.control_plane import TestPlane
    from tests.unit.client.fakes import Fault

LEADER = Leader("worker-controller", 5)
NEW = CreateWorkerRequest(name="alpha", template_name="small")
ME = {"name": "me", "role": "viewer", "kind": "token"}
BUSY = problem_response(503, "unavailable", "the store rests")


class Crowd(FaultyNetwork):
    """Counts how many it serves at a time, each for a second."""

    now = most = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(1)
        self.now -= 1
        return await super().handle_async_request(request)


def elapsed(since: float) -> float:
    return asyncio.get_running_loop().time() - since


async def test_a_read_is_tried_again_with_growing_pauses(connect: Callable[..., Client]) -> None:
    network = FaultyNetwork(ScriptedServer(json_response(ME)), "refused", "lost")
    began = asyncio.get_running_loop().time()
    assert (await connect(network).access.whoami()).name == "me"
    assert len(network.requests) == 3
    assert 0.54 <= elapsed(began) <= 0.66  # 0.2 and 0.4 seconds, give or take a tenth


async def test_a_read_is_given_up_after_three_attempts(connect: Callable[..., Client]) -> None:
    network = FaultyNetwork(ScriptedServer(json_response(ME)), "refused", "refused", "refused", "refused")
    with pytest.raises(UnreachableError, match="cannot be reached: connection refused"):
        await connect(network).access.whoami()
    assert len(network.requests) == 3


@pytest.mark.parametrize("fault", ["lost", "late"])
async def test_a_write_without_a_key_is_never_sent_twice(fault: Fault, connect: Callable[..., Client]) -> None:
    server = ScriptedServer(json_response({}))
    network = FaultyNetwork(server, *[fault] * 3)
    client = connect(network)
    with pytest.raises(OutcomeUnknownError, match="may have happened") as caught:
        await client.fleet.hold(HoldRequest(reason="wait"))
    assert caught.value.idempotency_key is None
    for request in (
        client.workers.patch("w-1", UpdateWorkerRequest(tags={})),
        client.internal.audit(LEADER, "skipped", "w-1"),
    ):
        with pytest.raises(OutcomeUnknownError):
            await request
    assert len(server.requests) == len(network.requests) == 3


async def test_a_write_that_was_not_delivered_did_not_happen(connect: Callable[..., Client]) -> None:
    server = ScriptedServer(json_response({}))
    with pytest.raises(UnreachableError):
        await connect(FaultyNetwork(server, "refused")).fleet.release()
    assert server.requests == []


async def test_a_write_with_a_key_is_sent_again_and_done_once(plane: TestPlane, connect: Callable[..., Client]) -> None:
    network = FaultyNetwork(plane.app, "lost", "lost")
    client = connect(network, plane.tokens[Role.OPERATOR])
    made = await client.workers.create(NEW)
    assert [worker.id async for worker in client.workers.list()] == [made.id]
    posts = [request for request in network.requests if request.method == "POST"]
    assert len(posts) == 3
    assert len({request.headers["Idempotency-Key"] for request in posts}) == 1


async def test_a_timed_out_write_can_be_repeated_with_the_same_key(
    plane: TestPlane, connect: Callable[..., Client]
) -> None:
    network = FaultyNetwork(plane.app, "late", "late", "late")
    client = connect(network, plane.tokens[Role.OPERATOR])
    with pytest.raises(OutcomeUnknownError) as caught:
        await client.workers.create(NEW)
    made = await client.workers.create(NEW, key=caught.value.idempotency_key)
    assert [worker.id async for worker in client.workers.list()] == [made.id]


@pytest.mark.parametrize(
    ("faults", "response"),
    [
        (["lost", "refused", "refused"], json_response({})),
        (["lost"], problem_response(401, "unauthenticated")),
        (["lost"], FakeResponse(404, b"<html>moved</html>", {})),
    ],
    ids=["refused", "door", "elsewhere"],
)
async def test_an_undelivered_later_attempt_proves_nothing_about_the_first(
    faults: list[Fault], response: FakeResponse, connect: Callable[..., Client]
) -> None:
    with pytest.raises(OutcomeUnknownError) as caught:
        await connect(FaultyNetwork(ScriptedServer(response), *faults)).workers.create(NEW)
    assert caught.value.idempotency_key is not None


async def test_a_refusal_of_a_later_attempt_settles_the_first(connect: Callable[..., Client]) -> None:
    with pytest.raises(NotFoundError):
        await connect(FaultyNetwork(ScriptedServer(problem_response(404, "not_found")), "lost")).workers.start("w-1")


async def test_two_writes_have_two_keys(connect: Callable[..., Client]) -> None:
    server = ScriptedServer(problem_response(409, "not_possible_now"))
    workers = connect(FaultyNetwork(server)).workers
    for _ in range(2):
        with pytest.raises(Exception, match="not now"):
            await workers.start("w-1")
    first, second = [headers["idempotency-key"] for _, _, headers, _ in server.requests]
    assert first != second


async def test_retry_after_is_respected(connect: Callable[..., Client]) -> None:
    server = ScriptedServer(problem_response(503, "unavailable", retry_after=4), json_response(ME))
    began = asyncio.get_running_loop().time()
    await connect(FaultyNetwork(server)).access.whoami()
    assert elapsed(began) == pytest.approx(4)


@pytest.mark.parametrize(
    "response", [problem_response(503, "unavailable", retry_after=60), problem_response(429, "too_many_attempts")]
)
async def test_a_long_retry_after_and_a_429_are_not_retried(
    response: FakeResponse, connect: Callable[..., Client]
) -> None:
    server = ScriptedServer(response)
    with pytest.raises((ServiceUnavailableError, TooManyAttemptsError)):
        await connect(FaultyNetwork(server)).access.whoami()
    assert len(server.requests) == 1


async def test_refusals_and_faults_are_not_tried_again(connect: Callable[..., Client]) -> None:
    for response, kind in (
        (problem_response(422, "invalid"), InvalidRequestError),
        (problem_response(500, "internal"), ServerError),
    ):
        server = ScriptedServer(response)
        with pytest.raises(kind):
            await connect(FaultyNetwork(server)).access.whoami()
        assert len(server.requests) == 1


async def test_a_write_that_met_a_failing_server_may_have_happened(connect: Callable[..., Client]) -> None:
    for response in (
        BUSY,
        problem_response(500, "internal", "our fault"),
        FakeResponse(502, b"<html>Bad gateway</html>", {}),
    ):
        server = ScriptedServer(response)
        with pytest.raises(OutcomeUnknownError) as caught:
            await connect(FaultyNetwork(server)).internal.audit(LEADER, "skipped", "w-1")
        assert len(server.requests) == 1
        cause = caught.value.server_error
        assert cause is None if response.status == 502 else cause is not None and cause.detail in str(caught.value)


async def test_a_read_without_a_response_times_out(connect: Callable[..., Client], registry: CollectorRegistry) -> None:
    network = FaultyNetwork(ScriptedServer(json_response(ME)), "hangs", "late", "hangs")
    began = asyncio.get_running_loop().time()
    with pytest.raises(ClientTimeoutError, match="in time"):
        await connect(network, limits=Limits(attempt=2.0)).access.whoami()
    assert elapsed(began) == pytest.approx(6.6, abs=0.1)
    labels = {"operation": "access.whoami", "outcome": "timeout"}
    assert registry.get_sample_value("lcm_client_calls_total", labels) == 1


async def test_cancelling_takes_effect_at_once(connect: Callable[..., Client], registry: CollectorRegistry) -> None:
    task = asyncio.create_task(connect(FaultyNetwork(ScriptedServer(json_response(ME)), "hangs")).access.whoami())
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    labels = {"operation": "access.whoami", "outcome": "cancelled"}
    assert registry.get_sample_value("lcm_client_calls_total", labels) == 1


@pytest.mark.parametrize(
    "response",
    [
        FakeResponse(200, b"<html>Please sign in to the hotel's network</html>", {"content-type": "text/html"}),
        FakeResponse(200, b"[" * 5000),
        FakeResponse(200, b'{"id": "w-1"}'),
        FakeResponse(200, b"x" * 2000),
        FakeResponse(200, b"{}", {"content-encoding": "gzip"}),
    ],
    ids=["html", "deep", "incomplete", "huge", "packed"],
)
async def test_an_unusable_response(response: FakeResponse, connect: Callable[..., Client]) -> None:
    client = connect(
        FaultyNetwork(ScriptedServer(response)),
        limits=Limits(max_response_bytes=1000 if b"x" in response.body else 10_000),
    )
    with pytest.raises(ProtocolError):
        await client.workers.get("w-1")
    write = WorkerStatusUpdate(status=WorkerStatus.FAILED, version=1, reason="no")
    with pytest.raises(OutcomeUnknownError):
        await client.internal.write_status(LEADER, "w-1", write)


async def test_redirects_are_not_followed(connect: Callable[..., Client]) -> None:
    server = ScriptedServer(FakeResponse(307, b"", {"location": "http://elsewhere.test/"}))
    client = connect(FaultyNetwork(server), "secret-token")
    with pytest.raises(ProtocolError, match="HTTP 307"):
        await client.access.whoami()
    with pytest.raises(ProtocolError):
        await client.fleet.release()
    assert len(server.requests) == 2


async def test_many_concurrent_calls_take_turns_and_all_complete(connect: Callable[..., Client]) -> None:
    """More connections than are kept would be opened and closed for each call."""
    crowd = Crowd(ScriptedServer(json_response(ME)))
    client = connect(crowd)
    callers = await asyncio.gather(*(client.access.whoami() for _ in range(100)))
    assert [me.name for me in callers] == ["me"] * 100
    assert crowd.most == 8
