"""The leader's reads go to the replica that reads a server; whichever is lost, each read is made by another."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from lcm.cml.errors import CMLNotReadyError, CMLPollerError
from lcm.cml.reading import ServerQuery
from lcm.controllers.worker.readers.pool import AVOID_SECONDS
from lcm.controllers.worker.readers.remote_reader import SILENCE_SECONDS
from lcm.controllers.worker.readers.routes import READ_PATH
from lcm.core import clock
from lcm.http.transport import HttpRequest
from tests.support.virtual.fake_cml import DEFAULT
from tests.support.virtual.readers import SERVERS, TOKEN, a_scene

if TYPE_CHECKING:
    from collections.abc import Callable


async def test_each_server_is_read_by_one_replica() -> None:
    async with a_scene("one", "two", "three") as scene:
        readings = await scene.read_all()
        assert all(reading.stats is not None and reading.license_state is not None for reading in readings)
        read = [replica.read for replica in scene.replicas.values()]
        assert all(part for part in read)
        assert sum(map(len, read)) == len(set().union(*read)) == len(SERVERS)
        assert scene.network.requests <= 4, "reads are sent together"
        assert scene.registry.get_sample_value("lcm_cml_readers") == 3
        others = scene.registry.get_sample_value("lcm_cml_reads_total", {"by": "other"})
        assert others == len(SERVERS) - len(scene.of("one"))


async def test_the_license_was_read_no_earlier_than_it_was_asked_for() -> None:
    async with a_scene("one", "two") as scene:
        await asyncio.sleep(100)
        asked_at = clock.boottime()
        assert [(await scene.read(scene.of(name)[0])).license_began for name in ("two",)] == [asked_at]


async def test_a_slow_server_delays_only_its_own_read() -> None:
    async with a_scene("one", "two") as scene:
        slow, *rest = scene.of("two")
        scene.servers[slow].hanging.add("stats")
        reads = {address: asyncio.create_task(scene.read(address)) for address in (slow, *rest)}
        done, waiting = await asyncio.wait(reads.values(), timeout=2)
        assert waiting == {reads[slow]}
        reading = await reads[slow]
        assert reading.timed_out
        assert scene.client.reader_of(slow) == scene.replicas["two"].own, (
            "a server that hangs says nothing about its reader"
        )
        assert len(done) == len(rest)


@pytest.mark.parametrize("fault", ["is_cut_off", "is_silent"])
async def test_a_lost_replica_delays_its_reads_and_the_others_make_them(fault: str) -> None:
    async with a_scene("one", "two", "three") as scene:
        lost, its = scene.replicas["two"], scene.of("two")
        setattr(lost, fault, True)
        began = clock.boottime()
        readings = await scene.read_all()
        assert all(reading.stats is not None for reading in readings)
        assert clock.boottime() - began < SILENCE_SECONDS + 2
        assert {scene.client.reader_of(address) for address in its} == {None, scene.replicas["three"].own}
        setattr(lost, fault, False)
        await asyncio.sleep(AVOID_SECONDS)
        assert scene.of("two") == its, "it is back"


async def test_a_replica_that_leaves_gives_its_servers_to_the_others() -> None:
    async with a_scene("one", "two", "three") as scene:
        kept = scene.of("three")
        await scene.replicas["two"].directory.stop()
        await asyncio.sleep(1)
        await scene.read_all()
        assert scene.replicas["two"].read == set()
        assert set(kept) <= scene.replicas["three"].read
        await scene.replicas["three"].directory.stop()
        await asyncio.sleep(1)
        await scene.read_all()
        assert scene.leader.read == set(SERVERS)


async def test_a_replica_without_its_lease_reads_nothing() -> None:
    async with a_scene("one", "two") as scene:
        (server, *_) = scene.of("two")
        directory = scene.replicas["two"].directory
        assert directory._lease is not None
        directory._lease._over = True
        reading = await scene.read(server)
        assert reading.stats is not None
        assert scene.replicas["two"].read == set()
        assert server in scene.leader.read


async def test_errors_of_a_server_arrive_as_they_are() -> None:
    async with a_scene("one", "two") as scene:
        (server, *_) = scene.of("two")
        scene.servers[server].failures["stats"] = CMLNotReadyError(server, "HTTP 503")
        assert isinstance((await scene.read(server)).stats_error, CMLNotReadyError)
        scene.servers[server].failures["activity"] = CMLNotReadyError(server, "HTTP 502")
        with pytest.raises(CMLNotReadyError, match="HTTP 502"):
            await scene.client.get_activity_events(server, DEFAULT)
        assert await scene.client.get_own_user_id(server, DEFAULT) == "id-of-admin"
        assert scene.leader.read == set()


async def test_an_unexpected_error_of_one_server_is_its_own_and_its_reader_is_used_on() -> None:
    """Before, it ended the response of its batch, and the replica was avoided for ten seconds."""
    async with a_scene("one", "two") as scene:
        odd, *others = scene.of("two")
        await asyncio.gather(*(scene.read(address) for address in (odd, *others)))  # their certificates are pinned
        scene.servers[odd].failures["activity"] = KeyError("a field that no CML ever left out")
        reads = (scene.client.get_activity_events(address, DEFAULT) for address in (odd, *others))
        failed, *rest = await asyncio.gather(*reads, return_exceptions=True)
        assert isinstance(failed, CMLPollerError)
        assert "the reader failed: KeyError" in str(failed)
        assert not any(isinstance(each, BaseException) for each in rest)
        assert scene.leader.read == set()
        assert scene.of("two") == [odd, *others], "it is not avoided"


async def test_a_read_without_time_left_costs_only_itself() -> None:
    """Before, the replica refused all reads of its batch, and was avoided for ten seconds."""
    async with a_scene("one", "two") as scene:
        late, *others = its = scene.of("two")
        reads = [scene.read(late, seconds=-0.01), *(scene.read(address) for address in others)]
        failed, *rest = await asyncio.gather(*reads, return_exceptions=True)
        assert isinstance(failed, CMLPollerError)
        assert "no time was left" in str(failed)
        assert not any(isinstance(each, BaseException) for each in rest)
        assert (scene.leader.read, scene.of("two")) == (set(), its), "it is not avoided"


async def test_a_read_that_a_replica_does_not_understand_costs_only_itself() -> None:
    async with a_scene("one", "two") as scene:
        odd, *others = its = scene.of("two")
        query = ServerQuery(odd, DEFAULT, nodes_before=7)  # type: ignore[arg-type]
        reads = [scene.client.read_server(query, 45), *(scene.read(address) for address in others)]
        failed, *rest = await asyncio.gather(*reads, return_exceptions=True)
        assert isinstance(failed, CMLPollerError)
        assert "the reader does not understand the request" in str(failed)
        assert not any(isinstance(each, BaseException) for each in rest)
        assert (scene.leader.read, scene.of("two")) == (set(), its), "it is not avoided"


async def test_an_address_that_another_instance_has_now_gets_a_new_session() -> None:
    async with a_scene("one", "two") as scene:
        (server, *_) = scene.of("two")
        for instance, forgotten in (("i-1", []), ("i-1", []), ("i-2", [server])):
            await scene.client.read_server(ServerQuery(server, instance_id=instance), 45)
            assert scene.replicas["two"].cml.forgotten == forgotten


async def test_what_changes_a_server_is_done_by_the_leader() -> None:
    async with a_scene("one", "two") as scene:
        (server, *_) = scene.of("two")
        scene.client.trust(server, "c0" * 32)
        await scene.client.get_license(server, DEFAULT)
        assert (scene.leader.read, scene.replicas["two"].read) == ({server}, set())


async def test_reads_that_nobody_can_make_in_time_say_nothing_about_the_server() -> None:
    async with a_scene("one", "two") as scene:
        (server, *_) = scene.of("two")
        scene.replicas["two"].is_silent = True
        with pytest.raises(CMLPollerError, match="reader two"):
            await scene.read(server, seconds=3)


@pytest.mark.parametrize(
    ("token", "body", "status"),
    [("admin-token", b"[]", 403), ("wrong", b"[]", 401), (TOKEN, b"{", 422), (TOKEN, b"[]", 200)],
)
async def test_only_controllers_may_ask(token: str, body: bytes, status: int) -> None:
    async with a_scene("one", "two") as scene:
        request = HttpRequest("POST", f"http://two{READ_PATH}", {"Authorization": f"Bearer {token}"}, body)
        response = await scene.network.send(request)
        assert response.status == status


def _of_another_kind(line: dict[str, Any]) -> None:
    line["text"] = "user-1"
    del line["reading"]


def _without_a_number(line: dict[str, Any]) -> None:
    line["reading"]["stats"]["labs"] = "many"


def _without_an_error(line: dict[str, Any]) -> None:
    line["error"] = {"kind": "CMLMelted", "arguments": []}


@pytest.mark.parametrize("change", [_of_another_kind, _without_a_number, _without_an_error])
async def test_nonsense_is_not_believed_and_another_reads_the_server(change: Callable[[dict[str, Any]], None]) -> None:
    """Before, a number of labs that is none ended the writing of all metrics of the fleet."""
    async with a_scene("one", "two") as scene:
        (server, *_) = scene.of("two")

        def spoil(body: bytes) -> bytes:
            line = json.loads(body)
            change(line)
            return json.dumps(line).encode() + b"\n"

        scene.replicas["two"].spoil = spoil
        reading = await scene.read(server)
        assert reading.stats == scene.servers[server].stats
        assert server in scene.leader.read


async def test_a_line_that_cannot_be_parsed_is_an_unavailable_reader_and_no_error_of_a_task() -> None:
    async with a_scene("one", "two") as scene:
        (server, *_) = scene.of("two")
        scene.replicas["two"].spoil = lambda _: b"[" * 100_000 + b"\n"
        with capture_logs() as logs:
            assert (await scene.read(server)).stats is not None
        (reason,) = [line["reason"] for line in logs if "reason" in line]
        assert reason.startswith("InvalidMessageError: RecursionError")


async def test_a_replica_that_loses_its_lease_after_it_accepted_reads_nothing_and_another_does() -> None:
    """Before, the leader reported that nothing is known about these servers."""
    async with a_scene("one", "two") as scene:
        (server, *_) = scene.of("two")
        two = scene.replicas["two"]
        registered = iter([5.0])
        two.directory.lease_remaining = lambda: next(registered, 0.0)  # type: ignore[method-assign]
        reading = await scene.read(server)
        assert reading.stats is not None
        assert (two.read, server in scene.leader.read) == (set(), True)
