"""What the kernel says of a process."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def rss(pid: int) -> float:
    """The memory that it occupies, in MiB."""
    return _status(pid, "VmRSS:")


def peak(pid: int) -> float:
    """The most memory that it has ever occupied, in MiB."""
    return _status(pid, "VmHWM:")


def cpu_seconds(pid: int) -> float:
    """The time for which it has kept a processor busy, in all its threads."""
    # The name of the program, in brackets, may hold blanks.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _status(pid: int, name: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024
