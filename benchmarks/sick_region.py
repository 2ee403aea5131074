"""From a person's change to the call at EC2 in one region, while another region swallows all requests for ten minutes.

Real processes, a real etcd, EC2's API over HTTP. A quarter of an hour; `SICK_REGION_MINUTES` shortens it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.support.output import percentile, report
from lcm.core import clock
from tests.support.aws.credentials import REGION
from tests.support.real.worker_platform import real_platform
from tests.support.servers.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.network.http_gate import Exchange
    from tests.support.real.worker_platform import RealPlatform

MINUTES = float(os.environ.get("SICK_REGION_MINUTES", "10"))
SICK = "eu-west-3"
SICK_WORKERS, HEALTHY_WORKERS = 12, 6
ASK_EVERY = 20.0
_CALLS = {"stop": ("StopInstances", "STOPPED"), "start": ("StartInstances", "RUNNING")}


class _ChangeTimer:
    """Stops and starts one worker again and again, and measures how long each call takes to arrive."""

    def __init__(self, platform: RealPlatform, worker_id: str) -> None:
        self._platform = platform
        self._worker_id = worker_id
        self._instance_id = platform.until(worker_id, status="RUNNING")["instance_id"]
        self._next = "stop"

    def measure(self, until: float, seconds: list[float]) -> None:
        """Add a value for each change that begins before that moment."""
        exchanges = self._platform.aws_gate.exchanges
        while clock.boottime() < until:
            operation, status = _CALLS[self._next]
            first, asked = len(exchanges), clock.boottime()
            self._platform.command(self._worker_id, self._next)
            found: list[Exchange] = []

            def arrived(operation: str = operation, first: int = first, found: list[Exchange] = found) -> bool:
                found[:] = [one for one in exchanges[first:] if one.operation == operation and self._is_mine(one)]
                return bool(found)

            wait_until(arrived, f"{operation} arrives", 600.0)
            seconds.append(found[0].at - asked)
            self._platform.until(self._worker_id, status=status)
            self._next = "start" if self._next == "stop" else "stop"

    def _is_mine(self, exchange: Exchange) -> bool:
        return self._instance_id in exchange.form.values()


def measure(timers: Sequence[_ChangeTimer], seconds: float) -> list[float]:
    """All measurements of a span, one thread per worker."""
    values: list[float] = []
    until = clock.boottime() + seconds
    threads = [threading.Thread(target=timer.measure, args=(until, values)) for timer in timers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return values


def keep_asking(platform: RealPlatform, workers: Sequence[str], over: threading.Event) -> None:
    """People want the workers of the sick region stopped, then started, and so on."""
    wishes = ["stop", "start"]
    while not over.wait(ASK_EVERY):
        for worker_id in workers:
            platform.command(worker_id, wishes[0])
        wishes.reverse()


def is_sick(exchange: Exchange) -> bool:
    return f"/{SICK}/" in exchange.headers.get("authorization", "")


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as name,
        real_platform(Path(name), "one", regions=(REGION, SICK), lease_ttl=15) as platform,
    ):
        platform.until_led(standbys=0)
        sick = [platform.create(aws_region=SICK) for _ in range(SICK_WORKERS)]
        healthy = [platform.create(aws_region=REGION) for _ in range(HEALTHY_WORKERS)]
        for worker_id in (*sick, *healthy):
            platform.until(worker_id, status="RUNNING")
        timers = [_ChangeTimer(platform, worker_id) for worker_id in healthy]
        at_rest = measure(timers, 60 * max(1.0, MINUTES / 4))
        platform.aws_gate.swallows = is_sick
        over = threading.Event()
        people = threading.Thread(target=keep_asking, args=(platform, sick, over))
        people.start()
        beside = measure(timers, 60 * MINUTES)
        over.set()
        people.join()
        platform.aws_gate.swallows = lambda _: False
        for worker_id in sick:
            platform.command(worker_id, "start")
        for worker_id in sick:
            platform.until(worker_id, status="RUNNING")
    ratio = percentile(beside, 99) / percentile(at_rest, 99)
    for label, values in (("at rest", at_rest), (f"beside a sick region, {MINUTES:g} minutes", beside)):
        count = f"{len(values)} changes"
        report(f"change to call, median, {label}", percentile(values, 50) * 1000, "ms", beside=count)
        report(f"change to call, p99, {label}", percentile(values, 99) * 1000, "ms", beside=count)
    report("p99 beside a sick region, compared with at rest", ratio, "times", aim="2")
    if ratio > 2:
        sys.exit(1)
