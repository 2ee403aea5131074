"""Open sockets of this process: one that outlives its test fails that test."""

from __future__ import annotations

import gc
import os
import re
import socket
import time
from contextlib import suppress

_INODE = re.compile(r"socket:\[(\d+)\]")
# Drivers close connections in threads of their own: most within milliseconds.
_PATIENCE = 10.0
_SOON = 0.05
_POLL = 0.005

_kept: set[str] = set()


def open_sockets() -> dict[str, int]:
    """The descriptor of each socket, by the number that only this socket ever has."""
    found: dict[str, int] = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - several times faster, and done for each test
        with suppress(OSError):  # the one that lists the folder is closed by now
            if socket_number := _INODE.fullmatch(os.readlink(f"/proc/self/fd/{name}")):  # noqa: PTH115
                found[socket_number[1]] = int(name)
    return found


def keep(opened: socket.socket) -> None:
    """Expect this socket to stay open until the run ends."""
    link = _INODE.fullmatch(os.readlink(f"/proc/self/fd/{opened.fileno()}"))  # noqa: PTH115
    assert link is not None
    _kept.add(link[1])


def left_open(before: dict[str, int]) -> list[str]:
    """What was opened since then and stays open, also after a garbage collection and some time."""
    if not _wait_until_closed(before, _SOON):
        return []
    gc.collect()  # here, so that the warning about a socket that nobody closed belongs to this test
    return [_describe(descriptor) for descriptor in _wait_until_closed(before, _PATIENCE)]


def _wait_until_closed(before: dict[str, int], patience: float) -> list[int]:
    deadline = time.monotonic() + patience
    while (left := _opened_since(before)) and time.monotonic() < deadline:
        time.sleep(_POLL)
    return left


def _opened_since(before: dict[str, int]) -> list[int]:
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
