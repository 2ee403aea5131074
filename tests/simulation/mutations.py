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
        "        if session is None or left <= limit:\n",
        "        if session is None:\n",
    ),
    Mutation(
        "a call is not authorized again when it is sent",
        "core/controller/effects.py",
        "        with authorized(authorization):\n",
        "        with authorized(None):\n",
    ),
    Mutation(
        "all regions share the slots for passes",
        "controllers/worker/controller.py",
        '        return worker.aws_region if worker is not None and worker.aws_region in self.regions else ""\n',
        '        return ""\n',
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
        "an instance that is missing from one sweep is gone at once",
        "cloud/instance_cache.py",
        "        return self.sweeps >= GONE_AFTER_SWEEPS and self.seconds >= seconds\n",
        "        return True\n",
    ),
    Mutation(
        "an instance that is seen in between is gone nevertheless",
        "cloud/instance_cache.py",
        "            if absence is not None and absence.first_sweep_at <= result.began_at:\n",
        "            if False:\n",
    ),
    Mutation(
        "the only instance of a region is gone as soon as one of many",
        "controllers/worker/discovery/region_monitor.py",
        "GONE_AFTER_SECONDS if others else ONLY_INSTANCE_GONE_AFTER_SECONDS",
        "GONE_AFTER_SECONDS",
    ),
    Mutation(
        "a sweep that finds too many lost is not counted before they are marked",
        "controllers/worker/discovery/sweep_diff.py",
        "        too_many=len(lost - accepted) > loss_limit(len(ours)),\n",
        "        too_many=False,\n",
    ),
    Mutation(
        "the control plane does not count losses",
        "control_plane/fleet/breaker.py",
        "    if len(after.counted) <= loss_limit(workers):\n",
        "    if True:\n",
    ),
    Mutation(
        "the breaker forgets losses at once",
        "model/fleet/losses.py",
        "if now - loss.at < LOSS_WINDOW",
        "if False",
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
        "without etcd the control plane is not ready",
        "control_plane/journal/mirror.py",
        "    def degradation(self) -> list[str]:\n",
        "    def readiness(self) -> list[str]:\n",
    ),
    Mutation(
        "an etcd that was replaced is not noticed",
        "control_plane/journal/mirror.py",
        "                if self._is_replaced(state):\n",
        "                self._record_reachable()\n"
        "                await self._pause(self._settings.check_every)\n"
        "                continue\n"
        "                if False:\n",
    ),
    Mutation(
        "a cluster that was set up again as before is not noticed",
        "control_plane/journal/mirror.py",
        "                if self._lacks_keys(state) and ",
        "                if False and ",
    ),
    Mutation(
        "a caller who is not known counts as refused",
        "cloud/error_codes.py",
        "    **dict.fromkeys(_AUTHENTICATION_CODES, CloudAuthenticationError),\n",
        "    **dict.fromkeys(_AUTHENTICATION_CODES, CloudAccessDeniedError),\n",
    ),
    Mutation(
        "a start that nobody could follow fails at its deadline",
        f"{_DECIDE}/starting.py",
        "if state is InstanceState.STOPPED and current_wait(worker) is not None:",
        "if False:",
    ),
    Mutation(
        "a start without capacity is recorded before it is accepted, every time",
        f"{_DECIDE}/stopped.py",
        "    if current_wait(worker) is not None:\n        return _start_again(worker, observed, now)\n",
        "",
    ),
    Mutation(
        "whoever waits for too long is not stuck",
        f"{_DECIDE}/shared/waiting.py",
        "and waited > policy.capacity_wait_limit:",
        "and False:",
    ),
    Mutation(
        "a version that another process has written is overwritten",
        "control_plane/errors.py",
        "    if version != current:\n",
        "    if False:\n",
    ),
    Mutation(
        "deadlines are measured with the clock of the host",
        "core/clock.py",
        "    earliest = source.guard.earliest(boot)\n",
        "    earliest = wall.timestamp()\n",
    ),
    Mutation(
        "a clock that was set right again is trusted at once",
        "core/clock_guard.py",
        "            for reading in readings[:-1]:\n",
        "            for reading in ():\n",
    ),
    Mutation(
        "clocks of other processes are not looked at",
        "core/clock.py",
        "    source.guard.observe(name, shown.timestamp(), boot)\n    if authority:\n",
        "    if False:\n",
    ),
    Mutation(
        "idle workers are paused by the clock of the control plane",
        "control_plane/workers/idle.py",
        "    now = tx.earliest_now\n",
        "    now = tx.now\n",
    ),
    Mutation(
        "an older version erases the fields of a newer one",
        "model/base.py",
        '    model_config = ConfigDict(extra="allow")\n',
        '    model_config = ConfigDict(extra="ignore")\n',
    ),
    Mutation(
        "an older version drops conditions of a newer one",
        "model/worker/conditions.py",
        "    newer = (condition for condition in others.values() if not condition.type.is_known)\n",
        "    newer = ()\n",
    ),
    Mutation(
        "a status of a newer version is an error",
        "model/worker/record.py",
        "    status: Annotated[WorkerStatus, CARRIED] = WorkerStatus.PENDING\n",
        "    status: WorkerStatus = WorkerStatus.PENDING\n",
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
