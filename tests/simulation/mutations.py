"""`python -m tests.simulation.mutations`: faults put into the code on purpose, each of which the simulation must find.

Each one is made in a copy of the tree, where seeds are run until one shows a violation.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 150
"""Within how many seeds, after the scenarios, each must be found."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A piece of code, and what is put in its place."""

    name: str
    file: str
    old: str
    new: str


_DECIDE = "controllers/worker/decide"
MUTATIONS = (
    Mutation(
        "each launch call has a client token of its own",
        "controllers/worker/act/executor.py",
        "self._cloud.launch_instance(action.parameters)",
        "self._cloud.launch_instance(__import__('dataclasses').replace("
        "action.parameters, client_token=str(clock.boottime())))",
    ),
    Mutation(
        "the fence lets older terms pass",
        "control_plane/records/unit_of_work.py",
        "known is not None and term < known.term:",
        "known is not None and term < 0:",
    ),
    Mutation(
        "a leader acts after its lease is over",
        "core/controller/leader_election.py",
        "        if left <= limit:\n            raise NotLeader(",
        "        if False:\n            raise NotLeader(",
    ),
    Mutation(
        "a running worker ignores that it is to be stopped",
        f"{_DECIDE}/running.py",
        "    if worker.desired_status is DesiredStatus.STOPPED:\n        return stop(",
        "    if False:\n        return stop(",
    ),
    Mutation(
        "a stopped worker ignores that it is to end",
        f"{_DECIDE}/stopped.py",
        "if worker.desired_status is DesiredStatus.TERMINATED:",
        "if False:",
    ),
    Mutation(
        "an instance that a sweep does not show is gone at once",
        "controllers/worker/discovery/region_monitor.py",
        "return self.observer.is_gone(worker.instance_id, now - age, now)",
        "return True",
    ),
    Mutation(
        "a look that failed counts as one that showed nothing",
        "cloud/region_cache.py",
        "            return await look\n",
        "            seen = await look\n"
        "            account = seen.account_id or self._account()\n"
        "            return __import__('dataclasses').replace(seen, complete=True, account_id=account)\n",
    ),
    Mutation(
        "a licence that is lost with its instance is not told",
        "control_plane/workers/controller_writes.py",
        "happened=reporting.loses_license(worker, write)",
        "happened=False",
    ),
    Mutation(
        "a licence is told as given back though nobody gave it back",
        f"{_DECIDE}/terminating.py",
        "    task = seen.licence_task\n",
        "    task = LicenceTask.RELEASED\n",
    ),
    Mutation(
        "scale-down and auto-pause count nobody who leaves",
        "control_plane/workers/scaling.py",
        '    running = {"status": [WorkerStatus.RUNNING.value], "desired_status": [DesiredStatus.RUNNING.value]}\n',
        '    running = {"status": [WorkerStatus.RUNNING.value]}\n',
    ),
    Mutation(
        "the last of several changes within a moment is lost",
        "core/controller/watch.py",
        "            self._gathered[key] = value\n",
        "",
    ),
    Mutation(
        "workers on hold are changed",
        f"{_DECIDE}/__init__.py",
        "return decided if hold is None else under_hold(decided, hold, now)",
        "return decided",
    ),
    Mutation(
        "an open breaker stops nobody from being marked as lost",
        "controllers/worker/discovery/region_monitor.py",
        "        verdict = self.breaker.verdict(worker.id)\n",
        "        verdict = (Loss.ALLOWED, '')\n",
    ),
    Mutation(
        "leaked instances are not told",
        "controllers/worker/discovery/leaked_instances.py",
        "            await self._internal.audit(self._leader(), FOUND, leak.instance_id, leak.reason)\n",
        "",
    ),
    Mutation(
        "leaked instances are not terminated",
        "controllers/worker/discovery/leaked_instances.py",
        "                await self._end(sweep.instances[leak.instance_id], leak)\n",
        "                pass\n",
    ),
    Mutation(
        "a stop from outside becomes what is wanted",
        f"{_DECIDE}/stopped.py",
        "policy.settings.discovery.drift_policy is DriftPolicy.ACCEPT",
        "True",
    ),
    Mutation(
        "workers are paused though that is switched off",
        "model/worker/idle.py",
        "    to_pause = () if idle.worker_auto_pause_enabled else ",
        "    to_pause = () if True else ",
    ),
    Mutation(
        "workers with lablets are paused",
        "model/worker/idle.py",
        "        (lablets > 0, ",
        "        (False, ",
    ),
    Mutation(
        "a lab is imported without looking for one that is there",
        "controllers/lablet/lablet_controller_observe.py",
        "lab for lab in await self._servers.labs(worker) if lab.marker == marker",
        "lab for lab in await self._servers.labs(worker) if lab.marker == ''",
    ),
    Mutation(
        "an import whose answer was lost is not waited for",
        "controllers/lablet/lablet_controller_observe.py",
        "may_land=note.may_land",
        "may_land=False",
    ),
    Mutation(
        "a lablet gives its worker back without removing its lab",
        "controllers/lablet/decide/stopping.py",
        "    call = next_call(lab.state)\n",
        "    return end('stopping.gone', 'it was to end', Release(LabletStatus.TERMINATED, 'it was to end'))\n"
        "    call = next_call(lab.state)\n",
    ),
    Mutation(
        "what a lablet took is not given back",
        "control_plane/lablets/service.py",
        "if before.assigned and not after.assigned and before.worker_id is not None:",
        "if False:",
    ),
    Mutation(
        "a lablet is placed without a look at the room that is left",
        "control_plane/lablets/placing.py",
        "with_lablet(worker.allocation, needs, given.values())",
        "worker.allocation",
    ),
    Mutation(
        "lablets wait for ever for a worker that does not come back",
        "controllers/lablet/decide/giving_up.py",
        "    if left <= 0:\n",
        "    if False:\n",
    ),
    Mutation(
        "without polling nobody hears of the end of a hold",
        "controllers/worker/discovery/sweeping.py",
        "                if self._every is not None:\n",
        "                if False:\n",
    ),
    Mutation(
        "a licence given back is not recorded while its worker leaves",
        f"{_DECIDE}/__init__.py",
        "    if given is not None and not any",
        "    if False and not any",
    ),
    Mutation(
        "without polling nobody looks for labs that were left behind",
        "controllers/lablet/fleet_cache.py",
        "        if clock.boottime() - self._listed_at > LISTED_SECONDS:\n",
        "        if False:\n",
    ),
    Mutation(
        "without polling those that wait are not looked at again",
        "controllers/scheduler/cycle.py",
        "            WAITING_SECONDS if waiting else None,\n",
        "",
    ),
    Mutation(
        "a version that somebody else has written is written over",
        "control_plane/workers/status_writes.py",
        "    if version != worker.version:\n",
        "    if False:\n",
    ),
)


def found_by(mutation: Mutation, seeds: int, first: int, jobs: int) -> tuple[bool, str]:
    """Whether seeds find it, and what was said."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("src", "tests"):
            shutil.copytree(ROOT / part, Path(folder, part), ignore=shutil.ignore_patterns("__pycache__", "*.png"))
        file = Path(folder, "src", "lcm", mutation.file)
        text = file.read_text()
        if mutation.old not in text:
            return False, f"{mutation.file} has no {mutation.old!r}"
        file.write_text(text.replace(mutation.old, mutation.new))
        told = subprocess.run(
            [
                *(sys.executable, "-m", "tests.simulation", "--scenarios", "--until-violation"),
                *("--seeds", str(seeds), "--first", str(first), "--jobs", str(jobs)),
            ],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(folder, "src"))},
            capture_output=True,
            text=True,
            check=False,
        )
    lines = told.stdout.strip().splitlines() or told.stderr.strip().splitlines()[-1:]
    return told.returncode == 1 and lines[0].startswith("seed "), " | ".join([lines[0][:150], lines[-1][:60]])


def main() -> int:
    """Try them all, or those whose name holds a word; 1 if one was not found."""
    parser = argparse.ArgumentParser(prog="make mutations", description="Faults that the simulation must find.")
    parser.add_argument("words", nargs="*", help="only those whose name holds one of these")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    wanted = [each for each in MUTATIONS if not chosen.words or any(word in each.name for word in chosen.words)]
    missed = 0
    for mutation in wanted:
        began = time.monotonic()
        found, said = found_by(mutation, chosen.seeds, chosen.first, chosen.jobs)
        missed += not found
        print(f"{'found ' if found else 'MISSED'}  {mutation.name}  ({time.monotonic() - began:.0f} s)\n        {said}")
        sys.stdout.flush()
    print(f"{len(wanted) - missed} of {len(wanted)} found, each within {chosen.seeds} seeds")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
