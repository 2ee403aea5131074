"""Ends what a test run started, when the run itself is gone: `python watchdog.py MARKER PID [PID of make]`.

A killed pytest cannot stop its etcd, mongod, Chromium and `lcm` processes, nor a killed make its pytest. This process
waits until the run ends, in whichever way, and kills every process that carries the run's marker in its environment.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

VARIABLE = "PYTEST_RUN_MARKER"
_PATIENCE = 60.0


def start() -> None:
    """Mark this process's children, and watch over them. Workers of the same run are covered by its first process."""
    if VARIABLE in os.environ:
        return
    os.environ[VARIABLE] = marker = f"{os.getpid()}-{time.time_ns()}"
    makes = [str(os.getppid())] if "MAKELEVEL" in os.environ else []
    command = [sys.executable, "-S", __file__, marker, str(os.getpid()), *makes]
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


def main(marker: str, pid: int, make: int | None = None) -> None:
    """Wait for the end of the run, or of the make that started it; then leave nothing of it."""
    try:
        run = os.pidfd_open(pid)
    except ProcessLookupError:
        pass  # it ended before we looked
    else:
        with suppress(ProcessLookupError):  # make ended before we looked
            select.select([run, *([os.pidfd_open(make)] if make else [])], [], [])
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(run, signal.SIGKILL)
    deadline = time.monotonic() + _PATIENCE
    while (left := marked(marker)) and time.monotonic() < deadline:
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
