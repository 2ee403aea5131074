"""Metrics of the fleet: two independent sources, spread over time and written in batches."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from lcm.client.errors import InvalidRequestError, UnreachableError
from lcm.cloud.errors import CloudThrottledError
from lcm.cml.errors import CMLNotReadyError
from lcm.controllers.common.accounts import CmlAccounts
from lcm.controllers.worker.metrics.collector import MetricsCollector
from lcm.controllers.worker.observe.cml_monitor import MAX_CONCURRENT, CmlMonitor
from lcm.controllers.worker.observe.query_slots import SLOW_FACTOR
from lcm.core import clock
from lcm.core.controller.leader_election import StaleTermError
from lcm.core.hosting import cancel_and_wait
from lcm.model.worker.metrics import BatchResult, MetricsSample
from tests.support.records.workers import NOW, a_worker
from tests.support.virtual.fake_cml import DEFAULT, FakeCml, FakeInstanceMetrics, FakeSecrets, FakeServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import MetricsBatch

INTERVAL = 60.0


class Scene:
    """A fleet with a server for each worker, metrics of the cloud, and a control plane that stores what it is sent."""

    def __init__(self, size: int = 1, *, monitor_slots: int = MAX_CONCURRENT, **options: Any) -> None:
        self.cml = FakeCml()
        self.metrics = FakeInstanceMetrics()
        self.workers: dict[str, Worker] = {}
        self.batches: list[tuple[float, tuple[MetricsSample, ...]]] = []
        self.failure: Exception | None = None
        self.stale: list[StaleTermError] = []
        for number in range(size):
            self.add(number)
        accounts = CmlAccounts(FakeSecrets(), DEFAULT)
        self.monitor = CmlMonitor(self.cml, accounts, lambda worker: worker.public_ip, max_concurrent=monitor_slots)
        self.collector = MetricsCollector(
            self.metrics, self.monitor, self.write, lambda: self.workers, INTERVAL,
            on_stale=self.stale.append, **options,
        )  # fmt: skip
        self.began = clock.boottime()

    def add(self, number: int, **changes: Any) -> FakeServer:
        address = f"10.0.{number // 250}.{number % 250}"
        facts = {"id": f"w-{number}", "status": "RUNNING", "instance_id": f"i-{number}", "public_ip": address}
        worker = a_worker(**{**facts, **changes})
        self.workers[worker.id] = worker
        server = self.cml.servers[address] = FakeServer()
        return server

    def change(self, number: int, **changes: Any) -> None:
        worker = self.workers[f"w-{number}"]
        self.workers[worker.id] = worker.model_copy(update={**changes, "version": worker.version + 1})

    def server(self, number: int) -> FakeServer:
        return self.cml.servers[f"10.0.{number // 250}.{number % 250}"]

    async def write(self, batch: MetricsBatch) -> BatchResult:
        await asyncio.sleep(0.1)
        if self.failure is not None:
            raise self.failure
        self.batches.append((clock.boottime() - self.began, batch.items))
        return BatchResult(kept=len(batch.items), dropped=0)

    @property
    def samples(self) -> list[MetricsSample]:
        return [sample for _, batch in self.batches for sample in batch]

    def of(self, number: int) -> list[MetricsSample]:
        return [sample for sample in self.samples if sample.worker_id == f"w-{number}"]

    @asynccontextmanager
    async def running(self, seconds: float) -> AsyncIterator[None]:
        """The collector runs for a while before the body and ends after it."""
        task = asyncio.create_task(self.collector.run())
        await asyncio.sleep(seconds)
        yield
        await cancel_and_wait([task])

    async def run(self, seconds: float) -> None:
        async with self.running(seconds):
            pass


async def test_both_sources_make_one_sample() -> None:
    scene = Scene()
    await scene.run(50)
    (sample,) = scene.samples
    assert (sample.worker_id, sample.instance_id) == ("w-0", "i-0")
    assert (sample.cpu_utilization, sample.network_in, sample.memory_utilization) == (20.0, 1_000.0, None)
    assert (sample.labs_count, sample.nodes_count, sample.running_nodes) == (3, 12, 7)
    assert sample.cml_version == "2.9.1+build.7"
    assert sample.system_info == {
        "ready": True, "cpu_count": 8, "cpu_percent": 41.5,
        "memory_used": 4_000, "memory_total": 16_000, "disk_used": 10_000, "disk_total": 100_000,
    }  # fmt: skip
    assert NOW < sample.collected_at < clock.now()
    assert (scene.collector.collected, scene.collector.rounds) == (1, 1)


async def test_every_interval_brings_a_newer_sample() -> None:
    scene = Scene()
    await scene.run(INTERVAL * 5 - 1)
    times = [sample.collected_at for sample in scene.samples]
    assert len(times) == scene.collector.collected == 5
    assert {round((after - before).total_seconds()) for before, after in pairwise(times)} == {INTERVAL}


async def test_only_workers_that_run_and_have_an_instance_are_measured() -> None:
    """worker-lifecycle.md#running: who can be measured."""
    scene = Scene(1)
    scene.add(1, status="DRAINING")
    scene.add(2, status="STOPPED")
    scene.add(3, status="RUNNING", instance_id=None)
    scene.add(4, status="TERMINATING")
    await scene.run(50)
    assert {sample.worker_id for sample in scene.samples} == {"w-0", "w-1"}
    assert scene.metrics.calls == [("eu-west-1", 2)]


async def test_the_cloud_fails_alone_region_by_region_and_is_said_once() -> None:
    """worker-lifecycle.md#running: CloudWatch fails alone."""
    scene = Scene(1)
    scene.add(1, aws_region="us-east-1")
    scene.metrics.failures["eu-west-1"] = CloudThrottledError("slow down")
    with capture_logs() as logs:
        await scene.run(INTERVAL * 3)
    assert all(sample.cpu_utilization is None and sample.labs_count == 3 for sample in scene.of(0))
    assert all(sample.cpu_utilization == 20.0 for sample in scene.of(1))
    assert len(scene.of(0)) == len(scene.of(1)) == 3
    assert [line["what"] for line in logs if line["log_level"] == "warning"] == ["metrics of instances in eu-west-1"]


async def test_cml_fails_alone() -> None:
    """worker-lifecycle.md#running: CML fails alone."""
    scene = Scene(2)
    await scene.run(50)
    scene.server(0).failures["all"] = CMLNotReadyError("10.0.0.0", "refused")
    scene.batches.clear()
    await scene.run(50)
    ((failed,), (well,)) = scene.of(0), scene.of(1)
    assert (failed.cpu_utilization, failed.labs_count, failed.system_info) == (20.0, None, None)
    assert failed.cml_version is None, "an old version is not a new value"
    assert well.labs_count == 3


async def test_one_question_to_cml_fails_alone() -> None:
    scene = Scene()
    scene.server(0).failures["stats"] = CMLNotReadyError("10.0.0.0", "no response")
    await scene.run(50)
    (sample,) = scene.samples
    assert (sample.labs_count, sample.cml_version, sample.system_info) == (None, "2.9.1+build.7", {"ready": True})


async def test_when_both_fail_nothing_is_sent() -> None:
    scene = Scene(2)
    scene.metrics.unknown.add("i-0")
    del scene.cml.servers["10.0.0.0"]
    await scene.run(50)
    assert [sample.worker_id for sample in scene.samples] == ["w-1"]


async def test_a_hanging_server_delays_only_itself() -> None:
    scene = Scene(20)
    scene.server(3).hanging.add("information")
    await scene.run(INTERVAL * 2 - 1)
    assert all(at - round_ * INTERVAL < 15 for round_, (at, _) in enumerate(scene.batches))
    assert [len(scene.of(number)) for number in range(20)] == [2] * 20
    assert [sample.labs_count for sample in scene.of(3)] == [None, None]
    assert all(sample.labs_count == 3 for number in range(20) if number != 3 for sample in scene.of(number))


async def test_a_slow_server_counts_in_the_next_round() -> None:
    scene = Scene()
    scene.server(0).seconds = 20  # 40 s for a query: longer than a round waits
    await scene.run(INTERVAL * 2)
    assert [sample.labs_count for sample in scene.of(0)] == [None, 3]


async def test_an_unexpected_error_with_one_worker_is_logged_once_and_stops_nothing() -> None:
    scene = Scene(2)
    scene.server(0).failures["information"] = ZeroDivisionError("a mistake of ours")
    scene.add(2, id="W_2")  # an id that the control plane rejects
    with capture_logs() as logs:
        await scene.run(INTERVAL * 3)
    assert [sample.labs_count for sample in scene.of(0)] == [None] * 3
    assert [sample.labs_count for sample in scene.of(1)] == [3] * 3
    assert {sample.worker_id for sample in scene.samples} == {"w-0", "w-1"}
    logged = [line["what"] for line in logs if line["log_level"] == "warning"]
    assert sorted(logged) == ["building a worker's sample", "querying a worker's CML"]


async def test_a_hanging_region_delays_only_its_own_metrics() -> None:
    scene = Scene(1)
    scene.add(1, aws_region="us-east-1")
    scene.metrics.hanging.add("us-east-1")
    await scene.run(INTERVAL * 3)
    assert [sample.cpu_utilization for sample in scene.of(0)] == [20.0] * 3
    assert [(sample.cpu_utilization, sample.labs_count) for sample in scene.of(1)] == [(None, 3)] * 3
    assert scene.metrics.calls.count(("us-east-1", 1)) == 1, "it is not queried again before it has responded"


async def test_a_batch_of_a_region_that_hangs_or_fails_keeps_back_only_its_own_metrics() -> None:
    scene = Scene(1001)
    scene.metrics.hanging.add("i-0")
    scene.metrics.failures["i-500"] = CloudThrottledError("slow down")
    with capture_logs() as logs:
        await scene.run(INTERVAL * 2)
    assert [sample.cpu_utilization for sample in scene.of(1)] == [None, None]
    assert [sample.cpu_utilization for sample in scene.of(501)] == [None, None]
    assert [sample.cpu_utilization for sample in scene.of(1000)] == [20.0, 20.0]
    assert [size for _, size in scene.metrics.calls] == [500, 500, 1, 500, 1], "what hangs is not read once more"
    assert [line["what"] for line in logs if line["log_level"] == "warning"] == ["metrics of instances in eu-west-1"]


async def test_servers_are_queried_over_the_whole_interval_and_the_cloud_at_once() -> None:
    scene = Scene(1200)
    times = _record_query_times(scene)
    async with scene.running(0.1):
        assert scene.metrics.calls == [("eu-west-1", 500), ("eu-west-1", 500), ("eu-west-1", 200)]
        await asyncio.sleep(INTERVAL - 1)
    assert len(times) == 1200
    assert max(sum(1 for at in times if second <= at < second + 1) for second in range(60)) <= 25
    assert 50 < max(times) <= 51


async def test_a_small_fleet_is_queried_within_seconds_but_not_at_once() -> None:
    scene = Scene(8)
    times = _record_query_times(scene)
    async with scene.running(INTERVAL / 2):
        assert len(times) == 8
        assert 1.5 < max(times) < 2.5
        assert len(scene.samples) == 8, "a round ends when all have responded"


def _record_query_times(scene: Scene) -> list[float]:
    times: list[float] = []
    query = scene.cml.get_system_information

    async def recorded(address: str) -> Any:
        times.append(clock.boottime() - scene.began)
        return await query(address)

    scene.cml.get_system_information = recorded  # type: ignore[method-assign]
    return times


async def test_hanging_servers_take_no_slot_from_the_others() -> None:
    """More servers hang than slots exist: after their first round they wait for each other only."""
    scene = Scene(40, max_concurrent=4)
    for number in range(0, 40, 2):
        scene.server(number).hanging.add("information")
    async with scene.running(INTERVAL * 10):
        scene.batches.clear()
        await asyncio.sleep(INTERVAL * 3)
    for number in range(1, 40, 2):
        assert len([sample for sample in scene.of(number) if sample.labs_count == 3]) == 3


@pytest.mark.parametrize("answered_before", [False, True])
async def test_many_servers_that_hang_at_once_hardly_delay_the_others(*, answered_before: bool) -> None:
    """A fifth of the fleet, with one slot for sixty servers: before, the others waited for nine minutes."""
    scene = Scene(300, max_concurrent=5, monitor_slots=6)
    async with scene.running(INTERVAL - 1 if answered_before else 0):
        for number in range(0, 300, 5):
            scene.server(number).hanging |= {"information", "stats"}
        scene.batches.clear()
        await asyncio.sleep(INTERVAL * 2)
    assert all(any(sample.labs_count == 3 for sample in scene.of(number)) for number in range(300) if number % 5), (
        "each was read within two rounds"
    )
    assert scene.cml.most_at_once <= 6 * (1 + SLOW_FACTOR) * 2


async def test_a_pass_finds_a_slot_while_many_servers_hang() -> None:
    scene = Scene(300, max_concurrent=5, monitor_slots=6)
    for number in range(299):
        scene.server(number).hanging.add("information")
    async with scene.running(INTERVAL / 2):
        asked = clock.boottime()
        await scene.monitor.query(scene.workers["w-299"], max_age=0, with_license=False)
        assert clock.boottime() - asked < 1


async def test_a_few_tasks_serve_thousands() -> None:
    scene = Scene(2_000, max_concurrent=7)
    before = len(asyncio.all_tasks())
    async with scene.running(5):
        assert len(asyncio.all_tasks()) - before <= 1 + 7 * 6 + 1  # run, query loops with their queries, one region
        await asyncio.sleep(INTERVAL)
    assert scene.cml.most_at_once <= 28


async def test_with_too_many_servers_each_has_its_turn() -> None:
    scene = Scene(60, max_concurrent=1)
    for number in range(60):
        scene.server(number).seconds = 2
    async with scene.running(INTERVAL * 6):
        assert scene.collector._queue.qsize() <= 60, "no worker is queued twice"
    assert {sample.worker_id for sample in scene.samples if sample.labs_count == 3} == set(scene.workers)


async def test_batches_have_five_hundred_at_most() -> None:
    scene = Scene(1_201)
    await scene.run(INTERVAL - 1)
    assert [len(batch) for _, batch in scene.batches] == [500, 500, 201]
    assert scene.collector.collected == 1_201


async def test_a_failed_write_is_said_once_and_the_loop_goes_on() -> None:
    scene = Scene(501)
    scene.failure = UnreachableError("no connection")
    with capture_logs() as logs:
        async with scene.running(INTERVAL * 3):
            assert scene.collector.collected == 0
            scene.failure = None
            await asyncio.sleep(INTERVAL)
            assert scene.collector.collected == 501
    logged = [(line["log_level"], line["what"]) for line in logs if line.get("what") == "writing metrics"]
    assert logged == [("warning", "writing metrics"), ("info", "writing metrics")]


async def test_one_refused_batch_does_not_keep_the_others_back() -> None:
    scene = Scene(501)
    write = scene.write

    async def picky(batch: MetricsBatch) -> BatchResult:
        if len(batch.items) == 500:
            raise InvalidRequestError(422, "invalid", "odd")
        return await write(batch)

    scene.collector._write = picky
    await scene.run(INTERVAL - 1)
    assert scene.collector.collected == 1


async def test_a_newer_leader_stops_the_collector() -> None:
    scene = Scene(3)
    scene.failure = StaleTermError("term 6 has written")
    before = asyncio.all_tasks()
    await asyncio.wait_for(scene.collector.run(), INTERVAL * 2)
    assert [str(refusal) for refusal in scene.stale] == ["term 6 has written"]
    assert asyncio.all_tasks() == before


async def test_cancellation_leaves_nothing_behind_and_it_can_run_again() -> None:
    scene = Scene(5)
    scene.server(1).hanging.add("information")
    scene.metrics.hanging.add("eu-west-1")
    before = asyncio.all_tasks()
    await scene.run(5)
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == before
    assert scene.cml.busy == scene.metrics.busy == 0
    scene.metrics.hanging.clear()
    await scene.run(50)
    assert len(scene.of(0)) == 1


async def test_a_new_leader_without_a_list_tries_again_soon() -> None:
    scene = Scene(0)
    async with scene.running(3):
        scene.add(0)
        await asyncio.sleep(5)
        assert len(scene.samples) == 1


async def test_a_worker_that_stops_before_its_turn_is_not_queried() -> None:
    scene = Scene(3)
    async with scene.running(0.3):
        scene.change(2, status="STOPPED", public_ip=None)
        await asyncio.sleep(INTERVAL - 6)
    assert "10.0.0.2" not in scene.cml.dialled
    assert {sample.worker_id for sample in scene.samples} == {"w-0", "w-1"}


async def test_metrics_of_another_instance_are_not_mixed_in() -> None:
    scene = Scene(2)
    scene.server(1).hanging.add("information")  # so that the round waits
    async with scene.running(5):
        scene.change(0, instance_id="i-new", public_ip="10.9.9.9")
        await asyncio.sleep(INTERVAL - 6)
    assert scene.of(0) == []


async def license_reads(scene: Scene, rounds: int) -> int:
    await scene.run(INTERVAL * rounds - 1)
    return scene.server(0).calls["license"]


async def test_a_license_at_rest_is_read_every_five_minutes() -> None:
    assert await license_reads(Scene(), 12) == 2


async def test_a_license_that_is_about_to_change_is_read_every_round() -> None:
    scene = Scene()
    scene.change(0, has_license_token=True)
    assert await license_reads(scene, 4) == 4
    scene = Scene()
    pending = {"operation": "deregister", "requested_at": NOW, "requested_by": "ada"}
    scene.add(0, license_status="registered", has_license_token=True, pending_license_operation=pending)
    assert await license_reads(scene, 4) == 4


async def test_a_query_of_a_pass_serves_the_round_too() -> None:
    scene = Scene()
    await scene.monitor.query(scene.workers["w-0"], max_age=0, with_license=True)
    await scene.run(INTERVAL - 1)
    assert scene.server(0).calls["information"] == 1
    assert scene.samples[0].labs_count == 3


async def test_between_rounds_no_record_is_kept_that_others_have_replaced() -> None:
    """The records of a fleet fill most of a controller's memory: they must not be there twice."""
    scene = Scene()
    async with scene.running(50):
        before = weakref.ref(scene.workers["w-0"])
        scene.change(0, tags={"course": "routing"})
        gc.collect()
        assert before() is None
