"""Suspends a process for certain.

The kernel hands SIGSTOP to one thread, and the others run until that one is scheduled. On a busy host that takes long
enough for a server to respond once more.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_PATIENCE = 60.0
_ENDED = "ZX"


def suspend(pid: int) -> None:
    """Send SIGSTOP and wait until no thread of the process runs."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _PATIENCE
    while running := [state for state in thread_states(pid) if state not in f"T{_ENDED}"]:
        assert time.monotonic() < deadline, f"process {pid} is not suspended: {running}"
        time.sleep(0.001)


def thread_states(pid: int) -> list[str]:
    """The state of each thread, as /proc has it; without those that end meanwhile."""
    states = []
    for status in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            states.append(status.read_text().rpartition(") ")[2][0])
        except OSError:
            continue
    return states
