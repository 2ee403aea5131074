"""`python -m benchmarks [NAME …]`."""

from __future__ import annotations

import importlib
import sys

from lcm.core.logs import configure_logging

ALL = ("queue", "reconcile", "etcd_watch", "failover", "aws_sweep", "store")


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(ALL)}", file=sys.stderr)
        return 2
    configure_logging("error", "console")
    for name in names or ALL:
        importlib.import_module(f"benchmarks.{name}").main()
    return 0


sys.exit(main(sys.argv[1:]))
