"""Polling, passes, retries, generations and effects, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lcm.core.controller.config import ReconciliationConfig
from lcm.core.controller.effects import EffectTimeoutError
from lcm.core.controller.reconciliation import Outcome, ReconciliationResult, ResourceStatus
from lcm.core.controller.turns import PER_ITERATION
from lcm.core.workqueue import Priority
from tests.support.virtual.toy_controllers import Poller, Thing, World, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from prometheus_client import CollectorRegistry


@asynccontextmanager
async def running(
    world: World, registry: CollectorRegistry, config: ReconciliationConfig | None = None
) -> AsyncIterator[Poller]:
    poller = Poller(world, config or ReconciliationConfig(initial_delay=0), registry)
    await poller.start()
    try:
        yield poller
    finally:
        await poller.stop()


def scripted(*results: ReconciliationResult) -> Callable[[Thing], Awaitable[ReconciliationResult]]:
    """Returns these results in turn, then the last one forever."""
    left = list(results)

    async def behave(_: Thing) -> ReconciliationResult:
        return left.pop(0) if len(left) > 1 else left[0]

    return behave


def test_defaults_are_those_of_the_reference() -> None:
    """settings.md."""
    config = ReconciliationConfig()
    assert (config.interval_seconds, config.initial_delay, config.polling_enabled) == (30.0, 5.0, True)
    assert (config.max_concurrent, config.metric_prefix) == (10, "reconciliation")
    assert (config.backoff_base, config.max_backoff, config.backoff_multiplier) == (1.0, 60.0, 2.0)
    assert config.reconcile_timeout == 60.0


async def test_everything_listed_gets_a_pass_each_interval_after_the_initial_delay(registry: CollectorRegistry) -> None:
    """controllers.md, controllers.md#work-queue: the polling loop."""
    world = World()
    world.put(Thing("a"), Thing("b"))
    began = asyncio.get_running_loop().time()
    async with running(world, registry, ReconciliationConfig()):
        await asyncio.sleep(70)
    assert [at - began for at in world.times_of("a")] == [5, 35, 65]
    assert len(world.passes_of("b")) == 3


async def test_a_listed_resource_is_not_fetched_again(registry: CollectorRegistry) -> None:
    world = World()
    world.put(*(Thing(f"t{number}") for number in range(50)))
    async with running(world, registry):
        await asyncio.sleep(1)
    assert len(world.passes) == 50
    assert world.fetches == []


async def test_at_most_max_concurrent_passes_run_side_by_side(registry: CollectorRegistry) -> None:
    """controllers.md#work-queue: max_concurrent."""
    world = World(behave=lambda _: slow(1))
    world.put(*(Thing(f"t{number}") for number in range(25)))

    async def slow(seconds: float) -> ReconciliationResult:
        await asyncio.sleep(seconds)
        return ReconciliationResult.success()

    async with running(world, registry, ReconciliationConfig(initial_delay=0, max_concurrent=10)):
        await asyncio.sleep(2.5)
        assert len(world.passes) == 25
    assert world.most_running == 10


async def test_a_slow_resource_delays_only_itself(registry: CollectorRegistry) -> None:
    """There is no cycle barrier: others continue at their pace while one pass takes longer than the interval."""

    async def behave(thing: Thing) -> ReconciliationResult:
        if thing.id == "slow":
            await asyncio.sleep(50)
        return ReconciliationResult.success()

    world = World(behave=behave)
    world.put(Thing("slow"), Thing("quick"))
    async with running(world, registry):
        await asyncio.sleep(95)
    assert len(world.passes_of("quick")) == 4
    assert len(world.passes_of("slow")) == 2


async def test_a_pass_that_does_not_end_times_out_and_is_retried(registry: CollectorRegistry) -> None:
    async def behave(_: Thing) -> ReconciliationResult:
        await asyncio.sleep(1e6)
        return ReconciliationResult.success()

    world = World(behave=behave)
    world.put(Thing("a"))
    config = ReconciliationConfig(initial_delay=0, reconcile_timeout=60, interval_seconds=1000)
    async with running(world, registry, config) as poller:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(60.5)
        state = poller.resource_states["a"]
        assert state.status is ResourceStatus.FAILED
        assert "60 s" in state.last_error
        await until(lambda: len(world.passes) == 2)
        second = world.times_of("a")[1] - began
        assert 60 + 0.9 <= second <= 60 + 1.1


async def test_retry_backs_off_by_a_timer_of_its_own_not_at_the_next_poll(registry: CollectorRegistry) -> None:
    """worker-lifecycle.md#decisions, controllers.md#work-queue: RETRY."""
    world = World(behave=scripted(ReconciliationResult.retry("not yet")))
    world.put(Thing("a"))
    async with running(world, registry, ReconciliationConfig(initial_delay=0, interval_seconds=20)):
        await asyncio.sleep(200)
    times = world.times_of("a")
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    for gap, exact in zip(gaps, [1, 2, 4, 8, 16, 32, 60, 60], strict=False):
        assert exact * 0.9 <= gap <= exact * 1.1
    assert len(gaps) >= 7


async def test_success_resets_the_backoff(registry: CollectorRegistry) -> None:
    """worker-lifecycle.md#decisions, controllers.md#work-queue: SUCCESS."""
    retry, success = ReconciliationResult.retry("no"), ReconciliationResult.success()
    world = World(behave=scripted(retry, retry, retry, success, retry, success))
    world.put(Thing("a"))
    async with running(world, registry, ReconciliationConfig(initial_delay=0, interval_seconds=30)) as poller:
        await until(lambda: len(world.passes) == 5)
        assert poller.resource_states["a"].retry_count == 1
        await until(lambda: len(world.passes) == 6)
        await asyncio.sleep(0)
        state = poller.resource_states["a"]
        assert (state.retry_count, state.status, state.next_retry_at) == (0, ResourceStatus.SUCCESS, None)
        assert state.last_reconciled_at is not None
    times = world.times_of("a")
    assert 0.9 <= times[5] - times[4] <= 1.1


async def test_an_exception_is_a_retry_and_is_logged_once(registry: CollectorRegistry) -> None:
    async def behave(_: Thing) -> ReconciliationResult:
        raise ValueError("the moon is in the wrong house")

    world = World(behave=behave)
    world.put(Thing("a"))
    with capture_logs() as logs:
        async with running(world, registry) as poller:
            await until(lambda: len(world.passes) >= 4)
            assert poller.resource_states["a"].last_error == "ValueError: the moon is in the wrong house"
    assert len([entry for entry in logs if entry["event"] == "reconcile failed"]) == 1


async def test_a_change_of_generation_ends_the_backoff(registry: CollectorRegistry) -> None:
    world = World(behave=scripted(ReconciliationResult.retry("no")))
    world.put(Thing("a", generation=1))
    async with running(world, registry, ReconciliationConfig(initial_delay=0, interval_seconds=10)) as poller:
        await until(lambda: len(world.passes) == 6)  # the next retry is half a minute away
        world.put(Thing("a", generation=2))
        began = asyncio.get_running_loop().time()
        await until(lambda: len(world.passes) == 7)
        assert asyncio.get_running_loop().time() - began <= 10.01  # the next poll saw the new generation
        assert world.passes[-1].generation == 2
        assert poller.resource_states["a"].retry_count == 1


async def test_a_generation_that_moves_during_a_failing_pass_is_tried_at_once(registry: CollectorRegistry) -> None:
    async def behave(thing: Thing) -> ReconciliationResult:
        await asyncio.sleep(15)
        return ReconciliationResult.retry("no") if thing.generation == 1 else ReconciliationResult.success()

    world = World(behave=behave)
    world.put(Thing("a", generation=1))
    async with running(world, registry, ReconciliationConfig(initial_delay=0, interval_seconds=10)):
        await asyncio.sleep(5)
        world.put(Thing("a", generation=2))
        await until(lambda: len(world.passes) == 2)
    first, second = world.times_of("a")
    assert second - first == pytest.approx(15)


async def test_polling_does_not_cut_a_backoff_short(registry: CollectorRegistry) -> None:
    """controllers.md#work-queue: what waits out a backoff is left alone."""
    world = World(behave=scripted(ReconciliationResult.retry("no")))
    world.put(Thing("a"))
    async with running(world, registry, ReconciliationConfig(initial_delay=0, interval_seconds=1)):
        await asyncio.sleep(14)
    assert len(world.passes) == 4  # at about 0, 1, 3 and 7 seconds, though polled every second


async def test_requeue_with_a_delay_comes_back_then(registry: CollectorRegistry) -> None:
    """worker-lifecycle.md#decisions: REQUEUE, with a delay."""
    world = World(behave=scripted(ReconciliationResult.requeue("waiting", after=5), ReconciliationResult.success()))
    world.put(Thing("a"))
    async with running(world, registry):
        await asyncio.sleep(12)
    first, second = world.times_of("a")
    assert second - first == pytest.approx(5)


async def test_requeue_without_a_delay_comes_back_with_the_next_poll_even_if_no_longer_listed(
    registry: CollectorRegistry,
) -> None:
    """worker-lifecycle.md#decisions, controllers.md#work-queue: REQUEUE."""
    world = World(behave=scripted(ReconciliationResult.requeue("waiting"), ReconciliationResult.success()))
    world.put(Thing("a"))
    async with running(world, registry) as poller:
        await asyncio.sleep(1)
        poller.world.list = no_things  # type: ignore[method-assign]
        await asyncio.sleep(30)
    first, second = world.times_of("a")
    assert second - first == pytest.approx(30)


async def no_things() -> list[Thing]:
    return []


async def test_requeue_without_a_delay_and_without_polling_comes_back_after_the_interval(
    registry: CollectorRegistry,
) -> None:
    world = World(behave=scripted(ReconciliationResult.requeue("waiting"), ReconciliationResult.success()))
    world.put(Thing("a"))
    config = ReconciliationConfig(polling_enabled=False, interval_seconds=30)
    async with running(world, registry, config) as poller:
        poller.trigger("a")
        await asyncio.sleep(100)
    first, second = world.times_of("a")
    assert second - first == pytest.approx(30)
    assert world.lists == []


async def test_skip_is_neither_failure_nor_retry(registry: CollectorRegistry) -> None:
    """worker-lifecycle.md#decisions, controllers.md#work-queue: SKIP."""
    world = World(behave=scripted(ReconciliationResult.skip("not mine")))
    world.put(Thing("a"))
    async with running(world, registry):
        await asyncio.sleep(29)
    assert len(world.passes) == 1


async def test_a_resource_that_is_gone_is_skipped_and_forgotten(registry: CollectorRegistry) -> None:
    world = World(behave=scripted(ReconciliationResult.requeue("", after=3)))
    world.put(Thing("a"))
    async with running(world, registry, ReconciliationConfig(initial_delay=0, interval_seconds=100)) as poller:
        await asyncio.sleep(1)
        del world.things["a"]
        await asyncio.sleep(5)
        assert "a" not in poller.resource_states
    assert len(world.passes) == 1


async def test_memory_of_what_is_no_longer_listed_is_dropped(registry: CollectorRegistry) -> None:
    world = World()
    world.put(*(Thing(f"t{number}") for number in range(5)))
    async with running(world, registry) as poller:
        await asyncio.sleep(1)
        assert len(poller.resource_states) == 5
        world.things = {"t0": Thing("t0")}
        await asyncio.sleep(31)
        assert list(poller.resource_states) == ["t0"]


async def test_a_failed_list_is_retried_soon_and_logged_once(registry: CollectorRegistry) -> None:
    """controllers.md: polling fails gently."""
    world = World(fail_lists="control plane unreachable")
    world.put(Thing("a"))
    with capture_logs() as logs:
        async with running(world, registry):
            await until(lambda: len(world.lists) == 4)
            assert world.lists[3] - world.lists[0] <= 8
            world.fail_lists = ""
            await until(lambda: len(world.passes) == 1, limit=20)
    events = [entry["event"] for entry in logs]
    assert events.count("cannot list resources; retrying") == 1
    assert events.count("resources can be listed again") == 1


async def test_what_a_list_showed_is_not_used_once_it_is_outdated(registry: CollectorRegistry) -> None:
    """A pass that ends while a list is in flight may have changed what that list will return."""

    async def behave(thing: Thing) -> ReconciliationResult:
        await asyncio.sleep(1)
        world.put(Thing("a", note="changed by the pass"))
        return ReconciliationResult.success()

    world = World(behave=behave, list_takes=5)
    world.put(Thing("a"))
    async with running(world, registry) as poller:
        poller.trigger("a")
        await asyncio.sleep(7)  # the list began before the pass ended, and ended after it
        assert len(world.passes) == 2
    assert world.fetches == ["a", "a"]


async def test_a_read_only_pass_does_not_invalidate_a_list_in_flight(registry: CollectorRegistry) -> None:
    """Otherwise a list during the passes of the last one would be useless, and each resource a request."""

    async def behave(_: Thing) -> ReconciliationResult:
        await asyncio.sleep(1)
        return ReconciliationResult(Outcome.SUCCESS, read_only=True)

    world = World(behave=behave, list_takes=5)
    world.put(*(Thing(f"t{number}") for number in range(50)))
    async with running(world, registry, ReconciliationConfig(initial_delay=0, max_concurrent=10)) as poller:
        await asyncio.sleep(5.5)
        poller.trigger()  # all passes over what the first list showed end before the second does
        await asyncio.sleep(11)
    assert len(world.passes) == 100
    assert world.fetches == []


async def test_what_was_fetched_while_a_list_is_under_way_may_be_newer_than_what_that_shows(
    registry: CollectorRegistry,
) -> None:
    async def behave(_: Thing) -> ReconciliationResult:
        return ReconciliationResult(Outcome.SUCCESS, read_only=True)

    world = World(behave=behave, list_takes=5)
    world.put(Thing("a"))
    async with running(world, registry, ReconciliationConfig(initial_delay=0)) as poller:
        await asyncio.sleep(1)
        poller.trigger("a")
        await asyncio.sleep(6)
        assert len(world.passes) == 2
        assert world.fetches == ["a", "a"]
        await asyncio.sleep(30)  # what was fetched before a list was requested is never newer
        assert len(world.passes) == 3
    assert world.fetches == ["a", "a"]


async def test_trigger_runs_one_resource_now_whatever_backoff_it_is_in(registry: CollectorRegistry) -> None:
    world = World(behave=scripted(ReconciliationResult.retry("no")))
    world.put(Thing("a"))
    async with running(world, registry) as poller:
        await until(lambda: len(world.passes) == 6)
        began = asyncio.get_running_loop().time()
        poller.trigger("a")
        await until(lambda: len(world.passes) == 7)
        assert asyncio.get_running_loop().time() - began < 0.1


async def test_trigger_all_lists_now(registry: CollectorRegistry) -> None:
    world = World()
    world.put(Thing("a"), Thing("b"))
    async with running(world, registry, ReconciliationConfig(polling_enabled=False)) as poller:
        await asyncio.sleep(100)
        assert world.passes == []
        poller.trigger()
        await asyncio.sleep(0.1)
        assert sorted(done.key for done in world.passes) == ["a", "b"]


async def test_trigger_all_also_wakes_what_waits_out_a_backoff_and_is_no_longer_listed(
    registry: CollectorRegistry,
) -> None:
    world = World(behave=scripted(ReconciliationResult.retry("no")))
    world.put(Thing("a"))
    config = ReconciliationConfig(initial_delay=0, interval_seconds=10_000)
    async with running(world, registry, config) as poller:
        await until(lambda: len(world.passes) == 7)  # the next retry is a minute away
        poller.world.list = no_things  # type: ignore[method-assign]
        began = asyncio.get_running_loop().time()
        poller.trigger()
        await until(lambda: len(world.passes) == 8)
        assert asyncio.get_running_loop().time() - began < 1


async def test_a_failing_fetch_backs_off_despite_a_new_generation(registry: CollectorRegistry) -> None:
    """The new generation triggered the pass; it must neither be retried without a pause nor be forgotten."""
    world = World()
    attempts: list[float] = []

    async def fetch(key: str) -> Thing | None:
        attempts.append(asyncio.get_running_loop().time())
        raise ConnectionError("control plane unreachable")

    world.fetch = fetch  # type: ignore[method-assign]
    config = ReconciliationConfig(polling_enabled=False)
    async with running(world, registry, config) as poller:
        for generation in (1, 2):
            poller._schedule.enqueue("a", generation, Priority.HIGH)
            await asyncio.sleep(0.2)
        assert len(attempts) == 2
        await asyncio.sleep(10)
        assert 4 <= len(attempts) <= 6


async def test_a_requeue_for_the_next_cycle_does_not_cut_a_later_backoff_short(registry: CollectorRegistry) -> None:
    world = World(behave=scripted(ReconciliationResult.requeue("waiting"), ReconciliationResult.retry("no")))
    world.put(Thing("a"))
    async with running(world, registry, ReconciliationConfig(initial_delay=0, interval_seconds=30)) as poller:
        await asyncio.sleep(1)
        for _ in range(6):  # failures until the next retry is half a minute away
            poller.trigger("a")
            await asyncio.sleep(0.1)
        retry_at = poller.resource_states["a"].next_retry_at
        await asyncio.sleep(31)
        assert poller.resource_states["a"].next_retry_at == retry_at


async def test_a_users_change_overtakes_a_resync_within_one_reconcile(registry: CollectorRegistry) -> None:
    """10,000 keys of 10 ms each are waiting; the changed key is started within 10 ms."""

    async def behave(_: Thing) -> ReconciliationResult:
        await asyncio.sleep(0.01)
        return ReconciliationResult.success()

    for concurrency in (1, 10):
        world = World(behave=behave)
        world.put(*(Thing(f"t{number:05}") for number in range(10_000)))
        config = ReconciliationConfig(initial_delay=0, max_concurrent=concurrency, interval_seconds=30)
        async with running(world, registry, config) as poller:
            for moment in (0.503, 4.001, 5.555):
                await asyncio.sleep(moment)
                arrived = asyncio.get_running_loop().time()
                poller.trigger("t09999")
                await until(lambda: world.times_of("t09999")[-1:] >= [arrived], limit=1)  # noqa: B023 - evaluated at once
                assert world.times_of("t09999")[-1] - arrived <= 0.01 + 1e-9


async def test_a_resync_is_not_starved_by_a_stream_of_changes(registry: CollectorRegistry) -> None:
    """A key that has waited longer than the interval takes every second turn."""

    async def behave(thing: Thing) -> ReconciliationResult:
        await asyncio.sleep(1)
        if thing.id.startswith("busy"):
            poller.queue.add(thing.id, Priority.HIGH)
        return ReconciliationResult.success()

    world = World(behave=behave)
    world.put(*(Thing(f"busy{number}") for number in range(3)), *(Thing(f"calm{number}") for number in range(5)))
    config = ReconciliationConfig(initial_delay=0, max_concurrent=1, interval_seconds=30)
    async with running(world, registry, config) as poller:
        for number in range(3):
            poller.trigger(f"busy{number}")
        await asyncio.sleep(29)
        assert not any(done.key.startswith("calm") for done in world.passes)
        await asyncio.sleep(14)
        assert {done.key for done in world.passes if done.key.startswith("calm")} == {f"calm{n}" for n in range(5)}


async def test_stop_lets_passes_finish_and_starts_no_new_ones(registry: CollectorRegistry) -> None:
    finished: list[str] = []

    async def behave(thing: Thing) -> ReconciliationResult:
        await asyncio.sleep(3)
        finished.append(thing.id)
        return ReconciliationResult.success()

    world = World(behave=behave)
    world.put(*(Thing(f"t{number}") for number in range(20)))
    poller = Poller(world, ReconciliationConfig(initial_delay=0, max_concurrent=5), registry)
    await poller.start()
    await asyncio.sleep(1)
    await poller.stop()
    assert len(world.passes) == 5
    assert len(finished) == 5


async def test_stop_cuts_off_what_does_not_finish(registry: CollectorRegistry) -> None:
    async def behave(_: Thing) -> ReconciliationResult:
        await asyncio.sleep(1e6)
        return ReconciliationResult.success()

    world = World(behave=behave)
    world.put(Thing("a"))
    poller = Poller(world, ReconciliationConfig(initial_delay=0), registry)
    await poller.start()
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    await poller.stop()
    assert asyncio.get_running_loop().time() - began <= 6


# Lanes


class RegionalPoller(Poller):
    """The first letter of a thing is its lane, which is known once the thing was listed or fetched."""

    @property
    def lanes(self) -> Sequence[str]:
        return ("n", "s")

    def lane_of(self, resource_id: str) -> str:
        return resource_id[0] if resource_id in self.known else ""

    async def list_resources(self) -> Sequence[Thing]:
        things = await super().list_resources()
        self.known.update(thing.id for thing in things)
        return things

    async def fetch_single_resource(self, resource_id: str) -> Thing | None:
        self.known.add(resource_id)
        return await super().fetch_single_resource(resource_id)

    known: set[str]


async def test_a_lane_whose_passes_hang_delays_no_other(registry: CollectorRegistry) -> None:
    """controllers.md#lanes: twenty passes hang in one lane, and a change in the other one has its pass at once."""

    async def behave(thing: Thing) -> ReconciliationResult:
        if thing.id.startswith("s"):
            await asyncio.sleep(1000)
        return ReconciliationResult.success()

    world = World(behave=behave)
    world.put(*(Thing(f"s{number}") for number in range(20)), Thing("n1"))
    poller = RegionalPoller(world, ReconciliationConfig(initial_delay=0, max_concurrent=3), registry)
    poller.known = set()
    await poller.start()
    try:
        await asyncio.sleep(10)
        assert len(world.passes_of("n1")) == 1
        assert sum(key.startswith("s") for key in world.running) == 3
        depth = "reconciliation_lane_queue_depth"
        assert registry.get_sample_value(depth, {"controller": "poller", "lane": "s"}) == 17
        assert registry.get_sample_value(depth, {"controller": "poller", "lane": "n"}) == 0
        began = asyncio.get_running_loop().time()
        poller.trigger("n1")
        await until(lambda: len(world.passes_of("n1")) == 2)
        assert world.times_of("n1")[1] == began
        world.put(Thing("n2"), *(Thing(f"s{number}") for number in range(20, 30)))
        for key in (*(f"s{number}" for number in range(20, 30)), "n2"):
            poller.trigger(key)  # not known before: where they belong turns out when they are read
        await until(lambda: bool(world.passes_of("n2")))
        assert world.times_of("n2")[0] == pytest.approx(began, abs=0.02)
        assert world.fetches.count("n2") == 1, "it is read once, though it changes its lane"
    finally:
        await poller.stop()


# Effects: calls that change the world outside


async def test_a_key_stays_busy_until_its_call_has_really_ended(registry: CollectorRegistry) -> None:
    """Also past the pass's own timeout: the second pass must not act on what the first is still changing."""
    calls: list[tuple[float, float]] = []

    async def cloud_call() -> None:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(200)
        calls.append((began, asyncio.get_running_loop().time()))

    async def behave(_: Thing) -> ReconciliationResult:
        if not calls:
            await poller.effect(cloud_call, timeout=5)
        return ReconciliationResult.success()

    world = World(behave=behave)
    world.put(Thing("a"))
    async with running(world, registry) as poller:
        await asyncio.sleep(100)
        poller.trigger("a")
        await asyncio.sleep(99)
        assert len(world.passes) == 1
        await asyncio.sleep(5)
        assert len(world.passes) == 2
    assert world.times_of("a")[1] >= calls[0][1]


async def test_an_effect_that_takes_too_long_says_that_it_may_still_happen(registry: CollectorRegistry) -> None:
    seen: list[BaseException] = []

    async def behave(_: Thing) -> ReconciliationResult:
        try:
            await poller.effect(lambda: asyncio.sleep(50), timeout=5)
        except EffectTimeoutError as error:
            seen.append(error)
            return ReconciliationResult.retry(str(error))
        return ReconciliationResult.success()

    world = World(behave=behave)
    world.put(Thing("a"))
    async with running(world, registry, ReconciliationConfig(initial_delay=0, interval_seconds=1000)) as poller:
        await asyncio.sleep(40)
    assert len(seen) == 1
    assert "may still take effect" in str(seen[0])
    await asyncio.sleep(20)  # the call ends by itself, long after the pass


async def test_the_result_and_the_error_of_an_effect_reach_the_pass(registry: CollectorRegistry) -> None:
    results: list[object] = []

    async def refuse() -> None:
        raise PermissionError("no")

    async def behave(_: Thing) -> ReconciliationResult:
        results.append(await poller.effect(lambda: asyncio.sleep(1, "i-123")))
        try:
            await poller.effect(refuse)
        except PermissionError as error:
            results.append(str(error))
        return ReconciliationResult.success()

    world = World(behave=behave)
    world.put(Thing("a"))
    async with running(world, registry) as poller:
        await asyncio.sleep(2)
    assert results == ["i-123", "no"]


async def test_an_effect_outside_a_pass_is_refused(registry: CollectorRegistry) -> None:
    async with running(World(), registry) as poller:
        with pytest.raises(RuntimeError, match="belongs to a pass"):
            await poller.effect(lambda: asyncio.sleep(1))


async def test_others_have_their_turn_during_a_resync_that_waits_for_nothing(registry: CollectorRegistry) -> None:
    """For example the renewal of a lease, and tasks that wait for a response."""
    world = World()
    world.put(*(Thing(str(number)) for number in range(1000)))
    most = passed = turns = 0

    async def at_once(_: Thing) -> ReconciliationResult:
        nonlocal passed
        passed += 1
        return ReconciliationResult.success()

    world.behave = at_once
    async with running(world, registry):
        while passed < 1000:
            before = passed
            await asyncio.sleep(0)
            most, turns = max(most, passed - before), turns + 1
            assert turns < 10_000
    assert most <= ReconciliationConfig().max_concurrent


async def test_passes_that_never_wait_leave_the_loop_to_others_after_a_few(registry: CollectorRegistry) -> None:
    """controllers.md#work-queue: a request that takes ten iterations of the loop must not wait for a resync in each."""
    world = World()
    world.put(*(Thing(f"t{number}") for number in range(300)))
    counts = list[int]()
    async with running(world, registry, ReconciliationConfig(initial_delay=1, max_concurrent=40)):
        await asyncio.sleep(1)
        while len(world.passes) < 300:
            await asyncio.sleep(0)
            counts.append(len(world.passes))
    later = [after - before for before, after in itertools.pairwise(counts)]
    assert max(later[1:]) <= PER_ITERATION, "the first key wakes each slot once"
