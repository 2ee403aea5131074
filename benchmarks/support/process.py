"""Resource usage of a process, from the kernel."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def rss(pid: int) -> float:
    """Resident memory in MiB."""
    return _status(pid, "VmRSS:")


def peak(pid: int) -> float:
    """Peak resident memory in MiB."""
    return _status(pid, "VmHWM:")


def cpu_seconds(pid: int) -> float:
    """CPU seconds of all threads."""
    # The program name, in parentheses, may contain spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def family(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def _status(pid: int, name: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024
