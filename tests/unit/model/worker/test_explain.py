"""Explanations, compared word by word: operators read them at night."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lcm.model.audit import Actor, ActorKind, DecisionReport, WorkerHistoryEntry
from lcm.model.fleet.settings import FleetSettings
from lcm.model.fleet.state import Breaker, FleetState
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.explain import ExplainInput, Explanation, explain
from lcm.model.worker.record import Hold, LaunchIntent, PendingLicenseOperation
from lcm.model.worker.status import DesiredStatus, LicenseOperation, LicenseStatus, WorkerStatus
from lcm.model.worker.template import Capacity
from tests.support.records.workers import a_worker

NOW = datetime(2026, 1, 17, 3, 7, tzinfo=UTC)
INSTANCE = "i-0f3a91c2"


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


# By status: the reason of the last transition and the reason of the last decision.
LIVED: dict[str, tuple[str, str]] = {
    "PENDING": ("created", "EC2 has no capacity for m5zn.metal in eu-west-1a; trying again"),
    "PROVISIONING": (f"launched {INSTANCE}", "EC2 reports pending; it may take until 03:13 UTC"),
    "STARTING": (f"{INSTANCE} is running", "the instance has no address yet"),
    "RUNNING": (f"{INSTANCE} is running at 192.0.2.7", "all is as it should be"),
    "DRAINING": ("make room for the exam", "2 nodes still run"),
    "STOPPING": ("the drain is complete", "EC2 reports stopping"),
    "STOPPED": ("EC2 reports stopped", "stopped, as desired"),
    "TERMINATING": ("its desired status is TERMINATED", "EC2 reports shutting-down"),
    "TERMINATED": ("EC2 reports terminated", "over"),
    "FAILED": ("EC2 refused the launch: VcpuLimitExceeded, 96 of 96 vCPUs in use", "waiting for a person"),
    "UNKNOWN": ("EC2 reports rebooting-2, an unrecognized state", "checking again"),
}


def seen(status: str, desired: str = "RUNNING", *, without: tuple[str, ...] = (), **facts: Any) -> ExplainInput:
    """A worker twelve minutes after its last transition and 15 seconds after the last decision."""
    parts: dict[str, Any] = {
        "fleet": facts.pop("fleet", FleetState()),
        "settings": facts.pop("settings", FleetSettings()),
        "decision": {"next_look_at": NOW + timedelta(seconds=15), **facts.pop("decision", {})},
    }
    fields: dict[str, Any] = {
        "name": "lab-042",
        "status": WorkerStatus(status),
        "desired_status": DesiredStatus(desired),
        "status_since": NOW - minutes(12),
        "created_at": NOW - minutes(200),
        "instance_id": None if status == "PENDING" else INSTANCE,
    }
    if desired == "STOPPED":
        fields |= {"last_paused_at": NOW - minutes(13), "pause_reason": "evening"}
    if status == "RUNNING" and desired == "RUNNING":
        fields |= {"conditions": (condition("CmlReady"),), "last_activity_at": NOW - minutes(20)}
    why, decided = LIVED[status]
    by_person = status in ("PENDING", "DRAINING")
    actor = Actor(
        kind=ActorKind.PERSON if by_person else ActorKind.CONTROLLER, name="anna" if by_person else "worker-controller"
    )
    last = WorkerHistoryEntry(
        at=NOW - minutes(12),
        worker_id="w-1",
        from_status=None,
        to_status=WorkerStatus(status),
        reason=why,
        actor=actor,
        version=4,
    )
    decision = DecisionReport.model_validate(
        {"rule": "a.rule", "reason": decided, "decided_at": NOW - minutes(0.25), **parts["decision"]}
    )
    return ExplainInput(
        worker=a_worker(**{**fields, **facts}),
        decision=None if "decision" in without else decision,
        fleet=parts["fleet"],
        settings=parts["settings"],
        last=None if "last" in without else last,
        now=NOW,
    )


def condition(kind: str, status: str = "True", message: str = "", since: float = 10) -> Condition:
    return Condition(
        type=ConditionType(kind), status=ConditionStatus(status), message=message, since=NOW - minutes(since)
    )


def summary(inputs: ExplainInput) -> str:
    return explain(inputs).summary


EXPECTED: dict[tuple[str, str], str] = {
    ("PENDING", "RUNNING"): (
        "lab-042 has been PENDING for 12 minutes (anna: created). Controller status (for 15 seconds): EC2 has no "
        "capacity for m5zn.metal in eu-west-1a; trying again. An instance will be launched for it in eu-west-1; "
        "next check in 15 seconds."
    ),
    ("PENDING", "STOPPED"): (
        "lab-042 has been PENDING for 12 minutes, but a stop was requested 13 minutes ago (evening). No instance "
        "will be launched until a start is requested: lcm workers start lab-042."
    ),
    ("PENDING", "TERMINATED"): (
        "lab-042 has been PENDING for 12 minutes (anna: created); its desired status is TERMINATED. Controller "
        "status (for 15 seconds): EC2 has no capacity for m5zn.metal in eu-west-1a; trying again. It will become "
        "TERMINATED because nothing was launched for it; next check in 15 seconds."
    ),
    ("PROVISIONING", "RUNNING"): (
        "lab-042 has been PROVISIONING for 12 minutes (worker-controller: launched i-0f3a91c2). Controller status"
        " (for 15 seconds): EC2 reports pending; it may take until 03:13 UTC. It will become STARTING as soon as "
        "EC2 reports that instance i-0f3a91c2 is running; next check in 15 seconds."
    ),
    ("PROVISIONING", "STOPPED"): (
        "lab-042 has been PROVISIONING for 12 minutes, but a stop was requested 13 minutes ago (evening). "
        "Controller status (for 15 seconds): EC2 reports pending; it may take until 03:13 UTC. Instance "
        "i-0f3a91c2 will be stopped as soon as EC2 allows it; next check in 15 seconds."
    ),
    ("PROVISIONING", "TERMINATED"): (
        "lab-042 has been PROVISIONING for 12 minutes (worker-controller: launched i-0f3a91c2); its desired "
        "status is TERMINATED. Controller status (for 15 seconds): EC2 reports pending; it may take until 03:13 "
        "UTC. Instance i-0f3a91c2 will be terminated; next check in 15 seconds."
    ),
    ("STARTING", "RUNNING"): (
        "lab-042 has been STARTING for 12 minutes (worker-controller: i-0f3a91c2 is running). Controller status "
        "(for 15 seconds): the instance has no address yet. It will become RUNNING as soon as instance i-0f3a91c2"
        " is running and has an address; next check in 15 seconds."
    ),
    ("STARTING", "STOPPED"): (
        "lab-042 has been STARTING for 12 minutes, but a stop was requested 13 minutes ago (evening). Controller "
        "status (for 15 seconds): the instance has no address yet. Instance i-0f3a91c2 will be stopped; next "
        "check in 15 seconds."
    ),
    ("STARTING", "TERMINATED"): (
        "lab-042 has been STARTING for 12 minutes (worker-controller: i-0f3a91c2 is running); its desired status "
        "is TERMINATED. Controller status (for 15 seconds): the instance has no address yet. Instance i-0f3a91c2 "
        "will be terminated; next check in 15 seconds."
    ),
    ("RUNNING", "RUNNING"): (
        "lab-042 has been RUNNING for 12 minutes and is ready. Controller status (for 15 seconds): all is as it "
        "should be. Idle for 20 minutes; it will be paused at about 03:47 UTC, in 40 minutes, unless it is used."
    ),
    ("RUNNING", "STOPPED"): (
        "lab-042 has been RUNNING for 12 minutes, but a stop was requested 13 minutes ago (evening). Controller "
        "status (for 15 seconds): all is as it should be. Instance i-0f3a91c2 will be stopped; next check in 15 "
        "seconds."
    ),
    ("RUNNING", "TERMINATED"): (
        "lab-042 has been RUNNING for 12 minutes (worker-controller: i-0f3a91c2 is running at 192.0.2.7); its "
        "desired status is TERMINATED. Controller status (for 15 seconds): all is as it should be. Instance "
        "i-0f3a91c2 will be terminated; next check in 15 seconds."
    ),
    ("DRAINING", "RUNNING"): (
        "lab-042 has been DRAINING for 12 minutes (anna: make room for the exam); its desired status is RUNNING. "
        "Controller status (for 15 seconds): 2 nodes still run. It will return to RUNNING; next check in 15 "
        "seconds."
    ),
    ("DRAINING", "STOPPED"): (
        "lab-042 has been DRAINING for 12 minutes (anna: make room for the exam). Controller status (for 15 "
        "seconds): 2 nodes still run. It accepts no new lablets, and instance i-0f3a91c2 will be stopped once no "
        "node is running and no lablet is assigned to it, or when the drain times out; next check in 15 seconds."
    ),
    ("DRAINING", "TERMINATED"): (
        "lab-042 has been DRAINING for 12 minutes (anna: make room for the exam); its desired status is "
        "TERMINATED. Controller status (for 15 seconds): 2 nodes still run. Instance i-0f3a91c2 will be "
        "terminated; next check in 15 seconds."
    ),
    ("STOPPING", "RUNNING"): (
        "lab-042 has been STOPPING for 12 minutes (worker-controller: the drain is complete); its desired status "
        "is RUNNING. Controller status (for 15 seconds): EC2 reports stopping. Instance i-0f3a91c2 will be "
        "started again once it has stopped; next check in 15 seconds."
    ),
    ("STOPPING", "STOPPED"): (
        "lab-042 has been STOPPING for 12 minutes: a stop was requested 13 minutes ago (evening). Controller "
        "status (for 15 seconds): EC2 reports stopping. It will become STOPPED as soon as EC2 reports that "
        "instance i-0f3a91c2 has stopped; next check in 15 seconds."
    ),
    ("STOPPING", "TERMINATED"): (
        "lab-042 has been STOPPING for 12 minutes (worker-controller: the drain is complete); its desired status "
        "is TERMINATED. Controller status (for 15 seconds): EC2 reports stopping. Instance i-0f3a91c2 will be "
        "terminated; next check in 15 seconds."
    ),
    ("STOPPED", "RUNNING"): (
        "lab-042 has been STOPPED for 12 minutes (worker-controller: EC2 reports stopped); its desired status is "
        "RUNNING. Controller status (for 15 seconds): stopped, as desired. Instance i-0f3a91c2 will be started; "
        "next check in 15 seconds."
    ),
    ("STOPPED", "STOPPED"): (
        "lab-042 has been STOPPED for 12 minutes: a stop was requested 13 minutes ago (evening). It will stay "
        "stopped until a start is requested: lcm workers start lab-042."
    ),
    ("STOPPED", "TERMINATED"): (
        "lab-042 has been STOPPED for 12 minutes (worker-controller: EC2 reports stopped); its desired status is "
        "TERMINATED. Controller status (for 15 seconds): stopped, as desired. Instance i-0f3a91c2 will be "
        "terminated; next check in 15 seconds."
    ),
    ("TERMINATING", "RUNNING"): (
        "lab-042 has been TERMINATING for 12 minutes (worker-controller: its desired status is TERMINATED); its "
        "desired status is RUNNING. Controller status (for 15 seconds): EC2 reports shutting-down. It will become"
        " TERMINATED as soon as EC2 reports that instance i-0f3a91c2 is terminated; next check in 15 seconds."
    ),
    ("TERMINATING", "STOPPED"): (
        "lab-042 has been TERMINATING for 12 minutes, but a stop was requested 13 minutes ago (evening). "
        "Controller status (for 15 seconds): EC2 reports shutting-down. It will become TERMINATED as soon as EC2 "
        "reports that instance i-0f3a91c2 is terminated; next check in 15 seconds."
    ),
    ("TERMINATING", "TERMINATED"): (
        "lab-042 has been TERMINATING for 12 minutes (worker-controller: its desired status is TERMINATED). "
        "Controller status (for 15 seconds): EC2 reports shutting-down. It will become TERMINATED as soon as EC2 "
        "reports that instance i-0f3a91c2 is terminated; next check in 15 seconds."
    ),
    ("TERMINATED", "RUNNING"): (
        "lab-042 was TERMINATED 12 minutes ago (worker-controller: EC2 reports terminated). No further changes: "
        "TERMINATED is final, and the record is kept as history."
    ),
    ("TERMINATED", "STOPPED"): (
        "lab-042 was TERMINATED 12 minutes ago (worker-controller: EC2 reports terminated). No further changes: "
        "TERMINATED is final, and the record is kept as history."
    ),
    ("TERMINATED", "TERMINATED"): (
        "lab-042 was TERMINATED 12 minutes ago (worker-controller: EC2 reports terminated). No further changes: "
        "TERMINATED is final, and the record is kept as history."
    ),
    ("FAILED", "RUNNING"): (
        "lab-042 FAILED 12 minutes ago: EC2 refused the launch: VcpuLimitExceeded, 96 of 96 vCPUs in use. Action "
        "required: fix the cause and run lcm workers retry lab-042, or remove the worker with lcm workers "
        "terminate lab-042."
    ),
    ("FAILED", "STOPPED"): (
        "lab-042 FAILED 12 minutes ago: EC2 refused the launch: VcpuLimitExceeded, 96 of 96 vCPUs in use. Action "
        "required: fix the cause and run lcm workers retry lab-042, or remove the worker with lcm workers "
        "terminate lab-042."
    ),
    ("FAILED", "TERMINATED"): (
        "lab-042 FAILED 12 minutes ago: EC2 refused the launch: VcpuLimitExceeded, 96 of 96 vCPUs in use. "
        "Controller status (for 15 seconds): waiting for a person. Instance i-0f3a91c2 will be terminated; next "
        "check in 15 seconds."
    ),
    ("UNKNOWN", "RUNNING"): (
        "lab-042 has been UNKNOWN for 12 minutes (worker-controller: EC2 reports rebooting-2, an unrecognized "
        "state); its desired status is RUNNING. Controller status (for 15 seconds): checking again. The status "
        "will be updated as soon as EC2 reports a recognized state; next check in 15 seconds."
    ),
    ("UNKNOWN", "STOPPED"): (
        "lab-042 has been UNKNOWN for 12 minutes, but a stop was requested 13 minutes ago (evening). Controller "
        "status (for 15 seconds): checking again. Instance i-0f3a91c2 will be stopped as soon as EC2 reports a "
        "state that allows it; next check in 15 seconds."
    ),
    ("UNKNOWN", "TERMINATED"): (
        "lab-042 has been UNKNOWN for 12 minutes (worker-controller: EC2 reports rebooting-2, an unrecognized "
        "state); its desired status is TERMINATED. Controller status (for 15 seconds): checking again. Instance "
        "i-0f3a91c2 will be terminated; next check in 15 seconds."
    ),
}


@pytest.mark.parametrize("desired", DesiredStatus)
@pytest.mark.parametrize("status", WorkerStatus)
def test_each_status_and_desired_status(status: str, desired: str) -> None:
    told = explain(seen(status, desired))
    assert told.summary == EXPECTED[status, desired]
    assert told.summary.endswith(told.next)


def test_the_explanation_contains_its_inputs() -> None:
    inputs = seen("STOPPING", "STOPPED")
    told = explain(inputs)
    assert (told.last_transition, told.decision) == (inputs.last, inputs.decision)
    assert (told.status, told.desired_status, told.ready) == (WorkerStatus.STOPPING, DesiredStatus.STOPPED, False)
    assert Explanation.model_validate_json(told.model_dump_json()) == told


@pytest.mark.parametrize("status", [status for status in WorkerStatus if status is not WorkerStatus.TERMINATED])
def test_a_missing_decision_is_mentioned(status: str) -> None:
    assert "No controller has evaluated it yet." in summary(seen(status, without=("decision", "last")))


def test_without_a_history_no_reason_is_invented() -> None:
    """The history may have expired."""
    assert summary(seen("STOPPED", "RUNNING", without=("last",))).startswith(
        "lab-042 has been STOPPED for 12 minutes; its desired status is RUNNING."
    )


def test_a_hold_is_explained_and_prevents_changes() -> None:
    hold = Hold(reason="exam in room 4", by="anna", since=NOW - minutes(57), until=NOW + minutes(173))
    told = explain(seen("RUNNING", "STOPPED", hold=hold))
    assert (
        "It was put on hold by anna at 02:10 UTC (exam in room 4), until 06:00 UTC: lcm workers release lab-042."
        in told.summary
    )
    assert told.next == "No changes are made while the hold is active; after that, instance i-0f3a91c2 will be stopped."


def test_a_hold_does_not_stop_status_updates() -> None:
    hold = Hold(reason="exam", by="anna", since=NOW - minutes(57))
    told = explain(seen("STOPPING", "STOPPED", hold=hold))
    assert "(exam), until it is released: lcm workers release lab-042." in told.summary
    assert told.next.startswith("It will become STOPPED as soon as")
    ready = explain(seen("RUNNING", hold=hold))
    assert ready.next == "It keeps running and is not paused while the hold is active."


def test_an_expired_hold_is_not_mentioned() -> None:
    over = Hold(reason="exam", by="anna", since=NOW - minutes(57), until=NOW - minutes(1))
    assert "hold" not in summary(seen("RUNNING", "STOPPED", hold=over))


def test_a_hold_of_the_fleet_counts_for_each() -> None:
    fleet = FleetState(hold=Hold(reason="AWS is unwell", by="bert", since=NOW - timedelta(days=2)))
    told = explain(seen("STOPPED", "RUNNING", fleet=fleet))
    assert (
        "The whole fleet was put on hold by bert at 03:07 UTC on 15 January (AWS is unwell), until it is released."
        in told.summary
    )
    assert told.next == "No changes are made while the hold is active; after that, instance i-0f3a91c2 will be started."


@pytest.mark.parametrize(
    ("person", "words"),
    [
        (True, "it must be reset by a person: lcm breaker reset."),
        (False, "it closes when another scan confirms the result, or with lcm breaker reset."),
    ],
)
def test_an_open_breaker_of_its_region(person: bool, words: str) -> None:
    breaker = Breaker(
        region="eu-west-1",
        open=True,
        reason="9 of 20 workers would be lost at once",
        since=NOW - minutes(42),
        only_a_person_closes=person,
    )
    fleet = FleetState(breakers={"eu-west-1": breaker})
    told = summary(seen("RUNNING", fleet=fleet))
    assert (
        "The breaker of eu-west-1 has been open for 42 minutes (9 of 20 workers would be lost at once),"
        " so no worker there is marked as lost; " + words
    ) in told
    assert "breaker" not in summary(seen("RUNNING", fleet=fleet, aws_region="us-east-1"))


def test_a_stuck_worker_is_mentioned() -> None:
    stuck = condition("Stuck", message="EC2 has reported stopping for 31 minutes.", since=16)
    told = summary(seen("STOPPING", "STOPPED", conditions=(stuck,)))
    assert "It has been stuck for 16 minutes: EC2 has reported stopping for 31 minutes." in told


def test_running_is_not_ready_and_why() -> None:
    waiting = condition("CmlReady", "False", "connection refused", since=6)
    told = explain(seen("RUNNING", conditions=(waiting,)))
    assert told.summary.startswith(
        "lab-042 has been RUNNING for 12 minutes but is not ready: CML has not responded for 6 minutes"
        " (connection refused)."
    )
    assert told.next == "It will accept lablets as soon as CML responds; next check in 15 seconds."
    assert "CML has not been checked yet" in summary(seen("RUNNING", conditions=()))


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (LicenseOperation.REGISTER, "License registration was requested by anna 3 minutes ago."),
        (LicenseOperation.DEREGISTER, "License deregistration was requested by anna 3 minutes ago."),
    ],
)
def test_a_pending_license_operation(operation: LicenseOperation, words: str) -> None:
    pending = PendingLicenseOperation(operation=operation, requested_at=NOW - minutes(3), requested_by="anna")
    assert words in summary(seen("RUNNING", pending_license_operation=pending))


def test_a_rejected_license_and_one_that_is_deregistered() -> None:
    assert "CML rejected its license token" in summary(seen("RUNNING", license_status=LicenseStatus.FAILED))
    ending = explain(seen("RUNNING", "TERMINATED", license_status=LicenseStatus.REGISTERED))
    assert "will be terminated; its license will be deregistered first" in ending.next


def test_a_pause_by_policy_differs_from_a_stop_by_a_person() -> None:
    paused: dict[str, Any] = {
        "last_paused_at": NOW - minutes(190),
        "pause_reason": "idle_timeout",
        "paused_by_policy": True,
    }
    told = explain(seen("STOPPED", "STOPPED", status_since=NOW - minutes(188), **paused))
    assert told.summary == (
        "lab-042 has been STOPPED for 3 hours 8 minutes: auto-pause requested a stop 3 hours 10 minutes ago because"
        " it was idle. It will stay stopped until a start is requested or scale-up needs it:"
        " lcm workers start lab-042."
    )
    by_hand: dict[str, Any] = {"last_paused_at": NOW - minutes(1), "pause_reason": "manual"}
    assert "a stop was requested 1 minute ago." in summary(seen("STOPPING", "STOPPED", **by_hand))
    outside: dict[str, Any] = {"last_paused_at": NOW - minutes(5), "pause_reason": "stopped from outside"}
    assert "it was stopped outside LCM 5 minutes ago, and the stop was accepted." in summary(
        seen("STOPPED", "STOPPED", **outside)
    )
    drained: dict[str, Any] = {
        "last_paused_at": NOW - minutes(1),
        "pause_reason": "idle for 90 minutes",
        "paused_by_policy": True,
    }
    assert "a policy requested a stop 1 minute ago (idle for 90 minutes)." in summary(
        seen("STOPPING", "STOPPED", **drained)
    )


def settings(**groups: dict[str, Any]) -> FleetSettings:
    return FleetSettings.model_validate(groups)


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (
            {"last_activity_at": NOW - minutes(75), "last_idle_check_at": NOW - minutes(4)},
            (
                "Idle for 1 hour 15 minutes; it will be paused at the next idle check (last: 4 minutes ago), unless it"
                " is used or has lablets."
            ),
        ),
        (
            {
                "last_activity_at": NOW - minutes(75),
                "last_idle_check_at": NOW - minutes(4),
                "settings": settings(scaling={"min_workers": 2}),
            },
            (
                "Idle for 1 hour 15 minutes; it will be paused at the next idle check (last: 4 minutes ago), unless it"
                " is used, has lablets, or at most 2 workers are running."
            ),
        ),
        (
            {"last_activity_at": NOW - minutes(75)},
            (
                "Idle for 1 hour 15 minutes; it will be paused after the first successful idle check (none yet: no"
                " telemetry)."
            ),
        ),
        (
            {"last_activity_at": NOW - minutes(75), "last_resumed_at": NOW - minutes(12)},
            "Idle for 1 hour 15 minutes; it will be paused at about 03:55 UTC, in 48 minutes, unless it is used.",
        ),
        (
            {"last_activity_at": NOW - minutes(75), "idle_detection_enabled": False},
            "Idle for 1 hour 15 minutes; it keeps running because idle detection is disabled for it.",
        ),
        (
            {
                "last_activity_at": NOW - minutes(75),
                "settings": settings(idle={"worker_auto_pause_enabled": False}),
            },
            "Idle for 1 hour 15 minutes; it keeps running because auto-pause is disabled.",
        ),
        (
            {
                "last_activity_at": NOW - minutes(20),
                "settings": settings(idle={"idle_action": "drain"}, scaling={"scale_down_enabled": True}),
            },
            "Idle for 20 minutes; it will be drained at about 03:47 UTC, in 40 minutes, unless it is used.",
        ),
        (
            {"last_activity_at": NOW},
            "Used less than a minute ago; it will be paused at about 04:07 UTC, in 1 hour, unless it is used.",
        ),
    ],
)
def test_idle_time_and_what_follows(facts: dict[str, Any], told: str) -> None:
    assert explain(seen("RUNNING", **facts)).next == told


def test_planned_actions_are_shortened() -> None:
    doing = {"actions": ("stop i-0f3a91c2", "b", "c", "d"), "reason": "x" * 900}
    told = summary(seen("RUNNING", "STOPPED", decision=doing))
    assert "(planned actions: stop i-0f3a91c2; b; c)" in told
    assert len(told) < 700


def test_a_pending_launch_is_resolved_first_and_its_parameters_are_not_shown() -> None:
    intent = LaunchIntent(attempt=2, parameters={"UserData": "CANARY"}, stored_at=NOW - minutes(1))
    for desired, words in (
        ("RUNNING", "or launched"),
        ("STOPPED", "will be stopped"),
        ("TERMINATED", "will be terminated"),
    ):
        inputs = seen(
            "PENDING", desired, launch_intent=intent, launch_attempt=2, tags={"x": "CANARY"},
            decision={"inputs": {"token": "CANARY"}},
        )  # fmt: skip
        told = explain(inputs)
        assert "aunch attempt 2 will be resolved" in told.next
        assert words in told.next
        assert "CANARY" not in told.summary


def test_a_termination_names_its_actor() -> None:
    facts: dict[str, Any] = {"terminated_by": "discovery-gc", "terminated_reason": "not in EC2 any more"}
    assert summary(seen("TERMINATED", **facts)).startswith(
        "lab-042 was TERMINATED 12 minutes ago by discovery-gc: not in EC2 any more."
    )


def test_a_failure_without_an_instance() -> None:
    told = explain(seen("FAILED", "TERMINATED", instance_id=None))
    assert told.next.startswith("It will become TERMINATED because it has no instance")


def test_a_worker_stopped_externally_too_often_is_not_restarted() -> None:
    stuck = condition("Stuck", message="stopped from outside 4 times within an hour", since=2)
    told = explain(seen("STOPPED", "RUNNING", conditions=(stuck,), drifted=True, decision={"next_look_at": None}))
    assert told.next == (
        "It is not restarted automatically for now; to restart it: lcm workers stop lab-042, then lcm workers "
        "start lab-042."
    )


def test_an_instance_that_is_not_visible() -> None:
    """worker-lifecycle.md#gone: shown, and nothing else."""
    hidden = Condition(
        type=ConditionType.INSTANCE_READY,
        status=ConditionStatus.UNKNOWN,
        reason="NotVisible",
        message=f"EC2 does not list {INSTANCE}; it counts as gone only after 3 sweeps over 5 minutes without it",
        since=NOW - minutes(3),
    )
    words = summary(seen("RUNNING", conditions=(hidden, condition("CmlReady"))))
    assert words.startswith(
        f"lab-042 has been RUNNING for 12 minutes and is ready. Its instance has not been visible for 3 minutes: EC2 "
        f"does not list {INSTANCE}; it counts as gone only after 3 sweeps over 5 minutes without it; until then "
        f"nothing is done. "
    )


@pytest.mark.parametrize(("price", "words"), [(1.0, "costs $1.08 an hour"), (None, "costs money, at an unknown price")])
def test_a_failed_worker_whose_instance_runs(price: float | None, words: str) -> None:
    """worker-lifecycle.md#failed."""
    size = Capacity(cpu_cores=2, memory_gb=4, storage_gb=730, max_nodes=5)
    failed = seen("FAILED", conditions=(condition("InstanceReady"),), cost_per_hour_usd=price, capacity=size)
    assert f" Its instance {INSTANCE} is running and {words}. " in summary(failed)


def test_a_refused_account_is_not_called_silence() -> None:
    refused = condition("CmlReady", "False", "user name or password of 'admin' rejected", since=6)
    told = summary(seen("RUNNING", conditions=(refused.model_copy(update={"reason": "AccountRefused"}),)))
    assert "not ready: CML has refused LCM's account for 6 minutes (user name or password of 'admin' rejected)." in told


def test_a_worker_without_telemetry_says_that_it_is_not_paused() -> None:
    """idle-and-scaling.md#idle-detection: auto-pause never switches itself off silently."""
    missing = condition("TelemetryMissing", "True", "no activity could be read for 7 hours: HTTP 500")
    told = explain(seen("RUNNING", conditions=(condition("CmlReady"), missing)))
    assert told.next == "It keeps running and is not paused: no activity could be read for 7 hours: HTTP 500."


def test_a_worker_without_the_kvm_that_it_requires() -> None:
    message = "its CML reports that it has no KVM, which template nested-medium requires"
    conditions = (condition("CmlReady"), condition("NoKvm", since=7), condition("Stuck", message=message, since=7))
    inputs = seen("RUNNING", "RUNNING", conditions=conditions, requires_kvm=True)
    text = summary(inputs)
    assert " but is not ready: its CML has reported no KVM for 7 minutes" in text
    assert f"It has been stuck for 7 minutes: {message}." in text
    assert "It will accept lablets only if its CML reports KVM; to remove it: lcm workers terminate lab-042" in text
    relaxed = seen("RUNNING", "RUNNING", conditions=conditions[:2])
    assert " and is ready" in summary(relaxed)
