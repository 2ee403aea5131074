"""Open sockets of this process: one that outlives its test fails that test."""

from __future__ import annotations

import gc
import os
import socket
import stat
import time
from contextlib import suppress

# Drivers close connections in threads of their own: most within milliseconds, on a busy host within seconds.
patience = 60.0
_SOON = 0.05
_POLL = 0.005

_kept: set[int] = set()


def open_sockets() -> dict[int, int]:
    """The descriptor of each socket, by the number that only this socket ever has."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - several times faster, and done for each test
        with suppress(OSError):  # the one that lists the folder is closed by now
            status = os.fstat(descriptor := int(name))
            if stat.S_ISSOCK(status.st_mode):
                found[status.st_ino] = descriptor
    return found


def keep(opened: socket.socket) -> None:
    """Expect this socket to stay open until the run ends."""
    _kept.add(os.fstat(opened.fileno()).st_ino)


def left_open(before: dict[int, int]) -> list[str]:
    """What was opened since then and stays open, also after a garbage collection and some time."""
    if not _wait_until_closed(before, _SOON):
        return []
    gc.collect()  # here, so that the warning about a socket that nobody closed belongs to this test
    return [_describe(descriptor) for descriptor in _wait_until_closed(before, patience)]


def _wait_until_closed(before: dict[int, int], seconds: float) -> list[int]:
    deadline = time.monotonic() + seconds
    while (left := _opened_since(before)) and time.monotonic() < deadline:
        time.sleep(_POLL)
    return left


def _opened_since(before: dict[int, int]) -> list[int]:
    return [descriptor for number, descriptor in open_sockets().items() if number not in before and number not in _kept]


def _describe(descriptor: int) -> str:
    try:
        with socket.socket(fileno=os.dup(descriptor)) as shown:
            try:
                peer = shown.getpeername()
            except OSError:
                peer = None
            return f"{shown.family.name} {shown.getsockname()} to {peer}"
    except OSError as error:
        return f"descriptor {descriptor}: {error}"
