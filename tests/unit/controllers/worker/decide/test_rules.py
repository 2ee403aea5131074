"""Rules for every cell of the grids, and what the grids leave out: deadlines, drains, drift, losses, licenses."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest
from pydantic import ValidationError

from lcm.cloud.errors import (
    CloudAccessDeniedError,
    CloudOutcomeUnknownError,
    InstanceNotFoundError,
    InstanceProtectedError,
)
from lcm.cloud.types import InstanceState
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.workers.status_writes import apply_status
from lcm.controllers.common.actions import ActionKind
from lcm.controllers.worker.decide.shared.instance import instance_call_failed, instance_terminated
from lcm.controllers.worker.decision import CloudCall, WriteLicenseStatus, WriteStatus
from lcm.controllers.worker.deps import Policy
from lcm.controllers.worker.observe.observation import (
    NO_EVENTS,
    CmlObservation,
    InstanceObservation,
    LicenseTaskState,
    LossVerdict,
    Visibility,
)
from lcm.core.controller.resources import Outcome
from lcm.model.fleet.settings import DiscoverySettings, DriftPolicy, FleetSettings
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType, with_condition
from lcm.model.worker.record import Hold, PendingLicenseOperation
from lcm.model.worker.requests import WorkerStatusUpdate
from lcm.model.worker.status import (
    STATUSES,
    DesiredStatus,
    IllegalWorkerTransitionError,
    LicenseOperation,
    LicenseStatus,
    LostInstancePolicy,
    WorkerStatus,
    is_allowed_transition,
)
from tests.support.records.workers import NOW
from tests.unit.controllers.worker.decide.cases import (
    COLUMNS,
    INSTANCE,
    NO_INSTANCE,
    POLICY,
    Cell,
    all_cells,
    calls,
    cell,
    decided,
    notation,
    observing,
    observing_no_launch,
    seconds_ago,
    statuses,
    worker_in,
    worker_without_instance,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.controllers.worker.decision import Decision
    from lcm.model.worker.record import Worker

HOLD = Hold(reason="maintenance", by="anna", since=NOW)
SILENT = CmlObservation(queried_at=NOW, ready=False, error="connection refused")
NEVER_ASKED = CmlObservation()
ACCEPT = Policy(settings=FleetSettings(discovery=DiscoverySettings(drift_policy=DriftPolicy.ACCEPT)))
UNDISCOVERED = Policy(settings=FleetSettings(discovery=DiscoverySettings(worker_discovery_enabled=False)))
LOST_FROM = ("STARTING", "RUNNING", "DRAINING", "STOPPING", "STOPPED", "UNKNOWN")
REPLACED_FROM = ("PROVISIONING", "STARTING", "RUNNING", "STOPPING", "STOPPED", "UNKNOWN")


def of_replaceable(status: str, desired: str = "RUNNING", **changes: Any) -> Worker:
    return worker_in(status, desired, **{"lost_instance_policy": LostInstancePolicy.REPLACE, **changes})


def moments(count: int, *, ago: float = 60) -> tuple[datetime, ...]:
    return (seconds_ago(ago),) * count


def condition_status(decision: Decision, kind: ConditionType) -> ConditionStatus | None:
    """The status that a decision gives a condition; None if it does not set it, or removes it."""
    return next((wanted.status for wanted in decision.conditions if wanted.type is kind), None)


def is_stuck(decision: Decision) -> bool:
    return condition_status(decision, ConditionType.STUCK) is ConditionStatus.TRUE


def having(kind: ConditionType, status: ConditionStatus, *, since: datetime) -> dict[str, Any]:
    return {"conditions": (Condition(type=kind, status=status, since=since),)}


def written(decision: Decision) -> list[WriteStatus]:
    return [action for action in decision.actions if isinstance(action, WriteStatus)]


def only_write(decision: Decision) -> WriteStatus:
    (write,) = written(decision)
    return write


def natures(decision: Decision) -> set[ActionKind]:
    return {action.kind for action in decision.actions}


def carried_out(worker: Worker, decision: Decision, drift: DriftPolicy = DriftPolicy.RESTORE) -> Worker:
    """The record after the control plane has stored the writes."""
    for action in written(decision):
        write = WorkerStatusUpdate(status=action.status, version=worker.version, reason=action.reason, **action.fields)
        worker = apply_status(worker, write, drift, NOW)
    return worker


@dataclass(frozen=True)
class Variant:
    """Other facts that can be true in every cell of the grids."""

    policy: Policy = POLICY
    worker: dict[str, Any] = field(default_factory=dict)
    observed: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def cells(self) -> list[Cell]:
        """Made once for all tests: nothing in a cell can be changed."""
        return [plain.like(self.worker, **self.observed) for plain in all_cells()]

    @cached_property
    def decisions(self) -> list[Decision]:
        return [each.decided(self.policy) for each in self.cells]

    def broken(self, holds: Callable[[Cell, Decision], bool]) -> list[str]:
        """The cells in which something does not hold."""
        decided = zip(self.cells, self.decisions, strict=True)
        return [f"{each}: {notation(decision)}" for each, decision in decided if not holds(each, decision)]


VARIANTS = {
    "as in the grids": Variant(),
    "drift accepted": Variant(ACCEPT),
    "settings never read": Variant(Policy()),
    "discovery off": Variant(UNDISCOVERED),
    "replaced": Variant(worker={"lost_instance_policy": LostInstancePolicy.REPLACE}),
    "replaced, no template": Variant(
        worker={"lost_instance_policy": LostInstancePolicy.REPLACE, "template_name": None}
    ),
    "no template": Variant(worker={"template_name": None}),
    "overdue": Variant(worker={"status_since": seconds_ago(86_400)}),
    "overdue, CML silent": Variant(worker={"status_since": seconds_ago(86_400)}, observed={"cml": SILENT}),
    "overdue, blocked": Variant(
        worker={"status_since": seconds_ago(86_400)}, observed={"loss_verdict": LossVerdict.BLOCKED}
    ),
    "drifted": Variant(worker={"drifted": True, "drifted_at": moments(2)}, observed={"has_started": True}),
    "drifted too often": Variant(worker={"drifted": True, "drifted_at": moments(4)}, observed={"has_started": True}),
    "drifted and accepted": Variant(ACCEPT, {"drifted": True, "drifted_at": moments(1)}, {"has_started": True}),
    "licensed": Variant(worker={"license_status": LicenseStatus.REGISTERED, "has_license_token": True}),
    "to be licensed": Variant(worker={"has_license_token": True}, observed={"cml": NEVER_ASKED}),
    "busy": Variant(observed={"lablets": 2, "cml": CmlObservation(queried_at=NOW, ready=True, running_nodes=3)}),
    "no launched instances": Variant(observed={"launched_instances": None, "resolution": None}),
    "replaced too often": Variant(worker={"replaced_at": moments(4)}),
}
whatever_else = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)


# Whatever the cell


@whatever_else
def test_no_cell_raises_and_each_says_by_which_rule_and_why(variant: Variant) -> None:
    """worker-lifecycle.md#decisions: decide returns what to do and why."""
    assert not variant.broken(lambda _, decision: bool(decision.rule and decision.reason))


@whatever_else
def test_the_same_observation_gives_the_same_decision(variant: Variant) -> None:
    """worker-lifecycle.md#decisions: decide is a pure function of worker, observation, policy and time."""
    assert not variant.broken(lambda each, decision: each.decided(variant.policy) == decision)


@whatever_else
def test_each_sequence_of_statuses_is_legal(variant: Variant) -> None:
    """worker-lifecycle.md#statuses: the table of transitions."""

    def legal(each: Cell, decision: Decision) -> bool:
        return all(is_allowed_transition(*step) for step in pairwise((each.worker.status, *statuses(decision))))

    assert not variant.broken(legal)


@whatever_else
def test_the_control_plane_takes_whatever_is_written(variant: Variant) -> None:
    """api.md: status writes have these fields and no others, and desired_status only with drift under `accept`."""
    settings = variant.policy.settings or FleetSettings()

    def taken(each: Cell, decision: Decision) -> bool:
        try:
            carried_out(each.worker, decision, settings.discovery.drift_policy)
        except (IllegalWorkerTransitionError, ProblemError, ValidationError):
            return False
        return True

    assert not variant.broken(taken)


@whatever_else
def test_only_what_is_desired_is_done(variant: Variant) -> None:
    """No handler stops unless STOPPED is desired, nor terminates unless TERMINATED is.

    Reference: worker-lifecycle.md#decisions.
    """
    allowed = {
        DesiredStatus.RUNNING: {"start", "intent", "launch", "register", "drain"},
        DesiredStatus.STOPPED: {"stop"},
        DesiredStatus.TERMINATED: {"terminate", "release"},
    }

    def desired(each: Cell, decision: Decision) -> bool:
        to_deregister = {"start"} if decision.rule == "terminating.license_start" else set()
        return set(calls(decision)) <= allowed[each.worker.desired_status] | to_deregister

    assert not variant.broken(desired)


@whatever_else
def test_decisions_do_not_change_the_desired_status(variant: Variant) -> None:
    """Observation never changes desired_status, except under DRIFT_POLICY=accept after a drift.

    Reference: worker-lifecycle.md#statuses.
    """

    def unchanged(each: Cell, decision: Decision) -> bool:
        followed = [write for write in written(decision) if "desired_status" in write.fields]
        drifted = each.worker.drifted or bool(decision.drift)
        return not followed or (variant.policy is ACCEPT and drifted)

    assert not variant.broken(unchanged)


@whatever_else
def test_nothing_is_concluded_without_an_observation(variant: Variant) -> None:
    """Anything less than gone is "not visible". Written is only what is desired, or a deadline.

    Reference: worker-lifecycle.md#decisions.
    """

    def careful(each: Cell, decision: Decision) -> bool:
        if each.column not in ("not-visible", "not-observed") or each.worker.status is WorkerStatus.PENDING:
            return True
        allowed = set[WorkerStatus]()
        if each.worker.desired_status is DesiredStatus.TERMINATED:
            allowed = {WorkerStatus.TERMINATING}
        elif each.column == "not-visible" and each.worker.status_since < seconds_ago(3_600):
            allowed = {WorkerStatus.FAILED}
        return set(statuses(decision)) <= allowed and not {"start", "stop", "terminate"} & set(calls(decision))

    assert not variant.broken(careful)


@whatever_else
def test_as_long_as_the_same_is_seen_every_worker_comes_to_rest(variant: Variant) -> None:
    """worker-lifecycle.md#running, drift: whatever is written, every worker
    comes to rest. Three stops an hour are undone.
    """
    settings = variant.policy.settings or FleetSettings()

    def settles(each: Cell, decision: Decision) -> bool:
        worker = each.worker
        for _ in range(12):
            before, worker = worker, carried_out(worker, decision, settings.discovery.drift_policy)
            if worker == before:
                return True
            decision = decided(worker, each.observed, variant.policy)
        return False

    assert not variant.broken(settles)


# Hold and breaker


@whatever_else
@pytest.mark.parametrize("fleet", [False, True], ids=["a worker's hold", "the fleet's hold"])
def test_under_a_hold_only_what_happened_is_recorded(variant: Variant, *, fleet: bool) -> None:
    """worker-lifecycle.md#hold: a hold stops cloud and CML changes and marking as lost; recording goes on."""
    if fleet:
        held = replace(variant, policy=replace(variant.policy, fleet_hold=HOLD))
    else:
        held = replace(variant, worker={**variant.worker, "hold": HOLD})
    assert not held.broken(lambda _, decision: not calls(decision) and natures(decision) <= {ActionKind.RECORD})


@pytest.mark.parametrize(
    ("status", "desired", "column"),
    [
        ("RUNNING", "STOPPED", "running"),
        ("RUNNING", "TERMINATED", "running"),
        ("DRAINING", "STOPPED", "running"),
        ("STOPPED", "RUNNING", "stopped"),
        ("STOPPED", "TERMINATED", "stopped"),
        ("PROVISIONING", "TERMINATED", "pending"),
        ("FAILED", "TERMINATED", "running"),
        ("RUNNING", "RUNNING", "absent"),
        ("STOPPED", "STOPPED", "absent"),
    ],
)
def test_under_a_hold_nothing_is_started_and_no_worker_is_lost(status: str, desired: str, column: str) -> None:
    """worker-lifecycle.md#hold: neither the first step of a change nor marking as lost."""
    decision = cell(status, desired, column).like({"hold": HOLD}).decided()
    assert not statuses(decision)


@pytest.mark.parametrize(
    ("status", "desired", "column", "expected"),
    [
        ("PROVISIONING", "RUNNING", "running", "STARTING>RUNNING"),
        ("STARTING", "RUNNING", "running", "RUNNING"),
        ("RUNNING", "RUNNING", "stopped", "STOPPED"),
        ("RUNNING", "STOPPED", "stopping", "STOPPING"),
        ("STOPPING", "STOPPED", "stopped", "STOPPED"),
        ("STOPPED", "STOPPED", "running", "RUNNING"),
        ("TERMINATING", "TERMINATED", "terminated", "TERMINATED"),
    ],
)
def test_under_a_hold_what_happened_already_is_recorded(status: str, desired: str, column: str, expected: str) -> None:
    """worker-lifecycle.md#hold: recording what already happened goes on."""
    assert notation(cell(status, desired, column).like({"hold": HOLD}).decided()) == expected


def test_a_hold_that_has_expired_holds_nothing() -> None:
    """worker-lifecycle.md#hold: a hold has an optional expiry."""
    over = HOLD.model_copy(update={"until": seconds_ago(1)})
    held = cell("RUNNING", "STOPPED", "running").like({"hold": over})
    assert notation(held.decided(replace(POLICY, fleet_hold=over))) == "STOPPING+stop"


@whatever_else
@pytest.mark.parametrize("loss_verdict", [LossVerdict.BLOCKED, LossVerdict.UNJUDGED])
def test_no_worker_is_lost_unless_that_is_allowed(variant: Variant, loss_verdict: LossVerdict) -> None:
    """worker-lifecycle.md#breaker:
    losses are counted over the whole sweep before any is written; with an open breaker none is.

    worker-lifecycle.md#stopping, discovery.md#orphans.
    """
    blocked = replace(variant, observed={**variant.observed, "loss_verdict": loss_verdict})
    # A worker without an instance has none to lose.
    assert not blocked.broken(
        lambda each, decision: each.column == NO_INSTANCE or ActionKind.LOSS not in natures(decision)
    )


@pytest.mark.parametrize("loss_verdict", [LossVerdict.BLOCKED, LossVerdict.UNJUDGED])
@pytest.mark.parametrize("status", LOST_FROM)
@pytest.mark.parametrize("desired", ["RUNNING", "STOPPED"])
@pytest.mark.parametrize("column", ["absent", "terminated"])
@pytest.mark.parametrize("lost", LostInstancePolicy)
def test_a_loss_is_not_written_as_something_else(
    loss_verdict: LossVerdict, status: str, desired: str, column: str, lost: LostInstancePolicy
) -> None:
    """worker-lifecycle.md#hold: when too many would be marked as lost or terminated, none is."""
    observed = cell(status, desired, column).like({"lost_instance_policy": lost}, loss_verdict=loss_verdict)
    decision = observed.decided()
    assert not statuses(decision)
    assert decision.outcome in (Outcome.REQUEUE, Outcome.RETRY)


@pytest.mark.parametrize("loss_verdict", LossVerdict)
def test_an_instance_that_was_to_end_is_no_loss(loss_verdict: LossVerdict) -> None:
    """worker-lifecycle.md#breaker: the breaker counts drift and orphans; what a person ended is neither."""
    assert (
        notation(cell("TERMINATING", "TERMINATED", "terminated").like(loss_verdict=loss_verdict).decided())
        == "TERMINATED"
    )


@pytest.mark.parametrize("policy", [Policy(), UNDISCOVERED], ids=["settings never read", "discovery switched off"])
def test_no_orphan_is_marked_without_discovery(policy: Policy) -> None:
    """api.md and 6: settings never read = no orphan marking; disabled by WORKER_DISCOVERY_ENABLED=false.

    discovery.md#orphans.
    """
    assert notation(cell("RUNNING", "RUNNING", "absent").decided(policy)) == "wait"


@pytest.mark.parametrize("policy", [Policy(), UNDISCOVERED], ids=["settings never read", "discovery switched off"])
def test_what_ec2_calls_terminated_is_no_orphan(policy: Policy) -> None:
    """An orphan is not visible. A terminated instance is drift (worker-lifecycle.md#running), and needs no discovery.

    Reference: discovery.md.
    """
    assert notation(cell("RUNNING", "RUNNING", "terminated").decided(policy)) == "TERMINATED"


def test_an_orphan_says_who_marked_it() -> None:
    """discovery.md, discovery.md#orphans: terminated_by and terminated_reason of an instance that is gone.

    discovery.md#orphans.
    """
    fields = only_write(cell("RUNNING", "RUNNING", "absent").decided()).fields
    assert fields["terminated_by"] == "discovery-gc"
    assert fields["terminated_reason"] == "EC2 instance not found during discovery"


@pytest.mark.parametrize(
    ("column", "ready", "reason"),
    [("running", "True", "Running"), ("stopped", "False", "Stopped"), ("shutting-down", "False", "ShuttingDown")],
)
@pytest.mark.parametrize("desired", ["RUNNING", "STOPPED"])
def test_what_the_instance_of_a_failed_worker_does_is_recorded(
    desired: str, column: str, ready: str, reason: str
) -> None:
    """worker-lifecycle.md#failed: a running one costs money."""
    decision = cell("FAILED", desired, column).decided()
    assert not decision.actions
    (condition,) = decision.conditions
    assert (condition.type, condition.status, condition.reason) == ("InstanceReady", ready, reason)
    assert decision.rule == ("failed.instance_running" if column == "running" else "failed.rest")


@pytest.mark.parametrize("status", [status for status in WorkerStatus if status not in ("PENDING", "TERMINATED")])
def test_not_visible_is_a_condition_and_nothing_else(status: WorkerStatus) -> None:
    """worker-lifecycle.md#gone."""
    desired = STATUSES[status].leads_to or DesiredStatus.RUNNING
    worker = worker_in(status, desired)
    hidden = InstanceObservation(Visibility.NOT_VISIBLE, absent_sweeps=2, gone_after=1800.0)
    decision = decided(worker, observing("not-visible", instance=hidden))
    assert not decision.actions
    (condition,) = [each for each in decision.conditions if each.type is ConditionType.INSTANCE_READY]
    assert (condition.status, condition.reason) == ("Unknown", "NotVisible")
    assert "30 minutes" in condition.message
    new = decided(worker, observing("not-visible", instance=replace(hidden, absent_sweeps=0)))
    assert not [each for each in new.conditions if each.type is ConditionType.INSTANCE_READY]


@pytest.mark.parametrize("status", ["RUNNING", "STOPPED", "STOPPING", "DRAINING", "TERMINATING", "FAILED"])
@pytest.mark.parametrize("reason", ["NotVisible", "InstanceMissing"])
def test_an_instance_that_is_visible_again_ends_the_condition(status: str, reason: str) -> None:
    """worker-lifecycle.md#gone."""
    column = STATUSES[WorkerStatus(status)].instance_state or "running"
    kind, unknown = ConditionType.INSTANCE_READY, ConditionStatus.UNKNOWN
    missing = with_condition((), kind, unknown, now=NOW, reason=reason)
    desired = STATUSES[WorkerStatus(status)].leads_to or DesiredStatus.RUNNING
    decision = decided(worker_in(status, desired, conditions=missing), observing(column))
    (condition,) = [each for each in decision.conditions if each.type is kind]
    assert condition.status is not unknown
    assert condition.reason not in ("NotVisible", "InstanceMissing")


@pytest.mark.parametrize("column", ["absent", "terminated"])
@pytest.mark.parametrize("desired", ["RUNNING", "STOPPED"])
def test_a_failed_worker_only_loses_its_instance_id(desired: str, column: str) -> None:
    """The instance id stays on the record unless it is gone.

    Reference: worker-lifecycle.md#statuses, worker-lifecycle.md#deadlines.
    """
    observed = cell("FAILED", desired, column)
    after = carried_out(observed.worker, observed.decided())
    assert after.status is WorkerStatus.FAILED
    assert after.instance_id is None


# Deadlines


@pytest.mark.parametrize(
    ("status", "column", "has_address"),
    [
        ("PROVISIONING", "pending", True),
        ("STARTING", "pending", True),
        ("STARTING", "stopped", True),
        ("STARTING", "running", False),
    ],
)
def test_what_does_not_come_up_in_time_fails(status: str, column: str, *, has_address: bool) -> None:
    """worker-lifecycle.md#deadlines:
    PROVISIONING_TIMEOUT and STARTING_TIMEOUT, then FAILED with what was last seen; the id stays.

    worker-lifecycle.md#statuses.
    """
    observed = observing(column, has_address=has_address)
    early, late = worker_in(status, status_since=seconds_ago(899)), worker_in(status, status_since=seconds_ago(901))
    assert WorkerStatus.FAILED not in statuses(decided(early, observed))
    decision = decided(late, observed)
    assert notation(decision) == "FAILED"
    assert column in only_write(decision).reason
    assert carried_out(late, decision).instance_id == INSTANCE


@pytest.mark.parametrize("status", ["PROVISIONING", "STARTING"])
def test_the_deadlines_are_settings(status: str) -> None:
    """worker-lifecycle.md#deadlines: PROVISIONING_TIMEOUT and STARTING_TIMEOUT."""
    policy = replace(POLICY, provisioning_timeout=60, starting_timeout=60)
    assert notation(decided(worker_in(status, status_since=seconds_ago(61)), observing("pending"), policy)) == "FAILED"


@pytest.mark.parametrize("status", ["PROVISIONING", "STARTING"])
@pytest.mark.parametrize("desired", ["RUNNING", "STOPPED"])
def test_nothing_fails_that_was_not_observed(status: str, desired: str) -> None:
    """worker-lifecycle.md#deadlines: FAILED says what was last observed, so there must be an observation."""
    assert (
        notation(decided(worker_in(status, desired, status_since=seconds_ago(86_400)), observing("not-observed")))
        == "wait"
    )


@pytest.mark.parametrize(("status", "expected"), [("PROVISIONING", "STARTING>RUNNING"), ("STARTING", "RUNNING")])
def test_up_at_last_is_up(status: str, expected: str) -> None:
    """worker-lifecycle.md#statuses: what runs and has an address is RUNNING; a deadline is for what is not there."""
    assert notation(decided(worker_in(status, status_since=seconds_ago(86_400)), observing("running"))) == expected


@pytest.mark.parametrize("status", ["PROVISIONING", "STARTING"])
def test_the_desired_status_comes_before_a_deadline(status: str) -> None:
    """worker-lifecycle.md#decisions: every handler checks desired_status first."""
    worker = worker_in(status, "TERMINATED", status_since=seconds_ago(86_400))
    assert notation(decided(worker, observing("pending"))) == "TERMINATING"


def test_running_without_an_address_is_not_running_yet() -> None:
    """worker-lifecycle.md#statuses: STARTING is instance running, RUNNING is instance running and an address."""
    observed = observing("running", has_address=False)
    assert notation(decided(worker_in("PROVISIONING"), observed)) == "STARTING"
    assert notation(decided(worker_in("STARTING"), observed)) == "wait"


def test_the_addresses_are_recorded_with_the_status() -> None:
    """worker-lifecycle.md#deadlines: RUNNING is written with the public and private address."""
    worker = worker_in("PROVISIONING", private_ip=None)
    after = carried_out(worker, decided(worker, observing("running")))
    observed = observing("running").instance
    assert (after.public_ip, after.private_ip) == (observed.public_ip, observed.private_ip)


@pytest.mark.parametrize(
    ("status", "desired", "column", "expected"),
    [
        ("STOPPING", "STOPPED", "stopping", "wait"),
        ("STOPPING", "STOPPED", "running", "+stop"),
        ("STOPPING", "RUNNING", "stopping", "wait"),
        ("TERMINATING", "TERMINATED", "running", "+terminate"),
        ("TERMINATING", "TERMINATED", "shutting-down", "wait"),
        ("TERMINATING", "RUNNING", "shutting-down", "wait"),
    ],
)
def test_what_does_not_end_in_time_is_stuck_and_is_tried_on(
    status: str, desired: str, column: str, expected: str
) -> None:
    """STOPPING and TERMINATING past STUCK_AFTER get condition Stuck, and go on trying.

    Reference: worker-lifecycle.md#stopping, worker-lifecycle.md#deadlines.
    """
    early = decided(worker_in(status, desired, status_since=seconds_ago(899)), observing(column))
    late = decided(worker_in(status, desired, status_since=seconds_ago(901)), observing(column))
    assert (notation(early), is_stuck(early)) == (expected, False)
    assert (notation(late), is_stuck(late)) == (expected, True)


# DRAINING


@pytest.mark.parametrize(
    "more",
    [
        {"lablets": 1},
        {"cml": CmlObservation(queried_at=NOW, ready=True, running_nodes=2)},
        {"cml": CmlObservation(queried_at=NOW, ready=True)},
        {"cml": SILENT},
        {"cml": NEVER_ASKED},
    ],
    ids=["a lablet", "nodes running", "CML counts no nodes", "CML silent", "CML never queried"],
)
def test_a_drain_waits_but_not_for_ever(more: dict[str, Any]) -> None:
    """Until no node runs and no lablet is assigned (unreachable = wait), at most DRAIN_TIMEOUT.

    Reference: worker-lifecycle.md#terminating.
    """
    observed = observing("running", **more)
    assert notation(decided(worker_in("DRAINING", "STOPPED", status_since=seconds_ago(599)), observed)) == "wait"
    assert (
        notation(decided(worker_in("DRAINING", "STOPPED", status_since=seconds_ago(601)), observed)) == "STOPPING+stop"
    )


@pytest.mark.parametrize(
    ("cml", "verdict"),
    [
        (CmlObservation(queried_at=NOW, ready=True, running_nodes=0), ConditionStatus.TRUE),
        (SILENT, ConditionStatus.FALSE),
        (NEVER_ASKED, None),
    ],
    ids=["responds", "silent", "never queried"],
)
def test_while_it_drains_the_cml_condition_is_current(cml: CmlObservation, verdict: ConditionStatus | None) -> None:
    """Lablets that end during a drain are removed only while the worker controller reports CML as ready."""
    decision = decided(
        worker_in("DRAINING", "STOPPED", status_since=seconds_ago(10)), observing("running", lablets=1, cml=cml)
    )
    assert (notation(decision), condition_status(decision, ConditionType.CML_READY)) == ("wait", verdict)


def test_a_drain_with_nothing_to_wait_for_goes_on_at_once() -> None:
    """worker-lifecycle.md#terminating: it goes on in the same pass."""
    assert (
        notation(decided(worker_in("DRAINING", "STOPPED", status_since=NOW), observing("running"))) == "STOPPING+stop"
    )


def test_a_requested_stop_does_not_wait() -> None:
    """lablets.md: a person's stop or terminate does not wait for lablets."""
    busy = observing("running", lablets=3, cml=CmlObservation(queried_at=NOW, ready=True, running_nodes=9))
    assert notation(decided(worker_in("RUNNING", "STOPPED"), busy)) == "STOPPING+stop"
    assert notation(decided(worker_in("RUNNING", "TERMINATED"), busy)) == "TERMINATING"
    assert notation(decided(worker_in("DRAINING", "TERMINATED"), busy)) == "TERMINATING"


# A lost instance is replaced


@pytest.mark.parametrize("status", REPLACED_FROM)
def test_a_replaced_instance_is_first_waited_for(status: str) -> None:
    """worker-lifecycle.md#running: with `replace`, shutting-down only waits."""
    assert notation(decided(of_replaceable(status), observing("shutting-down"))) == "wait"


@pytest.mark.parametrize("status", REPLACED_FROM)
@pytest.mark.parametrize("column", ["absent", "terminated"])
def test_a_lost_instance_is_replaced(status: str, column: str) -> None:
    """worker-lifecycle.md#running: gone is PENDING with id and addresses cleared."""
    worker = of_replaceable(status, public_ip="203.0.113.7")
    decision = decided(worker, observing(column))
    assert notation(decision) == "PENDING"
    after = carried_out(worker, decision)
    assert (after.instance_id, after.public_ip, after.private_ip) == (None, None, None)
    assert after.launch_intent is None


@pytest.mark.parametrize("column", ["absent", "terminated"])
@pytest.mark.parametrize(
    ("desired", "changes"),
    [("STOPPED", {}), ("TERMINATED", {}), ("RUNNING", {"template_name": None})],
    ids=["desired STOPPED", "desired TERMINATED", "no template"],
)
def test_without_desired_running_or_a_template_there_is_no_replacement(
    desired: str, changes: dict[str, Any], column: str
) -> None:
    """worker-lifecycle.md#running: with `replace`, a template and desired RUNNING."""
    ends = "TERMINATING+terminate" if (desired, column) == ("TERMINATED", "absent") else "TERMINATED"
    assert notation(decided(of_replaceable("RUNNING", desired, **changes), observing(column))) == ends


def test_an_instance_that_is_only_absent_is_terminated_before_its_worker_is() -> None:
    """worker-lifecycle.md#terminating: EC2 may have hidden it. Before, nobody terminated it then, and it ran on."""
    worker, absent = worker_in("TERMINATING", "TERMINATED"), observing("absent")
    refusal = InstanceNotFoundError("InvalidInstanceID.NotFound")
    settled = instance_call_failed(worker, CloudCall.TERMINATE, refusal, absent)
    assert statuses(settled) == [WorkerStatus.TERMINATED]
    for call, observed in ((CloudCall.TERMINATE, observing("running")), (CloudCall.STOP, absent)):
        assert not statuses(instance_call_failed(worker, call, refusal, observed))
    # A policy that goes by tags denies the call for an instance that does not exist. A protected one does exist.
    denied = instance_call_failed(worker, CloudCall.TERMINATE, CloudAccessDeniedError("UnauthorizedOperation"), absent)
    assert statuses(denied) == [WorkerStatus.TERMINATED]
    protected = InstanceProtectedError("OperationNotPermitted")
    assert not statuses(instance_call_failed(worker, CloudCall.TERMINATE, protected, absent))
    lost = CloudOutcomeUnknownError("no response")
    assert not statuses(instance_call_failed(worker, CloudCall.TERMINATE, lost, absent))
    ended = instance_terminated(worker, InstanceState.TERMINATED, absent)
    assert ended is not None
    assert statuses(ended) == [WorkerStatus.TERMINATED]
    assert instance_terminated(worker, InstanceState.SHUTTING_DOWN, absent) is None
    assert instance_terminated(worker, InstanceState.TERMINATED, observing("running")) is None


def test_an_absent_instance_that_cannot_be_terminated_is_stuck_in_the_end() -> None:
    """worker-lifecycle.md#deadlines: whatever waits has a bound after which it says so."""
    long_ago = worker_in("TERMINATING", "TERMINATED", status_since=seconds_ago(7_200))
    assert ConditionType.STUCK in {each.type for each in decided(long_ago, observing("absent")).conditions}
    now = worker_in("TERMINATING", "TERMINATED", status_since=seconds_ago(60))
    assert ConditionType.STUCK not in {each.type for each in decided(now, observing("absent")).conditions}


def test_a_hold_hides_no_instance_that_is_missing() -> None:
    """worker-lifecycle.md#hold: observing goes on."""
    hold = Hold(reason="audit", by="anna", since=NOW)
    decision = decided(worker_in("RUNNING", "TERMINATED", hold=hold), observing("absent"))
    assert not calls(decision)
    [condition] = [each for each in decision.conditions if each.type is ConditionType.INSTANCE_READY]
    assert (condition.reason, condition.message) == ("InstanceMissing", "EC2 no longer lists the instance")


@pytest.mark.parametrize("status", ["DRAINING", "TERMINATING"])
@pytest.mark.parametrize("column", ["absent", "terminated"])
def test_what_was_on_its_way_out_is_not_replaced(status: str, column: str) -> None:
    """Nothing leads from DRAINING or TERMINATING to PENDING, also if RUNNING is desired again.

    Reference: worker-lifecycle.md#statuses.
    """
    assert notation(decided(of_replaceable(status), observing(column))) == "TERMINATED"


def test_an_instance_that_is_shutting_down_and_not_to_be_replaced_is_recorded() -> None:
    """worker-lifecycle.md#running: `replace` needs desired RUNNING."""
    assert notation(decided(of_replaceable("RUNNING", "STOPPED"), observing("shutting-down"))) == "TERMINATING"


@pytest.mark.parametrize(
    ("replaced_at", "expected"),
    [
        (moments(3), "+intent+launch"),
        (moments(4), "FAILED"),
        (moments(1, ago=3_601) + moments(3), "+intent+launch"),
        (moments(6, ago=3_601), "+intent+launch"),
    ],
    ids=["the third", "the fourth", "the fourth, but not within an hour", "all long ago"],
)
def test_the_fourth_replacement_within_an_hour_fails(replaced_at: tuple[datetime, ...], expected: str) -> None:
    """worker-lifecycle.md#running: the fourth within an hour is FAILED."""
    worker = of_replaceable("PENDING", replaced_at=replaced_at)
    assert notation(decided(worker, observing_no_launch())) == expected


# Drift


@pytest.mark.parametrize("column", ["stopping", "stopped"])
def test_a_stop_from_outside_is_counted(column: str) -> None:
    """worker-lifecycle.md#running: drift to STOPPED with desired RUNNING."""
    worker = worker_in("RUNNING")
    decision = decided(worker, observing(column))
    assert only_write(decision).fields.get("drift") is True
    assert decision.drift == column
    assert carried_out(worker, decision).drifted


@pytest.mark.parametrize("column", ["stopping", "stopped"])
@pytest.mark.parametrize("status", ["RUNNING", "DRAINING", "STOPPING", "STARTING"])
def test_a_desired_stop_is_no_drift(status: str, column: str) -> None:
    """worker-lifecycle.md#running: drift to STOPPED is with desired RUNNING only."""
    decision = decided(worker_in(status, "STOPPED"), observing(column))
    assert not any(write.fields.get("drift") for write in written(decision))


@pytest.mark.parametrize(
    ("column", "drift"), [("running", ""), ("terminated", "terminated"), ("absent", "missing"), ("pending", "pending")]
)
def test_drift_is_reported_by_its_kind(column: str, drift: str) -> None:
    """controllers.md#admin-routes: drift_type is the EC2 state or `missing`."""
    assert decided(worker_in("RUNNING"), observing(column)).drift == drift


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_stop_from_outside_is_undone_three_times(count: int) -> None:
    """worker-lifecycle.md#running: DRIFT_POLICY=restore, three times an hour."""
    decision = decided(worker_in("STOPPED", drifted=True, drifted_at=moments(count)), observing("stopped"))
    assert notation(decision) == "STARTING+start"
    assert not is_stuck(decision)


def test_then_it_is_stuck() -> None:
    """worker-lifecycle.md#running: then Stuck."""
    decision = decided(worker_in("STOPPED", drifted=True, drifted_at=moments(4)), observing("stopped"))
    assert not calls(decision)
    assert set(statuses(decision)) <= {WorkerStatus.STOPPED}
    assert is_stuck(decision)


def test_drifts_of_more_than_an_hour_ago_do_not_count() -> None:
    """worker-lifecycle.md#running: three times an hour."""
    drifted_at = moments(5, ago=3_601) + moments(3)
    decision = decided(worker_in("STOPPED", drifted=True, drifted_at=drifted_at), observing("stopped"))
    assert notation(decision) == "STARTING+start"


def test_a_person_who_starts_a_stopped_worker_is_not_counted() -> None:
    """worker-lifecycle.md#running: the limit is for drift, not for people."""
    assert notation(decided(worker_in("STOPPED", drifted_at=moments(4)), observing("stopped"))) == "STARTING+start"


def test_a_stop_from_outside_is_accepted() -> None:
    """worker-lifecycle.md#running: under DRIFT_POLICY=accept the desired status follows."""
    worker = worker_in("STOPPED", drifted=True, drifted_at=moments(1))
    decision = decided(worker, observing("stopped"), ACCEPT)
    assert notation(decision) == "STOPPED"
    assert only_write(decision).fields["desired_status"] == DesiredStatus.STOPPED
    assert carried_out(worker, decision, DriftPolicy.ACCEPT).desired_status is DesiredStatus.STOPPED


def test_a_stop_of_a_booked_worker_from_outside_is_not_accepted() -> None:
    """calendar.md#precedence: the class counts, not what happened outside; without and after it the stop counts."""
    booking: dict[str, Any] = {"booking_id": "bk-1", "booked_until": NOW + timedelta(hours=1)}
    worker = worker_in("STOPPED", drifted=True, drifted_at=moments(1), **booking)
    decision = decided(worker, observing("stopped"), ACCEPT)
    assert notation(decision) == "STARTING+start"
    assert "it is booked for bk-1" in decision.reason
    over = worker.model_copy(update={"booked_until": NOW})
    assert notation(decided(over, observing("stopped"), ACCEPT)) == "STOPPED"


def test_only_a_drift_is_accepted() -> None:
    """A person's start of a stopped worker counts, also under DRIFT_POLICY=accept.

    Reference: worker-lifecycle.md#statuses.
    """
    assert notation(decided(worker_in("STOPPED"), observing("stopped"), ACCEPT)) == "STARTING+start"


@pytest.mark.parametrize("policy", [POLICY, ACCEPT])
def test_starting_and_found_stopped_is_drift_only_after_it_moved(policy: Policy) -> None:
    """worker-lifecycle.md#deadlines: only after `pending` or `running` was observed in this STARTING."""
    assert notation(decided(worker_in("STARTING"), observing("stopped"), policy)) == "+start"
    decision = decided(worker_in("STARTING"), observing("stopped", has_started=True), policy)
    assert statuses(decision) == [WorkerStatus.STOPPED]
    assert not calls(decision)
    assert only_write(decision).fields.get("drift") is True


def test_starting_and_found_stopping_is_drift_only_after_it_moved() -> None:
    """worker-lifecycle.md#deadlines, by the same rule: a retry may have found it still stopping."""
    assert not only_write(decided(worker_in("STARTING"), observing("stopping"))).fields.get("drift")
    assert (
        only_write(decided(worker_in("STARTING"), observing("stopping", has_started=True))).fields.get("drift") is True
    )


@pytest.mark.parametrize("state", ["stopping", "stopped"])
@pytest.mark.parametrize("status", ["PROVISIONING", "RUNNING", "UNKNOWN"])
def test_a_leader_that_has_not_seen_a_start_that_was_a_moment_ago_reads_again(status: str, state: str) -> None:
    """worker-lifecycle.md#drift: pages may show old states, which an earlier leader could have told from new ones."""
    just = worker_in(status, last_resumed_at=NOW - timedelta(seconds=299))
    decision = decided(just, observing(state))
    assert not statuses(decision)
    assert not calls(decision)
    assert decision.after is not None
    assert "before the last start" in decision.reason
    assert only_write(decided(just, observing(state, has_started=True))).fields.get("drift") is True
    before = worker_in(status, last_resumed_at=NOW - timedelta(seconds=300))
    assert only_write(decided(before, observing(state))).fields.get("drift") is True
    leaving = worker_in(status, "STOPPED", last_resumed_at=NOW)
    assert statuses(decided(leaving, observing(state))), "as desired"


# CML


@pytest.mark.parametrize(
    ("cml", "expected"),
    [
        (CmlObservation(queried_at=NOW, ready=True, running_nodes=0), ConditionStatus.TRUE),
        (SILENT, ConditionStatus.FALSE),
    ],
)
def test_cml_is_ready_when_it_says_so(cml: CmlObservation, expected: ConditionStatus) -> None:
    """worker-lifecycle.md#running, worker-lifecycle.md#statuses: running is not ready."""
    assert (
        condition_status(decided(worker_in("RUNNING"), observing("running", cml=cml)), ConditionType.CML_READY)
        is expected
    )


def test_cml_that_was_not_queried_is_not_ready() -> None:
    """worker-lifecycle.md#statuses: a condition is True, False or Unknown."""
    decision = decided(worker_in("RUNNING"), observing("running", cml=NEVER_ASKED))
    assert condition_status(decision, ConditionType.CML_READY) is not ConditionStatus.TRUE


def test_cml_of_an_import_that_nobody_adopted_is_ready_and_says_what_is_missing() -> None:
    """worker-lifecycle.md#conditions: it responds, and that LCM does not sign in to it makes it not stuck."""
    withheld = CmlObservation(queried_at=NOW, ready=True, account_withheld=True)
    decision = decided(worker_in("RUNNING", status_since=seconds_ago(1_801)), observing("running", cml=withheld))
    (ready,) = [each for each in decision.conditions if each.type is ConditionType.CML_READY]
    assert (ready.status, ready.reason) == (ConditionStatus.TRUE, "NotAdopted")
    assert "lcm workers adopt" in ready.message
    assert not is_stuck(decision)


def test_cml_that_refuses_the_account_is_not_ready_says_why_and_is_stuck_in_the_end() -> None:
    """worker-lifecycle.md#conditions: nothing on such a server can be managed."""
    refusing = CmlObservation(queried_at=NOW, ready=False, refusal="CML refuses the account 'admin': HTTP 401")
    observed = observing("running", cml=refusing)
    (ready,) = [
        each for each in decided(worker_in("RUNNING"), observed).conditions if each.type is ConditionType.CML_READY
    ]
    assert (ready.status, ready.reason) == (ConditionStatus.FALSE, "AccountRefused")
    assert "CML refuses the account 'admin': HTTP 401; correct the account" in ready.message
    assert is_stuck(decided(worker_in("RUNNING", status_since=seconds_ago(1_801)), observed))


def test_a_server_that_was_not_polled_is_unknown_not_down() -> None:
    """cloud-and-cml.md#polling: a poller that fails says nothing about its servers."""
    error = "the poller process 0 does not respond: it was ended by signal 9"
    unknown = CmlObservation(queried_at=NOW, ready=None, error=error)
    decision = decided(worker_in("RUNNING"), observing("running", cml=unknown))
    (ready,) = [each for each in decision.conditions if each.type is ConditionType.CML_READY]
    assert (ready.status, ready.reason, ready.message) == (ConditionStatus.UNKNOWN, "NotPolled", error)
    assert decision.reason == f"the instance runs, but it is not known whether CML is ready: {error}"
    assert not is_stuck(decision)


def test_a_changed_certificate_says_what_to_do_and_is_recorded() -> None:
    """cloud-and-cml.md#certificates: the remedy is a command, not a restart."""
    changed = CmlObservation(queried_at=NOW, ready=False, certificate="a0" * 32, presented="b0" * 32)
    worker = worker_in("RUNNING", cml_certificate="a0" * 32)
    decision = decided(worker, observing("running", cml=changed))
    (ready,) = [each for each in decision.conditions if each.type is ConditionType.CML_READY]
    assert (ready.status, ready.reason) == (ConditionStatus.FALSE, "CertificateChanged")
    assert f"lcm workers trust {worker.name}" in ready.message
    assert "b0" * 32 in ready.message
    assert written_fields(decision) == {"cml_certificate_presented": "b0" * 32}
    late = decided(worker.model_copy(update={"status_since": seconds_ago(1_801)}), observing("running", cml=changed))
    assert is_stuck(late)


def test_the_pin_is_recorded_once_and_never_replaced() -> None:
    ready = CmlObservation(queried_at=NOW, ready=True, certificate="a0" * 32)
    observed = observing("running", cml=ready)
    assert written_fields(decided(worker_in("RUNNING"), observed)) == {"cml_certificate": "a0" * 32}
    assert written_fields(decided(worker_in("RUNNING", cml_certificate="b0" * 32), observed)) == {}
    again = worker_in("RUNNING", cml_certificate="a0" * 32, cml_certificate_presented="b0" * 32)
    assert written_fields(decided(again, observed)) == {"cml_certificate_presented": None}


def written_fields(decision: Decision) -> dict[str, object]:
    writes = [action for action in decision.actions if isinstance(action, WriteStatus)]
    return {name: value for write in writes for name, value in write.fields.items()}


@pytest.mark.parametrize(
    ("facts", "error", "expected"),
    [
        ({}, "", None),
        ({}, "HTTP 500", ConditionStatus.TRUE),
        ({}, NO_EVENTS, ConditionStatus.TRUE),
        ({"last_idle_check_at": seconds_ago(100)}, "HTTP 500", None),
        ({"status_since": seconds_ago(21_000)}, "HTTP 500", None),
        ({"idle_detection_enabled": False}, "HTTP 500", None),
    ],
)
def test_telemetry_that_is_missing_for_long_is_reported(
    facts: dict[str, Any], error: str, expected: ConditionStatus | None
) -> None:
    """idle-and-scaling.md#idle-detection: auto-pause switched itself off with one line in a log."""
    worker = worker_in(
        "RUNNING", **{"status_since": seconds_ago(90_000), "last_idle_check_at": seconds_ago(21_700), **facts}
    )
    cml = CmlObservation(queried_at=NOW, ready=True, activity_error=error)
    decision = decided(worker, observing("running", cml=cml))
    assert condition_status(decision, ConditionType.TELEMETRY_MISSING) is expected
    idle = condition_status(decision, ConditionType.IDLE)
    assert idle is (ConditionStatus.UNKNOWN if expected else None), "unknown is neither idle nor active"


def test_cml_that_does_not_come_up_is_stuck() -> None:
    """worker-lifecycle.md#statuses: not CmlReady for CML_READY_TIMEOUT."""
    observed = observing("running", cml=SILENT)
    assert not is_stuck(decided(worker_in("RUNNING", status_since=seconds_ago(1_799)), observed))
    assert is_stuck(decided(worker_in("RUNNING", status_since=seconds_ago(1_801)), observed))
    assert not is_stuck(decided(worker_in("RUNNING", status_since=seconds_ago(1_801)), observing("running")))


@pytest.mark.parametrize(
    ("was", "since", "stuck"),
    [
        (ConditionStatus.TRUE, 80_000, False),
        (ConditionStatus.FALSE, 60, False),
        (ConditionStatus.FALSE, 1_801, True),
    ],
    ids=["just now", "a minute ago", "too long ago"],
)
def test_cml_that_falls_silent_has_as_long(was: ConditionStatus, since: float, *, stuck: bool) -> None:
    """Not CmlReady *for* CML_READY_TIMEOUT: a worker of yesterday that falls silent is not stuck at once.

    Reference: worker-lifecycle.md#statuses.
    """
    worker = worker_in(
        "RUNNING", status_since=seconds_ago(86_400), **having(ConditionType.CML_READY, was, since=seconds_ago(since))
    )
    assert is_stuck(decided(worker, observing("running", cml=SILENT))) is stuck


def test_what_is_well_again_is_not_stuck_any_more() -> None:
    """worker-lifecycle.md#statuses: conditions say what is true now."""
    worker = worker_in("RUNNING", **having(ConditionType.STUCK, ConditionStatus.TRUE, since=seconds_ago(600)))
    wanted = {condition.type: condition.status for condition in decided(worker, observing("running")).conditions}
    assert ConditionType.STUCK in wanted
    assert wanted[ConditionType.STUCK] is not ConditionStatus.TRUE


# The license before termination


def licensed(**changes: Any) -> Worker:
    facts: dict[str, Any] = {"license_status": LicenseStatus.REGISTERED, "has_license_token": True}
    return worker_in("TERMINATING", "TERMINATED", **{**facts, **changes})


def test_a_registered_license_is_deregistered_first() -> None:
    """worker-lifecycle.md#terminating: before terminating, while CML can be reached."""
    assert notation(decided(licensed(), observing("running"))) == "+release"
    assert notation(decided(licensed(), observing("running", license_task=LicenseTaskState.RUNNING))) == "wait"


@pytest.mark.parametrize("task", [LicenseTaskState.RELEASED, LicenseTaskState.LEAKED])
def test_the_license_result_is_recorded_before_the_instance_ends(task: LicenseTaskState) -> None:
    """A license is leaked whenever its instance ends without a confirmed deregistration; never silent.

    Reference: worker-lifecycle.md#terminating.
    """
    observed = observing("running", license_task=task)
    decision = decided(licensed(), observed)
    assert decision.actions[:1] == (
        WriteLicenseStatus(
            LicenseStatus.DEREGISTERED, message=ANY, clear_pending=ANY, leaked=task is LicenseTaskState.LEAKED
        ),
    )
    assert notation(decision) in ("wait", "+terminate")
    assert notation(decided(licensed(license_status=LicenseStatus.DEREGISTERED), observed)) == "+terminate"


def test_a_failed_deregistration_is_retried_until_the_deadline() -> None:
    """worker-lifecycle.md#terminating: for at most LICENSE_RELEASE_TIMEOUT; then it is leaked, which is reported."""
    failed = observing("running", license_task=LicenseTaskState.FAILED)
    assert notation(decided(licensed(), failed)) == "+release"
    assert notation(decided(licensed(status_since=seconds_ago(121)), failed)) == "+terminate"


@pytest.mark.parametrize("task", [LicenseTaskState.NONE, LicenseTaskState.RUNNING])
def test_termination_does_not_wait_for_a_license_beyond_its_deadline(task: LicenseTaskState) -> None:
    """worker-lifecycle.md#terminating: at most LICENSE_RELEASE_TIMEOUT, 120 s from entering TERMINATING."""
    observed = observing("running", license_task=task)
    assert "terminate" not in calls(decided(licensed(status_since=seconds_ago(119)), observed))
    assert notation(decided(licensed(status_since=seconds_ago(121)), observed)) == "+terminate"


@pytest.mark.parametrize("status", ["RUNNING", "DRAINING", "STOPPING", "STOPPED"])
@pytest.mark.parametrize("task", [LicenseTaskState.RELEASED, LicenseTaskState.LEAKED])
def test_a_requested_deregistration_is_recorded_whatever_the_worker_does_next(
    status: str, task: LicenseTaskState
) -> None:
    """A confirmed deregistration is not a leak, although CML may not be queried again before the end.

    Reference: worker-lifecycle.md#terminating.
    """
    asked = PendingLicenseOperation(operation=LicenseOperation.DEREGISTER, requested_at=NOW, requested_by="ann")
    desired = "RUNNING" if status == "RUNNING" else "STOPPED"
    worker = worker_in(
        status,
        desired,
        license_status=LicenseStatus.REGISTERED,
        pending_license_operation=asked,
        status_since=seconds_ago(5),
    )
    observed = observing("running" if status in ("RUNNING", "DRAINING") else "stopped", license_task=task)
    decision = decided(worker, observed)
    leaked = task is LicenseTaskState.LEAKED
    assert decision.actions[0] == WriteLicenseStatus(
        LicenseStatus.DEREGISTERED, message=ANY, clear_pending=True, leaked=leaked
    )


def test_a_cml_that_cannot_be_reached_is_tried_until_the_deadline() -> None:
    """A server that is silent for a moment may respond within LICENSE_RELEASE_TIMEOUT.

    Reference: worker-lifecycle.md#terminating.
    """
    assert notation(decided(licensed(), observing("running", cml=SILENT))) == "+release"
    assert notation(decided(licensed(status_since=seconds_ago(121)), observing("running", cml=SILENT))) == "+terminate"


@pytest.mark.parametrize("status", [LicenseStatus.UNREGISTERED, LicenseStatus.DEREGISTERED, LicenseStatus.FAILED])
def test_without_a_license_it_is_terminated_at_once(status: LicenseStatus) -> None:
    """worker-lifecycle.md#terminating: a *registered* license is deregistered."""
    assert notation(decided(licensed(license_status=status), observing("running"))) == "+terminate"


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("desired", ["RUNNING", "STOPPED"])
def test_no_license_is_deregistered_unless_termination_is_desired(desired: str, column: str) -> None:
    """worker-lifecycle.md#terminating: before *terminating*."""
    worker = licensed(desired_status=DesiredStatus(desired))
    assert not calls(decided(worker, observing(column)))


# Without an instance


@pytest.mark.parametrize("status", ["PROVISIONING", "STARTING"])
def test_a_deadline_needs_no_patience_without_an_instance(status: str) -> None:
    """worker-lifecycle.md#deadlines: without an instance id it has failed."""
    decision = decided(worker_without_instance(status), observing_no_launch())
    assert notation(decision) == "FAILED"
    assert only_write(decision).reason


def test_what_stopped_without_an_instance_is_launched_again() -> None:
    """worker-lifecycle.md#startup-sweep: if the desired status differs, the matching transition begins."""
    worker = worker_without_instance("STOPPED", status_since=NOW - timedelta(days=1))
    after = carried_out(worker, decided(worker, observing_no_launch()))
    assert after.status is WorkerStatus.PENDING
    assert notation(decided(after, observing_no_launch())) == "+intent+launch"
