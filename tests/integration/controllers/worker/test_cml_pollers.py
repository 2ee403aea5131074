"""Poller processes of a real worker controller: killed, suspended, and ended with it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.real.worker_platform import real_platform
from tests.support.servers.processes import wait_until

if TYPE_CHECKING:
    from tests.support.real.worker_platform import RealPlatform
    from tests.support.servers.processes import LcmProcess

PATIENCE = 300.0


def pollers(process: LcmProcess) -> set[int]:
    """The process ids of its children that poll CML servers."""
    found = set()
    for listed in Path(f"/proc/{process.pid}/task").glob("*/children"):
        for pid in listed.read_text().split():
            if b"poller_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.add(int(pid))
    return found


def ready_since(platform: RealPlatform, worker_id: str) -> str:
    (ready,) = [each for each in platform.worker(worker_id)["conditions"] if each["type"] == "CmlReady"]
    assert ready["status"] == "True", ready
    since: str = ready["since"]
    return since


def until_replaced(process: LcmProcess, old: int) -> int:
    found: set[int] = set()

    def is_replaced() -> bool:
        found.clear()
        found.update(pollers(process) - {old})
        return len(found) == 1 and not Path(f"/proc/{old}").exists()

    wait_until(is_replaced, "another process polls", PATIENCE)
    return found.pop()


def polls(process: LcmProcess) -> float:
    """How often statistics of CML servers were read."""
    return process.metric("lcm_cml_calls_total", operation="system_stats", outcome="ok")


def test_a_poller_is_replaced_and_its_server_stays_ready(tmp_path: Path) -> None:
    """cloud-and-cml.md#polling: a poll is late, but not lost; nothing is reported about the server."""
    with real_platform(tmp_path, "one", pollers=1) as platform:
        leader = platform.until_led(standbys=0)
        worker_id = platform.create()
        platform.until(worker_id, status="RUNNING", ready=True)
        since = ready_since(platform, worker_id)
        (first,) = pollers(leader)
        os.kill(first, signal.SIGKILL)
        second = until_replaced(leader, first)
        os.kill(second, signal.SIGSTOP)
        third = until_replaced(leader, second)
        assert leader.metric("lcm_cml_poller_restarts_total") >= 2
        before = polls(leader)
        wait_until(lambda: polls(leader) > before, "the server is polled again", PATIENCE)
        assert ready_since(platform, worker_id) == since, "it was ready all the time"
        reasons = [entry["reason"] for entry in leader.logged("a poller process ended and is replaced")]
        assert reasons[:2] == ["it was ended by signal 9", "it did not respond"]
        leader.end()
        wait_until(lambda: not Path(f"/proc/{third}").exists(), "the poller ends with the controller", PATIENCE)
