"""Previews of changes to the whole fleet: hold, release, breakers and leadership. Nothing is changed by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.state_reads import read_controller_reports, read_fleet_state, read_leaders
from lcm.control_plane.records.kinds import WORKERS
from lcm.control_plane.records.readable import readable_records
from lcm.core import clock
from lcm.model.change_preview import ChangePreview
from lcm.model.fleet.losses import RegionLosses
from lcm.model.formatting import count_of, humanize_ago, join_names
from lcm.model.problems import ProblemCode
from lcm.model.system import LATE_AFTER
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, LostInstancePolicy, WorkerStatus

if TYPE_CHECKING:
    from lcm.control_plane.fleet.plan import HeldWorkers, PlanService
    from lcm.control_plane.fleet.service import FleetService
    from lcm.control_plane.store.port import Store
    from lcm.model.fleet.plan import FleetPlan
    from lcm.model.fleet.state import Breaker, FleetState
    from lcm.model.worker.requests import HoldRequest

_MAX_LISTED = 20


class FleetPreviewService:
    """What a change to the whole fleet would do now."""

    def __init__(self, store: Store, fleet: FleetService, plan: PlanService) -> None:
        self._store = store
        self._fleet = fleet
        self._plan = plan

    async def hold(self, request: HoldRequest | None = None) -> ChangePreview:
        """What a hold of the fleet would stop. Without a request, whatever its reason and end."""
        hold = (await read_fleet_state(self._store)).hold
        on_hold = hold is not None and hold.active(clock.now())
        if on_hold and request is not None and hold is not None:
            same = (hold.reason, hold.until) == (request.reason, request.until)
            effect = "No change needed." if same else "The reason and the end of the hold will be replaced."
            return ChangePreview(action="hold", changes=not same, change="on hold", effect=effect)
        summary, plan = await self._fleet.summary(), await self._plan.page(None, 1)
        waits = describe_waiting(await self._plan.held(_MAX_LISTED), plan)
        effect = (
            f"{_no_worker(summary.workers)} will be launched, started, stopped, drained, terminated, paused or marked"
            " as lost, no license will be changed, and no lablet will be placed."
            " Monitoring and the recording of events will continue. Requests are queued until release."
        )
        if waits:
            effect += f" Now waiting for the release: {' '.join(waits)}"
        paused = f": {count_of(plan.pauses_total, 'idle worker')} will not be paused" if plan.pauses_total else ""
        return ChangePreview(
            action="hold",
            change="on hold" if on_hold else "not on hold → on hold",
            effect=effect,
            cost=f"The cost stays at {summary.cost} during the hold{paused}.",
        )

    async def release(self) -> ChangePreview:
        """What happens when the hold of the fleet ends: the actions, placements and launches that wait for it."""
        plan = await self._plan.page(None, 1)
        if plan.hold is None:
            return ChangePreview(action="release", changes=False, effect="The fleet is not on hold.")
        held = await self._plan.held(_MAX_LISTED)
        waits = describe_waiting(held, plan)
        if plan.pauses_total:
            waits.append(f"{count_of(plan.pauses_total, 'worker')} will be stopped or drained if idle for long enough.")
        if held.undecided:
            waits.append(f"What will happen to {count_of(held.undecided, 'worker')} is not decided yet.")
        if plan.evaluation:
            waits.append(f"Workers are not evaluated at present: {plan.evaluation}. This list may be incomplete.")
        effect = " ".join(waits) or "Nothing is waiting for the release."
        return ChangePreview(action="release", change="on hold → released", effect=effect)

    async def breaker_reset(self, region: str | None = None) -> ChangePreview:
        """What closing all breakers, or that of a region, would do: which workers are then marked as lost."""
        state = await read_fleet_state(self._store)
        closing = [each for name, each in sorted(state.breakers.items()) if each.open and region in (None, name)]
        if not closing:
            where = f" in {region}" if region else ""
            return ChangePreview(action="reset", changes=False, effect=f"No breaker is open{where}.")
        effects = [await self._describe_closing(state, each) for each in closing]
        hold = state.hold
        if hold is not None and hold.active(clock.now()):
            effects.append("The fleet is on hold: no worker will be marked as lost before its release.")
        return ChangePreview(
            action="reset",
            change=f"open → closed in {join_names([each.region for each in closing])}",
            effect=" ".join(effects),
            losses={each.region: each.reason for each in closing},
        )

    async def _describe_closing(self, state: FleetState, breaker: Breaker) -> str:
        losses = state.losses.get(breaker.region, RegionLosses())
        stored = await self._store.get_many(WORKERS, list(losses.withheld))
        workers = sorted(readable_records(stored.values(), Worker, "worker"), key=lambda each: each.name)
        lost = [each for each in workers if each.status is not WorkerStatus.TERMINATED]
        scan = f"the next complete scan of {breaker.region}"
        if not lost:
            return f"No worker is being kept from being marked as lost in {breaker.region}; {scan} decides."
        ending = [each.name for each in lost if not _is_replaced(each)]
        replaced = [each.name for each in lost if _is_replaced(each)]
        texts = []
        if ending:
            texts.append(
                f"Unless {scan} finds their instances, {_listed(ending)} will be marked as lost and TERMINATED."
            )
        if replaced:
            texts.append(f"Unless {scan} finds their instances, {_listed(replaced)} will be launched again.")
        return " ".join(texts)

    async def leadership_reset(self, controller: str) -> ChangePreview:
        """What resetting the recorded term of a controller would do."""
        now = clock.now()
        leader = next((each for each in await read_leaders(self._store) if each.controller == controller), None)
        if leader is None:
            raise ProblemError(ProblemCode.NOT_FOUND, f"no controller {controller} has announced a term")
        report = (await read_controller_reports(self._store)).get(controller)
        effect = "The next leader will be accepted, whatever its term, and verifies everything first."
        if report is not None and now - report.received_at <= LATE_AFTER:
            effect = (
                f"A leader reported {humanize_ago(report.received_at, now)}, so a reset is probably not needed."
                f" Its next change will be rejected, and it must be elected again. {effect}"
            )
        effect += " Until then it changes nothing, and an older leader that still runs could be accepted."
        change = f"term {leader.term} → 0"
        return ChangePreview(action="reset", change=change, effect=effect, changes=leader.term != 0)


def describe_waiting(held: HeldWorkers, plan: FleetPlan) -> list[str]:
    """What is to be done next and does not happen during a hold, each as a sentence."""
    waits = [f"{each.name}: {each.summary}" for each in held.listed]
    if held.total > len(held.listed):
        waits.append(f"{count_of(held.total - len(held.listed), 'more worker')} will change.")
    waits += [f"Class {each.number} of {each.name}: {each.summary}" for each in plan.booking_steps[:_MAX_LISTED]]
    if (more_classes := plan.booking_steps_total - _MAX_LISTED) > 0:
        waits.append(f"{more_classes:,} more {'class' if more_classes == 1 else 'classes'} will be given workers.")
    waits += [f"{each.name}: {each.summary}" for each in held.schedule_changes[:_MAX_LISTED]]
    if len(held.schedule_changes) > _MAX_LISTED:
        more = count_of(len(held.schedule_changes) - _MAX_LISTED, "more worker")
        waits.append(f"{more} will be stopped or started by schedules.")
    if plan.lablets is not None:
        for count, what in (
            (plan.lablets.placements_total, "placed"),
            (plan.lablets.ending_total, "ended, because they expired or fit no worker"),
        ):
            waits += [f"{count_of(count, 'lablet')} will be {what}."] if count else []
        if plan.lablets.scale_ups_total:
            started = count_of(plan.lablets.scale_ups_total, "worker")
            waits.append(f"{started} will be launched or started for lablets.")
    if plan.discovery is not None and plan.discovery.imports_total:
        waits.append(f"{count_of(plan.discovery.imports_total, 'instance')} will be imported.")
    if plan.discovery is not None and plan.discovery.losses_total:
        waits.append(f"{count_of(plan.discovery.losses_total, 'worker')} will be marked as lost.")
    return waits


def _no_worker(count: int) -> str:
    return "No worker" if count < 2 else f"None of the {count_of(count, 'worker')}"


def _is_replaced(worker: Worker) -> bool:
    """Whether another instance is launched for it when its instance is lost."""
    replace = worker.lost_instance_policy is LostInstancePolicy.REPLACE
    return replace and worker.template_name is not None and worker.desired_status is DesiredStatus.RUNNING


def _listed(names: list[str]) -> str:
    more = [count_of(len(names) - _MAX_LISTED, "more worker")] if len(names) > _MAX_LISTED else []
    return join_names([*names[:_MAX_LISTED], *more])
