"""Several real worker controllers read CML servers and CloudWatch together; each may end, hang and return."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.cloud.types import InstanceMetrics
from lcm.controllers.worker.readers.directory import Reader, choose_reader
from lcm.core import clock
from tests.support.real.worker_platform import real_platform
from tests.support.servers.processes import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.real.worker_platform import RealPlatform
    from tests.support.servers.processes import LcmProcess

PATIENCE = 300.0
CPU = 41.5


def polls(process: LcmProcess) -> float:
    """How often this process has read the statistics of CML servers."""
    return process.metric("lcm_cml_calls_total", operation="system_stats", outcome="ok")


def batches(process: LcmProcess) -> float:
    """How often this process has read metrics of CloudWatch."""
    return process.metric("lcm_aws_calls_total", operation="GetMetricData", outcome="ok")


def until_reads(process: LcmProcess, what: str) -> None:
    before = polls(process), batches(process)
    wait_until(lambda: polls(process) >= before[0] + 2 and batches(process) > before[1], what, PATIENCE)


def publish_metrics(platform: RealPlatform, workers: list[str]) -> None:
    """CloudWatch has metrics of their instances, and those of the last minutes for as long as this test lasts."""
    for worker_id in workers:
        instance_id = platform.worker(worker_id)["instance_id"]
        for minutes in range(0, 60, 5):
            at = clock.now() + timedelta(minutes=minutes)
            asyncio.run(platform.aws.put_metrics(InstanceMetrics(instance_id, at, cpu_utilization=CPU)))


def until_sampled(platform: RealPlatform, workers: list[str], what: str) -> None:
    """Each worker has a new sample, with what CloudWatch knows."""
    since = clock.now().isoformat()

    def sampled(worker_id: str) -> bool:
        items = platform.ask("GET", f"/api/workers/{worker_id}/metrics", params={"since": since}).json()["items"]
        return any(item["cpu_utilization"] == CPU for item in items)

    wait_until(lambda: all(map(sampled, workers)), what, PATIENCE)


def workers_for_both(platform: RealPlatform) -> list[str]:
    """Ready workers, of which each controller reads at least one: their addresses are random."""
    readers = [Reader(name, "") for name in platform.controllers]
    workers: list[str] = []
    used: set[Reader | None] = set()
    while len(used) < len(readers):
        workers.append(platform.create())
        used.add(choose_reader(platform.until(workers[-1], status="RUNNING")["public_ip"], readers))
    for worker_id in workers:
        platform.until(worker_id, ready=True)
    return workers


def until_each_has_one_reader(platform: RealPlatform, workers: list[str], *readers: LcmProcess) -> None:
    """While each replica reads several times, each server is called in one session, so by one replica.

    On a slow host a reader may seem lost for a moment, and another has its servers: then the next reads count.
    """
    instances = {platform.worker(worker_id)["instance_id"] for worker_id in workers}

    def read_by_one() -> bool:
        platform.machines.sessions.clear()
        for reader in readers:
            until_reads(reader, f"{reader.name} reads its part")
        used = dict(platform.machines.sessions)
        return {instance: len(used.get(instance, ())) for instance in instances} == dict.fromkeys(instances, 1)

    wait_until(read_by_one, "each server is read by exactly one replica", PATIENCE)


def never_unready_since(platform: RealPlatform, workers: list[str]) -> dict[str, str]:
    """Since when each server has been ready."""
    since = {}
    for worker_id in workers:
        (ready,) = [each for each in platform.worker(worker_id)["conditions"] if each["type"] == "CmlReady"]
        assert ready["status"] == "True", ready
        since[worker_id] = ready["since"]
    return since


def test_replicas_share_the_servers_and_replace_each_other(tmp_path: Path) -> None:
    """scaling.md#several-replicas: one that ends or hangs delays its reads, and nothing is reported about a server."""
    with real_platform(tmp_path, "one", "two", shared_reads=True) as platform:
        leader = platform.until_led()
        (standby,) = [process for process in platform.controllers.values() if process is not leader]
        workers = workers_for_both(platform)
        wait_until(lambda: leader.metric("lcm_cml_readers") == 2, "the leader knows both readers", PATIENCE)
        until_each_has_one_reader(platform, workers, standby, leader)
        publish_metrics(platform, workers)
        until_sampled(platform, workers, "what both read is recorded")
        assert leader.metric("lcm_cloudwatch_reads_total", by="other") > 0
        since = never_unready_since(platform, workers)

        standby.signal(signal.SIGSTOP)
        wait_until(lambda: leader.metric("lcm_cml_readers") == 1, "the suspended standby is not used", PATIENCE)
        until_reads(leader, "the leader reads all")
        until_sampled(platform, workers, "what the suspended standby was to read is late, not missing")
        standby.signal(signal.SIGCONT)
        wait_until(lambda: leader.metric("lcm_cml_readers") == 2, "the standby is back", PATIENCE)
        until_reads(standby, "the standby reads its part again")

        standby.signal(signal.SIGKILL)
        standby.wait()
        wait_until(lambda: leader.metric("lcm_cml_readers") == 1, "the killed standby is gone", PATIENCE)
        until_reads(leader, "the leader reads all again")
        until_sampled(platform, workers, "what the killed standby was to read is late, not missing")
        platform.start_controller(standby.name)
        wait_until(lambda: standby.get("/ready")[0] == 200, "the standby runs again", PATIENCE)
        until_reads(standby, "the new standby reads its part")
        assert never_unready_since(platform, workers) == since, "they were ready all the time"

        leader.signal(signal.SIGKILL)
        leader.wait()
        assert platform.until_another_leads(leader) is standby
        until_reads(standby, "the new leader reads all")
        platform.start_controller(leader.name)
        wait_until(lambda: standby.metric("lcm_cml_readers") == 2, "the former leader is a reader", PATIENCE)
        until_reads(leader, "the former leader reads its part")
        until_sampled(platform, workers, "what both read is recorded again")

        standby.signal(signal.SIGSTOP)
        assert platform.until_another_leads(standby) is leader
        until_reads(leader, "the leader reads all while the former one is suspended")
        standby.signal(signal.SIGCONT)
        wait_until(lambda: leader.metric("lcm_cml_readers") == 2, "the suspended leader is a reader", PATIENCE)
        until_reads(standby, "the suspended leader reads its part")
        until_sampled(platform, workers, "what both read is recorded in the third term")
        assert never_unready_since(platform, workers) == since, "no change of leader made them unready"

        standby.signal(signal.SIGTERM)
        standby.wait()
        wait_until(lambda: leader.metric("lcm_cml_readers") == 1, "who leaves is not used", PATIENCE)
        until_reads(leader, "the last one reads all")
