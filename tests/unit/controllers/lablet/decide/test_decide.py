"""Decisions about a lablet: at least one case for every rule."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lcm.controllers.lablet.decide import decide
from lcm.controllers.lablet.decide.decision import ReleaseReservation, WriteStatus
from lcm.controllers.lablet.decide.instantiating import import_rejected, lab_imported
from lcm.controllers.lablet.deps import LabletPolicy
from lcm.controllers.lablet.observation import Observation, ResolvedTopology
from lcm.core.controller.resources import Outcome
from lcm.model.lablet.record import AbandonedLab, Lablet, NodeEndpoint
from lcm.model.lablet.status import LabletStatus, LostWorkerPolicy
from lcm.model.worker.record import Hold
from tests.support.records.workers import NOW
from tests.unit.controllers.lablet.builders import (
    ABSENT,
    DRAINING_WORKER,
    LAB,
    TOPOLOGY,
    UNREADY_WORKER,
    a_lab,
    a_lablet,
    a_ready_worker,
    ago,
    an_observation,
    unobserved,
)

if TYPE_CHECKING:
    from lcm.controllers.lablet.decide.decision import Decision

FAILS = {"lost_worker_policy": LostWorkerPolicy.FAIL}
HOLD = Hold(reason="maintenance", by="anna", since=NOW)
ENDPOINTS = (NodeEndpoint(node="host", addresses=("10.0.0.1",)),)
UP = a_lab(booted=2, converged=True, endpoints=ENDPOINTS)
KNOWN = {"lab_id": LAB, "lab_started_at": ago(5)}
GONE = a_ready_worker(status="TERMINATED", instance_id=None)
NEWER_WORKER = a_ready_worker(desired_status="HIBERNATED", instance_id="i-2")
RESTARTED_WORKER = a_ready_worker(last_resumed_at=ago(3))


@dataclass
class Case:
    """The input, and the expected rule and actions as text."""

    rule: str
    lablet: Lablet
    observed: Observation
    actions: list[str] = field(default_factory=list)
    policy: LabletPolicy = field(default_factory=LabletPolicy)


def begun(**changes: object) -> Lablet:
    return a_lablet("INSTANTIATING", **changes)


def running(**changes: object) -> Lablet:
    return a_lablet("RUNNING", **changes)


def stopping(**changes: object) -> Lablet:
    return a_lablet("STOPPING", **changes)


MOVE_ON = ["release the worker and record PENDING_SCHEDULING"]
FAIL = ["release the worker and record FAILED"]
ENDED = ["release the worker and record TERMINATED"]
EXPIRED = ["release the worker and record EXPIRED"]
UNVERIFIED = LabletPolicy(workers_verified=False)
HELD = LabletPolicy(fleet_hold=HOLD)
OLD_LAB = a_lab("DEFINED_ON_CORE", id="lab-0")
LEFT = AbandonedLab(worker_id="w-1", marker="l-1.1", lab_id="lab-0")
RESET = begun(placement_attempt=2, left_behind=(LEFT,), running_since=ago(600))

CASES = [
    Case("unassigned.skip", a_lablet("PENDING_SCHEDULING", worker_id=None), an_observation()),
    Case("unassigned.skip", a_lablet("TERMINATED"), an_observation()),
    # A lost worker
    Case("scheduled.lost", a_lablet("SCHEDULED"), Observation(worker=None), MOVE_ON),
    Case("scheduled.lost", a_lablet("SCHEDULED", **FAILS), an_observation(worker=GONE), FAIL),
    Case("instantiating.lost", begun(), an_observation(worker=GONE), MOVE_ON),
    Case("running.lost", running(), an_observation(worker=a_ready_worker(desired_status="TERMINATED")), MOVE_ON),
    Case("running.lost", running(), an_observation(worker=a_ready_worker(status="FAILED", instance_id=None)), MOVE_ON),
    Case("running.lost", running(**FAILS), an_observation(worker=a_ready_worker(instance_id="i-2")), FAIL),
    Case("running.lost", running(ends_at=ago(1)), an_observation(worker=GONE), EXPIRED),
    Case("running.lost", running(), an_observation(worker=GONE), MOVE_ON, UNVERIFIED),
    Case("stopping.lost", stopping(), an_observation(worker=GONE), ENDED),
    Case("stopping.lost", stopping(ending=LabletStatus.FAILED), an_observation(worker=GONE), FAIL),
    # A worker whose record has words of a newer version: nothing is decided, not even that it is lost
    Case("scheduled.newer_worker", a_lablet("SCHEDULED", wanted=False), an_observation(worker=NEWER_WORKER)),
    Case("running.newer_worker", running(), an_observation(UP, NEWER_WORKER)),
    Case("stopping.newer_worker", stopping(), an_observation(ABSENT, NEWER_WORKER)),
    # Ending
    Case("scheduled.end", a_lablet("SCHEDULED", wanted=False), an_observation(), ENDED),
    Case("scheduled.end", a_lablet("SCHEDULED", ends_at=NOW), an_observation(worker=UNREADY_WORKER), EXPIRED),
    Case("instantiating.end", begun(wanted=False), an_observation(), ["record STOPPING"]),
    Case("running.end", running(wanted=False), an_observation(UP), ["record STOPPING"]),
    Case("running.end", running(ends_at=ago(1)), an_observation(worker=UNREADY_WORKER), ["record STOPPING"]),
    Case("running.end", running(time_to_live_minutes=0.1), an_observation(), ["record STOPPING"], UNVERIFIED),
    Case("running.end", running(ending=LabletStatus.FAILED), an_observation(), ["record STOPPING"]),
    # A worker that is not ready
    Case("scheduled.unverified", a_lablet("SCHEDULED"), an_observation(), policy=UNVERIFIED),
    Case("instantiating.unverified", begun(), an_observation(), policy=UNVERIFIED),
    Case("running.unverified", running(), an_observation(), policy=UNVERIFIED),
    Case("stopping.unverified", stopping(), an_observation(), policy=UNVERIFIED),
    Case("scheduled.leaving", a_lablet("SCHEDULED", **FAILS), an_observation(worker=DRAINING_WORKER), MOVE_ON),
    Case("scheduled.unready", a_lablet("SCHEDULED"), an_observation(worker=UNREADY_WORKER, unready_since=ago(100))),
    Case("instantiating.unready", begun(), an_observation(worker=DRAINING_WORKER, unready_since=ago(100))),
    Case("running.unready", running(), an_observation(worker=UNREADY_WORKER, unready_since=ago(899))),
    Case("stopping.unready", stopping(), an_observation(worker=UNREADY_WORKER, unready_since=ago(100))),
    Case(
        "scheduled.unready_too_long",
        a_lablet("SCHEDULED"),
        an_observation(worker=UNREADY_WORKER, unready_since=ago(900)),
        MOVE_ON,
    ),
    Case(
        "instantiating.unready_too_long",
        begun(),
        an_observation(worker=DRAINING_WORKER, unready_since=ago(900)),
        MOVE_ON,
    ),
    Case(
        "running.unready_too_long",
        running(**FAILS),
        an_observation(worker=UNREADY_WORKER, unready_since=ago(900)),
        FAIL,
    ),
    Case("stopping.unready_too_long", stopping(), an_observation(worker=UNREADY_WORKER, unready_since=ago(900)), ENDED),
    # SCHEDULED
    Case("scheduled.begin", a_lablet("SCHEDULED"), an_observation(), ["record INSTANTIATING"]),
    # INSTANTIATING
    Case("instantiating.not_observed", begun(), an_observation(unobserved("HTTP 502"))),
    Case("instantiating.import_pending", begun(), an_observation(ABSENT, topology=TOPOLOGY, import_may_complete=True)),
    Case("instantiating.no_topology", begun(), an_observation(ABSENT, topology=ResolvedTopology(error="not read"))),
    Case("instantiating.no_topology", begun(), an_observation(ABSENT)),
    Case(
        "instantiating.no_topology",
        begun(),
        an_observation(ABSENT, topology=ResolvedTopology(error="there is none", is_permanent=True)),
        ["record STOPPING"],
    ),
    Case("instantiating.import", begun(), an_observation(ABSENT, topology=TOPOLOGY), ["import the lab l-1.1"]),
    Case("instantiating.found", begun(), an_observation(a_lab("DEFINED_ON_CORE")), ["record INSTANTIATING"]),
    Case("instantiating.found", begun(), an_observation(UP), ["record INSTANTIATING"]),
    Case("instantiating.leftover", RESET, an_observation(ABSENT, leftover=a_lab()), ["stop the lab"]),
    Case("instantiating.leftover", RESET, an_observation(ABSENT, leftover=a_lab("STOPPED")), ["wipe the lab"]),
    Case("instantiating.leftover", RESET, an_observation(ABSENT, leftover=OLD_LAB), ["delete the lab"]),
    Case(
        "instantiating.leftover",
        RESET,
        an_observation(ABSENT, topology=TOPOLOGY, leftover=OLD_LAB, recent_operations=frozenset({"delete"})),
    ),
    Case("instantiating.import", RESET, an_observation(ABSENT, topology=TOPOLOGY), ["import the lab l-1.2"]),
    Case("instantiating.leftover.held", RESET, an_observation(ABSENT, leftover=OLD_LAB), policy=HELD),
    Case("instantiating.start", begun(**KNOWN), an_observation(a_lab("DEFINED_ON_CORE")), ["start the lab"]),
    Case("instantiating.start", begun(**KNOWN), an_observation(a_lab("STOPPED"), RESTARTED_WORKER), ["start the lab"]),
    Case(
        "instantiating.starting",
        begun(**KNOWN),
        an_observation(a_lab("DEFINED_ON_CORE"), recent_operations=frozenset({"start"})),
    ),
    Case("instantiating.stopped_outside", begun(**KNOWN), an_observation(a_lab("STOPPED"))),
    Case(
        "instantiating.restarted",
        begun(**KNOWN),
        an_observation(a_lab(booted=0), RESTARTED_WORKER),
        ["record INSTANTIATING"],
    ),
    Case("instantiating.booting", begun(**KNOWN), an_observation(a_lab(booted=1, converged=False))),
    Case("instantiating.booting", begun(**KNOWN), an_observation(a_lab(booted=1, converged=True))),
    Case("instantiating.up", begun(**KNOWN), an_observation(UP), ["record RUNNING"]),
    Case("instantiating.up", begun(**KNOWN, status_since=ago(9999)), an_observation(UP), ["record RUNNING"]),
    Case("instantiating.up", begun(**KNOWN), an_observation(a_lab("DEFINED_ON_CORE", nodes=0)), ["record RUNNING"]),
    Case("instantiating.deleted", begun(**KNOWN), an_observation(ABSENT), MOVE_ON),
    Case(
        "instantiating.timeout",
        begun(status_since=ago(1800)),
        an_observation(unobserved("HTTP 502")),
        ["record STOPPING"],
    ),
    Case(
        "instantiating.timeout",
        begun(**KNOWN, status_since=ago(1800)),
        an_observation(a_lab(booted=1)),
        ["record STOPPING"],
    ),
    Case(
        "instantiating.timeout",
        begun(status_since=ago(1800)),
        an_observation(ABSENT, topology=TOPOLOGY),
        ["record STOPPING"],
    ),
    # RUNNING
    Case("running.not_observed", running(), an_observation()),
    Case("running.not_observed", running(), an_observation(unobserved("HTTP 502"))),
    Case("running.up", running(endpoints=ENDPOINTS), an_observation(UP)),
    Case("running.up", running(), an_observation(a_lab("DEFINED_ON_CORE", nodes=0))),
    Case("running.addresses", running(), an_observation(UP), ["record RUNNING"]),
    Case("running.deleted", running(), an_observation(ABSENT), MOVE_ON),
    Case("running.deleted", running(**FAILS), an_observation(ABSENT), FAIL),
    Case("running.stopped_outside", running(), an_observation(a_lab("STOPPED"))),
    Case("running.stopped_outside", running(), an_observation(a_lab("DEFINED_ON_CORE"), RESTARTED_WORKER)),
    Case("running.start_again", running(), an_observation(a_lab("STOPPED"), RESTARTED_WORKER), ["start the lab"]),
    Case(
        "running.starting",
        running(),
        an_observation(a_lab("STOPPED"), RESTARTED_WORKER, recent_operations=frozenset({"start"})),
    ),
    Case("running.restarted", running(), an_observation(UP, RESTARTED_WORKER), ["record RUNNING"]),
    # STOPPING
    Case("stopping.not_observed", stopping(), an_observation(unobserved("HTTP 502"))),
    Case("stopping.found", stopping(lab_id=None), an_observation(a_lab()), ["record STOPPING"]),
    Case("stopping.import_pending", stopping(lab_id=None), an_observation(ABSENT, import_may_complete=True)),
    Case("stopping.leftover", stopping(lab_id=None), an_observation(ABSENT, leftover=OLD_LAB), ["delete the lab"]),
    Case("stopping.gone", stopping(lab_id=None), an_observation(ABSENT), ENDED),
    Case("stopping.gone", stopping(), an_observation(ABSENT, import_may_complete=True), ENDED),
    Case("stopping.gone", stopping(ending=LabletStatus.EXPIRED), an_observation(ABSENT), EXPIRED),
    Case("stopping.stop", stopping(), an_observation(a_lab()), ["stop the lab"]),
    Case("stopping.stop", stopping(), an_observation(a_lab(), DRAINING_WORKER), ["stop the lab"]),
    Case("stopping.stop", stopping(), an_observation(a_lab("QUEUED")), ["stop the lab"]),
    Case("stopping.stop", stopping(), an_observation(a_lab(), recent_operations=frozenset({"stop"}))),
    Case(
        "stopping.wipe",
        stopping(),
        an_observation(a_lab("STOPPED"), recent_operations=frozenset({"stop"})),
        ["wipe the lab"],
    ),
    Case("stopping.delete", stopping(), an_observation(a_lab("DEFINED_ON_CORE")), ["delete the lab"]),
    # Holds: what has happened is recorded, nothing is changed
    Case("scheduled.begin.held", a_lablet("SCHEDULED"), an_observation(), policy=LabletPolicy(fleet_hold=HOLD)),
    Case("running.end.held", running(wanted=False), an_observation(worker=a_ready_worker(hold=HOLD))),
    Case("running.deleted.held", running(), an_observation(ABSENT), policy=LabletPolicy(fleet_hold=HOLD)),
    Case("running.addresses", running(), an_observation(UP), ["record RUNNING"], LabletPolicy(fleet_hold=HOLD)),
    Case("stopping.gone", stopping(), an_observation(ABSENT), ENDED, LabletPolicy(fleet_hold=HOLD)),
    Case(
        "instantiating.start.held",
        begun(**KNOWN),
        an_observation(a_lab("DEFINED_ON_CORE")),
        policy=LabletPolicy(fleet_hold=HOLD),
    ),
]


def decided(case: Case) -> Decision:
    return decide(case.lablet, case.observed, case.policy, NOW)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_decisions(case: Case) -> None:
    decision = decided(case)
    assert decision.rule == case.rule
    assert [str(action) for action in decision.actions] == case.actions
    assert decision.reason


def test_every_rule_has_a_case() -> None:
    """All rules in the source code, except for those that follow a call."""
    folder = Path(decide.__code__.co_filename).parent
    source = "\n".join(path.read_text() for path in sorted(folder.glob("*.py")))
    named = set(re.findall(r'"((?:scheduled|instantiating|running|stopping|unassigned)\.[a-z_]+)"', source))
    assert named - {case.rule for case in CASES} == {"instantiating.imported", "instantiating.refused"}


def test_the_id_of_a_new_lab_is_recorded_with_the_labs_that_are_gone() -> None:
    """Only those on its worker, and only those whose id was known: of another it is not known whether it exists."""
    elsewhere = LEFT.model_copy(update={"worker_id": "w-2"})
    uncertain = LEFT.model_copy(update={"marker": "l-1.0", "lab_id": None})
    lablet = RESET.model_copy(update={"left_behind": (elsewhere, uncertain, LEFT)})
    (write,) = lab_imported(lablet, a_ready_worker(), LAB, NOW).actions
    assert isinstance(write, WriteStatus)
    assert write.fields["removed_labs"] == ("l-1.1",)


def test_the_id_of_a_new_lab_is_recorded_with_its_start() -> None:
    lablet = begun()
    decision = lab_imported(lablet, a_ready_worker(), LAB, NOW)
    (write,) = decision.actions
    assert isinstance(write, WriteStatus)
    assert write.fields == {"lab_id": LAB, "lab_started_at": NOW}
    assert decision.again
    later = a_ready_worker(last_resumed_at=NOW + timedelta(seconds=5))
    (write,) = lab_imported(lablet, later, LAB, NOW).actions
    assert isinstance(write, WriteStatus)
    assert write.fields["lab_started_at"] == later.last_resumed_at, "not before its worker"


def test_a_rejected_topology_fails_through_stopping() -> None:
    (write,) = import_rejected(begun(), "HTTP 400: no").actions
    assert isinstance(write, WriteStatus)
    assert (write.status, write.fields) == (LabletStatus.STOPPING, {"ending": LabletStatus.FAILED})


@pytest.mark.parametrize(
    ("lablet", "ending"),
    [
        (begun(wanted=False), LabletStatus.TERMINATED),
        (running(ends_at=ago(1)), LabletStatus.EXPIRED),
        (running(time_to_live_minutes=0.1), LabletStatus.EXPIRED),
        (running(wanted=False, ends_at=ago(1)), LabletStatus.TERMINATED),
        (running(ending=LabletStatus.FAILED, wanted=False), LabletStatus.FAILED),
    ],
)
def test_the_final_status_is_recorded_before_stopping(lablet: Lablet, ending: LabletStatus) -> None:
    (write,) = decide(lablet, an_observation(), LabletPolicy(), NOW).actions
    assert isinstance(write, WriteStatus)
    assert write.fields == {"ending": ending}


def test_only_lablets_with_a_lab_leave_it_behind() -> None:
    for lablet, left in ((a_lablet("SCHEDULED"), False), (begun(), True), (running(), True), (stopping(), True)):
        (release,) = decide(
            lablet, an_observation(worker=UNREADY_WORKER, unready_since=ago(900)), LabletPolicy(), NOW
        ).actions
        assert isinstance(release, ReleaseReservation)
        assert release.left_behind is left
        (release,) = decide(lablet, an_observation(worker=GONE), LabletPolicy(), NOW).actions
        assert isinstance(release, ReleaseReservation)
        assert release.left_behind is False, "the instance is gone"


def test_the_next_check_is_not_after_the_end() -> None:
    lablet = running(endpoints=ENDPOINTS, ends_at=NOW + timedelta(seconds=7))
    assert decide(lablet, an_observation(UP), LabletPolicy(), NOW).after == 7
    assert decide(running(endpoints=ENDPOINTS), an_observation(UP), LabletPolicy(), NOW).after == 60


def test_addresses_are_queried_more_often_at_first() -> None:
    without = (NodeEndpoint(node="host"),)
    bare = a_lab(booted=1, converged=True, endpoints=without)
    assert decide(running(endpoints=without), an_observation(bare), LabletPolicy(), NOW).after == 10
    old = running(endpoints=without, status_since=ago(400))
    assert decide(old, an_observation(bare), LabletPolicy(), NOW).after == 60


@pytest.mark.parametrize(
    "lab",
    [unobserved("HTTP 502"), a_lab(), a_lab("STOPPED"), a_lab("DEFINED_ON_CORE")],
    ids=lambda lab: lab.state or "none",
)
def test_a_lab_that_is_not_removed_is_reported_as_stuck_and_retried(lab: object) -> None:
    observed = an_observation(lab)  # type: ignore[arg-type]
    usual = decide(stopping(), observed, LabletPolicy(), NOW)
    stuck = decide(stopping(status_since=ago(900)), observed, LabletPolicy(), NOW)
    assert (stuck.rule, stuck.actions) == (usual.rule, usual.actions)
    assert (stuck.message or "").startswith("Stuck: its lab was not removed within 900 s")
    assert not (usual.message or "").startswith("Stuck")


def test_a_worker_of_a_newer_version_is_checked_again_and_reported_as_stuck_after_the_timeout() -> None:
    for seconds, prefix in ((0, "this version"), (900, "this version"), (901, "Stuck: this version")):
        observed = an_observation(worker=NEWER_WORKER, unknown_since=ago(seconds))
        decision = decide(stopping(), observed, LabletPolicy(), NOW)
        assert (decision.outcome, decision.after) == (Outcome.REQUEUE, 30)
        assert (decision.message or "").startswith(f"{prefix} of LCM does not know desired_status HIBERNATED of worker")


def test_errors_of_cml_are_reported() -> None:
    observed = an_observation(a_lab("DEFINED_ON_CORE"), last_error="no license")
    assert decide(begun(**KNOWN), observed, LabletPolicy(), NOW).message == "CML cannot start its lab: no license"
    assert decide(stopping(), observed, LabletPolicy(), NOW).message == "CML cannot delete its lab: no license"
    late = decide(begun(**KNOWN, status_since=ago(1800)), observed, LabletPolicy(), NOW)
    assert late.reason == "not up within 1800 s: no license"


def test_failures_are_retried_with_backoff() -> None:
    for lablet in (begun(), stopping()):
        assert decide(lablet, an_observation(unobserved("HTTP 502")), LabletPolicy(), NOW).outcome is Outcome.RETRY
