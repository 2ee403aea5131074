"""A bounded number of bad days, and that any of them can be had again."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.simulation.scenarios.catalog import SCENARIOS

SEEDS = 12


def simulate(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own, as `make sim` does."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(900)
def test_nothing_that_must_hold_is_violated_and_everything_that_can_happen_does() -> None:
    told = simulate("--scenarios", "--seeds", str(SEEDS), "--jobs", "1", "--complete")
    assert told.returncode == 0, told.stdout + told.stderr
    assert f"{SEEDS + len(SCENARIOS)} seeds, 0 with violations" in told.stdout


@pytest.mark.timeout(300)
def test_a_seed_gives_the_same_trace_in_another_process_and_with_another_hash_seed() -> None:
    traces = set()
    for hash_seed in ("1", "4711"):
        told = simulate("--seed", "12", hash_seed=hash_seed)
        found = re.search(r"seed 12: trace ([0-9a-f]{32})", told.stdout)
        assert found, told.stdout[-2000:] + told.stderr
        traces.add(found.group(1))
    assert len(traces) == 1
