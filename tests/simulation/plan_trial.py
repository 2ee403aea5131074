"""Trials of the plan: the actions of the plan are the actions taken next if nothing changes.

A trial makes a random fleet, reads the plan and the release dialog at a random moment, lets time pass without touching
anything (in some trials the fleet is released), and compares. What is compared is what reached the cloud, the servers
and the records, not what a controller says that it did.
"""

from __future__ import annotations

import asyncio
import gc
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from html import unescape
from typing import TYPE_CHECKING

from lcm.controllers.worker.decide.shared.hold import HELD_RULE
from lcm.controllers.worker.decide.shared.waiting import current_wait
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.audit import ActionType
from lcm.model.fleet.plan import DecisionState, FleetPlan
from lcm.model.lablet.status import LabletStatus
from lcm.model.system import REPORT_INTERVAL_SECONDS
from lcm.model.worker.requests import HoldRequest
from lcm.model.worker.status import DesiredStatus, WorkerOrigin, WorkerStatus
from tests.simulation.plan_fleet import Pass, Trial, a_trial, worker_key
from tests.simulation.plan_policies import HORIZON, compare_policies
from tests.simulation.world.platform import quiet
from tests.support.virtual.time import VirtualClock, VirtualTimeLoop
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from lcm.model.audit import PlannedAction
    from lcm.model.fleet.plan import PlannedWorker
    from lcm.model.worker.record import Worker

_COMPARED = {
    ActionType.LAUNCH_INSTANCE,
    ActionType.START_INSTANCE,
    ActionType.STOP_INSTANCE,
    ActionType.TERMINATE_INSTANCE,
    ActionType.REGISTER_LICENSE,
    ActionType.DEREGISTER_LICENSE,
    ActionType.RECORD_STATUS,
    ActionType.FOLLOW_SCHEDULE,
    ActionType.CHANGE_HOST,
}
_DETAILED = {ActionType.RECORD_STATUS, ActionType.FOLLOW_SCHEDULE, ActionType.CHANGE_HOST}
PLAIN = 2
"""Every third fleet has neither calendar nor teams, as many have."""
_ANSWERED = (ActionType.LAUNCH_INSTANCE.value, ActionType.START_INSTANCE.value)
_LINE = re.compile(r"<li>(.*?)</li>", re.DOTALL)
_TAG = re.compile(r"<[^>]+>")


@dataclass
class TrialResult:
    """What was compared in a trial, and where plan and actions differ."""

    seed: int
    released: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    contradictions: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)


@dataclass
class Snapshot:
    """What the plan said, and what was known then."""

    time: float
    moment: datetime
    plan: FleetPlan
    items: dict[str, PlannedWorker]
    workers: dict[str, Worker]
    pending: tuple[tuple[str, int], ...]
    base: dict[str, Pass]
    dialog: list[str]
    preview: str

    def key_of_workers(self) -> tuple[object, ...]:
        """What the scheduler plans from, at the moment of the plan."""
        return tuple(worker_key(worker) for _, worker in sorted(self.workers.items()))


def run_trial(seed: int) -> TrialResult:
    """Run the trial of a seed in a loop of its own."""
    quiet(REPORT_INTERVAL_SECONDS)  # with fewer reports the plan would call every decision outdated
    loop = VirtualTimeLoop()
    asyncio.set_event_loop(loop)
    try:
        with clock.use(VirtualClock(loop, seed)):
            return loop.run_until_complete(_trial(seed))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        asyncio.set_event_loop(None)
        gc.collect()


async def _trial(seed: int) -> TrialResult:
    rng = random.Random(seed)
    result = TrialResult(seed, released=rng.random() < 0.5)
    async with a_trial(rng, seed, calendar=seed % 3 != PLAIN) as trial:
        await trial.prepare()
        await _act(trial, rng.randint(3, 9))
        await asyncio.sleep(rng.uniform(0, 120))
        if result.released:
            await trial.fleet.people.fleet.hold(HoldRequest(reason="trial"))
            await _act(trial, rng.randint(1, 5))
            await asyncio.sleep(rng.uniform(0, 90))
        seen = await _look(trial)
        if result.released:
            await trial.fleet.people.fleet.release()
        await asyncio.sleep(HORIZON)
        result.steps = trial.steps
        _compare_workers(trial, seen, result)
        await _compare_lablets(trial, seen, result)
        await compare_policies(trial, seen, result)
        if result.released:
            _compare_dialog(seen, result)
    return result


async def _act(trial: Trial, steps: int) -> None:
    for _ in range(steps):
        await trial.act()
        await asyncio.sleep(trial.rng.expovariate(1 / 20))


async def _look(trial: Trial) -> Snapshot:
    """Read plan and dialog at a moment at which no decision is on its way to the control plane."""
    visitor = await signed_in(trial.fleet.plane, Role.ADMIN)
    while not trial.settled:
        await asyncio.sleep(0.05)
    people = trial.fleet.people
    plan = await people.fleet.plan_overview()
    items = {item.worker_id: item async for item in people.fleet.plan()}
    workers = {each.id: each async for each in people.workers.list(exclude_statuses=[WorkerStatus.TERMINATED])}
    waiting = [each async for each in people.lablets.list() if each.status is LabletStatus.PENDING_SCHEDULING]
    pending = tuple(sorted((each.id, each.version) for each in waiting))
    base = {each.worker.id: each for each in trial.passes}  # the last pass of each
    dialog = [
        " ".join(unescape(_TAG.sub("", line)).split())
        for line in _LINE.findall(await visitor.part("/fleet/confirm-release"))
    ]
    preview = (await people.fleet.preview_release()).effect
    return Snapshot(trial.time, clock.now(), plan, items, workers, pending, base, dialog, preview)


# Workers


def _compare_workers(trial: Trial, seen: Snapshot, result: TrialResult) -> None:
    for worker in seen.workers.values():
        item = seen.items.get(worker.id)
        outcome = _compare_worker(trial, seen, worker, item, released=result.released)
        if outcome.startswith("!"):
            result.contradictions.append(f"{worker.name}: {outcome[1:]}")
            outcome = "contradiction"
        result.counts[f"worker {outcome}"] += 1


def _compare_worker(trial: Trial, seen: Snapshot, worker: Worker, item: PlannedWorker | None, *, released: bool) -> str:
    base = seen.base.get(worker.id)
    if base is None or (left_out := _left_out(seen, worker, item)):
        return "undecided" if base is None else left_out
    kept = worker.hold is not None or (item is not None and item.on_hold and not released)
    planned = () if item is None or kept else item.actions
    expected = _expected(planned, worker)
    due = None if item is None else item.at
    for each in trial.passes:
        if each.worker.id != worker.id or each.began <= seen.time:
            continue
        if each.basis != base.basis or _has_waited(base, each):
            return "changed"
        actual = _actual(each)
        if expected in (actual, list(each.effects)):
            return "acted as planned" if expected else "rested as planned"
        if _until_response(expected) == each.effects and _was_refused(trial, each):
            return "acted as planned, and EC2 refused it"
        if not expected and _is_scheduled(seen, each, actual):
            return "acted as its schedule was to"
        if not actual and due is not None and each.at < due:
            continue
        if not actual and released and each.rule == HELD_RULE:
            continue  # the controller reads the release with its next list
        rule = f"rule {each.rule} after {base.rule}"
        return (
            f"!planned {expected} at {due}, but {actual} at {each.at} ({worker.status}/{worker.desired_status}, {rule})"
        )
    return f"!planned {expected}, but no pass followed" if expected and due is None else "not checked again"


def _left_out(seen: Snapshot, worker: Worker, item: PlannedWorker | None) -> str:
    """Why a worker is not compared; empty if it is."""
    if any(worker.id in each.workers for each in seen.plan.booking_steps):
        return "given to a class"  # its record changes before, or soon after, its next check
    return "undecided" if item is not None and item.state is not DecisionState.CURRENT else ""


def _has_waited(base: Pass, each: Pass) -> bool:
    """Whether what maintenance waited for has changed: others run now, or nobody uses the worker."""
    return base.rule == "maintenance.waits" and each.rule == "maintenance.stop"


def _is_scheduled(seen: Snapshot, each: Pass, actual: Sequence[tuple[str, str]]) -> bool:
    """Whether the plan has what was done among the changes by schedules: workers at rest are not among its workers."""
    return any(
        change.worker_id == each.worker.id
        and change.at <= each.at
        and list(actual)
        == [(ActionType.FOLLOW_SCHEDULE.value, "started" if change.desired_status == "RUNNING" else "stopped")]
        for change in seen.plan.schedule_changes
    )


def _expected(actions: Sequence[PlannedAction], worker: Worker) -> list[tuple[str, str]]:
    """What will reach the world. A record of the same status changes only fields."""
    found = [
        (each.type.value, each.detail if each.type in _DETAILED else "") for each in actions if each.type in _COMPARED
    ]
    return [each for each in found if each != (ActionType.RECORD_STATUS.value, worker.status.value)]


def _actual(each: Pass) -> list[tuple[str, str]]:
    """What reached the world. A record after a launch or start holds the response, such as missing capacity."""
    return _until_response(each.effects)


def _until_response(effects: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    calls = [number for number, (kind, _) in enumerate(effects) if kind in _ANSWERED]
    return list(effects[: calls[-1] + 1] if calls else effects)


def _was_refused(trial: Trial, each: Pass) -> bool:
    """Whether the worker waits after the pass: then what was to be recorded after the call was not."""
    later = (other for other in trial.passes if other.worker.id == each.worker.id and other.began >= each.ended)
    after = next(later, None)
    return after is not None and current_wait(after.worker) is not None


# Lablets


async def _compare_lablets(trial: Trial, seen: Snapshot, result: TrialResult) -> None:
    lablets = seen.plan.lablets
    assert lablets is not None
    cycle = next((each for each in trial.cycles if each.began > seen.time), None)
    placements = {(each.lablet_id, each.worker_id) for each in lablets.placements}
    if cycle is None:
        result.counts["lablets not planned again" if not placements else "lablets contradiction"] += 1
        if placements:
            result.contradictions.append(f"planned placements {sorted(placements)}, but the scheduler ran no cycle")
        return
    if cycle.basis != seen.key_of_workers() or cycle.pending != seen.pending:
        result.counts["lablets changed"] += 1
        return
    wanted = Counter((each.template, each.worker_id) for each in lablets.scale_ups)
    needs = Counter((template, resumes) for template, _, resumes in cycle.needs)
    if cycle.placed != placements or wanted - needs:
        result.counts["lablets contradiction"] += 1
        result.contradictions.append(
            f"planned {sorted(placements)} and {dict(wanted)}, but {sorted(cycle.placed)} and {dict(needs)}"
        )
        return
    missing = [pair for pair in sorted(placements) if not await _is_placed(trial, pair)]
    if missing:
        result.contradictions.append(f"planned placements that were not made: {missing}")
    if result.released and wanted:
        await _check_scale_ups(trial, seen, wanted, result)
    result.counts["lablets placed as planned" if placements or wanted else "lablets as planned"] += 1


async def _is_placed(trial: Trial, pair: tuple[str, str]) -> bool:
    return (await trial.fleet.people.lablets.get(pair[0])).worker_id == pair[1]


async def _check_scale_ups(
    trial: Trial, seen: Snapshot, wanted: Counter[tuple[str, str | None]], result: TrialResult
) -> None:
    workers = {each.id: each async for each in trial.fleet.people.workers.list()}
    launched = Counter(
        each.template_name
        for each in workers.values()
        if each.id not in seen.workers and each.origin is WorkerOrigin.SCALE_UP
    )
    for (template, resumed), count in wanted.items():
        if resumed is None and launched[template] < count:
            result.contradictions.append(f"{count} {template} were to be launched, but {launched[template]} were")
        if resumed is not None and workers[resumed].desired_status is not DesiredStatus.RUNNING:
            result.contradictions.append(f"{resumed} was to be started, but is {workers[resumed].desired_status}")


# The dialog


def _compare_dialog(seen: Snapshot, result: TrialResult) -> None:
    """The dialog lists exactly what the plan holds back. That it then happens is compared worker by worker."""
    booked = {worker_id for step in seen.plan.booking_steps for worker_id in step.workers}
    held = {
        f"{item.name}: {item.summary}"
        for item in seen.items.values()
        if item.actions and seen.workers[item.worker_id].hold is None and item.worker_id not in booked
    }
    lablets = seen.plan.lablets
    assert lablets is not None
    placed = {f"{each.lablet_name}: it will be placed on {each.worker_name}." for each in lablets.placements}
    scheduled = {
        f"{each.name}: {each.summary}"
        for each in seen.plan.schedule_changes
        if each.at <= seen.moment
        and seen.workers[each.worker_id].hold is None
        and not getattr(seen.items.get(each.worker_id), "actions", ())
        and each.worker_id not in booked
    }
    scheduled |= {f"Class {each.number} of {each.name}: {each.summary}" for each in seen.plan.booking_steps}
    shown = set(seen.dialog)
    if missing := (held | placed | scheduled) - shown:
        result.contradictions.append(f"the dialog does not say {sorted(missing)}; it says {sorted(shown)}")
    names = {item.name for item in seen.items.values()}
    if extra := {
        line
        for line in shown - held - scheduled
        if line.partition(":")[0] in names and "will be started for" not in line
    }:
        result.contradictions.append(f"the dialog says {sorted(extra)}, which is not planned")
    if unsaid := {line for line in held if line not in seen.preview}:
        result.contradictions.append(f"the preview of the release does not say {sorted(unsaid)}: {seen.preview}")
    if not held and not placed and not shown and "will be started" in seen.preview:
        result.contradictions.append(f"the preview of the release says more than the dialog: {seen.preview}")
    result.counts["dialogs compared"] += 1
    result.counts["dialogs that list something"] += bool(shown)


def run_trials(first: int, count: int, report: Callable[[str], None]) -> int:
    """Run the trials of so many seeds; returns how many contradict their plan."""
    bad, totals = 0, Counter[str]()
    for seed in range(first, first + count):
        result = run_trial(seed)
        totals += result.counts
        if result.contradictions:
            bad += 1
            kind = "released" if result.released else "not held"
            report(f"trial {seed} ({kind}): " + "; ".join(result.contradictions[:3]))
    for what, number in sorted(totals.items()):
        report(f"{number:8}  {what}")
    report(f"{count} trials of the plan, {bad} with contradictions")
    return bad
