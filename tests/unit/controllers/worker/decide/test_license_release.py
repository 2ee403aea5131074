"""Giving a license back before the instance stops or ends: a stopped instance is started once more for that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import pytest

from lcm.cloud.errors import CloudAuthenticationError, InsufficientCapacityError, InvalidCloudRequestError
from lcm.cml.types import LicensePhase, LicenseProgress
from lcm.controllers.worker.decide import decide
from lcm.controllers.worker.decide.shared.conditions import changed_instance_fields
from lcm.controllers.worker.decide.shared.instance import instance_call_failed
from lcm.controllers.worker.decision import ChangeInstance, CloudCall, WriteLicenseStatus, WriteStatus
from lcm.controllers.worker.deps import Policy
from lcm.controllers.worker.observe.observation import CmlObservation, LicenseTaskState
from lcm.model.fleet.settings import FleetSettings, IdleSettings, LicenseOnStop
from lcm.model.worker.conditions import ConditionStatus, ConditionType, with_condition
from lcm.model.worker.record import Hold, PendingLicenseOperation
from lcm.model.worker.status import LicenseOperation, LicenseStatus, WorkerOrigin
from tests.support.records.workers import NOW
from tests.unit.controllers.worker.decide.cases import calls, decided, notation, observing, seconds_ago, worker_in

if TYPE_CHECKING:
    from lcm.controllers.worker.decision import Decision
    from lcm.model.worker.record import Worker

SILENT = CmlObservation(queried_at=NOW, ready=False, error="connection refused")


def licensed(**changes: Any) -> Worker:
    facts: dict[str, Any] = {"license_status": LicenseStatus.REGISTERED, "has_license_token": True}
    return worker_in("TERMINATING", "TERMINATED", **{**facts, **changes})


def written(decision: Decision) -> list[WriteStatus]:
    return [action for action in decision.actions if isinstance(action, WriteStatus)]


@pytest.mark.parametrize(
    ("column", "expected"), [("pending", "TERMINATING"), ("stopping", "wait"), ("stopped", "TERMINATING+start")]
)
def test_a_stopped_instance_is_started_once_more_for_its_license(column: str, expected: str) -> None:
    """worker-lifecycle.md#terminating: the time is on the record before the call; stopping is waited out."""
    decision = decided(licensed(), observing(column))
    assert notation(decision) == expected
    assert [write.fields for write in written(decision)] == (
        [] if column == "stopping" else [{"license_release_started_at": NOW}]
    )


def test_no_instance_is_started_that_nobody_could_sign_in_to() -> None:
    """worker-lifecycle.md#terminating: only if there are CML credentials; else it is terminated and leaked at once."""
    imported = {"origin": WorkerOrigin.IMPORTED}
    assert notation(decided(licensed(**imported, has_cml_credentials=False), observing("stopped"))) == "+terminate"
    for known in (
        {"has_cml_credentials": True},
        {"has_cml_credentials": None},  # recorded by an earlier version
        {"has_cml_credentials": False, "adopted_at": NOW},
        {"has_cml_credentials": False, "origin": WorkerOrigin.CREATED},
    ):
        facts = {**imported, **known}
        assert notation(decided(licensed(**facts), observing("stopped"))) == "TERMINATING+start"


def test_no_instance_is_started_for_a_license_that_is_not_to_be_given_back() -> None:
    """worker-lifecycle.md#terminating: `release_license: false`, also sent later."""
    assert notation(decided(licensed(release_license=False), observing("stopped"))) == "+terminate"
    assert notation(decided(licensed(release_license=False), observing("running"))) == "+terminate"
    later = releasing(60, release_license=False)
    assert notation(decided(later, observing("running"))) == "+terminate"
    assert notation(decided(licensed(license_status=LicenseStatus.REGISTERING), observing("stopped"))) == "+terminate"


def test_three_instances_of_a_region_are_started_for_their_licenses_at_once() -> None:
    assert notation(decided(licensed(), observing("stopped", license_releases=2))) == "TERMINATING+start"
    waiting = decided(licensed(status_since=seconds_ago(7200)), observing("stopped", license_releases=3))
    assert (notation(waiting), waiting.rule) == ("wait", "terminating.license_turn")
    assert "Stuck" not in {each.type.value for each in waiting.conditions if each.status is not None}


def releasing(started: float, ready: float | None = None, **changes: Any) -> Worker:
    """A worker whose instance was started for its license so many seconds ago, and whose CML responded then."""
    facts = {"license_release_started_at": seconds_ago(started), "status_since": seconds_ago(started + 5)}
    if ready is not None:
        facts["license_release_ready_at"] = seconds_ago(ready)
    return licensed(**{**facts, **changes})


@pytest.mark.parametrize(
    ("worker", "column", "expected"),
    [
        (releasing(899), "stopped", "+start"),
        (releasing(901), "stopped", "+terminate"),
        (releasing(899), "pending", "wait"),
        (releasing(901), "pending", "+terminate"),
        (releasing(899), "stopping", "wait"),
        (releasing(2699), "running", "wait"),
        (releasing(2701), "running", "+terminate"),
        (releasing(2600, ready=119), "running", "+release"),
        (releasing(2600, ready=121), "running", "+terminate"),
        (releasing(5000, ready=119), "running", "+release"),
    ],
)
def test_a_started_instance_has_bounds_for_its_start_its_cml_and_its_license(
    worker: Worker, column: str, expected: str
) -> None:
    """worker-lifecycle.md#terminating: STARTING_TIMEOUT, CML_READY_TIMEOUT, LICENSE_RELEASE_TIMEOUT."""
    decision = decided(worker, observing(column, cml=SILENT))
    address = [write.fields for write in written(decision) if "public_ip" in write.fields]
    assert address or notation(decision) == expected
    if address:  # the new address first
        known = worker.model_copy(update=dict(address[0]))
        assert notation(decided(known, observing(column, cml=SILENT))) == expected


def test_a_response_from_before_the_start_does_not_count() -> None:
    worker = releasing(30)
    observed = observing("running")
    worker = worker.model_copy(update=changed_instance_fields(worker, observed.instance))
    old = replace(observed.cml, ready=True, queried_at=seconds_ago(31))
    assert not written(decided(worker, replace(observed, cml=old)))
    new = replace(observed.cml, ready=True, queried_at=seconds_ago(3))
    [write] = written(decided(worker, replace(observed, cml=new)))
    assert write.fields == {"license_release_ready_at": NOW}


def test_time_on_hold_is_not_part_of_the_bounds() -> None:
    """worker-lifecycle.md#terminating: the clock stops when the hold is seen, and goes on after it."""
    held = with_condition((), ConditionType.HELD, ConditionStatus.TRUE, now=seconds_ago(5000), reason="OnHold")
    worker = releasing(5060, conditions=held, hold=Hold(reason="wait", by="ann", since=seconds_ago(5000)))
    assert "terminate" not in calls(decided(worker, observing("stopped")))
    released = worker.model_copy(update={"hold": None})
    [write] = written(decided(released, observing("stopped")))
    assert write.fields == {"license_release_started_at": seconds_ago(60)}
    marked = decided(releasing(60, hold=Hold(reason="wait", by="ann", since=NOW)), observing("stopped"))
    assert ConditionType.HELD in {each.type for each in marked.conditions if each.status is ConditionStatus.TRUE}


def test_it_is_stuck_only_after_all_bounds() -> None:
    def stuck(worker: Worker) -> bool:
        decision = decided(worker, observing("shutting-down"))
        return any(each.type is ConditionType.STUCK and each.status is not None for each in decision.conditions)

    assert not stuck(releasing(900 + 1800 + 120 + 890))
    assert stuck(releasing(900 + 1800 + 120 + 910))
    assert stuck(licensed(status_since=seconds_ago(901)))


def test_a_start_that_is_refused_ends_the_worker_and_capacity_is_waited_for() -> None:
    worker = releasing(60)
    refused = instance_call_failed(worker, CloudCall.START, InvalidCloudRequestError("no such type"))
    assert notation(refused) == "+terminate"
    for error in (InsufficientCapacityError("none"), CloudAuthenticationError("expired")):
        later = instance_call_failed(worker, CloudCall.START, error)
        assert not calls(later)
        assert not written(later)


@pytest.mark.parametrize("status", ["RUNNING", "DRAINING", "STOPPING"])
def test_a_license_is_given_back_before_a_stop_only_on_request(status: str) -> None:
    """worker-lifecycle.md#stopping: LICENSE_ON_STOP; the token stays, and after the timeout the license is kept."""
    facts: dict[str, Any] = {"license_status": LicenseStatus.REGISTERED, "has_license_token": True}
    worker = worker_in(status, "STOPPED", status_since=seconds_ago(5), **facts)
    quiet = observing("running", lablets=0)
    assert "release" not in calls(decided(worker, quiet))
    settings = FleetSettings(idle=IdleSettings(license_on_stop=LicenseOnStop.RELEASE))
    policy = replace(Policy(), settings=settings)
    first = decide(worker, quiet, policy, NOW)
    assert "stop" not in calls(first)
    stopping = worker_in("STOPPING", "STOPPED", status_since=seconds_ago(5), **facts)
    assert calls(decide(stopping, quiet, policy, NOW)) == ["release"]
    done = decide(stopping, replace(quiet, license_task=LicenseTaskState.RELEASED), policy, NOW)
    assert done.actions == (WriteLicenseStatus(LicenseStatus.UNREGISTERED, ANY, clear_pending=True),)
    late = worker_in("STOPPING", "STOPPED", status_since=seconds_ago(121), **facts)
    assert calls(decide(late, quiet, policy, NOW)) == ["stop"]
    without_token = worker_in("STOPPING", "STOPPED", **{**facts, "has_license_token": False})
    assert calls(decide(without_token, quiet, policy, NOW)) == ["stop"]


# Another token


def replacing(**changes: Any) -> Worker:
    asked = PendingLicenseOperation(
        operation=LicenseOperation.REGISTER, deregister_first=True, requested_at=NOW, requested_by="ann"
    )
    facts = {"license_status": LicenseStatus.REGISTERED, "has_license_token": True, "pending_license_operation": asked}
    return worker_in("RUNNING", "RUNNING", **{**facts, **changes})


def with_license(phase: LicensePhase, **more: Any) -> Any:
    observed = observing("running", **more)
    return replace(observed, cml=replace(observed.cml, license=LicenseProgress(phase, "as CML says")))


def test_a_registered_cml_is_deregistered_before_it_is_registered_with_another_token() -> None:
    """licenses.md: the call is really made; before, the request was only marked as done."""
    assert calls(decided(replacing(), with_license(LicensePhase.REGISTERED))) == ["release"]
    running = with_license(LicensePhase.REGISTERED, license_task=LicenseTaskState.RUNNING)
    assert calls(decided(replacing(), running)) == []
    assert calls(decided(replacing(), with_license(LicensePhase.REGISTERING))) == []


@pytest.mark.parametrize(
    ("phase", "task", "leaked"),
    [
        (LicensePhase.REGISTERED, LicenseTaskState.RELEASED, False),
        (LicensePhase.REGISTERED, LicenseTaskState.LEAKED, True),
        (LicensePhase.UNREGISTERED, LicenseTaskState.NONE, False),
    ],
)
def test_the_new_token_is_registered_once_the_former_registration_has_ended(
    phase: LicensePhase, task: LicenseTaskState, leaked: bool
) -> None:
    """Also after a change of leader, which knows only what CML reports."""
    decision = decided(replacing(), with_license(phase, license_task=task))
    assert calls(decision) == ["register"]
    write = decision.actions[0]
    assert isinstance(write, WriteLicenseStatus)
    assert (write.status, write.deregistered, write.leaked) == (LicenseStatus.REGISTERING, True, leaked)


@pytest.mark.parametrize("column", ["absent", "terminated", "stopped"])
@pytest.mark.parametrize(("task", "leaked"), [(LicenseTaskState.RELEASED, False), (LicenseTaskState.LEAKED, True)])
def test_a_license_that_another_token_replaces_is_recorded_as_given_back_whatever_the_instance_does(
    column: str, task: LicenseTaskState, leaked: bool
) -> None:
    """licenses.md: before, an instance that ended before the next pass left a leak on the record that was none."""
    decision = decided(replacing(), observing(column, license_task=task))
    write = decision.actions[0]
    assert isinstance(write, WriteLicenseStatus)
    assert (write.status, write.deregistered, write.leaked) == (LicenseStatus.UNREGISTERED, True, leaked)
    assert [each.status for each in written(decision)] != []


@pytest.mark.parametrize("column", ["absent", "terminated"])
def test_a_license_that_was_given_back_before_the_termination_is_recorded_if_the_instance_is_gone(column: str) -> None:
    """worker-lifecycle.md#terminating: before, the license was reported as leaked."""
    released = observing(column, license_task=LicenseTaskState.RELEASED)
    first, last = decided(licensed(), released).actions
    assert isinstance(first, WriteLicenseStatus)
    assert (first.status, first.leaked) == (LicenseStatus.DEREGISTERED, False)
    assert isinstance(last, ChangeInstance if column == "absent" else WriteStatus)
    kept = decided(licensed(release_license=False), released).actions
    assert not any(isinstance(each, WriteLicenseStatus) for each in kept)
