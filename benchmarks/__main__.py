"""`python -m benchmarks [NAME …]`."""

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


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in (*ALL, *DRILLS)]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; must be one of {', '.join((*ALL, *DRILLS))}", file=sys.stderr)
        return 2
    if len(names) != 1:
        # Each in its own process: memory left by one would slow the garbage collector of the next.
        return max(
            subprocess.run([sys.executable, "-m", "benchmarks", name], check=False).returncode for name in names or ALL
        )
    configure_logging("error", "console")
    importlib.import_module(f"benchmarks.{names[0]}").main()
    return 0


sys.exit(main(sys.argv[1:]))
