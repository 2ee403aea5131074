"""A bounded number of seeds holds all invariants, and every seed can be replayed."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.simulation.scenarios.catalog import SCENARIOS

SEEDS = 12


def simulate(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run it in a separate process, as `make sim` does."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(900)
def test_all_invariants_hold_and_all_events_are_covered() -> None:
    process = simulate("--scenarios", "--seeds", str(SEEDS), "--jobs", "1", "--complete")
    assert process.returncode == 0, process.stdout + process.stderr
    assert f"{SEEDS + len(SCENARIOS)} seeds, 0 with violations" in process.stdout


@pytest.mark.timeout(300)
def test_a_seed_gives_the_same_trace_in_another_process_and_with_another_hash_seed() -> None:
    traces = set()
    for hash_seed in ("1", "4711"):
        process = simulate("--seed", "12", hash_seed=hash_seed)
        found = re.search(r"seed 12: trace ([0-9a-f]{32})", process.stdout)
        assert found, process.stdout[-2000:] + process.stderr
        traces.add(found.group(1))
    assert len(traces) == 1
