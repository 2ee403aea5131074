"""Batches of CloudWatch metrics go to all replicas in turn; what one of them does not read, the leader reads."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from lcm.cloud.errors import CloudThrottledError
from lcm.controllers.worker.readers import messages
from lcm.controllers.worker.readers.directory import READERS_PREFIX
from lcm.controllers.worker.readers.metrics import METRICS_SECONDS
from lcm.controllers.worker.readers.pool import AVOID_SECONDS
from lcm.controllers.worker.readers.remote_reader import SILENCE_SECONDS
from lcm.coordination.memory.client import MemoryCoordination
from lcm.core import clock
from tests.support.virtual.readers import a_scene

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lcm.cloud.types import InstanceMetrics
    from tests.support.virtual.readers import Scene

REGION = "eu-west-1"
IDS = tuple(f"i-{number}" for number in range(30))


async def read(scene: Scene, *batches: tuple[str, ...]) -> list[Mapping[str, InstanceMetrics]]:
    """Read the batches at once, and check that each instance has its metrics."""
    found = await asyncio.gather(*(scene.metrics.get_instance_metrics(REGION, batch) for batch in batches))
    for batch, metrics in zip(batches, found, strict=True):
        assert {each: metrics[each].cpu_utilization for each in batch} == dict.fromkeys(batch, 20.0)
    return found


def reads(scene: Scene) -> dict[str, list[str]]:
    return {name: sorted(replica.metrics.read) for name, replica in scene.replicas.items()}


async def read_through_two(scene: Scene) -> Mapping[str, InstanceMetrics]:
    """Read one batch when it is the turn of replica two."""
    scene.metrics._turn = 0
    (found,) = await read(scene, IDS)
    return found


async def test_each_batch_is_read_by_one_replica_in_turn() -> None:
    async with a_scene("one", "two", "three") as scene:
        batches = [IDS[begin : begin + 5] for begin in range(0, 30, 5)]
        await read(scene, *batches)
        assert sorted(len(part) for part in reads(scene).values()) == [10, 10, 10]
        assert sorted(chain.from_iterable(reads(scene).values())) == sorted(IDS)
        counted = {by: ("lcm_cloudwatch_reads_total", {"by": by}) for by in ("leader", "other")}
        values = {by: scene.registry.get_sample_value(*counted[by]) for by in counted}
        assert values == {"leader": 2, "other": 4}


async def test_the_calls_of_all_replicas_count_in_one_rate_limit() -> None:
    async with a_scene("one", "two", "three") as scene:
        await read(scene, *(IDS[begin : begin + 5] for begin in range(0, 30, 5)))
        by_others = len(scene.replicas["two"].metrics.read) + len(scene.replicas["three"].metrics.read)
        assert scene.leader.metrics.taken == by_others == 20


async def test_the_leader_says_which_window_is_read() -> None:
    """A reader whose clock is wrong would look for metrics where none are."""
    async with a_scene("one", "two") as scene:
        at = clock.now()
        await read_through_two(scene)
        (end,) = scene.replicas["two"].metrics.ends
        assert end is not None
        assert timedelta(0) <= end - at < timedelta(seconds=1)


@pytest.mark.parametrize("fault", ["is_cut_off", "is_silent"])
async def test_what_a_lost_reader_was_to_read_the_leader_reads(fault: str) -> None:
    async with a_scene("one", "two") as scene:
        setattr(scene.replicas["two"], fault, True)
        began = clock.boottime()
        await read_through_two(scene)
        assert clock.boottime() - began < SILENCE_SECONDS + 2
        assert reads(scene)["one"] == sorted(IDS)
        scene.leader.metrics.read.clear()
        await read(scene, IDS, IDS)
        assert reads(scene)["one"] == sorted(IDS * 2), "it is not used for a while"
        setattr(scene.replicas["two"], fault, False)
        scene.replicas["two"].metrics.read.clear()
        await asyncio.sleep(AVOID_SECONDS)
        await read(scene, IDS, IDS)
        assert reads(scene)["two"] == sorted(IDS), "it is back"


async def test_a_slow_reader_delays_only_its_own_batch() -> None:
    async with a_scene("one", "two") as scene:
        scene.replicas["two"].metrics.hanging.add(REGION)
        batches = {number: asyncio.create_task(read(scene, IDS)) for number in range(4)}
        done, waiting = await asyncio.wait(batches.values(), timeout=2)
        assert (len(done), len(waiting)) == (2, 2)
        began = clock.boottime()
        await asyncio.wait(waiting)
        assert [len(task.result()) for task in waiting] == [1, 1]
        assert clock.boottime() - began < METRICS_SECONDS
        assert scene.registry.get_sample_value("lcm_cml_readers") == 2, "a slow region says nothing about its reader"


@pytest.mark.parametrize("fault", ["failing", "another account", "a cloud of its own"])
async def test_what_a_reader_cannot_read_the_leader_reads_and_it_is_said_once(fault: str) -> None:
    """Instances of another account look like instances without metrics: unknown is not zero, and not missing."""
    async with a_scene("one", "two") as scene:
        two = scene.replicas["two"]
        if fault == "failing":
            two.metrics.failures[REGION] = CloudThrottledError("slow down")
        elif fault == "another account":
            two.metrics.account = "210987654321"
            two.metrics.unknown.update(IDS)
        else:
            two.reader._metrics = None
        with capture_logs() as logs:
            for _ in range(3):
                await read_through_two(scene)
        assert reads(scene)["one"] == sorted(IDS * 3)
        assert [line["what"] for line in logs if line["log_level"] == "warning"] == ["metrics through reader two"]


async def test_an_error_that_is_not_the_readers_is_that_of_the_leader() -> None:
    async with a_scene("one", "two") as scene:
        for replica in scene.replicas.values():
            replica.metrics.failures[REGION] = CloudThrottledError("slow down")
        results = await asyncio.gather(*(read(scene, IDS) for _ in range(4)), return_exceptions=True)
        assert [type(each) for each in results] == [CloudThrottledError] * 4


async def test_instances_without_metrics_stay_unknown() -> None:
    async with a_scene("one", "two") as scene:
        for replica in scene.replicas.values():
            replica.metrics.unknown.add("i-3")
        found = [await scene.metrics.get_instance_metrics(REGION, IDS) for _ in range(2)]
        assert [set(IDS) - set(each) for each in found] == [{"i-3"}, {"i-3"}]
        assert [each["i-1"].memory_utilization for each in found] == [None, None]


async def test_a_reader_whose_lease_ends_while_it_reads_makes_no_further_call() -> None:
    async with a_scene("one", "two") as scene:
        two = scene.replicas["two"]

        async def suspended(region: str) -> str:
            assert two.directory._lease is not None
            two.directory._lease._over = True
            return two.metrics.account

        two.metrics.account_id = suspended  # type: ignore[method-assign]
        await read_through_two(scene)
        assert reads(scene) == {"one": sorted(IDS), "two": []}


async def test_a_reader_of_another_version_is_not_used() -> None:
    async with a_scene("one", "two") as scene:
        coordination = MemoryCoordination(scene.coordination)
        (entry,) = (await coordination.list_prefix(READERS_PREFIX + "two")).items
        earlier = {**json.loads(entry.value), "format": messages.FORMAT - 1}
        await coordination.put(entry.key, json.dumps(earlier).encode())
        await asyncio.sleep(1)
        await read(scene, IDS, IDS)
        assert reads(scene) == {"one": sorted(IDS * 2), "two": []}


def _without_a_number(line: dict[str, Any]) -> None:
    line["metrics"][0]["cpu_utilization"] = "a lot"


def _of_another_instance(line: dict[str, Any]) -> None:
    line["metrics"][0]["instance_id"] = "i-of-somebody-else"


def _of_another_kind(line: dict[str, Any]) -> None:
    line["text"] = "user-1"
    del line["metrics"]


@pytest.mark.parametrize("change", [_without_a_number, _of_another_instance, _of_another_kind])
async def test_nonsense_is_not_believed(change: Callable[[dict[str, Any]], None]) -> None:
    async with a_scene("one", "two") as scene:

        def spoil(body: bytes) -> bytes:
            line = json.loads(body)
            change(line)
            return json.dumps(line).encode() + b"\n"

        scene.replicas["two"].spoil = spoil
        found = await read_through_two(scene)
        assert set(found) == set(IDS)
        assert reads(scene)["one"] == sorted(IDS)
