"""The worker record: readiness, at rest, conditions, tags, times and case."""

from __future__ import annotations

import itertools
import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError

from lcm.model.worker.conditions import (
    Condition,
    ConditionStatus,
    ConditionType,
    find_condition,
    is_condition_true,
    with_condition,
    without_condition,
)
from lcm.model.worker.record import Hold, LaunchIntent, Worker
from lcm.model.worker.requests import (
    CreateWorkerRequest,
    HoldRequest,
    LaunchIntentRequest,
    ScaleUpRequest,
    UpdateWorkerRequest,
    WorkerStatusUpdate,
)
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from lcm.model.worker.template import DEFAULT_TEMPLATES
from tests.support.records.workers import NOW, a_worker


def cml_ready(status: ConditionStatus) -> tuple[Condition, ...]:
    return with_condition((), ConditionType.CML_READY, status, now=NOW)


@pytest.mark.parametrize(
    ("status", "desired", "cml"), list(itertools.product(WorkerStatus, DesiredStatus, ConditionStatus))
)
def test_ready_is_running_desired_and_responding(
    status: WorkerStatus, desired: DesiredStatus, cml: ConditionStatus
) -> None:
    ready = a_worker(status=status, desired_status=desired, conditions=cml_ready(cml)).ready
    assert ready == (
        status is WorkerStatus.RUNNING and desired is DesiredStatus.RUNNING and cml is ConditionStatus.TRUE
    )


def test_a_running_worker_of_which_nothing_is_known_is_not_ready() -> None:
    assert not a_worker(status=WorkerStatus.RUNNING).ready


AT_REST = {
    ("STOPPED", "STOPPED"),
    ("FAILED", "RUNNING"),
    ("FAILED", "STOPPED"),
    ("PENDING", "STOPPED"),
    ("TERMINATED", "RUNNING"),
    ("TERMINATED", "STOPPED"),
    ("TERMINATED", "TERMINATED"),
}


@pytest.mark.parametrize(("status", "desired"), list(itertools.product(WorkerStatus, DesiredStatus)))
def test_at_rest_is_what_the_specification_lists(status: WorkerStatus, desired: DesiredStatus) -> None:
    assert a_worker(status=status, desired_status=desired).at_rest == ((status.value, desired.value) in AT_REST)


def test_pending_with_a_stored_intent_is_not_at_rest() -> None:
    intent = LaunchIntent(attempt=1, parameters={"x": 1}, stored_at=NOW)
    assert not a_worker(desired_status=DesiredStatus.STOPPED, launch_intent=intent).at_rest


def test_since_changes_with_the_status_and_not_with_the_message() -> None:
    later, latest = NOW + timedelta(minutes=5), NOW + timedelta(minutes=9)
    conditions = with_condition((), ConditionType.STUCK, ConditionStatus.TRUE, now=NOW, reason="a")
    conditions = with_condition(conditions, ConditionType.STUCK, ConditionStatus.TRUE, now=later, reason="b")
    stuck = find_condition(conditions, ConditionType.STUCK)
    assert stuck is not None
    assert (stuck.since, stuck.reason) == (NOW, "b")
    conditions = with_condition(conditions, ConditionType.STUCK, ConditionStatus.FALSE, now=latest)
    stuck = find_condition(conditions, ConditionType.STUCK)
    assert stuck is not None
    assert stuck.since == latest
    assert not is_condition_true(conditions, ConditionType.STUCK)
    assert without_condition(conditions, ConditionType.STUCK) == ()


def test_conditions_keep_one_order_whatever_the_order_of_setting() -> None:
    conditions: tuple[Condition, ...] = ()
    for kind in reversed(ConditionType):
        conditions = with_condition(conditions, kind, ConditionStatus.UNKNOWN, now=NOW)
    assert [condition.type for condition in conditions] == list(ConditionType)


def test_all_times_carry_a_zone_and_leave_as_utc() -> None:
    with pytest.raises(ValidationError, match="timezone"):
        a_worker(created_at=datetime(2026, 1, 17, 10, 30))  # noqa: DTZ001 - this must be rejected
    elsewhere = datetime(2026, 1, 17, 12, 30, tzinfo=timezone(timedelta(hours=2)))
    text = json.loads(a_worker(created_at=elsewhere).model_dump_json())["created_at"]
    assert text == "2026-01-17T10:30:00Z"


def test_what_is_sent_can_be_read_back() -> None:
    full = a_worker(status="running", conditions=cml_ready(ConditionStatus.TRUE), tags={"team": "net"})
    assert Worker.model_validate_json(full.model_dump_json()) == full
    assert json.loads(full.model_dump_json())["ready"] is True


def test_words_are_accepted_in_any_case_and_shown_in_one() -> None:
    assert a_worker(status="rUnNiNg").status is WorkerStatus.RUNNING
    request = CreateWorkerRequest.model_validate({"name": "a", "template_name": "small", "desired_status": "stopped"})
    assert request.desired_status == "STOPPED"
    with pytest.raises(ValidationError):
        CreateWorkerRequest.model_validate({"name": "a", "template_name": "small", "desired_status": "asleep"})


def test_a_hold_ends_at_its_time() -> None:
    hold = Hold(reason="exam", by="anna", since=NOW, until=NOW + timedelta(hours=1))
    assert hold.active(NOW)
    assert not hold.active(NOW + timedelta(hours=1))
    assert Hold(reason="exam", by="anna", since=NOW).active(NOW + timedelta(days=900))


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "a b", "template_name": "small"}, "name"),
        ({"name": "", "template_name": "small"}, "name"),
        ({"name": "a" * 64, "template_name": "small"}, "name"),
        ({"name": "a\n", "template_name": "small"}, "name"),
        ({"name": "a"}, "template_name"),
        ({"name": "a", "template_name": "small", "status": "RUNNING"}, "status"),
        ({"name": "a", "template_name": "small", "desired_status": "TERMINATED"}, "desired_status"),
        ({"name": "a", "template_name": "small", "aws_region": "moon"}, "aws_region"),
        ({"name": "a", "template_name": "small", "tags": {"lcm:worker_id": "x"}}, "tags"),
        ({"name": "a", "template_name": "small", "tags": {"AWS:x": "x"}}, "tags"),
        ({"name": "a", "template_name": "small", "tags": {"k": "a\x07"}}, "tags"),
        ({"name": "a", "template_name": "small", "tags": {"k": "v" * 256}}, "tags"),
        ({"name": "a", "template_name": "small", "tags": {str(n): "" for n in range(41)}}, "tags"),
        ({"name": "a", "template_name": "small", "license_token": "a b"}, "license_token"),
        ({"name": "a", "template_name": "small", "license_token": ""}, "license_token"),
        ({"name": "a", "template_name": "small", "idle_detection_enabled": "perhaps"}, "idle_detection_enabled"),
        ({"name": "a", "template_name": "small", "cml_username": "a\u202eb"}, "cml_username"),
    ],
)
def test_bad_input_names_the_field(body: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        CreateWorkerRequest.model_validate(body)
    assert {error["loc"][0] for error in caught.value.errors()} == {field}


def test_secrets_do_not_show_when_printed() -> None:
    body = {"name": "a", "template_name": "small", "license_token": "CANARY", "cml_password": "CANARY"}
    request = CreateWorkerRequest.model_validate(body)
    assert "CANARY" not in repr(request)
    assert "CANARY" not in request.model_dump_json()


def test_an_update_knows_the_given_fields() -> None:
    assert UpdateWorkerRequest.model_validate({"license_token": None}).model_fields_set == {"license_token"}
    with pytest.raises(ValidationError):
        UpdateWorkerRequest.model_validate({"desired_status": "STOPPED"})


def test_a_controller_may_only_set_stopped() -> None:
    drift = {"status": "STOPPED", "version": 1, "reason": "drift"}
    assert WorkerStatusUpdate.model_validate({**drift, "desired_status": "STOPPED"}).desired_status == "STOPPED"
    for wrong in ({"desired_status": "RUNNING"}, {"desired_status": "TERMINATED"}, {"reason": "  "}, {"version": 0}):
        with pytest.raises(ValidationError):
            WorkerStatusUpdate.model_validate({**drift, **wrong})
    with pytest.raises(ValidationError):
        LaunchIntentRequest(version=1, attempt=0, parameters={"a": 1})


def test_for_is_a_name_on_the_wire() -> None:
    assert ScaleUpRequest.model_validate({"template": "small", "reason": "need", "for": "l-1"}).requested_for == "l-1"
    assert HoldRequest(reason=" exam ").reason == "exam"


def test_the_default_templates_are_those_of_the_specification() -> None:
    rows = {
        (t.name, t.instance_type, *t.capacity.model_dump().values(), t.cost_per_hour_usd) for t in DEFAULT_TEMPLATES
    }
    assert rows == {
        ("micro", "t3.micro", 2, 1, 20, 2, 0.0104),
        ("small", "t3.small", 2, 2, 50, 5, 0.0208),
        ("medium", "t3.medium", 2, 4, 100, 15, 0.0416),
        ("large", "t3.large", 2, 8, 200, 30, 0.0832),
        ("nested-medium", "m8i.2xlarge", 8, 32, 200, 35, 0.42336),
        ("nested-large", "m8i.8xlarge", 32, 128, 700, 135, 1.69344),
        ("metal", "m5zn.metal", 48, 192, 1000, 200, 3.9641),
    }
    assert all(template.enabled for template in DEFAULT_TEMPLATES)
