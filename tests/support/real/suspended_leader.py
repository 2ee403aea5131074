"""The drill of a suspended leader: it stands still in the middle of its calls, another takes over, it wakes up.

Real processes on a real etcd. What counts is what has arrived at EC2.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.core import clock
from tests.support.aws.server import CHANGES
from tests.support.servers.processes import wait_until

if TYPE_CHECKING:
    import random

    from tests.support.network.http_gate import Exchange
    from tests.support.real.worker_platform import RealPlatform
    from tests.support.servers.processes import LcmProcess

LAUNCHES_PER_ROUND = 6
STOP_WINDOW = 0.5
"""Seconds after the request in which the leader is suspended: it reads, decides, gathers and sends a stop."""
LAUNCH_WINDOW = 3.0
"""Likewise for launches: four are sent at once, the others wait for our rate limit, about two a second."""
WATCH_SECONDS = 3.0
"""How long EC2 is watched after the old leader knows that it is none: it sent its calls within 0.1 s."""
_ENDED = 600.0


@dataclass(frozen=True, slots=True)
class Round:
    """One suspension, and the calls of the old leader that arrived at EC2."""

    what: str
    suspended_after: float
    sent_before: int
    on_the_wire: int  # after it was suspended, and before another led
    after_its_lease: int

    def __str__(self) -> str:
        return (
            f"{self.what:<28} {self.suspended_after * 1000:>9.0f} ms {self.sent_before:>12} {self.on_the_wire:>12}"
            f" {self.after_its_lease:>12}"
        )


HEADER = f"{'round':<28} {'suspended at':>12} {'sent before':>12} {'on the wire':>12} {'after lease':>12}"


class SuspensionDrill:
    """Suspends whichever controller leads; the other one takes over."""

    def __init__(self, platform: RealPlatform, chance: random.Random) -> None:
        self._platform = platform
        self._chance = chance

    def stop(self, worker_id: str) -> Round:
        """A person stops a worker, the leader is suspended, the next one stops it, the person starts it again."""
        platform = self._platform
        instance_id = platform.until(worker_id, status="RUNNING", desired_status="RUNNING")["instance_id"]
        old = platform.until_led()
        began = clock.boottime()
        platform.command(worker_id, "stop")
        suspended = self._suspend(old, began, STOP_WINDOW)
        taken_over = self._wait_for_the_other(old)
        platform.until(worker_id, status="STOPPED")
        platform.command(worker_id, "start")
        platform.until(worker_id, status="RUNNING")
        self._wake(old)
        round_ = self._count("stop", old, began, suspended, taken_over)
        worker = platform.worker(worker_id)
        assert (worker["status"], platform.aws.state(instance_id)) == ("RUNNING", "running"), worker
        return round_

    def launch(self, *, until_terminated: bool = False) -> tuple[Round, list[str]]:
        """People create workers, the leader is suspended, and they terminate them all before it wakes up.

        Returns the workers too: those whose launch nobody has sent are TERMINATED five minutes later.
        """
        platform = self._platform
        old = platform.until_led()
        began = clock.boottime()
        workers = [platform.create() for _ in range(LAUNCHES_PER_ROUND)]
        suspended = self._suspend(old, began, LAUNCH_WINDOW)
        for worker_id in workers:
            platform.command(worker_id, "terminate")
        taken_over = self._wait_for_the_other(old)
        if until_terminated:
            self.wait_until_terminated(workers)
        self._wake(old)
        what = "launch, workers TERMINATED" if until_terminated else "launch"
        return self._count(what, old, began, suspended, taken_over), workers

    def wait_until_terminated(self, workers: list[str]) -> None:
        """Wait until no launch of these workers can be under way any more."""
        left = set(workers)

        def ended() -> bool:
            left.difference_update([each for each in left if self._platform.worker(each)["status"] == "TERMINATED"])
            return not left

        wait_until(ended, "all workers are TERMINATED", _ENDED)

    def live_instances_of(self, workers: list[str]) -> list[str]:
        """The instances of these workers that have not ended."""
        launched = [each for worker_id in workers for each in self._platform.launched_for(worker_id)]
        return [each for each in launched if self._platform.aws.state(each) not in ("shutting-down", "terminated")]

    def _suspend(self, leader: LcmProcess, began: float, window: float) -> float:
        moment = began + self._chance.uniform(0.0, window)
        time.sleep(max(0.0, moment - clock.boottime()))
        leader.signal(signal.SIGSTOP)
        return clock.boottime()

    def _wait_for_the_other(self, old: LcmProcess) -> float:
        self._platform.until_another_leads(old)
        return clock.boottime()

    def _wake(self, old: LcmProcess) -> None:
        """Wake the old leader and watch EC2 for a while after it has noticed that it leads no more."""
        lost = len(old.logged("leadership lost"))
        old.signal(signal.SIGCONT)
        wait_until(lambda: len(old.logged("leadership lost")) > lost, f"{old.name} knows that it does not lead")
        time.sleep(WATCH_SECONDS)

    def _count(self, what: str, old: LcmProcess, began: float, suspended: float, taken_over: float) -> Round:
        def changes(since: float, until: float) -> int:
            def counts(exchange: Exchange) -> bool:
                made = since <= exchange.at < until and exchange.operation in CHANGES
                return made and self._platform.sent_by(old, exchange)

            return len(self._platform.aws_gate.of(counts))

        end = clock.boottime()
        return Round(
            what,
            suspended - began,
            changes(began, suspended),
            changes(suspended, taken_over),
            changes(taken_over, end),
        )
