"""`python -m benchmarks [NAME [SIZE …] …]`: numbers after a name are the sizes of fleets to measure it with."""

from __future__ import annotations

import importlib
import subprocess
import sys

from lcm.core.logs import configure_logging

ALL = (
    "queue",
    "reconcile",
    "etcd_watch",
    "failover",
    "aws_sweep",
    "store",
    "http_calls",
    "api",
    "request_cpu",
    "search",
    "plan",
    "placement",
    "bookings",
    "stream",
    "control_planes",
    "browser",
    "cli",
    "scale",
)
DRILLS = ("suspended_leader", "sick_region", "notifications", "slow_clients")
"""They take minutes each, or disturb everything else on the machine, so they run only by name."""


SIZED = ("scale", "browser")
"""They take sizes, for example `scale 10000`."""


def main(arguments: list[str]) -> int:
    try:
        asked = _with_sizes(arguments) or [(name, []) for name in ALL]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if len(asked) != 1:
        # Each in its own process: memory left by one would slow the garbage collector of the next.
        command = [sys.executable, "-m", "benchmarks"]
        return max(subprocess.run([*command, name, *map(str, sizes)], check=False).returncode for name, sizes in asked)
    ((name, sizes),) = asked
    configure_logging("error", "console")
    importlib.import_module(f"benchmarks.{name}").main(*([sizes] if sizes else []))
    return 0


def _with_sizes(arguments: list[str]) -> list[tuple[str, list[int]]]:
    """Each name with the numbers that follow it."""
    asked: list[tuple[str, list[int]]] = []
    for argument in arguments:
        if argument in (*ALL, *DRILLS):
            asked.append((argument, []))
        elif argument.isascii() and argument.isdigit() and int(argument) and asked and asked[-1][0] in SIZED:
            asked[-1][1].append(int(argument))
        else:
            names = ", ".join((*ALL, *DRILLS))
            raise ValueError(f"{argument}: must be one of {names}, or after {', '.join(SIZED)} a size")
    return asked


sys.exit(main(sys.argv[1:]))
