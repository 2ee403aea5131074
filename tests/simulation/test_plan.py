"""The plan is what is then done: a bounded number of random fleets, and the trial notices if it is not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TRIALS = 12
_WITHOUT_ACTIONS = """
import sys
from lcm.controllers.worker.act import control_plane_writer
control_plane_writer.planned_actions = lambda actions: ()
from tests.simulation.plan_trial import run_trials
sys.exit(run_trials(9, 1, print))  # in this one a worker is acted on
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run trials in a separate process, as `make plan-trials` does."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments],
        env={**os.environ, "PYTHONHASHSEED": "0", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(900)
def test_the_actions_of_the_plan_are_the_actions_taken_next() -> None:
    process = run("--plan", str(TRIALS))
    assert process.returncode == 0, process.stdout + process.stderr
    assert f"{TRIALS} trials of the plan, 0 with contradictions" in process.stdout
    compared = ("worker acted as planned", "worker rested as planned", "dialogs compared", "lablets placed as planned")
    assert [what for what in compared if what not in process.stdout] == [], process.stdout


@pytest.mark.timeout(300)
def test_a_start_that_is_refused_again_was_still_planned() -> None:
    """In the trial of this seed, EC2 refuses a start that a hold had kept back."""
    process = run("--plan", "1", "--first", "5066")
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.timeout(300)
def test_a_plan_that_leaves_actions_out_is_noticed() -> None:
    process = subprocess.run([sys.executable, "-c", _WITHOUT_ACTIONS], capture_output=True, text=True, check=False)
    assert process.returncode == 1, process.stdout + process.stderr
    assert "planned [] at None, but [(" in process.stdout
