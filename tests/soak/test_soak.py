"""Both parts of `make soak`, much shorter: they run to the end, measure everything and find nothing wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("days", "minutes", "expected"), [("0.01", "0", "timers"), ("0", "0.2", "lcm up: threads")])
def test_a_short_run_measures_everything(days: str, minutes: str, expected: str) -> None:
    command = [sys.executable, "-m", "tests.soak", "--days", days, "--minutes", minutes]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert "PROBLEM" not in said, said
    lines = {line.split("  ")[0]: line for line in done.stdout.splitlines()}
    assert expected in lines, said
    assert "rows but lablets" in lines, said
    # The verdicts are not checked: a process that has just started grows, and a busy host takes few samples.
    assert "without bound" in done.stdout, said
