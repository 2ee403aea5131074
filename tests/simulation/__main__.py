"""`python -m tests.simulation`: runs many seeds, or one with its log."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

from tests.simulation.invariants.classes import seats_line
from tests.simulation.invariants.coverage import after_all, never
from tests.simulation.plan_trial import run_trials
from tests.simulation.scenarios.catalog import SCENARIOS
from tests.simulation.scenarios.class_seeds import CLASS_SEED, LECTURE_SEED
from tests.simulation.scenarios.long import WEEKS
from tests.simulation.seeds import run_all
from tests.simulation.shrink import shrink

PROGRESS_SECONDS = 30.0


def main() -> int:
    """Run the selected seeds or scenarios; returns 1 if an invariant was violated."""
    parser = argparse.ArgumentParser(prog="make sim", description="Thousands of bad days, replayable.")
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first one")
    parser.add_argument("--seed", help="only this one, with its story; class-17 for the 17th day with classes")
    parser.add_argument("--classes", action="store_true", help="the days with classes of these seeds, not the others")
    parser.add_argument("--lectures", action="store_true", help="a class of thirty on each of these days")
    parser.add_argument("--shrink", action="store_true", help="leave out of --seed what does not matter")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--scenarios", action="store_true", help="the days written by hand, too")
    parser.add_argument("--long", action="store_true", help="only the weeks: a minute or two of CPU each")
    parser.add_argument("--coverage", action="store_true", help="say what happened how often")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="only the K-th of N equal parts")
    parser.add_argument("--try-first", help="one of --scenarios or --seeds that runs before the others")
    parser.add_argument("--plan", type=int, metavar="N", help="N trials: is the plan what is then done?")
    parser.add_argument("--until-violation", action="store_true", help="end with the first one")
    chosen = parser.parse_args()
    if chosen.plan is not None:
        return 1 if run_trials(chosen.first, chosen.plan, _say) else 0
    if chosen.seed is not None:
        return _one(chosen.seed, chosen.jobs, shrunk=chosen.shrink)
    return _many(chosen)


def _say(line: str) -> None:
    print(line, flush=True)


def _one(seed: str, jobs: int, *, shrunk: bool) -> int:
    if shrunk:
        script, result = shrink(seed, jobs=jobs, report=print)
        print("\n".join(str(event) for event in sorted((*script.people, *script.faults), key=lambda each: each.at)))
    else:
        (result,) = run_all([seed], jobs=1, keep_log=True)
    print("\n".join(result.log))
    print("".join(f"{line}\n" for line in seats_line(result.covered)), end="")
    print(f"seed {seed}: trace {result.trace}, {len(result.violations)} violations")
    return 1 if result.violations else 0


def _many(chosen: argparse.Namespace) -> int:
    began, cpu, simulated, bad, covered = time.monotonic(), 0.0, 0.0, 0, Counter[str]()
    prefix = CLASS_SEED if chosen.classes else LECTURE_SEED if chosen.lectures else ""
    seeds = [f"{prefix}{seed}" for seed in range(chosen.first, chosen.first + chosen.seeds)]
    if chosen.long:
        seeds = list(WEEKS)
    part, parts = map(int, chosen.part.split("/"))
    days = ([*SCENARIOS, *seeds] if chosen.scenarios else seeds)[part - 1 :: parts]
    if chosen.try_first is not None:
        days = [chosen.try_first, *(day for day in days if day != chosen.try_first)]
    done, last_report = 0, began
    for result in run_all(days, jobs=chosen.jobs):
        done += 1
        if time.monotonic() - last_report >= PROGRESS_SECONDS:
            last_report = time.monotonic()
            print(f"{done} of {len(days)} seeds, {bad} with violations, {last_report - began:.0f} s", file=sys.stderr)
        cpu, simulated = cpu + result.cpu, simulated + result.simulated
        covered += result.covered
        if result.violations:
            bad += 1
            print(f"seed {result.seed}: " + "; ".join(result.violations[:3]))
            sys.stdout.flush()
            if chosen.until_violation:
                break
    if chosen.coverage:
        for what, count in sorted(covered.items()):
            print(f"{count:8}  {what}")
        print("".join(f"   never  {what}\n" for what in never(covered)), end="")
        print("".join(f"   said to be out of reach: {what}\n" for what in after_all(covered)), end="")
    print("".join(f"{line}\n" for line in seats_line(covered)), end="")
    rate = simulated / 3600 / (cpu / 60) if cpu else 0.0
    print(
        f"{done} seeds, {bad} with violations, {simulated / 3600:.0f} simulated hours in {cpu / 60:.1f} minutes of CPU"
        f" ({rate:.0f} hours a minute), {time.monotonic() - began:.0f} s"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # leftovers of the warm-up must not start to run
