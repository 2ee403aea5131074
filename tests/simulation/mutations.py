"""`python -m tests.simulation.mutations`: deliberate faults in the code, each of which the simulation must find.

Each one is made in a copy of the tree, where seeds run until one shows a violation.
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
"""The number of seeds, after the scenarios, within which each must be found."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A fragment of a file under src/lcm, and its replacement. Unit tests check that it occurs exactly once."""

    name: str
    file: str
    old: str
    new: str


_DECIDE = "controllers/worker/decide"
MUTATIONS = (
    Mutation(
        "each launch call has a client token of its own",
        "controllers/worker/act/executor.py",
        "self._calls.cloud.launch_instance(action.parameters)",
        "self._calls.cloud.launch_instance(__import__('dataclasses').replace("
        "action.parameters, client_token=str(clock.boottime())))",
    ),
    Mutation(
        "the fence lets older terms pass",
        "control_plane/records/unit_of_work.py",
        "newest is not None and term < newest.term:",
        "newest is not None and term < 0:",
    ),
    Mutation(
        "a leader acts after its lease is over",
        "core/controller/leader_election.py",
        "        if left <= limit:\n            raise NotLeaderError(",
        "        if False:\n            raise NotLeaderError(",
    ),
    Mutation(
        "a running worker ignores that STOPPED is desired",
        f"{_DECIDE}/running.py",
        "    if worker.desired_status is DesiredStatus.STOPPED:\n        return begin_stop(",
        "    if False:\n        return begin_stop(",
    ),
    Mutation(
        "a stopped worker ignores that TERMINATED is desired",
        f"{_DECIDE}/stopped.py",
        "if worker.desired_status is DesiredStatus.TERMINATED:",
        "if False:",
    ),
    Mutation(
        "an instance that is missing from a sweep is gone at once",
        "controllers/worker/discovery/region_monitor.py",
        "return self.region_cache.is_gone(worker.instance_id, now - age, now)",
        "return True",
    ),
    Mutation(
        "a failed read counts as a complete one without instances",
        "cloud/region_cache.py",
        "            return await call\n",
        "            seen = await call\n"
        "            account = seen.account_id or self._account()\n"
        "            return __import__('dataclasses').replace(seen, complete=True, account_id=account)\n",
    ),
    Mutation(
        "a license that is lost with its instance is not reported",
        "control_plane/workers/controller_writes.py",
        "leaked=status_writes.leaks_license(worker, write)",
        "leaked=False",
    ),
    Mutation(
        "a license is recorded as deregistered although it was not",
        f"{_DECIDE}/terminating.py",
        "    task = observed.license_task\n",
        "    task = LicenseTaskState.RELEASED\n",
    ),
    Mutation(
        "scale-down and auto-pause also count workers that are being stopped",
        "control_plane/workers/scaling.py",
        '    running = {"status": [WorkerStatus.RUNNING.value], "desired_status": [DesiredStatus.RUNNING.value]}\n',
        '    running = {"status": [WorkerStatus.RUNNING.value]}\n',
    ),
    Mutation(
        "the last of several changes within a moment is lost",
        "core/controller/watch.py",
        "            self._pending[key] = value\n",
        "",
    ),
    Mutation(
        "workers on hold are changed",
        f"{_DECIDE}/__init__.py",
        "return decided if hold is None else apply_hold(decided, hold, now)",
        "return decided",
    ),
    Mutation(
        "an open breaker does not keep workers from being marked as lost",
        "controllers/worker/discovery/region_monitor.py",
        "        verdict = self.breaker.verdict(worker.id)\n",
        "        verdict = (LossVerdict.ALLOWED, '')\n",
    ),
    Mutation(
        "leaked instances are not reported",
        "controllers/worker/discovery/leaked_instances.py",
        "            await self._internal.audit(self._leader(), AUDIT_LEAKED, leak.instance_id, leak.reason)\n",
        "",
    ),
    Mutation(
        "leaked instances are not terminated",
        "controllers/worker/discovery/leaked_instances.py",
        "                await self._terminate(sweep.instances[leak.instance_id], leak)\n",
        "                pass\n",
    ),
    Mutation(
        "a stop outside LCM becomes the desired status",
        f"{_DECIDE}/stopped.py",
        "policy.settings.discovery.drift_policy is DriftPolicy.ACCEPT",
        "True",
    ),
    Mutation(
        "workers are paused although that is disabled",
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
        "a lab is imported without searching for an existing one",
        "controllers/lablet/observe.py",
        "lab for lab in await self._labs.labs(worker) if lab.marker == marker",
        "lab for lab in await self._labs.labs(worker) if lab.marker == ''",
    ),
    Mutation(
        "an import without a response is not waited for",
        "controllers/lablet/observe.py",
        "import_may_complete=memory.import_may_complete",
        "import_may_complete=False",
    ),
    Mutation(
        "a lablet releases its worker without removing its lab",
        "controllers/lablet/decide/stopping.py",
        "    call = next_removal_operation(lab.state)\n",
        "    return end('stopping.gone', 'mutated', ReleaseReservation(LabletStatus.TERMINATED, 'mutated'))\n"
        "    call = next_removal_operation(lab.state)\n",
    ),
    Mutation(
        "the resources of a lablet are not released",
        "control_plane/lablets/service.py",
        "if before.assigned and not after.assigned and before.worker_id is not None:",
        "if False:",
    ),
    Mutation(
        "a lablet is placed without updating the allocation of its worker",
        "control_plane/lablets/lifecycle.py",
        "with_lablet(worker.allocation, needs, free_ports.values())",
        "worker.allocation",
    ),
    Mutation(
        "lablets wait forever for a worker that does not come back",
        "controllers/lablet/decide/ending.py",
        "    if left <= 0:\n",
        "    if False:\n",
    ),
    Mutation(
        "without polling the end of a hold is not noticed",
        "controllers/worker/discovery/region_monitor.py",
        "                if self._interval is not None:\n",
        "                if False:\n",
    ),
    Mutation(
        "a deregistered license is not recorded while its worker leaves",
        f"{_DECIDE}/__init__.py",
        "    if license_write is not None and not any",
        "    if False and not any",
    ),
    Mutation(
        "without polling labs that were left behind are not searched",
        "controllers/lablet/fleet_cache.py",
        "        if clock.boottime() - self._listed_at > MAX_LIST_AGE_SECONDS:\n",
        "        if False:\n",
    ),
    Mutation(
        "without polling waiting lablets are not checked again",
        "controllers/scheduler/cycle.py",
        "            WAITING_RECHECK_SECONDS if waiting else None,\n",
        "",
    ),
    Mutation(
        "a version that another process has written is overwritten",
        "control_plane/errors.py",
        "    if version != current:\n",
        "    if False:\n",
    ),
    Mutation(
        "times without a zone are read as UTC",
        "controllers/worker/observe/activity.py",
        "zone.measure(last, read_at)",
        "timedelta(0)",
    ),
    Mutation(
        "of a long list of events only the beginning is read",
        "cml/client/telemetry.py",
        "    return parse_activity([*first, *last])\n",
        "    return parse_activity(first)\n",
    ),
    Mutation(
        "a certificate is pinned before CML is ready",
        "controllers/worker/observe/cml_monitor.py",
        "        if not result.information.ready or not self._current(state):\n",
        "        if state.certificate is None and result.information.certificate is not None:\n"
        "            self._trust(state, result.information.certificate)\n"
        "        if not result.information.ready or not self._current(state):\n",
    ),
    Mutation(
        "the pin of a certificate is not kept with the worker",
        f"{_DECIDE}/running.py",
        '            reported["cml_certificate"] = cml.certificate\n',
        "            pass\n",
    ),
    Mutation(
        "a CML that refuses our account is ready",
        "controllers/worker/observe/cml_state.py",
        " and not result.refusal\n",
        "\n",
    ),
)


def found_by(mutation: Mutation, seeds: int, first: int, jobs: int) -> tuple[bool, str]:
    """Whether seeds find the mutation, and a summary of the run."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("src", "tests"):
            shutil.copytree(ROOT / part, Path(folder, part), ignore=shutil.ignore_patterns("__pycache__", "*.png"))
        file = Path(folder, "src", "lcm", mutation.file)
        text = file.read_text()
        if mutation.old not in text:
            return False, f"{mutation.file} has no {mutation.old!r}"
        file.write_text(text.replace(mutation.old, mutation.new))
        run = subprocess.run(
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
    lines = run.stdout.strip().splitlines() or run.stderr.strip().splitlines()[-1:]
    return run.returncode == 1 and lines[0].startswith("seed "), " | ".join([lines[0][:150], lines[-1][:60]])


def main() -> int:
    """Try all mutations, or those whose name contains a word; returns 1 if one was not found."""
    parser = argparse.ArgumentParser(prog="make mutations", description="Faults that the simulation must find.")
    parser.add_argument("words", nargs="*", help="only mutations whose name contains one of these")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    selected = [each for each in MUTATIONS if not chosen.words or any(word in each.name for word in chosen.words)]
    missed = 0
    for mutation in selected:
        began = time.monotonic()
        found, summary = found_by(mutation, chosen.seeds, chosen.first, chosen.jobs)
        missed += not found
        print(
            f"{'found ' if found else 'MISSED'}  {mutation.name}  ({time.monotonic() - began:.0f} s)\n        {summary}"
        )
        sys.stdout.flush()
    print(f"{len(selected) - missed} of {len(selected)} found, each within {chosen.seeds} seeds")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
