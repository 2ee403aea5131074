"""Metric names under a prefix, for several controllers in one process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest

from lcm.coordination.memory.client import MemoryCoordination, MemoryServer
from lcm.core.controller.config import ReconciliationConfig
from lcm.core.controller.metrics import controller_metrics
from lcm.core.controller.reconciliation import ReconciliationResult
from tests.support.network.faulty_coordination import FaultyCoordination
from tests.support.virtual.toy_controllers import Elected, Poller, Thing, Watcher, World, until

if TYPE_CHECKING:
    from collections.abc import Mapping


def value(registry: CollectorRegistry, name: str, labels: Mapping[str, str] | None = None) -> float | None:
    return registry.get_sample_value(name, {"controller": "poller", **(labels or {})})


async def test_all_metrics_are_exported_under_the_prefix(registry: CollectorRegistry) -> None:
    """controllers.md#metrics."""

    async def behave(thing: Thing) -> ReconciliationResult:
        await asyncio.sleep(10)
        return ReconciliationResult.retry("no") if thing.id == "bad" else ReconciliationResult.success()

    world = World(behave=behave)
    world.put(Thing("a"), Thing("b"), Thing("bad"))
    config = ReconciliationConfig(initial_delay=0, max_concurrent=2, metric_prefix="toy")
    poller = Poller(world, config, registry)
    await poller.start()
    await asyncio.sleep(5)
    assert value(registry, "toy_active_reconciles") == 2
    assert value(registry, "toy_queue_depth") == 1
    assert value(registry, "toy_resources_pending") == 1
    await asyncio.sleep(15.5)
    assert value(registry, "toy_reconcile_total", {"result": "success"}) == 2
    assert value(registry, "toy_reconcile_total", {"result": "retry"}) == 1
    assert value(registry, "toy_reconcile_duration_seconds_count") == 3
    assert value(registry, "toy_reconcile_duration_seconds_sum") == 30
    assert value(registry, "toy_active_reconciles") == 0
    assert value(registry, "toy_resources_pending") == 1  # the retry that its timer will add
    assert value(registry, "toy_queue_wait_seconds_count") == 3
    assert value(registry, "toy_queue_wait_seconds_sum") == 10
    assert value(registry, "toy_queue_wait_seconds_bucket", {"le": "0.001"}) == 2
    assert value(registry, "toy_queue_wait_seconds_bucket", {"le": "10.0"}) == 3
    await poller.stop()


async def test_leader_state_and_term_are_read_when_scraped(registry: CollectorRegistry) -> None:
    server = MemoryServer()
    network = FaultyCoordination(MemoryCoordination(server))
    one = Elected(World(), network, "one", registry)
    labels = {"controller": "toy"}
    transitions = "reconciliation_leader_transitions_total"
    for to in ("leader", "standby"):
        assert registry.get_sample_value(transitions, {**labels, "to": to}) == 0, "a rate sees the first change"
    await one.start()
    await asyncio.sleep(1)
    assert registry.get_sample_value("reconciliation_leader", labels) == 1
    assert registry.get_sample_value("reconciliation_leader_term", labels) == one.term > 0
    network.cut = True
    await until(lambda: not one.is_leader)
    assert registry.get_sample_value("reconciliation_leader", labels) == 0
    assert registry.get_sample_value("reconciliation_leader_term", labels) == 0
    await asyncio.sleep(1)
    assert registry.get_sample_value(transitions, {**labels, "to": "leader"}) == 1
    assert registry.get_sample_value(transitions, {**labels, "to": "standby"}) == 1
    network.cut = False
    await one.stop()


async def test_reconnects_of_the_watch_are_counted(registry: CollectorRegistry) -> None:
    network = FaultyCoordination(MemoryCoordination())
    watcher = Watcher(World(), network, registry)
    await watcher.start()
    await until(lambda: watcher.watching)
    for _ in range(3):
        network.break_watches()
        await asyncio.sleep(3)
    assert registry.get_sample_value("reconciliation_watch_reconnects_total", {"controller": "toy"}) == 3
    await watcher.stop()


async def test_two_controllers_share_a_process_and_a_prefix(registry: CollectorRegistry) -> None:
    poller = Poller(World(), ReconciliationConfig(), registry)
    elected = Elected(World(), MemoryCoordination(), "one", registry)
    text = generate_latest(registry).decode()
    assert text.count("# TYPE reconciliation_queue_depth gauge") == 1
    assert 'reconciliation_queue_depth{controller="poller"} 0.0' in text
    assert 'reconciliation_queue_depth{controller="toy"} 0.0' in text
    assert poller.is_leader
    assert not elected.is_leader


def test_families_of_a_prefix_are_made_once(registry: CollectorRegistry) -> None:
    """controllers.md#metrics: made on first use."""
    assert controller_metrics("x", registry) is controller_metrics("x", registry)
    assert controller_metrics("x", registry) is not controller_metrics("x", CollectorRegistry())
