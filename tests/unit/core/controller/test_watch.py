"""Watching, the startup sweep and polling together, in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core.controller.config import ReconciliationConfig, WatchConfig
from lcm.core.controller.reconciliation import Outcome, ReconciliationResult
from lcm.core.coordination import EventKind, WatchEvent
from tests.support.network.faulty_coordination import FaultyCoordination
from tests.support.virtual.toy_controllers import PREFIX, Thing, Watcher, World, change, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

QUIET = ReconciliationConfig(interval_seconds=1000.0)


class Stage:
    def __init__(self) -> None:
        self.server = MemoryServer()
        self.user = MemoryCoordination(self.server)
        self.network = FaultyCoordination(MemoryCoordination(self.server))
        self.world = World()

    async def change(self, thing: Thing) -> float:
        await change(self.world, self.user, thing)
        return asyncio.get_running_loop().time()

    @asynccontextmanager
    async def watcher(
        self, config: ReconciliationConfig = QUIET, watch: WatchConfig | None = None
    ) -> AsyncIterator[Watcher]:
        watcher = Watcher(self.world, self.network, CollectorRegistry(), config, watch)
        await watcher.start()
        try:
            yield watcher
        finally:
            await watcher.stop()

    @asynccontextmanager
    async def settled(
        self, config: ReconciliationConfig = QUIET, watch: WatchConfig | None = None
    ) -> AsyncIterator[Watcher]:
        """A watcher that has done its startup sweep."""
        async with self.watcher(config, watch) as watcher:
            await until(lambda: bool(watcher.sweeps_done))
            self.world.passes.clear()
            yield watcher


@pytest.fixture
async def stage() -> Stage:
    return Stage()


def test_defaults_are_those_of_the_reference() -> None:
    """settings.md."""
    config = WatchConfig()
    assert (config.enabled, config.prefix, config.reconnect_delay) == (True, "", 1.0)
    assert (config.max_reconnect_attempts, config.debounce_seconds) == (10, 0.5)


async def test_a_lone_change_is_reconciled_at_once(stage: Stage) -> None:
    """controllers.md: a change leads to a pass over the one that changed."""
    async with stage.settled():
        changed = await stage.change(Thing("a"))
        await until(lambda: bool(stage.world.passes))
        assert stage.world.times_of("a") == [changed]


async def test_a_burst_of_changes_is_two_passes_and_the_last_sees_the_end(stage: Stage) -> None:
    async with stage.settled():
        for generation in range(1, 30):
            await stage.change(Thing("a", generation=generation))
            await asyncio.sleep(0.01)
        await asyncio.sleep(2)
    assert len(stage.world.passes) == 2
    assert stage.world.passes[-1].generation == 29


async def test_a_changed_resource_is_read_again_not_taken_from_the_list(stage: Stage) -> None:
    """controllers.md#watch: the resource is fetched as it is then."""
    stage.world.put(Thing("a", note="old"))
    async with stage.settled():
        await stage.change(Thing("a", note="new"))
        await asyncio.sleep(1)
    assert stage.world.fetches == ["a"]


async def test_a_change_during_a_list_is_not_hidden_by_the_result_of_that_list(stage: Stage) -> None:
    """The list read the old record, then the change came, then the list's result: the pass must see the change."""
    stage.world.put(Thing("a", generation=1))
    stage.world.list_takes = 5
    async with stage.watcher(ReconciliationConfig(interval_seconds=1000, max_concurrent=1)) as watcher:
        await until(lambda: bool(stage.world.lists))
        busy: list[str] = []

        async def behave(thing: Thing) -> ReconciliationResult:
            busy.append(thing.id)
            await asyncio.sleep(10 if thing.id == "z" else 0)
            return ReconciliationResult.success()

        stage.world.behave = behave
        await stage.change(Thing("z"))  # occupies the only worker until after the list has ended
        await asyncio.sleep(1)
        await stage.change(Thing("a", generation=2))
        await until(lambda: bool(stage.world.passes_of("a")))
        assert stage.world.passes_of("a")[0].generation == 2
        assert watcher.is_leader


async def test_events_of_a_known_generation_do_not_cut_a_backoff_short(stage: Stage) -> None:
    """A controller's own status writes come back as events: they must not turn a backoff into a hot loop."""

    async def behave(thing: Thing) -> ReconciliationResult:
        await change(stage.world, stage.user, Thing("a", generation=thing.generation, note="written by the pass"))
        return ReconciliationResult.retry("no")

    async with stage.settled():
        stage.world.behave = behave
        await stage.change(Thing("a", generation=1))
        await asyncio.sleep(14)
        assert len(stage.world.passes) == 4  # at about 0, 1, 3 and 7 seconds
        changed = await stage.change(Thing("a", generation=2))
        await asyncio.sleep(1e-6)
        assert stage.world.passes[-1].generation == 2
        assert stage.world.passes[-1].at - changed < 0.5


async def test_a_change_that_a_pass_has_read_costs_no_further_pass(stage: Stage) -> None:
    async with stage.settled() as watcher:
        stage.world.put(Thing("a", version=5))
        watcher.trigger("a")
        await asyncio.sleep(1)
        for version in (4, 5):
            await change(World(), stage.user, Thing("a", version=version))  # the mirror is late
            await asyncio.sleep(2)
        assert len(stage.world.passes) == 1
        await stage.change(Thing("a", version=6))
        await asyncio.sleep(2)
        assert len(stage.world.passes) == 2


@pytest.mark.parametrize("when", ["during the pass", "after it"])
@pytest.mark.parametrize("settled", [True, False])
async def test_own_writes_cost_a_pass_only_if_the_pass_says_nothing_of_them(
    stage: Stage, when: str, *, settled: bool
) -> None:
    """A pass that knows when to look again reports the version of its last write."""

    async def behave(thing: Thing) -> ReconciliationResult:
        if thing.version != 1:
            return ReconciliationResult.success()
        written = Thing("a", version=2)
        stage.world.put(written)
        if when == "during the pass":
            await stage.change(written)
            await asyncio.sleep(1)
        return ReconciliationResult(Outcome.REQUEUE, after=50.0, version=2 if settled else None)

    async with stage.settled():
        stage.world.behave = behave
        await stage.change(Thing("a", version=1))
        await asyncio.sleep(2)
        if when == "after it":
            await stage.change(Thing("a", version=2))
        await asyncio.sleep(10)
        assert len(stage.world.passes) == (1 if settled else 2)
        await asyncio.sleep(60)
        assert len(stage.world.passes) == 2


async def test_a_change_by_others_during_a_pass_is_seen_after_it(stage: Stage) -> None:
    async def behave(thing: Thing) -> ReconciliationResult:
        if thing.version == 1:
            await stage.change(Thing("a", version=2))  # own
            await stage.change(Thing("a", generation=2, version=3))
            await asyncio.sleep(1)
            return ReconciliationResult(Outcome.REQUEUE, after=500.0, version=2)
        return ReconciliationResult.success()

    async with stage.settled():
        stage.world.behave = behave
        await stage.change(Thing("a", version=1))
        await asyncio.sleep(5)
        assert [each.generation for each in stage.world.passes] == [1, 2]


async def test_records_that_were_restored_with_older_versions_are_followed_again(stage: Stage) -> None:
    """The next pass, of a polling cycle at the latest, starts from the version that it reads."""
    async with stage.settled() as watcher:
        await stage.change(Thing("a", version=50))
        await asyncio.sleep(1)
        stage.world.put(Thing("a", version=20))
        watcher.trigger()
        await asyncio.sleep(1)
        before = len(stage.world.passes)
        await stage.change(Thing("a", version=21))
        await asyncio.sleep(2)
        assert len(stage.world.passes) == before + 1


async def test_a_deleted_key_wakes_its_resource(stage: Stage) -> None:
    async with stage.settled():
        await stage.change(Thing("a"))
        await asyncio.sleep(1)
        del stage.world.things["a"]
        await stage.user.delete(PREFIX + "a")
        await asyncio.sleep(1)
    assert stage.world.fetches == ["a", "a"]


async def test_keys_of_no_resource_are_ignored(stage: Stage) -> None:
    """controllers.md#watch: a key leads to its resource."""
    async with stage.settled() as watcher:
        assert watcher.parse_watch_key(PREFIX + "a") == "a"
        assert watcher.parse_watch_key(PREFIX) is None
        assert watcher.parse_watch_key(PREFIX + "a/b") is None
        await stage.user.put(PREFIX + "a/b", b"")
        await asyncio.sleep(1)
    assert stage.world.fetches == []


async def test_the_generation_of_an_event_is_read_from_its_value(stage: Stage) -> None:
    def event(value: bytes) -> WatchEvent:
        return WatchEvent(EventKind.PUT, PREFIX + "a", value, 1)

    async with stage.settled() as watcher:
        assert watcher.event_generation(event(b'{"generation": 7}')) == 7
        for odd in (b"", b"7", b"[]", b'{"generation": "7"}', b"\xff", b"{}"):
            assert watcher.event_generation(event(odd)) is None
        assert watcher.event_generation(WatchEvent(EventKind.DELETE, "/x", b'{"generation": 7}', 1)) is None


async def test_a_dead_watch_leaves_polling_and_is_logged(stage: Stage) -> None:
    """controllers.md#watch: graceful degradation: the change is found by the next poll."""
    async with stage.settled(ReconciliationConfig(interval_seconds=30)) as watcher:
        stage.network.fail_watches = True
        stage.network.break_watches()
        await asyncio.sleep(0.1)
        assert not watcher.watching
        changed = await stage.change(Thing("a"))
        found = await until(lambda: bool(stage.world.passes_of("a")))
        assert found - changed <= 30
        stage.network.fail_watches = False
        await until(lambda: watcher.watching)


async def test_without_watching_nothing_is_watched(stage: Stage) -> None:
    async with stage.settled(ReconciliationConfig(interval_seconds=30), WatchConfig(enabled=False, prefix=PREFIX)):
        assert "watch" not in stage.network.calls
        changed = await stage.change(Thing("a"))
        assert await until(lambda: bool(stage.world.passes_of("a"))) - changed <= 30


async def test_leadership_starts_in_the_documented_order(stage: Stage) -> None:
    """Announce, watch, own loops, startup sweep with the flag up, then polling with the flag down.

    worker-lifecycle.md#startup-sweep.
    """
    stage.world.put(Thing("a"))
    async with stage.watcher(ReconciliationConfig()) as watcher:
        await asyncio.sleep(1)
        assert watcher.watching
        assert watcher.order == ["announced", "own loop"]
        await asyncio.sleep(33)
        assert watcher.order == ["announced", "own loop", "list", "sweep done", "list"]
        assert watcher.sweep_active_at_list == [True, False]
        assert not watcher._startup_sweep_active


async def test_the_sweep_is_done_when_every_listed_resource_had_a_pass_that_did_not_fail(stage: Stage) -> None:
    """worker-lifecycle.md#startup-sweep: the flag is up until all are verified."""

    async def behave(thing: Thing) -> ReconciliationResult:
        await asyncio.sleep(1)
        failing = thing.id == "t7" and asyncio.get_running_loop().time() < 1020
        return ReconciliationResult.retry("EC2 unreachable") if failing else ReconciliationResult.success()

    stage.world.behave = behave
    stage.world.put(*(Thing(f"t{number}") for number in range(30)))
    async with stage.watcher() as watcher:
        await asyncio.sleep(15)
        assert watcher._startup_sweep_active
        assert len({done.key for done in stage.world.passes}) == 30
        done = await until(lambda: bool(watcher.sweeps_done))
        assert done >= 1020


async def test_a_sweep_that_cannot_verify_all_ends_in_bounded_time_and_says_so(stage: Stage) -> None:
    async def behave(_: Thing) -> ReconciliationResult:
        return ReconciliationResult.retry("EC2 unreachable")

    stage.world.behave = behave
    stage.world.put(Thing("a"))
    with capture_logs() as logs:
        async with stage.watcher() as watcher:
            assert await until(lambda: bool(watcher.sweeps_done)) <= 1000 + 2 + 300 + 0.1
    warning = next(entry for entry in logs if entry["event"] == "startup sweep incomplete")
    assert (warning["unverified"], warning["examples"]) == (1, ["a"])


async def test_a_sweep_that_could_not_even_list_is_not_done(stage: Stage) -> None:
    stage.world.fail_lists = "control plane unreachable"
    async with stage.watcher() as watcher:
        await asyncio.sleep(1000)
        assert watcher.sweeps_done == []
        stage.world.fail_lists = ""
        await until(lambda: bool(watcher.sweeps_done), limit=61)


async def test_an_empty_world_is_swept_at_once(stage: Stage) -> None:
    async with stage.watcher() as watcher:
        assert await until(lambda: bool(watcher.sweeps_done)) == pytest.approx(1002, abs=0.02)


async def test_every_leadership_begins_with_a_sweep_of_its_own(stage: Stage) -> None:
    stage.world.put(Thing("a"))
    async with stage.settled() as watcher:
        watcher.resign()
        await until(lambda: not watcher.is_leader)
        await until(lambda: len(watcher.sweeps_done) == 2)
        assert watcher.sweep_active_at_list == [True, True]


@pytest.mark.parametrize(("swept", "first"), [(False, 40.0), (True, 2.0)])
async def test_the_initial_delay_counts_without_a_startup_sweep_only(stage: Stage, swept: bool, first: float) -> None:
    """settings.md: INITIAL_DELAY."""
    config = ReconciliationConfig(startup_reconcile_enabled=swept, initial_delay=40.0, interval_seconds=1000.0)
    async with stage.watcher(config) as watcher:
        await until(lambda: watcher.is_leader)
        began = asyncio.get_running_loop().time()
        await until(lambda: watcher.listed_at is not None)
        assert asyncio.get_running_loop().time() - began == pytest.approx(first, abs=1.0)


async def test_the_sweep_can_be_switched_off(stage: Stage) -> None:
    """worker-lifecycle.md#startup-sweep: STARTUP_RECONCILE_ENABLED."""
    config = ReconciliationConfig(startup_reconcile_enabled=False)
    async with stage.watcher(config) as watcher:
        await asyncio.sleep(40)
        assert watcher.order == ["announced", "own loop", "list", "sweep done", "list"]
        assert stage.world.lists == pytest.approx([1005, 1035])
        assert watcher.sweeps_done == pytest.approx([1005])  # others wait for it: it counts as done with the first list


async def test_without_sweep_and_polling_resources_are_still_listed_once(stage: Stage) -> None:
    """List, then watch: what was there before the watch began is not missed."""
    stage.world.put(Thing("a"))
    config = ReconciliationConfig(startup_reconcile_enabled=False, polling_enabled=False)
    async with stage.watcher(config):
        await asyncio.sleep(300)
    assert len(stage.world.passes_of("a")) == 1


async def test_a_watch_that_comes_late_requests_another_list(stage: Stage) -> None:
    """Changes between the sweep's list and the watch's beginning are in neither: so list again."""
    stage.network.fail_watches = True
    async with stage.watcher(ReconciliationConfig(interval_seconds=1000)) as watcher:
        await until(lambda: bool(watcher.sweeps_done))
        assert len(stage.world.lists) == 1
        stage.world.put(Thing("a"))
        stage.network.fail_watches = False
        await until(lambda: watcher.watching)
        await asyncio.sleep(0.1)
        assert len(stage.world.lists) == 2
        assert len(stage.world.passes_of("a")) == 1


async def test_a_resync_of_ten_thousand_does_not_hold_up_a_watch_event(stage: Stage) -> None:
    """Keys of 10 ms each: the changed one is started within 10 ms of the arrival of its event."""

    async def behave(_: Thing) -> ReconciliationResult:
        await asyncio.sleep(0.01)
        return ReconciliationResult.success()

    stage.world.put(*(Thing(f"t{number:05}") for number in range(10_000)))
    stage.world.behave = behave
    async with stage.watcher(ReconciliationConfig()) as watcher:
        await until(lambda: len(stage.world.passes) > 1000)
        assert watcher._startup_sweep_active
        for number in (9_990, 9_991, 9_992):
            changed = await stage.change(Thing(f"t{number:05}", generation=2))
            await until(lambda key=f"t{number:05}": bool(stage.world.passes_of(key)), limit=1)  # type: ignore[misc]
            assert stage.world.times_of(f"t{number:05}")[0] - changed <= 0.01 + 1e-9
            await asyncio.sleep(0.7)


READ_ONLY = ReconciliationResult(Outcome.SUCCESS, read_only=True)


async def _reading(_: Thing) -> ReconciliationResult:
    await asyncio.sleep(1)
    return READ_ONLY


async def _again(watcher: Watcher) -> None:
    """Another pass, as for a resource whose surroundings have changed."""
    watcher.queue.add("a")
    await asyncio.sleep(2)


async def test_passes_that_change_nothing_share_the_copy_of_a_list(stage: Stage) -> None:
    """controllers.md#watch: a change is reported, so the copy is current. Each of these passes read it before."""
    stage.world.put(Thing("a"))
    stage.world.behave = _reading
    async with stage.settled() as watcher:
        for _ in range(3):
            await _again(watcher)
        assert (len(stage.world.passes), stage.world.fetches) == (3, [])
        await stage.change(Thing("a", generation=2))
        await asyncio.sleep(2)
        assert (stage.world.passes[-1].generation, stage.world.fetches) == (2, ["a"])


async def test_a_change_during_a_pass_outdates_the_copy_that_it_uses(stage: Stage) -> None:
    stage.world.put(Thing("a"))
    stage.world.behave = _reading
    async with stage.settled() as watcher:
        watcher.queue.add("a")
        await asyncio.sleep(0.5)
        await stage.change(Thing("a", generation=2))
        await asyncio.sleep(5)
    assert stage.world.fetches == ["a"]
    assert stage.world.passes[-1].generation == 2


async def test_a_pass_that_may_have_changed_something_leaves_no_copy(stage: Stage) -> None:
    stage.world.put(Thing("a"))
    async with stage.settled() as watcher:
        await _again(watcher)
    assert stage.world.fetches == ["a"]


async def test_while_the_watch_is_lost_each_pass_reads_what_no_list_has_shown_since(stage: Stage) -> None:
    stage.world.put(Thing("a"))
    stage.world.behave = _reading
    async with stage.settled() as watcher:
        await _again(watcher)
        assert stage.world.fetches == []
        stage.network.fail_watches = True
        stage.network.break_watches()
        await until(lambda: not watcher.watching)
        for _ in range(2):
            await _again(watcher)
    assert stage.world.fetches == ["a", "a"]
