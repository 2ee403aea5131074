"""Explanations: each is read here as an operator reads it at night, so it has to be right word by word."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lcm.model.audit import Actor, ActorKind, WorkerHistoryEntry
from lcm.model.decision import DecisionReport
from lcm.model.fleet.settings import FleetSettings
from lcm.model.fleet.state import Breaker, FleetState
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.explain import ExplainInput, Explanation, explain
from lcm.model.worker.record import Hold, LaunchIntent, PendingLicenseOperation
from lcm.model.worker.status import DesiredStatus, LicenseOperation, LicenseStatus, WorkerStatus
from tests.support.records.workers import a_worker

NOW = datetime(2026, 1, 17, 3, 7, tzinfo=UTC)
INSTANCE = "i-0f3a91c2"


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


# What a controller would have written and decided, by status: reason of the last step, reason of the last decision.
LIVED: dict[str, tuple[str, str]] = {
    "PENDING": ("created", "EC2 has no capacity for m5zn.metal in eu-west-1a; trying again"),
    "PROVISIONING": (f"launched {INSTANCE}", "EC2 reports pending; it may take until 03:13 UTC"),
    "STARTING": (f"{INSTANCE} is running", "the instance has no address yet"),
    "RUNNING": (f"{INSTANCE} is running at 192.0.2.7", "all is as it should be"),
    "DRAINING": ("make room for the exam", "2 nodes still run"),
    "STOPPING": ("the drain is complete", "EC2 reports stopping"),
    "STOPPED": ("EC2 reports stopped", "stopped, as wanted"),
    "TERMINATING": ("TERMINATED is wanted", "EC2 reports shutting-down"),
    "TERMINATED": ("EC2 reports terminated", "over"),
    "FAILED": ("EC2 refused the launch: VcpuLimitExceeded, 96 of 96 vCPUs in use", "left alone until somebody acts"),
    "UNKNOWN": ("EC2 reports rebooting-2, which nobody knows", "asking again"),
}


def seen(status: str, desired: str = "RUNNING", *, without: tuple[str, ...] = (), **facts: Any) -> ExplainInput:
    """A worker twelve minutes after its last step, a quarter of a minute after the controller looked."""
    parts: dict[str, Any] = {
        "fleet": facts.pop("fleet", FleetState()),
        "settings": facts.pop("settings", FleetSettings()),
        "decision": {"next_look_at": NOW + timedelta(seconds=15), **facts.pop("decision", {})},
    }
    told: dict[str, Any] = {
        "name": "lab-042",
        "status": WorkerStatus(status),
        "desired_status": DesiredStatus(desired),
        "status_since": NOW - minutes(12),
        "created_at": NOW - minutes(200),
        "instance_id": None if status == "PENDING" else INSTANCE,
    }
    if desired == "STOPPED":
        told |= {"last_paused_at": NOW - minutes(13), "pause_reason": "evening"}
    if status == "RUNNING" and desired == "RUNNING":
        told |= {"conditions": (condition("CmlReady"),), "last_activity_at": NOW - minutes(20)}
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
        worker=a_worker(**{**told, **facts}),
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


def summary(known: ExplainInput) -> str:
    return explain(known).summary


EXPECTED: dict[tuple[str, str], str] = {
    ("PENDING", "RUNNING"): (
        "lab-042 has been PENDING for 12 minutes (anna: created). For 15 seconds the controller has said: EC2 "
        "has no capacity for m5zn.metal in eu-west-1a; trying again. Next, an instance is launched for it in "
        "eu-west-1; the controller looks again in 15 seconds."
    ),
    ("PENDING", "STOPPED"): (
        "lab-042 has been PENDING for 12 minutes, but 13 minutes ago somebody wanted it stopped (evening). Nothing "
        "is launched until somebody wants it running: lcm workers start lab-042."
    ),
    ("PENDING", "TERMINATED"): (
        "lab-042 has been PENDING for 12 minutes (anna: created) and is wanted TERMINATED. For 15 seconds the "
        "controller "
        "has said: EC2 has no capacity for m5zn.metal in eu-west-1a; trying again. Next, it becomes "
        "TERMINATED, as nothing was launched for it; the controller looks again in 15 seconds."
    ),
    ("PROVISIONING", "RUNNING"): (
        "lab-042 has been PROVISIONING for 12 minutes (worker-controller: launched i-0f3a91c2). For 15 seconds the "
        "controller "
        "has said: EC2 reports pending; it may take until 03:13 UTC. Next, it becomes STARTING "
        "as soon as EC2 says that instance i-0f3a91c2 is running; the controller looks again in 15 seconds."
    ),
    ("PROVISIONING", "STOPPED"): (
        "lab-042 has been PROVISIONING for 12 minutes, but 13 minutes ago somebody wanted it stopped (evening). "
        "For 15 seconds the controller has said: EC2 reports pending; it may take until 03:13 UTC. Next, "
        "instance i-0f3a91c2 is stopped as soon as EC2 allows it; the controller looks again in 15 seconds."
    ),
    ("PROVISIONING", "TERMINATED"): (
        "lab-042 has been PROVISIONING for 12 minutes (worker-controller: launched i-0f3a91c2) and is wanted "
        "TERMINATED. For 15 seconds the controller has said: EC2 reports pending; it may take until 03:13 UTC. "
        "Next, instance i-0f3a91c2 is terminated; the controller looks again in 15 seconds."
    ),
    ("STARTING", "RUNNING"): (
        "lab-042 has been STARTING for 12 minutes (worker-controller: i-0f3a91c2 is running). For 15 seconds the "
        "controller "
        "has said: the instance has no address yet. Next, it becomes RUNNING as soon as instance "
        "i-0f3a91c2 is running and has an address; the controller looks again in 15 seconds."
    ),
    ("STARTING", "STOPPED"): (
        "lab-042 has been STARTING for 12 minutes, but 13 minutes ago somebody wanted it stopped (evening). For 15 "
        "seconds the controller "
        "has said: the instance has no address yet. Next, instance i-0f3a91c2 is "
        "stopped; the controller looks again in 15 seconds."
    ),
    ("STARTING", "TERMINATED"): (
        "lab-042 has been STARTING for 12 minutes (worker-controller: i-0f3a91c2 is running) and is wanted "
        "TERMINATED. For 15 seconds the controller has said: the instance has no address yet. Next, instance "
        "i-0f3a91c2 is terminated; the controller looks again in 15 seconds."
    ),
    ("RUNNING", "RUNNING"): (
        "lab-042 has been RUNNING for 12 minutes and is ready. For 15 seconds the controller has said: all is "
        "as it should be. Nobody has used it for 20 minutes; it is paused at about 03:47 UTC, in 40 minutes, "
        "unless somebody uses it."
    ),
    ("RUNNING", "STOPPED"): (
        "lab-042 has been RUNNING for 12 minutes, but 13 minutes ago somebody wanted it stopped (evening). For 15 "
        "seconds the controller "
        "has said: all is as it should be. Next, instance i-0f3a91c2 is stopped; the "
        "controller looks again in 15 seconds."
    ),
    ("RUNNING", "TERMINATED"): (
        "lab-042 has been RUNNING for 12 minutes (worker-controller: i-0f3a91c2 is running at 192.0.2.7) and is "
        "wanted TERMINATED. For 15 seconds the controller has said: all is as it should be. Next, instance "
        "i-0f3a91c2 is terminated; the controller looks again in 15 seconds."
    ),
    ("DRAINING", "RUNNING"): (
        "lab-042 has been DRAINING for 12 minutes (anna: make room for the exam) and is wanted RUNNING. For 15 "
        "seconds the controller "
        "has said: 2 nodes still run. Next, it goes back to RUNNING; the controller "
        "looks again in 15 seconds."
    ),
    ("DRAINING", "STOPPED"): (
        "lab-042 has been DRAINING for 12 minutes (anna: make room for the exam). For 15 seconds the controller "
        "has said: 2 nodes still run. Next, it takes no new lablets, and instance i-0f3a91c2 is stopped once no "
        "node runs and no lablet is assigned to it, or when the drain has taken too long; the controller looks "
        "again in 15 seconds."
    ),
    ("DRAINING", "TERMINATED"): (
        "lab-042 has been DRAINING for 12 minutes (anna: make room for the exam) and is wanted TERMINATED. For 15 "
        "seconds the controller "
        "has said: 2 nodes still run. Next, instance i-0f3a91c2 is terminated; the "
        "controller looks again in 15 seconds."
    ),
    ("STOPPING", "RUNNING"): (
        "lab-042 has been STOPPING for 12 minutes (worker-controller: the drain is complete) and is wanted "
        "RUNNING. For 15 seconds the controller has said: EC2 reports stopping. Next, instance i-0f3a91c2 is "
        "started again once it has stopped; the controller looks again in 15 seconds."
    ),
    ("STOPPING", "STOPPED"): (
        "lab-042 has been STOPPING for 12 minutes: 13 minutes ago somebody wanted it stopped (evening). For 15 "
        "seconds the controller "
        "has said: EC2 reports stopping. Next, it becomes STOPPED as soon as EC2 says "
        "that instance i-0f3a91c2 has stopped; the controller looks again in 15 seconds."
    ),
    ("STOPPING", "TERMINATED"): (
        "lab-042 has been STOPPING for 12 minutes (worker-controller: the drain is complete) and is wanted "
        "TERMINATED. For 15 seconds the controller has said: EC2 reports stopping. Next, instance i-0f3a91c2 is "
        "terminated; the controller looks again in 15 seconds."
    ),
    ("STOPPED", "RUNNING"): (
        "lab-042 has been STOPPED for 12 minutes (worker-controller: EC2 reports stopped) and is wanted RUNNING. "
        "For 15 seconds the controller has said: stopped, as wanted. Next, instance i-0f3a91c2 is started; the "
        "controller looks again in 15 seconds."
    ),
    ("STOPPED", "STOPPED"): (
        "lab-042 has been STOPPED for 12 minutes: 13 minutes ago somebody wanted it stopped (evening). It stays "
        "stopped until somebody wants it running: lcm workers start lab-042."
    ),
    ("STOPPED", "TERMINATED"): (
        "lab-042 has been STOPPED for 12 minutes (worker-controller: EC2 reports stopped) and is wanted "
        "TERMINATED. For 15 seconds the controller has said: stopped, as wanted. Next, instance i-0f3a91c2 is "
        "terminated; the controller looks again in 15 seconds."
    ),
    ("TERMINATING", "RUNNING"): (
        "lab-042 has been TERMINATING for 12 minutes (worker-controller: TERMINATED is wanted) and is wanted "
        "RUNNING. For 15 seconds the controller has said: EC2 reports shutting-down. Next, it becomes "
        "TERMINATED as soon as EC2 says that instance i-0f3a91c2 has ended; the controller looks again in 15 "
        "seconds."
    ),
    ("TERMINATING", "STOPPED"): (
        "lab-042 has been TERMINATING for 12 minutes, but 13 minutes ago somebody wanted it stopped (evening). For "
        "15 seconds the controller "
        "has said: EC2 reports shutting-down. Next, it becomes TERMINATED as soon as "
        "EC2 says that instance i-0f3a91c2 has ended; the controller looks again in 15 seconds."
    ),
    ("TERMINATING", "TERMINATED"): (
        "lab-042 has been TERMINATING for 12 minutes (worker-controller: TERMINATED is wanted). For 15 seconds the "
        "controller "
        "has said: EC2 reports shutting-down. Next, it becomes TERMINATED as soon as EC2 says "
        "that instance i-0f3a91c2 has ended; the controller looks again in 15 seconds."
    ),
    ("TERMINATED", "RUNNING"): (
        "lab-042 was TERMINATED 12 minutes ago (worker-controller: EC2 reports terminated). Nothing more happens: "
        "this is final, and the record is kept as history."
    ),
    ("TERMINATED", "STOPPED"): (
        "lab-042 was TERMINATED 12 minutes ago (worker-controller: EC2 reports terminated). Nothing more happens: "
        "this is final, and the record is kept as history."
    ),
    ("TERMINATED", "TERMINATED"): (
        "lab-042 was TERMINATED 12 minutes ago (worker-controller: EC2 reports terminated). Nothing more happens: "
        "this is final, and the record is kept as history."
    ),
    ("FAILED", "RUNNING"): (
        "lab-042 FAILED 12 minutes ago: EC2 refused the launch: VcpuLimitExceeded, 96 of 96 vCPUs in use. Nothing "
        "is tried until somebody asks for it: mend the cause and run lcm workers retry lab-042, or give it up with "
        "lcm workers terminate lab-042."
    ),
    ("FAILED", "STOPPED"): (
        "lab-042 FAILED 12 minutes ago: EC2 refused the launch: VcpuLimitExceeded, 96 of 96 vCPUs in use. Nothing "
        "is tried until somebody asks for it: mend the cause and run lcm workers retry lab-042, or give it up with "
        "lcm workers terminate lab-042."
    ),
    ("FAILED", "TERMINATED"): (
        "lab-042 FAILED 12 minutes ago: EC2 refused the launch: VcpuLimitExceeded, 96 of 96 vCPUs in use. For 15 "
        "seconds the controller "
        "has said: left alone until somebody acts. Next, instance i-0f3a91c2 is "
        "terminated; the controller looks again in 15 seconds."
    ),
    ("UNKNOWN", "RUNNING"): (
        "lab-042 has been UNKNOWN for 12 minutes (worker-controller: EC2 reports rebooting-2, which nobody knows) "
        "and is wanted RUNNING. For 15 seconds the controller has said: asking again. Next, the record follows "
        "as soon as EC2 names a state that is known; the controller looks again in 15 seconds."
    ),
    ("UNKNOWN", "STOPPED"): (
        "lab-042 has been UNKNOWN for 12 minutes, but 13 minutes ago somebody wanted it stopped (evening). For 15 "
        "seconds the controller "
        "has said: asking again. Next, instance i-0f3a91c2 is stopped as soon as EC2 "
        "names a state that allows it; the controller looks again in 15 seconds."
    ),
    ("UNKNOWN", "TERMINATED"): (
        "lab-042 has been UNKNOWN for 12 minutes (worker-controller: EC2 reports rebooting-2, which nobody knows) "
        "and is wanted TERMINATED. For 15 seconds the controller has said: asking again. Next, instance "
        "i-0f3a91c2 is terminated; the controller looks again in 15 seconds."
    ),
}


@pytest.mark.parametrize("desired", DesiredStatus)
@pytest.mark.parametrize("status", WorkerStatus)
def test_each_status_and_each_wish(status: str, desired: str) -> None:
    told = explain(seen(status, desired))
    assert told.summary == EXPECTED[status, desired]
    assert told.summary.endswith(told.next)


def test_the_answer_carries_what_it_was_made_from() -> None:
    known = seen("STOPPING", "STOPPED")
    told = explain(known)
    assert (told.last_transition, told.decision) == (known.last, known.decision)
    assert (told.status, told.desired_status, told.ready) == (WorkerStatus.STOPPING, DesiredStatus.STOPPED, False)
    assert Explanation.model_validate_json(told.model_dump_json()) == told


@pytest.mark.parametrize("status", [status for status in WorkerStatus if status is not WorkerStatus.TERMINATED])
def test_that_nobody_has_looked_yet_is_said(status: str) -> None:
    assert "No controller has looked at it yet." in summary(seen(status, without=("decision", "last")))


def test_without_a_history_it_is_not_made_up() -> None:
    """Its beginning may be older than what is kept."""
    assert summary(seen("STOPPED", "RUNNING", without=("last",))).startswith(
        "lab-042 has been STOPPED for 12 minutes and is wanted RUNNING."
    )


def test_a_hold_says_who_why_and_until_when_and_keeps_changes_back() -> None:
    hold = Hold(reason="exam in room 4", by="anna", since=NOW - minutes(57), until=NOW + minutes(173))
    told = explain(seen("RUNNING", "STOPPED", hold=hold))
    assert (
        "It is on hold by anna since 02:10 UTC (exam in room 4), until 06:00 UTC: lcm workers release lab-042."
        in told.summary
    )
    assert told.next == "Nothing is changed while the hold lasts; after it, instance i-0f3a91c2 is stopped."


def test_under_a_hold_what_only_has_to_be_seen_goes_on() -> None:
    hold = Hold(reason="exam", by="anna", since=NOW - minutes(57))
    told = explain(seen("STOPPING", "STOPPED", hold=hold))
    assert "(exam), until somebody releases it: lcm workers release lab-042." in told.summary
    assert told.next.startswith("Next, it becomes STOPPED as soon as")
    ready = explain(seen("RUNNING", hold=hold))
    assert ready.next == "It goes on running and is not paused while the hold lasts."


def test_a_hold_that_is_over_is_not_mentioned() -> None:
    over = Hold(reason="exam", by="anna", since=NOW - minutes(57), until=NOW - minutes(1))
    assert "hold" not in summary(seen("RUNNING", "STOPPED", hold=over))


def test_a_hold_of_the_fleet_counts_for_each() -> None:
    fleet = FleetState(hold=Hold(reason="AWS is unwell", by="bert", since=NOW - timedelta(days=2)))
    told = explain(seen("STOPPED", "RUNNING", fleet=fleet))
    assert (
        "The whole fleet is on hold by bert since 03:07 UTC on 15 January (AWS is unwell), until somebody releases it."
        in told.summary
    )
    assert told.next == "Nothing is changed while the hold lasts; after it, instance i-0f3a91c2 is started."


@pytest.mark.parametrize(
    ("person", "words"),
    [
        (True, "only a person closes it: lcm breaker reset."),
        (False, "a further scan that agrees closes it, and so does lcm breaker reset."),
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


def test_stuck_is_said() -> None:
    stuck = condition("Stuck", message="EC2 has reported stopping for 31 minutes.", since=16)
    told = summary(seen("STOPPING", "STOPPED", conditions=(stuck,)))
    assert "It has been stuck for 16 minutes: EC2 has reported stopping for 31 minutes." in told


def test_running_is_not_ready_and_why() -> None:
    waiting = condition("CmlReady", "False", "connection refused", since=6)
    told = explain(seen("RUNNING", conditions=(waiting,)))
    assert told.summary.startswith(
        "lab-042 has been RUNNING for 12 minutes but is not ready: CML has not answered for 6 minutes"
        " (connection refused)."
    )
    assert told.next == "Next, it takes lablets as soon as CML answers; the controller looks again in 15 seconds."
    assert "nothing is known of CML yet" in summary(seen("RUNNING", conditions=()))


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (LicenseOperation.REGISTER, "Its licence is to be registered, as anna asked 3 minutes ago."),
        (LicenseOperation.DEREGISTER, "Its licence is to be given back, as anna asked 3 minutes ago."),
    ],
)
def test_a_licence_operation_that_waits(operation: LicenseOperation, words: str) -> None:
    pending = PendingLicenseOperation(operation=operation, requested_at=NOW - minutes(3), requested_by="anna")
    assert words in summary(seen("RUNNING", pending_license_operation=pending))


def test_a_licence_that_was_refused_and_one_that_is_given_back() -> None:
    assert "CML refused its licence token" in summary(seen("RUNNING", license_status=LicenseStatus.FAILED))
    ending = explain(seen("RUNNING", "TERMINATED", license_status=LicenseStatus.REGISTERED))
    assert "is terminated; its licence is given back first" in ending.next


def test_paused_by_policy_is_told_from_stopped_by_a_person() -> None:
    paused: dict[str, Any] = {
        "last_paused_at": NOW - minutes(190),
        "pause_reason": "idle_timeout",
        "paused_by_policy": True,
    }
    told = explain(seen("STOPPED", "STOPPED", status_since=NOW - minutes(188), **paused))
    assert told.summary == (
        "lab-042 has been STOPPED for 3 hours 8 minutes: 3 hours 10 minutes ago auto-pause wanted it stopped because"
        " nobody was using it. It stays stopped until somebody wants it running or scale-up needs it:"
        " lcm workers start lab-042."
    )
    by_hand: dict[str, Any] = {"last_paused_at": NOW - minutes(1), "pause_reason": "manual"}
    assert "1 minute ago somebody wanted it stopped." in summary(seen("STOPPING", "STOPPED", **by_hand))
    outside: dict[str, Any] = {"last_paused_at": NOW - minutes(5), "pause_reason": "stopped from outside"}
    assert "5 minutes ago it was stopped from outside, and that was accepted." in summary(
        seen("STOPPED", "STOPPED", **outside)
    )
    drained: dict[str, Any] = {
        "last_paused_at": NOW - minutes(1),
        "pause_reason": "idle for 90 minutes",
        "paused_by_policy": True,
    }
    assert "a policy wanted it stopped (idle for 90 minutes)." in summary(seen("STOPPING", "STOPPED", **drained))


def settings(**groups: dict[str, Any]) -> FleetSettings:
    return FleetSettings.model_validate(groups)


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (
            {"last_activity_at": NOW - minutes(75), "last_idle_check_at": NOW - minutes(4)},
            (
                "Nobody has used it for 1 hour 15 minutes; it is paused at the next idle check (the last was 4 minutes"
                " ago), unless it is used or lablets are on it."
            ),
        ),
        (
            {
                "last_activity_at": NOW - minutes(75),
                "last_idle_check_at": NOW - minutes(4),
                "settings": settings(scaling={"min_workers": 2}),
            },
            (
                "Nobody has used it for 1 hour 15 minutes; it is paused at the next idle check (the last was 4 minutes"
                " ago), unless it is used, lablets are on it, or no more than 2 workers run."
            ),
        ),
        (
            {"last_activity_at": NOW - minutes(75)},
            (
                "Nobody has used it for 1 hour 15 minutes; it is paused once an idle check succeeds, but none has so"
                " far, for want of telemetry."
            ),
        ),
        (
            {"last_activity_at": NOW - minutes(75), "last_resumed_at": NOW - minutes(12)},
            (
                "Nobody has used it for 1 hour 15 minutes; it is paused at about 03:55 UTC, in 48 minutes, unless"
                " somebody uses it."
            ),
        ),
        (
            {"last_activity_at": NOW - minutes(75), "idle_detection_enabled": False},
            "Nobody has used it for 1 hour 15 minutes; it goes on running, as idle detection is switched off for it.",
        ),
        (
            {
                "last_activity_at": NOW - minutes(75),
                "settings": settings(idle={"worker_auto_pause_enabled": False}),
            },
            "Nobody has used it for 1 hour 15 minutes; it goes on running, as auto-pause is switched off.",
        ),
        (
            {
                "last_activity_at": NOW - minutes(20),
                "settings": settings(idle={"idle_action": "drain"}, scaling={"scale_down_enabled": True}),
            },
            (
                "Nobody has used it for 20 minutes; it is drained at about 03:47 UTC, in 40 minutes, unless somebody"
                " uses it."
            ),
        ),
        (
            {"last_activity_at": NOW},
            "It was used less than a minute ago; it is paused at about 04:07 UTC, in 1 hour, unless somebody uses it.",
        ),
    ],
)
def test_how_long_it_is_idle_and_what_comes_of_it(facts: dict[str, Any], told: str) -> None:
    assert explain(seen("RUNNING", **facts)).next == told


def test_what_was_decided_to_be_done_is_told_in_short() -> None:
    doing = {"actions": ("stop i-0f3a91c2", "b", "c", "d"), "reason": "x" * 900}
    told = summary(seen("RUNNING", "STOPPED", decision=doing))
    assert "(to do: stop i-0f3a91c2; b; c)" in told
    assert len(told) < 700


def test_a_launch_under_way_is_settled_first_and_its_parameters_stay_out() -> None:
    intent = LaunchIntent(attempt=2, parameters={"UserData": "CANARY"}, stored_at=NOW - minutes(1))
    for desired, words in (("RUNNING", "or launched"), ("STOPPED", "is stopped"), ("TERMINATED", "is terminated")):
        known = seen(
            "PENDING", desired, launch_intent=intent, launch_attempt=2, tags={"x": "CANARY"},
            decision={"inputs": {"token": "CANARY"}},
        )  # fmt: skip
        told = explain(known)
        assert "launch attempt 2 is settled" in told.next
        assert words in told.next
        assert "CANARY" not in told.summary


def test_the_end_says_who_ended_it() -> None:
    facts: dict[str, Any] = {"terminated_by": "discovery-gc", "terminated_reason": "not in EC2 any more"}
    assert summary(seen("TERMINATED", **facts)).startswith(
        "lab-042 was TERMINATED 12 minutes ago by discovery-gc: not in EC2 any more."
    )


def test_a_failure_without_an_instance() -> None:
    told = explain(seen("FAILED", "TERMINATED", instance_id=None))
    assert told.next.startswith("Next, it becomes TERMINATED, as it has no instance")


def test_who_is_stopped_from_outside_too_often_is_not_said_to_be_started() -> None:
    stuck = condition("Stuck", message="stopped from outside 4 times within an hour", since=2)
    told = explain(seen("STOPPED", "RUNNING", conditions=(stuck,), drifted=True, decision={"next_look_at": None}))
    assert told.next == (
        "It is not started again by itself for now; a person settles it: lcm workers stop lab-042, then lcm workers "
        "start lab-042."
    )
