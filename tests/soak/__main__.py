"""`python -m tests.soak`: simulated days and real minutes, a table of each, and exit code 1 if something grows."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from tests.soak import real, simulated
from tests.soak.growth import Series, table, unbounded

_REPORT_SECONDS = 60.0


def main() -> int:
    """Run both parts, or one of them; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make soak", description="Long runs in which nothing may grow without bound.")
    parser.add_argument("--days", type=float, default=30.0, help="simulated days; 0 leaves this part out")
    parser.add_argument("--minutes", type=float, default=30.0, help="real minutes; 0 leaves this part out")
    chosen = parser.parse_args()
    failed = False
    if chosen.minutes:
        with tempfile.TemporaryDirectory() as folder:
            failed |= _result(f"{chosen.minutes:g} real minutes", *real.soak(chosen.minutes, Path(folder), _Progress()))
    if chosen.days:
        failed |= _result(f"{chosen.days:g} simulated days", *simulated.soak(chosen.days, _Progress()))
    return 1 if failed else 0


def _result(title: str, series: list[Series], problems: list[str]) -> bool:
    grown = unbounded(series)
    print(f"{title}\n{table(series)}")
    print("".join(f"PROBLEM {each}\n" for each in problems[:10]), end="")
    print(f"grows without bound: {', '.join(grown)}\n" if grown else "nothing grows without bound\n")
    sys.stdout.flush()
    return bool(grown or problems)


class _Progress:
    """Prints a line at most once a minute."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._last >= _REPORT_SECONDS:
            self._last = time.monotonic()
            print(text, file=sys.stderr)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # tasks of the simulated world must not start to run again
