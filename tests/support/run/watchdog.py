"""Ends what a test run started, when the run itself is gone: `python watchdog.py PID MARKER`.

A killed pytest cannot stop its etcd, mongod, Chromium and `lcm` processes. This process waits until the run ends, in
whichever way, and kills every process that carries the run's marker in its environment.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from pathlib import Path

VARIABLE = "PYTEST_RUN_MARKER"
_PATIENCE = 8.0


def start() -> None:
    """Mark this process's children, and watch over them. Workers of the same run are covered by its first process."""
    if VARIABLE in os.environ:
        return
    os.environ[VARIABLE] = marker = f"{os.getpid()}-{time.time_ns()}"
    command = [sys.executable, "-S", __file__, str(os.getpid()), marker]
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    silence = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    # In a session of its own: a Ctrl-C or a signal to the run's group must not end it.
    os.posix_spawn(sys.executable, command, environment, file_actions=silence, setsid=True)


def marked(marker: str) -> list[int]:
    """Every process that carries the marker."""
    wanted = f"{VARIABLE}={marker}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue  # it ended meanwhile, or belongs to another user
    return found


def main(pid: int, marker: str) -> None:
    """Wait for the run's end, then leave nothing of it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        pass  # it ended before we looked
    else:
        select.select([descriptor], [], [])
    deadline = time.monotonic() + _PATIENCE
    while (left := marked(marker)) and time.monotonic() < deadline:
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
