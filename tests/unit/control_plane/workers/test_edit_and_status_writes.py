"""Creating, editing and holding workers, and the writes of controllers."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.workers.lifecycle import apply_license_request, apply_patch, build_worker, hold, release
from lcm.control_plane.workers.status_writes import apply_launch_intent, apply_license_status, apply_status
from lcm.model.fleet.settings import DriftPolicy
from lcm.model.problems import ProblemCode
from lcm.model.worker.conditions import ConditionStatus, ConditionType, with_condition
from lcm.model.worker.requests import (
    CreateWorkerRequest,
    HoldRequest,
    LaunchIntentRequest,
    LicenseRequest,
    LicenseStatusUpdate,
    UpdateWorkerRequest,
    WorkerStatusUpdate,
)
from lcm.model.worker.status import DesiredStatus, IllegalWorkerTransitionError, LicenseStatus, WorkerStatus
from lcm.model.worker.template import DEFAULT_TEMPLATES
from tests.support.records.workers import NOW, a_worker

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker

LATER = NOW + timedelta(minutes=5)
SMALL = DEFAULT_TEMPLATES[1]


def moved(before: Worker, after: Worker) -> tuple[int, int]:
    return after.version - before.version, after.generation - before.generation


def report(worker: Worker, drift: DriftPolicy = DriftPolicy.RESTORE, **body: Any) -> Worker:
    write = WorkerStatusUpdate.model_validate({"version": worker.version, "reason": "seen", **body})
    return apply_status(worker, write, drift, LATER)


def test_a_new_worker_takes_its_size_and_price_from_the_template() -> None:
    request = CreateWorkerRequest.model_validate(
        {"name": "a", "template_name": "small", "license_token": "T", "tags": {"x": "y"}}
    )
    worker = build_worker(request, SMALL, worker_id="w-9", aws_region="eu-west-1", now=NOW)
    assert (worker.status, worker.desired_status) == (WorkerStatus.PENDING, DesiredStatus.RUNNING)
    assert (worker.instance_type, worker.cost_per_hour_usd, worker.capacity) == ("t3.small", 0.0208, SMALL.capacity)
    assert worker.has_license_token
    assert (worker.version, worker.generation, worker.tags) == (1, 1, {"x": "y"})


def test_a_disabled_template_is_rejected() -> None:
    request = CreateWorkerRequest(name="a", template_name="small")
    with pytest.raises(ProblemError, match="small is disabled"):
        build_worker(
            request, SMALL.model_copy(update={"enabled": False}), worker_id="w", aws_region="eu-west-1", now=NOW
        )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (0, 0)),
        ({"name": "alpha"}, (0, 0)),
        ({"name": "beta"}, (1, 0)),
        ({"tags": {"a": "b"}}, (1, 0)),
        ({"idle_detection_enabled": False}, (1, 0)),
        ({"lost_instance_policy": "replace"}, (1, 1)),
        ({"license_token": "T"}, (1, 1)),
        ({"cml_password": "p"}, (0, 0)),
    ],
)
def test_a_patch_increments_version_and_generation(body: dict[str, Any], expected: tuple[int, int]) -> None:
    worker = a_worker()
    assert moved(worker, apply_patch(worker, UpdateWorkerRequest.model_validate(body), LATER)) == expected


def test_a_new_token_increments_the_generation() -> None:
    worker = a_worker(has_license_token=True)
    assert moved(worker, apply_patch(worker, UpdateWorkerRequest.model_validate({"license_token": "NEW"}), LATER)) == (
        1,
        1,
    )


@pytest.mark.parametrize("field", ["name", "tags", "idle_detection_enabled", "lost_instance_policy"])
def test_null_is_rejected_where_it_means_nothing(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        UpdateWorkerRequest.model_validate({field: None})


def test_a_worker_without_a_template_rejects_replace() -> None:
    with pytest.raises(ProblemError, match="without a template"):
        apply_patch(
            a_worker(template_name=None), UpdateWorkerRequest.model_validate({"lost_instance_policy": "replace"}), LATER
        )


def test_a_repeated_hold_keeps_its_author() -> None:
    request = HoldRequest(reason="exam")
    held = hold(a_worker(), request, "anna", NOW)
    assert moved(a_worker(), held) == (1, 1)
    assert hold(held, request, "ben", LATER) is held
    other = hold(held, HoldRequest(reason="fire"), "ben", LATER)
    assert other.hold is not None
    assert (other.hold.by, other.hold.reason) == ("ben", "fire")
    free = release(other, LATER)
    assert free.hold is None
    assert release(free, LATER) is free


def test_a_hold_that_has_already_ended_is_rejected() -> None:
    with pytest.raises(ProblemError, match="not in the future"):
        hold(a_worker(), HoldRequest(reason="exam", until=NOW), "anna", LATER)


def test_license_operations() -> None:
    with pytest.raises(ProblemError, match="no license token"):
        apply_license_request(a_worker(), LicenseRequest(operation="register"), "anna", NOW)  # type: ignore[arg-type]
    register = LicenseRequest.model_validate({"operation": "register", "token": "T"})
    requested = apply_license_request(a_worker(), register, "anna", NOW)
    assert requested.pending_license_operation is not None
    assert requested.has_license_token
    again = LicenseRequest.model_validate({"operation": "register"})
    assert apply_license_request(requested, again, "ben", LATER) is requested
    back = apply_license_request(requested, LicenseRequest.model_validate({"operation": "deregister"}), "anna", LATER)
    assert not back.has_license_token
    assert moved(requested, back) == (1, 1)
    with pytest.raises(ProblemError, match="terminated"):
        apply_license_request(a_worker(desired_status="TERMINATED"), register, "anna", NOW)


def test_a_status_write_needs_the_current_version() -> None:
    with pytest.raises(ProblemError) as caught:
        report(a_worker(version=7), version=6, status="PROVISIONING")
    assert caught.value.code is ProblemCode.VERSION_CONFLICT
    assert caught.value.current == {"version": 7}


def test_an_illegal_transition_is_refused() -> None:
    with pytest.raises(IllegalWorkerTransitionError):
        report(a_worker(), status="RUNNING")


def test_only_the_given_fields_change_and_null_clears() -> None:
    worker = a_worker(status="RUNNING", instance_id="i-1", public_ip="1.2.3.4", private_ip="10.0.0.1")
    same = report(worker, status="RUNNING")
    assert same is worker
    cleared = report(worker, status="RUNNING", private_ip=None)
    assert (cleared.private_ip, cleared.public_ip, cleared.instance_id) == (None, "1.2.3.4", "i-1")
    assert moved(worker, cleared) == (1, 0)
    assert cleared.status_since == worker.status_since


@pytest.mark.parametrize("status", ["STOPPED", "PENDING", "TERMINATED"])
def test_the_public_address_is_cleared_when_the_instance_stops(status: str) -> None:
    worker = a_worker(status="STOPPING", instance_id="i-1", public_ip="1.2.3.4")
    assert report(worker, status=status, public_ip="5.6.7.8").public_ip is None


def test_every_entry_to_running_is_dated() -> None:
    worker = report(a_worker(status="STARTING", instance_id="i-1"), status="RUNNING")
    assert (worker.last_resumed_at, worker.status_since) == (LATER, LATER)


def test_replace_clears_the_intent_so_that_the_next_attempt_is_a_new_one() -> None:
    pending = apply_launch_intent(a_worker(), LaunchIntentRequest(version=1, attempt=1, parameters={"a": 1}), NOW)
    running = pending.model_copy(update={"status": WorkerStatus.RUNNING, "instance_id": "i-1"})
    again = report(running, status="PENDING", instance_id=None, private_ip=None)
    assert (again.launch_intent, again.launch_attempt, again.instance_id) == (None, 1, None)


def test_conditions_are_replaced_as_a_whole() -> None:
    conditions = with_condition((), ConditionType.STUCK, ConditionStatus.TRUE, now=NOW)
    worker = a_worker(status="STOPPING", conditions=conditions)
    assert report(worker, status="STOPPING", conditions=[]).conditions == ()


def test_desired_status_follows_a_drift_only_where_that_is_accepted() -> None:
    running = a_worker(status="RUNNING", instance_id="i-1")
    followed = report(running, DriftPolicy.ACCEPT, status="STOPPED", desired_status="STOPPED")
    assert followed.desired_status is DesiredStatus.STOPPED
    assert moved(running, followed) == (1, 1)
    for worker, drift, status in (
        (running, DriftPolicy.RESTORE, "STOPPED"),
        (running, DriftPolicy.ACCEPT, "RUNNING"),
        (a_worker(status="RUNNING", desired_status="TERMINATED"), DriftPolicy.ACCEPT, "STOPPED"),
        (
            a_worker(status="RUNNING", booking_id="bk-1", booked_until=LATER + timedelta(hours=1)),
            DriftPolicy.ACCEPT,
            "STOPPED",
        ),
    ):
        with pytest.raises(ProblemError, match="desired_status"):
            report(worker, drift, status=status, desired_status="STOPPED")


def intent(worker: Worker, attempt: int, **parameters: Any) -> Worker:
    return apply_launch_intent(
        worker, LaunchIntentRequest(version=worker.version, attempt=attempt, parameters=parameters or {"a": 1}), LATER
    )


def test_an_intent_is_stored_once_and_may_be_repeated() -> None:
    first = intent(a_worker(), 1)
    assert (first.launch_attempt, first.version, first.generation) == (1, 2, 1)
    assert intent(first, 1) is first
    second = intent(first, 2)
    assert second.launch_attempt == 2


@pytest.mark.parametrize(("attempt", "parameters"), [(1, {"a": 2}), (3, {"a": 1}), (4, {"a": 1})])
def test_other_parameters_or_another_attempt_are_rejected(attempt: int, parameters: dict[str, Any]) -> None:
    with pytest.raises(ProblemError) as caught:
        intent(intent(a_worker(), 1), attempt, **parameters)
    assert caught.value.code is ProblemCode.ATTEMPT_MISMATCH
    assert caught.value.current == {"launch_attempt": 1}


def test_an_attempt_that_was_given_up_cannot_be_stored_again() -> None:
    retried = a_worker(launch_attempt=1, launch_intent=None)
    with pytest.raises(ProblemError, match="next attempt is 2"):
        intent(retried, 1)


def test_only_a_pending_worker_is_launched() -> None:
    with pytest.raises(ProblemError, match="only a PENDING"):
        intent(a_worker(status="FAILED"), 1)


def test_the_license_status_of_cml_is_stored() -> None:
    register = LicenseRequest.model_validate({"operation": "register", "token": "T"})
    worker = apply_license_request(a_worker(), register, "anna", NOW)
    under_way = apply_license_status(worker, LicenseStatusUpdate(status=LicenseStatus.REGISTERING), LATER)
    assert under_way.pending_license_operation is not None
    done = apply_license_status(
        under_way, LicenseStatusUpdate(status=LicenseStatus.REGISTERED, clear_pending=True), LATER
    )
    assert (done.license_status, done.pending_license_operation) == (LicenseStatus.REGISTERED, None)
    assert moved(under_way, done) == (1, 0)
    back = apply_license_status(done, LicenseStatusUpdate(status=LicenseStatus.DEREGISTERED), LATER)
    assert not back.has_license_token
