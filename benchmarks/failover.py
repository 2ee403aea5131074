"""Time without a leader after a leader stops: real processes, a real etcd, default lease."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path

from benchmarks.support.output import report
from tests.support.servers.etcd import EtcdServer
from tests.support.servers.processes import LcmProcess, assert_never_two_leaders, wait_until

TTL = 15


def hand_over(folder: Path, endpoint: str, number: signal.Signals) -> float:
    """Seconds from the signal until the other process leads."""
    env = {"ETCD_ENDPOINTS": endpoint, "ETCD_NAMESPACE": f"/{number.name}", "LEADER_LEASE_TTL": str(TTL)}
    command = ("controller", "tests.support.real.leadership_diary:Diarist")
    first = LcmProcess(folder, f"first-{number.name}", *command, env=env).start()
    second = LcmProcess(folder, f"second-{number.name}", *command, env=env)
    try:
        wait_until(lambda: first.is_leader, "the first leads")
        second.start()
        wait_until(lambda: second.get("/ready")[0] == 200, "the second stands by")
        sent = time.clock_gettime(time.CLOCK_BOOTTIME)
        first.signal(number)
        wait_until(lambda: bool(second.diary()), "the second leads")
        assert_never_two_leaders([first, second])
        return float(second.diary()[0]["at"]) - sent
    finally:
        first.end()
        second.end()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = EtcdServer(folder / "etcd").start()
        try:
            graceful = hand_over(folder, server.endpoint, signal.SIGTERM)
            crash = hand_over(folder, server.endpoint, signal.SIGKILL)
        finally:
            server.stop()
    report("graceful hand-over (SIGTERM to the next leader)", graceful, "s", aim="1")
    report(f"crash hand-over (SIGKILL to the next leader, TTL {TTL} s)", crash, "s", aim=f"{TTL + 2}")
