"""`python -m tests.simulation.mutations`: deliberate faults in the code, which the simulation or a test must find.

Each one is made in a copy of the tree. There the seed that is known to find it runs, and then others until one shows a
violation; or the test that it names, which must pass without the fault and fail with it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.simulation.class_mutations import CLASS_MUTATIONS
from tests.simulation.mutation import Mutation
from tests.simulation.tested_mutations import TESTED_MUTATIONS

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 150
"""The number of seeds, after the scenarios, within which each must be found."""


_DECIDE = "controllers/worker/decide"
MUTATIONS = (
    Mutation(
        "each launch call has a client token of its own",
        "controllers/worker/act/instance_calls.py",
        "self._calls.cloud.launch_instance(action.parameters)",
        "self._calls.cloud.launch_instance(__import__('dataclasses').replace("
        "action.parameters, client_token=str(clock.boottime())))",
        "a launch is heard of by nobody and given up",
    ),
    Mutation(
        "the fence lets older terms pass",
        "control_plane/records/unit_of_work.py",
        "newest is not None and term < newest.term:",
        "newest is not None and term < 0:",
        "writes of a leader arrive after its term",
    ),
    Mutation(
        "a leader acts after its lease is over",
        "core/controller/leader_election.py",
        "        if session is None or left <= limit:\n",
        "        if session is None:\n",
        "calls take their time when a lease runs out",
    ),
    Mutation(
        "an instance that EC2 hides is not terminated",
        f"{_DECIDE}/shared/instance.py",
        "        if _is_absent(observed) and worker.instance_id is not None:\n",
        "        if False:\n",
        "workers are to end while EC2 hides them",
    ),
    Mutation(
        "a call is not authorized again when it is sent",
        "core/controller/effects.py",
        "        with authorized(authorization):\n",
        "        with authorized(None):\n",
        "a leader is suspended while its calls wait to be sent",
    ),
    Mutation(
        "all regions share the slots for passes",
        "controllers/worker/controller.py",
        '        return worker.aws_region if worker is not None and worker.aws_region in self.regions else ""\n',
        '        return ""\n',
        "a region swallows all calls",
    ),
    Mutation(
        "a running worker ignores that STOPPED is desired",
        f"{_DECIDE}/running.py",
        "    if worker.desired_status is DesiredStatus.STOPPED:\n        reason =",
        "    if False:\n        reason =",
        "EC2 throttles a stop",
    ),
    Mutation(
        "a stopped worker ignores that TERMINATED is desired",
        f"{_DECIDE}/stopped.py",
        "if worker.desired_status is DesiredStatus.TERMINATED:",
        "if False:",
        "a stopped worker is to end",
    ),
    Mutation(
        "an instance that is missing from one sweep is gone at once",
        "cloud/instance_cache.py",
        "        return self.sweeps >= GONE_AFTER_SWEEPS and self.seconds >= seconds\n",
        "        return True\n",
        "EC2 hides one of three for one look",
    ),
    Mutation(
        "an instance that half a page lacks is gone at once",
        "cloud/instance_cache.py",
        "        return self.sweeps >= GONE_AFTER_SWEEPS and self.seconds >= seconds\n",
        "        return self.asked_at >= self.last_sweep_at\n",
        "EC2 answers half a page to all questions",
    ),
    Mutation(
        "an instance that is missing from sweeps is not asked for by its id",
        "controllers/worker/discovery/region_monitor.py",
        "        by_id = await self.region_cache.describe(missing, clock.boottime())\n",
        "        by_id = Sweep(self.region, {}, True, clock.boottime(), sweep.account_id)\n"
        "        self.region_cache._cache.record_description(missing, by_id)\n",
        "EC2's lists lack every second worker for ten minutes",
    ),
    Mutation(
        "a state from before the last start of an instance is the present one",
        "cloud/region_cache.py",
        "            return self._cache.with_last_starts(await call)\n",
        "            return await call\n",
        "EC2 mixes old and new states, and a stop outside LCM is accepted",
    ),
    Mutation(
        "a state from before the last start overrides one from after it",
        "cloud/instance_cache.py",
        "                if instance.launched_at <= known.instance.launched_at:\n",
        "                if True:\n",
        "leaders change while EC2 mixes old and new states, and a stop outside LCM is accepted",
    ),
    Mutation(
        "a leader that has not seen a start believes a state from before it",
        f"{_DECIDE}/shared/instance.py",
        "    if drifted and not observed.has_started and ",
        "    if False and ",
        "another leader takes over right after a start, and sees old states first",
    ),
    Mutation(
        "an instance that is seen in between is gone nevertheless",
        "cloud/instance_cache.py",
        "            if absence is not None and absence.first_sweep_at <= result.began_at:\n",
        "            if False:\n",
        "each read leaves out half for a quarter of an hour",
    ),
    Mutation(
        "the only instance of a region is gone as soon as one of many",
        "controllers/worker/discovery/region_monitor.py",
        "GONE_AFTER_SECONDS if others else ONLY_INSTANCE_GONE_AFTER_SECONDS",
        "GONE_AFTER_SECONDS",
        "EC2 hides the only worker of a region",
    ),
    Mutation(
        "a sweep that finds too many lost is not counted before they are marked",
        "controllers/worker/discovery/sweep_diff.py",
        "        too_many=len(lost - accepted) > loss_limit(len(ours)),\n",
        "        too_many=False,\n",
        "EC2 hides four of six for ten minutes",
    ),
    Mutation(
        "the control plane does not count losses",
        "control_plane/fleet/breaker.py",
        "    if len(after.counted) <= loss_limit(workers):\n",
        "    if True:\n",
        "EC2 forgets instances",
    ),
    Mutation(
        "the breaker forgets losses at once",
        "model/fleet/losses.py",
        "if now - loss.at < LOSS_WINDOW",
        "if False",
        "EC2 forgets instances",
    ),
    Mutation(
        "the breaker forgets losses when a clock jumps",
        "control_plane/fleet/breaker.py",
        "    losses = state.losses.get(region, RegionLosses()).recent(tx.earliest_now)\n",
        "    losses = state.losses.get(region, RegionLosses()).recent(tx.now)\n",
        "the clock of the control plane jumps ahead between two losses",
    ),
    Mutation(
        "a failed read counts as a complete one without instances",
        "cloud/region_cache.py",
        "            return self._cache.with_last_starts(await call)\n",
        "            seen = await call\n"
        "            account = seen.account_id or self._account()\n"
        "            return __import__('dataclasses').replace(seen, complete=True, account_id=account)\n",
        "EC2 cannot be seen for most of an hour, and has one worker there",
    ),
    Mutation(
        "a license that is lost with its instance is not reported",
        "control_plane/workers/controller_writes.py",
        "leaked=status_writes.leaks_license(worker, write)",
        "leaked=False",
        "an instance with a license is terminated outside LCM",
    ),
    Mutation(
        "a license is recorded as deregistered although it was not",
        f"{_DECIDE}/shared/license_release.py",
        "    if observed.license_task is LicenseTaskState.RELEASED:\n",
        "    if True:\n",
        "a slow CML gives its license back at the end",
    ),
    Mutation(
        "scale-down and auto-pause also count workers that are being stopped",
        "control_plane/workers/scaling.py",
        '    running = {"status": [WorkerStatus.RUNNING.value], "desired_status": [DesiredStatus.RUNNING.value]}\n',
        '    running = {"status": [WorkerStatus.RUNNING.value]}\n',
        "many are idle at once, and one is to stay",
    ),
    Mutation(
        "the last of several changes within a moment is lost",
        "core/controller/watch.py",
        "            self._pending[key] = value\n",
        "",
        "a worker is started right after it was created, and nobody polls",
    ),
    Mutation(
        "workers on hold are changed",
        f"{_DECIDE}/__init__.py",
        "return decided if hold is None else note_hold(worker, apply_hold(decided, hold, now))",
        "return decided",
        "one on hold is to stop",
    ),
    Mutation(
        "leaked instances are not reported",
        "controllers/worker/discovery/leaked_instances.py",
        "            await self._internal.audit(self._leader(), AUDIT_LEAKED, leak.instance_id, leak.reason)\n",
        "",
        "somebody launches more like it, and leaks are only told",
    ),
    Mutation(
        "leaked instances are not terminated",
        "controllers/worker/discovery/leaked_instances.py",
        "                await self._terminate(sweep.instances[leak.instance_id], leak)\n",
        "                pass\n",
        "somebody launches more like it",
    ),
    Mutation(
        "a stop outside LCM becomes the desired status",
        f"{_DECIDE}/stopped.py",
        "policy.settings.discovery.drift_policy is DriftPolicy.ACCEPT",
        "True",
        "somebody stops it once",
    ),
    Mutation(
        "workers are paused although that is disabled",
        "model/worker/idle.py",
        "    to_pause = () if idle.worker_auto_pause_enabled else ",
        "    to_pause = () if True else ",
        "one is idle, and nobody is to be paused",
    ),
    Mutation(
        "workers with lablets are paused",
        "model/worker/idle.py",
        "        (lablets > 0, ",
        "        (False, ",
        "one seems idle and has a lab",
    ),
    Mutation(
        "a lab is imported without searching for an existing one",
        "controllers/lablet/observe.py",
        "oldest_first(lab for lab in labs if lab.marker == marker)",
        "oldest_first(lab for lab in labs if lab.marker == '')",
        "a lab lands late",
    ),
    Mutation(
        "an import without a response is not waited for",
        "controllers/lablet/observe.py",
        "import_may_complete=memory.import_may_complete",
        "import_may_complete=False",
        "a lab lands after its end was asked for",
    ),
    Mutation(
        "a lablet releases its worker without removing its lab",
        "controllers/lablet/decide/stopping.py",
        "    call = next_removal_operation(lab.state)\n",
        "    return end('stopping.gone', 'mutated', ReleaseReservation(LabletStatus.TERMINATED, 'mutated'))\n"
        "    call = next_removal_operation(lab.state)\n",
        "labs under a hold",
    ),
    Mutation(
        "the resources of a lablet are not released",
        "control_plane/lablets/service.py",
        "if before.assigned and not after.assigned and before.worker_id is not None:",
        "if False:",
        "labs under a hold",
    ),
    Mutation(
        "a lablet is placed without updating the allocation of its worker",
        "control_plane/lablets/lifecycle.py",
        "with_lablet(worker.allocation, needs, free_ports.values())",
        "worker.allocation",
        "a lab lands late",
    ),
    Mutation(
        "lablets wait forever for a worker that does not come back",
        "controllers/lablet/decide/ending.py",
        "    if left <= 0:\n",
        "    if False:\n",
        "a worker with a left lab comes back, and nobody polls",
    ),
    Mutation(
        "without polling a worker that waits is not checked again",
        "core/controller/pass_schedule.py",
        "                self.queue.add_after(key, self._config.interval_seconds)\n",
        "                pass\n",
        "a hold ends, and nobody polls",
    ),
    Mutation(
        "a deregistered license is not recorded while its worker leaves",
        f"{_DECIDE}/__init__.py",
        "    if license_write is not None and not any",
        "    if False and not any",
        "a license is given back just before a drain",
    ),
    Mutation(
        "without polling labs that were left behind are not searched",
        "controllers/lablet/fleet_cache.py",
        "        if clock.boottime() - self._listed_at > MAX_LIST_AGE_SECONDS:\n",
        "        if False:\n",
        "a worker with a left lab comes back, and nobody polls",
    ),
    Mutation(
        "without polling waiting lablets are not checked again",
        "controllers/scheduler/cycle.py",
        "            WAITING_RECHECK_SECONDS if waiting else None,\n",
        "",
        "a launch for a lab is refused, and nobody polls",
    ),
    Mutation(
        "without etcd the control plane is not ready",
        "control_plane/journal/mirror.py",
        "    def degradation(self) -> list[str]:\n",
        "    def readiness(self) -> list[str]:\n",
        "people command while etcd is away",
    ),
    Mutation(
        "an etcd that was replaced is not noticed",
        "control_plane/journal/mirror.py",
        "                if self._is_replaced(state):\n",
        "                self._record_reachable()\n"
        "                await self._pause(self._settings.check_every)\n"
        "                continue\n"
        "                if False:\n",
        "etcd is replaced",
    ),
    Mutation(
        "a cluster that was set up again as before is not noticed",
        "control_plane/journal/mirror.py",
        "                if self._lacks_keys(state) and ",
        "                if False and ",
        "etcd is replaced by one that has counted further",
    ),
    Mutation(
        "a caller who is not known counts as refused",
        "cloud/error_codes.py",
        "    **dict.fromkeys(_AUTHENTICATION_CODES, CloudAuthenticationError),\n",
        "    **dict.fromkeys(_AUTHENTICATION_CODES, CloudAccessDeniedError),\n",
        "credentials expire in the morning",
    ),
    Mutation(
        "a call at a time that AWS does not accept counts as refused",
        "cloud/error_codes.py",
        '    "UnauthorizedOperation",\n)',
        '    "UnauthorizedOperation",\n    "RequestExpired",\n)',
        "no host has credentials at first",
    ),
    Mutation(
        "a leader without credentials seems to be fine",
        "cloud/region_cache.py",
        "        elif self._incomplete_since is None:\n",
        "        elif False:\n",
        "no host has credentials at first",
    ),
    Mutation(
        "a type that one zone does not offer is refused for all",
        "cloud/error_codes.py",
        "        return UnsupportedInZoneError if operation == RUN_INSTANCES else InvalidCloudRequestError\n",
        "        return InvalidCloudRequestError\n",
        "a zone lacks the type, and then all do",
    ),
    Mutation(
        "a start that nobody could follow fails at its deadline",
        f"{_DECIDE}/starting.py",
        "if state is InstanceState.STOPPED and current_wait(worker) is not None:",
        "if False:",
        "credentials expire right after a start was lost",
    ),
    Mutation(
        "a start without capacity is recorded before it is accepted, every time",
        f"{_DECIDE}/stopped.py",
        "    if current_wait(worker) is not None:\n        return _start_again(worker, observed, now)\n",
        "",
        "capacity to start one is missing for half an hour",
    ),
    Mutation(
        "whoever waits for too long is not stuck",
        f"{_DECIDE}/shared/waiting.py",
        "and waited > policy.capacity_wait_limit:",
        "and False:",
        "capacity is missing for hours",
    ),
    Mutation(
        "a license that stays pending is no wait",
        f"{_DECIDE}/shared/license.py",
        "            conditions=(condition, waits),\n",
        "            conditions=(condition,),\n",
        "Cisco's license service is silent for an hour",
    ),
    Mutation(
        "a license that is not given back is no wait",
        f"{_DECIDE}/shared/license.py",
        '"license.release", why, (DeregisterLicense(),), conditions=(waits,), ',
        '"license.release", why, (DeregisterLicense(),), ',
        "a license is given back while Cisco's license service is silent",
    ),
    Mutation(
        "lablets wait for a worker that is stuck",
        "model/lablet/scheduling/capacity.py",
        "        and not is_condition_true(worker.conditions, ConditionType.STUCK)\n",
        "",
        "capacity of the smallest type is missing for hours, and a lab needs a worker",
    ),
    Mutation(
        "CML servers are read one after the other",
        "controllers/worker/observe/cml_monitor.py",
        "        async with self._slots.slot(is_slow=state.is_slow, on_slow=state.becomes_slow):\n",
        "        async with self.__dict__.setdefault('_only_slot', asyncio.Semaphore(1)):\n",
        "the CML servers of a dozen workers take 29 seconds for each response",
    ),
    Mutation(
        "the lablets of one worker take all slots for passes",
        "core/controller/pass_schedule.py",
        "            group_limit=max(1, config.max_concurrent // GROUPS_SERVED),\n",
        "            group_limit=config.max_concurrent,\n",
        "a dozen labs are created on a CML that takes 29 seconds for each response, and one elsewhere",
    ),
    Mutation(
        "a version that another process has written is overwritten",
        "control_plane/errors.py",
        "    if version != current:\n",
        "    if False:\n",
        "somebody changes her mind while writes are on their way",
    ),
    Mutation(
        "deadlines are measured with the clock of the host",
        "core/clock.py",
        "    earliest = source.guard.earliest(boot)\n",
        "    earliest = wall.timestamp()\n",
        "all clocks jump ahead by two hours while a worker is launched",
    ),
    Mutation(
        "a clock that was set right again is trusted at once",
        "core/clock_guard.py",
        "            for reading in readings[:-1]:\n",
        "            for reading in ():\n",
        "a worker is launched while the control plane is an hour behind, and its clock is set right",
    ),
    Mutation(
        "clocks of other processes are not looked at",
        "client/transport.py",
        "    with suppress(ValueError):  # an older control plane does not say, another server says anything\n",
        "    if False:\n",
        "a worker is launched while the control plane is an hour behind",
    ),
    Mutation(
        "idle workers are paused by the clock of the control plane",
        "control_plane/workers/idle.py",
        "    now = tx.earliest_now\n",
        "    now = tx.now\n",
        "all clocks jump ahead by two hours while a worker is used",
    ),
    Mutation(
        "an older version erases the fields of a newer one",
        "model/base.py",
        '    model_config = ConfigDict(extra="allow")\n',
        '    model_config = ConfigDict(extra="ignore")\n',
        "a newer version writes records",
    ),
    Mutation(
        "an older version drops conditions of a newer one",
        "model/worker/conditions.py",
        "    newer = (condition for condition in others.values() if not condition.type.is_known)\n",
        "    newer = ()\n",
        "a newer version writes records",
    ),
    Mutation(
        "a status of a newer version is an error",
        "model/worker/record.py",
        "    status: Annotated[WorkerStatus, CARRIED] = WorkerStatus.PENDING\n",
        "    status: WorkerStatus = WorkerStatus.PENDING\n",
        "a newer version writes records",
    ),
    Mutation(
        "times without a zone are read as UTC",
        "controllers/worker/observe/activity.py",
        "zone.measure(last, read_at)",
        "timedelta(0)",
        "a server with the clock of another zone is used all the time",
    ),
    Mutation(
        "of a long list of events only the beginning is read",
        "cml/client/telemetry.py",
        "    return parse_activity([*first, *last])\n",
        "    return parse_activity(first)\n",
        "a server with the events of years is used all the time",
    ),
    Mutation(
        "a certificate is pinned before CML is ready",
        "controllers/worker/observe/cml_monitor.py",
        "        if result.information is None or not result.information.ready or not self._current(state):\n",
        "        if state.certificate is None and result.information and result.information.certificate:\n"
        "            self._trust(state, result.information.certificate)\n"
        "        if result.information is None or not result.information.ready or not self._current(state):\n",
        "a server is reinstalled, leaders change, and a user trusts it",
    ),
    Mutation(
        "the pin of a certificate is not kept with the worker",
        f"{_DECIDE}/running.py",
        '            reported["cml_certificate"] = cml.certificate\n',
        "            pass\n",
        "a server is reinstalled, leaders change, and a user trusts it",
    ),
    Mutation(
        "a start before a worker has left is not dated",
        "control_plane/workers/lifecycle.py",
        '        fields["last_resumed_at"] = now\n    return updated_record(',
        "        pass\n    return updated_record(",
        "an idle worker is started again before it has left",
    ),
    Mutation(
        "a cancelled drain is not dated",
        "control_plane/workers/lifecycle.py",
        '    if status is WorkerStatus.RUNNING:\n        fields["last_resumed_at"] = now\n',
        "    if status is WorkerStatus.RUNNING and worker.status is not WorkerStatus.DRAINING:\n"
        '        fields["last_resumed_at"] = now\n',
        "an idle worker is started while it is drained",
    ),
    Mutation(
        "a lablet whose worker a newer version has written is not checked again",
        "controllers/lablet/decide/ending.py",
        "        after=NEWER_VERSION_RECHECK_SECONDS,\n",
        "        after=1e9,\n",
        "a newer version writes a worker while its lab ends, and nobody polls",
    ),
    Mutation(
        "a CML that refuses our account is ready",
        "controllers/worker/observe/cml_state.py",
        " and not result.refusal\n",
        "\n",
        "a CML refuses our account",
    ),
    Mutation(
        "nobody reads what EC2 announces",
        "controllers/worker/observe/health_monitor.py",
        "        self._notices = {instance_id: tuple(found) for instance_id, found in by_instance.items()}\n",
        "        self._notices = {}\n",
        "three workers of a region are to move",
    ),
    Mutation(
        "a lablet is placed on a worker that EC2 will stop before its end",
        "model/lablet/placement.py",
        "        or check_health(worker, until)\n",
        "",
        "a lab is created where EC2 has announced a retirement",
    ),
    Mutation(
        "a worker moves to another host while a lablet runs on it",
        "model/worker/maintenance.py",
        "    lablets = worker.allocation.lablets\n    return",
        "    lablets = 0\n    return",
        "EC2 announces a retirement while a lablet runs",
    ),
    Mutation(
        "all workers of a region move at once",
        "model/worker/maintenance.py",
        "        return worker.status not in (WorkerStatus.FAILED",
        "        return False and worker.status not in (WorkerStatus.FAILED",
        "three workers of a region are to move",
    ),
    Mutation(
        "a window opens, and the worker at rest that its schedule had stopped is not started",
        "controllers/worker/schedule_watch.py",
        "            if due_change(worker, schedules, now) is not None:",
        "            if False:",
        "a window closes, and opens again for a worker at rest",
    ),
    Mutation(
        "a worker that nobody uses runs on outside the windows of its schedule",
        "controllers/worker/decide/shared/schedule.py",
        "    block = lablet_block(worker) or ",
        "    block = 'it is left running' or ",
        "schedules are changed while workers stop and start, with a hold in between",
    ),
    *CLASS_MUTATIONS,
    *TESTED_MUTATIONS,
)


def found_by(mutation: Mutation, seeds: int, first: int, jobs: int) -> tuple[bool, str]:
    """Whether seeds or its test find the mutation, and a summary of the run."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ROOT.iterdir():
            if part.name in ("src", "tests"):
                left_out = shutil.ignore_patterns("__pycache__", "*.png")
                shutil.copytree(part, Path(folder, part.name), ignore=left_out)
            elif not part.name.startswith("."):
                Path(folder, part.name).symlink_to(part)  # tests read documents, and pytest its settings
        file = Path(folder, "src", "lcm", mutation.file)
        text = file.read_text()
        if mutation.old not in text:
            return False, f"{mutation.file} has no {mutation.old!r}"
        if mutation.test:
            before = _run(folder, "pytest", "-q", "-x", mutation.test)
            if before.returncode:
                return False, f"{mutation.test} fails without the mutation: {_end(before)}"
        file.write_text(text.replace(mutation.old, mutation.new))
        if mutation.test:
            run = _run(folder, "pytest", "-q", "-x", mutation.test)
            return run.returncode == pytest.ExitCode.TESTS_FAILED, _end(run)
        run = _run(
            folder,
            *("tests.simulation", "--scenarios", "--until-violation", "--try-first", mutation.seed),
            *("--seeds", str(seeds), "--first", str(first), "--jobs", str(jobs)),
        )
    lines = run.stdout.strip().splitlines() or run.stderr.strip().splitlines()[-1:]
    return run.returncode == 1 and lines[0].startswith("seed "), " | ".join([lines[0][:150], lines[-1][:60]])


def _run(folder: str, *module: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *module],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(folder, "src"))},
        capture_output=True,
        text=True,
        check=False,
    )


def _end(run: subprocess.CompletedProcess[str]) -> str:
    said = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))]
    return (said or (run.stdout + run.stderr).strip().splitlines() or [""])[-1][:200]


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
