"""A bounded number of seeds holds all invariants, and every seed can be replayed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.simulation.invariants.coverage import after_all, never
from tests.simulation.scenarios.catalog import SCENARIOS
from tests.support.run.once import once

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEEDS = 12
PARTS = 8  # each in a time of its own: with a load of twenty, a quarter of the days took ten minutes


class Part(NamedTuple):
    """How a part of the days went."""

    code: int
    stdout: str
    stderr: str


def simulate(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    """Run it in a separate process, as `make sim` does."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def part(run_folder: Path) -> Callable[[int], Part]:
    """Runs a part of the scenarios and seeds, once for all workers."""

    def run(number: int) -> str:
        process = simulate(
            "--scenarios", "--seeds", str(SEEDS), "--jobs", "1", "--part", f"{number}/{PARTS}", "--coverage"
        )  # fmt: skip
        return json.dumps(Part(process.returncode, process.stdout, process.stderr))

    return lambda number: Part(*json.loads(once(run_folder / f"simulation-{number}.json", lambda: run(number))))


def days(number: int) -> int:
    """How many scenarios and seeds are in this part."""
    return len(range(number - 1, SEEDS + len(SCENARIOS), PARTS))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(1, PARTS + 1))
def test_all_invariants_hold(number: int, part: Callable[[int], Part]) -> None:
    code, stdout, stderr = part(number)
    assert code == 0, stdout + stderr
    assert f"{days(number)} seeds, 0 with violations" in stdout


@pytest.mark.timeout(300)
def test_thirty_seats_are_ready_in_time() -> None:
    """CML is silent for minutes, and 13 labs fail before the class begins. More of them: `make sim LECTURES=1`."""
    process = simulate("--seed", "lecture-847")
    assert process.returncode == 0, process.stdout + process.stderr
    assert "30 seats, 30 of them ready 5 minutes before the start (100.00 %)" in process.stdout


@pytest.mark.timeout(1800)  # alone, it runs all parts
def test_everything_that_can_happen_does(part: Callable[[int], Part]) -> None:
    outputs = "".join(part(number).stdout for number in range(1, PARTS + 1))
    covered = Counter(re.findall(r"^ *\d+  (.+)$", outputs, re.MULTILINE))
    assert sum(days(number) for number in range(1, PARTS + 1)) == SEEDS + len(SCENARIOS)
    assert not never(covered)
    assert not after_all(covered)


@pytest.mark.timeout(300)
def test_a_seed_gives_the_same_trace_in_another_process_and_with_another_hash_seed() -> None:
    traces = set()
    for hash_seed in ("1", "4711"):
        process = simulate("--seed", "12", hash_seed=hash_seed)
        found = re.search(r"seed 12: trace ([0-9a-f]{32})", process.stdout)
        assert found, process.stdout[-2000:] + process.stderr
        traces.add(found.group(1))
    assert len(traces) == 1
