"""The mirror: keys equal records after every fault, and nothing is written that no controller must react to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from lcm.control_plane.journal.mirror import MirrorSettings
from lcm.control_plane.records.kinds import WORKERS, worker_fields
from lcm.control_plane.store.port import Put, StoreUnavailableError
from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core import clock
from lcm.core.coordination import NO_LEASE, CoordinationDeniedError, CoordinationUnavailableError
from lcm.model.worker.record import Worker
from tests.support.network.faulty_coordination import UNREACHABLE, FaultyCoordination
from tests.support.records.workers import a_worker
from tests.support.virtual.mirror_world import PREFIX, SOON, World, fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.core.coordination import PrefixState, SwapResult

AFTER_AN_OUTAGE = 12.0  # the longest pause between probes, with jitter, and the comparison


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.stop()


async def test_a_worker_appears_changes_and_goes_at_once(world: World) -> None:
    """controllers.md#watch: what the watch sees."""
    plane = await world.plane()
    await plane.add(a_worker(tags={"secret": "canary"}))
    await asyncio.sleep(SOON)
    (item,) = world.server.items(PREFIX)
    assert item.key == "/workers/w-1"
    assert item.value == b'{"id":"w-1","status":"PENDING","desired_status":"RUNNING","generation":1,"version":1}'
    await plane.edit(status="PROVISIONING")
    await asyncio.sleep(SOON)
    assert world.keys["w-1"]["status"] == "PROVISIONING"
    await plane.edit(status="TERMINATED")
    await asyncio.sleep(SOON)
    assert world.keys == {}
    assert (plane.mirror.counters.written, plane.mirror.counters.deleted, plane.mirror.counters.mended) == (2, 1, 0)
    assert plane.mirror.degradation() == []


async def test_a_steady_fleet_causes_no_event(world: World) -> None:
    plane = await world.plane()
    await plane.add(*fleet(20))
    await asyncio.sleep(SOON)
    revision, calls = world.server.revision, dict(plane.coordination.calls)
    for _ in range(12):
        for number in range(20):
            await plane.edit(f"w-{number}", moves=False, last_activity_at=clock.now(), last_idle_check_at=clock.now())
        await asyncio.sleep(300)
    assert world.server.revision == revision
    made = {name: count - calls.get(name, 0) for name, count in plane.coordination.calls.items()}
    assert {name for name, count in made.items() if count} == {"list", "probe"}
    assert made["list"] <= 13


@pytest.mark.parametrize("fault", ["cut", "hang"])
async def test_an_outage_of_an_hour_is_repaired(world: World, fault: str) -> None:
    plane = await world.plane()
    await plane.add(*fleet(30))
    await asyncio.sleep(SOON)
    plane.coordination.calls.clear()
    with capture_logs() as logs:
        setattr(plane.coordination, fault, True)
        for minute in range(60):
            await plane.edit(f"w-{minute % 20}", desired_status="STOPPED")
            await asyncio.sleep(60)
        await plane.edit("w-25", status="TERMINATED")
        await plane.add(a_worker(id="new", name="new"))
        await asyncio.sleep(60)
        reasons = plane.mirror.degradation()
        assert reasons[0].startswith("coordination: ")
        assert "pending, the oldest for 3" in reasons[1]
        assert plane.mirror.pending == 22
        assert sum(plane.coordination.calls.values()) < 4_000
        setattr(plane.coordination, fault, False)
        await asyncio.sleep(AFTER_AN_OUTAGE + (6.0 if fault == "hang" else 0.0))
    assert await world.in_sync()
    assert (plane.mirror.degradation(), plane.mirror.pending, plane.mirror.lag) == ([], 0, 0.0)
    assert [line["log_level"] for line in logs] == ["warning", "info"]


async def test_an_outage_is_noticed_while_nothing_changes(world: World) -> None:
    plane = await world.plane()
    plane.coordination.cut = True
    await asyncio.sleep(10.1)
    assert plane.mirror.degradation() == [f"coordination: {UNREACHABLE}"]


async def test_an_outage_at_the_start_is_waited_for(world: World) -> None:
    coordination = FaultyCoordination(MemoryCoordination(world.server))
    coordination.cut = True
    plane = await world.plane(coordination)
    await plane.add(*fleet(3))
    await asyncio.sleep(600)
    coordination.cut = False
    await asyncio.sleep(AFTER_AN_OUTAGE)
    assert await world.in_sync()


async def test_a_worker_that_changes_all_the_time_is_queued_once(world: World) -> None:
    plane = await world.plane()
    await plane.add(a_worker())
    await asyncio.sleep(SOON)
    plane.coordination.cut = True
    for _ in range(500):
        await plane.edit(desired_status="STOPPED")
        await asyncio.sleep(0.1)
    assert plane.mirror.pending == 1
    plane.coordination.cut = False
    await asyncio.sleep(AFTER_AN_OUTAGE)
    assert world.versions_seen() == [1, 501]


async def test_a_lost_response_is_read_back_and_nothing_is_written_twice(world: World) -> None:
    plane = await world.plane()
    changes: list[dict[str, Any]] = [{}, {"desired_status": "STOPPED"}, {"status": "TERMINATED"}]
    for change in changes:
        plane.coordination.lose_next_reply = True
        await (plane.edit(**change) if change else plane.add(a_worker()))
        await asyncio.sleep(SOON)
        assert await world.in_sync()
    assert world.versions_seen() == [1, 2, None]


async def test_manual_changes_of_keys_are_repaired(world: World) -> None:
    plane = await world.plane()
    await plane.add(*fleet(6))
    await plane.edit("w-1", desired_status="STOPPED")
    await plane.edit("w-5", status="TERMINATED")
    await asyncio.sleep(SOON)
    mended = plane.mirror.counters.mended
    world.server.delete("/workers/w-0")
    world.by_hand("w-1", b'{"id":"w-1","version":1}')
    world.by_hand("w-2", b"\xff garbage")
    world.by_hand("w-3", b"[" * 100_000)
    world.by_hand("w-4", b'{"id":"w-4","status":"STOPPED","version":1}')  # the right version of a wrong value
    world.by_hand("w-5", b'{"id":"w-5","version":1}')
    world.by_hand("w-6", b"nobody")
    world.by_hand("x" * 2000, b"no id can be this long")
    await asyncio.sleep(311)
    assert await world.in_sync()
    assert plane.mirror.counters.mended - mended == 8


async def test_a_key_deleted_by_hand_is_written_with_the_next_change(world: World) -> None:
    plane = await world.plane()
    await plane.add(a_worker())
    await asyncio.sleep(SOON)
    world.server.delete("/workers/w-1")
    await plane.edit(desired_status="STOPPED")
    await asyncio.sleep(SOON)
    assert await world.in_sync()


async def test_a_restarted_control_plane_repairs_what_changed_meanwhile(world: World) -> None:
    first = await world.plane()
    await first.add(*fleet(5))
    await asyncio.sleep(SOON)
    await first.mirror.stop()
    await first.edit("w-0", desired_status="STOPPED")
    await first.edit("w-1", status="TERMINATED")
    await first.add(a_worker(id="new", name="new"))
    second = await world.plane()
    assert await world.in_sync()
    assert second.mirror.counters.mended == 3
    assert second.mirror.counters.written == 2


async def test_an_etcd_that_was_replaced_is_filled_again(world: World) -> None:
    plane = await world.plane()
    await plane.add(*fleet(50))
    await asyncio.sleep(SOON)
    plane.coordination.cut = True
    await asyncio.sleep(20)
    world.server = MemoryServer()
    plane.coordination.inner = MemoryCoordination(world.server)
    plane.coordination.cut = False
    await asyncio.sleep(AFTER_AN_OUTAGE)
    assert await world.in_sync()
    assert len(world.keys) == 50


@pytest.mark.parametrize("revision", [1, 1000])
async def test_an_etcd_that_is_replaced_between_two_probes_is_noticed(world: World, revision: int) -> None:
    """Whether it counts from the beginning or has meanwhile counted further than the old one."""
    plane = await world.plane()
    await plane.add(*fleet(50))
    await asyncio.sleep(SOON)
    with capture_logs() as logs:
        world.server = MemoryServer(revision=revision)
        plane.coordination.inner = MemoryCoordination(world.server)
        await asyncio.sleep(MirrorSettings().check_every + SOON)
    assert await world.in_sync()
    assert (plane.mirror.lag, plane.mirror.pending, plane.mirror.counters.replacements) == (0.0, 0, 1)
    assert [line["log_level"] for line in logs] == ["warning"]


async def test_keys_that_a_cluster_with_the_same_id_lost_are_written_again(world: World) -> None:
    """An etcd that was set up anew as before has the same id. Its revision may be higher by then."""
    plane = await world.plane()
    await plane.add(*fleet(50))
    await asyncio.sleep(60)
    before = world.server
    world.server = MemoryServer(revision=1000)
    world.server.cluster_id = before.cluster_id
    plane.coordination.inner = MemoryCoordination(world.server)
    await asyncio.sleep(2 * MirrorSettings().check_every + SOON)
    assert await world.in_sync()
    assert plane.mirror.counters.mended == 50


async def test_deletions_by_another_control_plane_are_no_loss(world: World) -> None:
    one, two = await world.plane(), await world.plane()
    await one.add(*fleet(50))
    await asyncio.sleep(10)
    for number in range(49):
        await one.edit(f"w-{number}", status="TERMINATED")
        await asyncio.sleep(1.9)
    assert await world.in_sync()
    for plane in (one, two):
        assert (plane.mirror.counters.replacements, plane.mirror.counters.mended) == (0, 0)
        assert plane.mirror.counters.comparisons < 6


async def test_two_clusters_that_respond_in_turn_cause_no_busy_loop(world: World) -> None:
    plane = await world.plane()
    await plane.add(*fleet(3))
    clusters = [world.server, MemoryServer()]

    class Alternating(MemoryCoordination):
        async def probe(self, prefix: str) -> PrefixState:
            clusters.reverse()
            return clusters[0].state_of(prefix)

    plane.coordination.inner = Alternating(world.server)
    await asyncio.sleep(3600)
    assert plane.mirror.counters.comparisons < 1000


async def test_a_thousand_workers_are_compared_page_by_page(world: World) -> None:
    plane = await world.plane()
    await plane.mirror.stop()
    for start in range(0, 1000, 100):
        await plane.add(*fleet(1000)[start : start + 100])
    second = await world.plane()
    await asyncio.sleep(1)
    assert await world.in_sync()
    assert second.mirror.counters.written == 1000
    revision = world.server.revision
    second.mirror.on_gap()
    await asyncio.sleep(1)
    assert (second.mirror.counters.comparisons, world.server.revision) == (2, revision)


class OneBadKey(FaultyCoordination):
    """One key cannot be written, for a reason that concerns only this key."""

    error: Exception = CoordinationUnavailableError("this one is never available")

    async def compare_and_swap(
        self, key: str, value: bytes, *, mod_revision: int, lease_id: int = NO_LEASE
    ) -> SwapResult:
        if key == "/workers/w-0":
            self.calls["bad"] = self.calls.get("bad", 0) + 1
            raise self.error
        return await super().compare_and_swap(key, value, mod_revision=mod_revision, lease_id=lease_id)


@pytest.mark.parametrize(
    "error", [CoordinationUnavailableError("busy"), CoordinationDeniedError("not for you"), RuntimeError("a bug")]
)
async def test_a_key_that_cannot_be_written_blocks_no_other(world: World, error: Exception) -> None:
    coordination = OneBadKey(MemoryCoordination(world.server))
    coordination.error = error
    plane = await world.plane(coordination)
    with capture_logs() as logs:
        await plane.add(*fleet(40))
        await asyncio.sleep(SOON)
        assert len(world.keys) == 39
        await asyncio.sleep(3600)
    assert coordination.calls["bad"] < 150
    assert plane.mirror.counters.failed == coordination.calls["bad"]
    assert plane.mirror.pending == 1
    (reason,) = plane.mirror.degradation()
    assert reason.startswith("mirror of workers: 1 pending")
    assert len(logs) == (0 if isinstance(error, CoordinationUnavailableError) else 1)
    coordination.error = CoordinationUnavailableError("busy")


async def test_a_store_that_is_down_deletes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plane = await world.plane()
    await plane.add(*fleet(5))
    await asyncio.sleep(SOON)
    revision = world.server.revision

    async def down(*_: object, **__: object) -> None:
        raise StoreUnavailableError("no primary")

    with monkeypatch.context() as patch:
        for name in ("get", "find", "read_journal"):
            patch.setattr(plane.store, name, down)
        world.by_hand("w-9", b"superfluous")
        await asyncio.sleep(1200)
        assert world.server.revision == revision + 1
        assert plane.feed.readiness()
        assert not [reason for reason in plane.mirror.degradation() if reason.startswith("coordination")]
    await asyncio.sleep(20)
    assert await world.in_sync()


async def test_a_record_that_cannot_be_read_delays_no_other(world: World) -> None:
    plane = await world.plane()
    await plane.add(*fleet(3))
    await asyncio.sleep(SOON)
    stored = await plane.store.get(WORKERS, "w-1")
    assert stored is not None
    fields = worker_fields(Worker.model_validate_json(stored.body))
    await plane.store.commit([Put(WORKERS, "w-1", b"[]", stored.revision, fields)])
    plane.mirror.on_gap()
    await asyncio.sleep(SOON)
    comparisons = plane.mirror.counters.comparisons
    await plane.edit("w-2", status="PROVISIONING")
    plane.mirror.on_gap()
    await asyncio.sleep(60)
    assert world.keys["w-2"]["status"] == "PROVISIONING"
    assert plane.mirror.counters.comparisons > comparisons, "comparisons are finished"
    assert plane.mirror.lag > 0, "it is reported as pending"
