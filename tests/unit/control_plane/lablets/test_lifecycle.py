"""What people and controllers may do with a lablet, and which fields each step changes."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from lcm.control_plane.errors import PreconditionFailedError, ProblemError
from lcm.control_plane.lablets.lifecycle import (
    LabletOwner,
    apply_lablet_status,
    apply_release,
    build_lablet,
    request_termination,
)
from lcm.control_plane.records.kinds import AUDIT, LABLET_HISTORY
from lcm.core import clock
from lcm.model.lablet.record import (
    CreateLabletRequest,
    LabletDefinitionSummary,
    LabletRequirements,
    LabletStatusUpdate,
    NodeEndpoint,
    Placement,
    Rejection,
    ReleaseLabletRequest,
)
from lcm.model.lablet.status import (
    ASSIGNED_LABLET_STATUSES,
    FINAL_LABLET_STATUSES,
    LABLET_STATUSES,
    IllegalLabletTransitionError,
    LabletStatus,
)
from lcm.model.problems import ProblemCode
from tests.support.records.lablet_records import LABLET_CONTROLLER, LabletDesk, a_lablet, a_ready_worker
from tests.support.records.workers import NOW

LATER = NOW + timedelta(minutes=5)
PENDING = LabletStatus.PENDING_SCHEDULING
ON_A_WORKER: dict[str, Any] = {
    "worker_id": "w-1",
    "ports": {"CON": 20000},
    "instance_id": "i-1",
    "lab_id": "lab-1",
    "lab_started_at": NOW,
    "endpoints": (NodeEndpoint(node="R1", addresses=("10.0.0.1",)),),
    "running_since": NOW,
}

ANNA = LabletOwner("", "anna")


def a_write(status: LabletStatus, version: int = 1, **facts: Any) -> LabletStatusUpdate:
    return LabletStatusUpdate(status=status, version=version, reason="seen", **facts)


def a_definition(**changes: Any) -> LabletDefinitionSummary:
    facts: dict[str, Any] = {"id": "ospf@1", "name": "ospf", "version": "1", "created_at": NOW, "created_by": "anna"}
    return LabletDefinitionSummary(**{**facts, **changes})


# People


def test_a_new_lablet_copies_its_requirements_and_gets_default_names() -> None:
    needs = LabletRequirements(cpu_cores=3, ports=("CON",))
    definition = a_definition(requirements=needs, time_to_live_minutes=90.0)
    lablet = build_lablet(CreateLabletRequest(definition="ospf"), definition, lablet_id="l-abc", owner=ANNA, now=NOW)
    assert (lablet.name, lablet.owner_name, lablet.definition) == ("ospf-abc", "anna", "ospf@1")
    assert (lablet.requirements, lablet.time_to_live_minutes, lablet.wanted) == (needs, 90.0, True)
    request = CreateLabletRequest(definition="ospf", name="mine", owner="bob", time_to_live_minutes=5.0)
    bob = LabletOwner("token:t-1", "bob")
    lablet = build_lablet(request, definition, lablet_id="l-abc", owner=bob, now=NOW)
    assert (lablet.name, lablet.owner, lablet.owner_name) == ("mine", "token:t-1", "bob")
    assert lablet.time_to_live_minutes == 5.0


def test_a_generated_name_is_never_too_long() -> None:
    lablet = build_lablet(
        CreateLabletRequest(definition="x"),
        a_definition(name="d" * 63),
        lablet_id="l-123",
        owner=ANNA,
        now=NOW,
    )
    assert (len(lablet.name), lablet.name[-4:]) == (63, "-123")


@pytest.mark.parametrize(
    ("times", "why"),
    [
        ({"ends_at": NOW}, "ends_at: .* is not in the future"),
        ({"starts_at": LATER, "ends_at": LATER}, "ends_at: must be after starts_at"),
    ],
)
def test_impossible_times_are_rejected(times: dict[str, Any], why: str) -> None:
    with pytest.raises(ProblemError, match=why) as caught:
        build_lablet(
            CreateLabletRequest(definition="ospf", **times),
            a_definition(),
            lablet_id="l-1",
            owner=ANNA,
            now=NOW,
        )
    assert caught.value.code is ProblemCode.INVALID


def test_no_lablet_is_created_from_a_disabled_definition() -> None:
    with pytest.raises(ProblemError, match="ospf@1 is disabled; enable it"):
        build_lablet(
            CreateLabletRequest(definition="ospf"),
            a_definition(enabled=False),
            lablet_id="l-1",
            owner=ANNA,
            now=NOW,
        )


@pytest.mark.parametrize("status", [PENDING, LabletStatus.SCHEDULED])
def test_a_lablet_without_a_lab_on_cml_ends_at_once(status: LabletStatus) -> None:
    ended = request_termination(a_lablet(status=status, **ON_A_WORKER), LATER, "enough")
    assert (ended.status, ended.wanted, ended.ending) == ("TERMINATED", False, "TERMINATED")
    assert (ended.ending_reason, ended.status_since, ended.ports) == ("enough", LATER, {})
    assert (ended.version, ended.generation) == (2, 2)


@pytest.mark.parametrize("status", [LabletStatus.INSTANTIATING, LabletStatus.RUNNING])
def test_a_lablet_that_may_have_a_lab_waits_for_the_controller(status: LabletStatus) -> None:
    lablet = a_lablet(status=status, **ON_A_WORKER)
    ended = request_termination(lablet, LATER)
    assert (ended.status, ended.wanted, ended.ending, ended.generation) == (status, False, "TERMINATED", 2)
    assert (ended.worker_id, ended.ports) == (lablet.worker_id, lablet.ports)
    assert request_termination(ended, LATER) is ended


def test_a_person_does_not_change_an_end_in_progress() -> None:
    failing = a_lablet(status="STOPPING", ending="FAILED", ending_reason="no boot", **ON_A_WORKER)
    ended = request_termination(failing, LATER, "me too")
    assert (ended.wanted, ended.ending, ended.ending_reason) == (False, "FAILED", "no boot")


@pytest.mark.parametrize("status", sorted(FINAL_LABLET_STATUSES))
def test_an_ended_lablet_does_not_change(status: LabletStatus) -> None:
    over = a_lablet(status=status)
    assert request_termination(over, LATER) is over


# Controllers


@pytest.mark.parametrize(("before", "after"), list(product(LabletStatus, LabletStatus)))
def test_the_table_decides_which_status_may_follow(before: LabletStatus, after: LabletStatus) -> None:
    lablet = a_lablet(status=before, **(ON_A_WORKER if before in ASSIGNED_LABLET_STATUSES else {}))
    legal = after is before or after in LABLET_STATUSES[before].next
    if not legal:
        with pytest.raises(IllegalLabletTransitionError, match=f"cannot go from {before} to {after};"):
            apply_lablet_status(lablet, a_write(after), LATER)
    elif (before, after) == (PENDING, LabletStatus.SCHEDULED):
        with pytest.raises(ProblemError, match="only with a reservation"):
            apply_lablet_status(lablet, a_write(after), LATER)
    elif (before, after) == (LabletStatus.RUNNING, LabletStatus.INSTANTIATING):
        with pytest.raises(ProblemError, match="only by a reset"):
            apply_lablet_status(lablet, a_write(after), LATER)
    elif (before, after) == (LabletStatus.FAILED, PENDING):
        with pytest.raises(ProblemError, match="only by its class or by a reset"):
            apply_lablet_status(lablet, a_write(after), LATER)
    else:
        written = apply_lablet_status(lablet, a_write(after), LATER)
        assert written.status is after
        assert written.status_since == (NOW if after is before else LATER)


def test_another_version_is_a_conflict() -> None:
    with pytest.raises(ProblemError, match="is at version 1, not 2") as caught:
        apply_lablet_status(a_lablet(status="RUNNING"), a_write(LabletStatus.STOPPING, version=2), LATER)
    assert (caught.value.code, caught.value.current) == (ProblemCode.VERSION_CONFLICT, {"version": 1})


def test_only_the_given_fields_change_and_repeating_changes_nothing() -> None:
    lablet = a_lablet(status="INSTANTIATING", **ON_A_WORKER)
    assert apply_lablet_status(lablet, a_write(LabletStatus.INSTANTIATING), LATER) is lablet
    assert apply_lablet_status(lablet, a_write(LabletStatus.INSTANTIATING, lab_id="lab-1"), LATER) is lablet
    cleared = apply_lablet_status(lablet, a_write(LabletStatus.INSTANTIATING, lab_id=None, endpoints=()), LATER)
    assert (cleared.lab_id, cleared.endpoints, cleared.version) == (None, (), 2)
    assert (cleared.instance_id, cleared.lab_started_at, cleared.ports) == ("i-1", NOW, {"CON": 20000})


def test_running_is_dated_when_it_is_entered() -> None:
    lablet = a_lablet(status="INSTANTIATING")
    running = apply_lablet_status(lablet, a_write(LabletStatus.RUNNING), LATER)
    assert running.running_since == LATER
    again = apply_lablet_status(running, a_write(LabletStatus.RUNNING, version=2, message="slow"), LATER + timedelta(1))
    assert (again.running_since, again.message) == (LATER, "slow")


def test_stopping_says_how_it_ends() -> None:
    running = a_lablet(status="RUNNING", **ON_A_WORKER)
    assert apply_lablet_status(running, a_write(LabletStatus.STOPPING), LATER).ending is LabletStatus.TERMINATED
    expired = apply_lablet_status(running, a_write(LabletStatus.STOPPING, ending=LabletStatus.EXPIRED), LATER)
    assert (expired.ending, expired.ending_reason) == ("EXPIRED", "seen")
    over = apply_lablet_status(expired, a_write(LabletStatus.EXPIRED, version=2), LATER)
    assert (over.status, over.ending, over.ending_reason) == ("EXPIRED", "EXPIRED", "seen")
    with pytest.raises(ProblemError, match="ending: must be EXPIRED, FAILED, TERMINATED, not RUNNING"):
        apply_lablet_status(running, a_write(LabletStatus.STOPPING, ending=LabletStatus.RUNNING), LATER)


@pytest.mark.parametrize("status", sorted(FINAL_LABLET_STATUSES))
def test_the_end_keeps_the_worker_and_clears_ports_and_addresses(status: LabletStatus) -> None:
    lablet = a_lablet(status="STOPPING", **ON_A_WORKER)
    late = {"lab_id": "lab-1", "endpoints": ON_A_WORKER["endpoints"], "message": "gone"}
    over = apply_lablet_status(lablet, a_write(status, **late), LATER)
    assert (over.ports, over.endpoints, over.lab_id, over.worker_id) == ({}, (), None, "w-1")
    assert (over.message, over.ending_reason) == ("gone", "seen")


def test_scheduling_again_clears_the_former_placement() -> None:
    facts = {"placement_attempt": 1, "ending": "FAILED", "ending_reason": "x", "message": "CML is silent"}
    lablet = a_lablet(status="RUNNING", **facts, **ON_A_WORKER)
    again = apply_lablet_status(lablet, a_write(PENDING), LATER)
    for name in (*ON_A_WORKER, "message"):
        assert not getattr(again, name), name
    assert apply_lablet_status(lablet, a_write(PENDING, message="lost"), LATER).message == "lost"
    assert (again.ending, again.ending_reason, again.placement_attempt) == (None, None, 1)


def test_an_ending_lablet_is_not_scheduled_again() -> None:
    lablet = a_lablet(status="RUNNING", wanted=False, ending="TERMINATED", **ON_A_WORKER)
    with pytest.raises(ProblemError, match="is ending") as caught:
        apply_lablet_status(lablet, a_write(PENDING), LATER)
    assert caught.value.code is ProblemCode.NOT_POSSIBLE_NOW
    with pytest.raises(ProblemError, match="is ending"):
        apply_release(lablet, ReleaseLabletRequest(status=PENDING, version=1, reason="lost"), LATER)


def test_the_same_placement_again_changes_nothing() -> None:
    first = Placement(
        at=NOW, reason="none fits", rejections=(Rejection(worker_id="w", worker_name="a", reason="full"),), rejected=1
    )
    lablet = apply_lablet_status(a_lablet(), a_write(PENDING, placement=first), NOW)
    assert (lablet.version, lablet.generation, lablet.placement) == (2, 1, first)
    same = first.model_copy(update={"at": LATER})
    assert apply_lablet_status(lablet, a_write(PENDING, version=2, placement=same), LATER) is lablet
    other = first.model_copy(update={"at": LATER, "reason": "the fleet is full"})
    assert apply_lablet_status(lablet, a_write(PENDING, version=2, placement=other), LATER).placement == other


def test_only_a_reservation_can_be_released_and_only_to_a_status_without_one() -> None:
    with pytest.raises(ProblemError, match="no reservation to release: the lablet is PENDING_SCHEDULING"):
        apply_release(a_lablet(), ReleaseLabletRequest(status=LabletStatus.FAILED, version=1, reason="x"), LATER)
    running = a_lablet(status="RUNNING", **ON_A_WORKER)
    with pytest.raises(ProblemError, match="status: after a release it must be PENDING_SCHEDULING, EXPIRED"):
        apply_release(running, ReleaseLabletRequest(status=LabletStatus.STOPPING, version=1, reason="x"), LATER)
    failed = apply_release(running, ReleaseLabletRequest(status=LabletStatus.FAILED, version=1, reason="lost"), LATER)
    assert (failed.status, failed.ending, failed.ending_reason) == ("FAILED", "FAILED", "lost")


def test_a_lab_left_on_an_unreachable_worker_is_recorded() -> None:
    lablet = a_lablet(status="RUNNING", placement_attempt=2, message="CML is silent", **ON_A_WORKER)
    write = ReleaseLabletRequest(status=PENDING, version=1, reason="out of reach", left_behind=True)
    left = apply_release(lablet, write, LATER)
    assert [(each.worker_id, each.marker, each.lab_id) for each in left.left_behind] == [("w-1", "l-1.2", "lab-1")]
    assert left.message == ""
    gone = apply_release(lablet, ReleaseLabletRequest(status=PENDING, version=1, reason="gone"), LATER)
    assert gone.left_behind == ()


# Both, in commits


async def test_an_end_releases_the_reservation_in_the_same_commit() -> None:
    desk = await LabletDesk().open(a_ready_worker())
    await desk.define()
    lablet = await desk.placed()
    desk.commits = 0
    ended = await desk.end(lablet, reason="enough")
    assert (ended.status, desk.commits) == ("TERMINATED", 1)
    assert (await desk.worker()).allocation.lablets == 0
    steps = await desk.entries(LABLET_HISTORY, lablet.id)
    assert (steps[-1]["to_status"], steps[-1]["reason"], steps[-1]["actor"]["name"]) == (
        "TERMINATED", "enough", "anna",
    )  # fmt: skip
    assert [line["action"] for line in await desk.entries(AUDIT, lablet.id)] == ["created", "scheduled", "terminate"]
    desk.commits = 0
    assert await desk.end(lablet) == ended
    assert desk.commits == 0


async def test_a_running_lablet_keeps_its_reservation_until_it_ends() -> None:
    desk = await LabletDesk().open(a_ready_worker())
    await desk.define()
    lablet = await desk.report(await desk.placed(), "INSTANTIATING")
    lablet = await desk.report(await desk.end(lablet), "STOPPING")
    assert (await desk.worker()).allocation.lablets == 1
    lablet = await desk.report(lablet, "TERMINATED")
    assert (lablet.status, (await desk.worker()).allocation.lablets) == ("TERMINATED", 0)
    steps = [step["to_status"] for step in await desk.entries(LABLET_HISTORY, lablet.id)]
    assert steps == ["PENDING_SCHEDULING", "SCHEDULED", "INSTANTIATING", "STOPPING", "TERMINATED"]


async def test_if_match_must_name_the_current_version() -> None:
    desk = await LabletDesk().open()
    await desk.define()
    lablet = await desk.make()
    with pytest.raises(PreconditionFailedError, match="the lablet is at version 1, not 7"):
        await desk.end(lablet, if_match=7)


async def test_writes_of_an_older_term_change_nothing() -> None:
    desk = await LabletDesk().open(a_ready_worker())
    await desk.define()
    lablet = await desk.report(await desk.placed(), "INSTANTIATING")
    older = type(LABLET_CONTROLLER)("lablet-controller", 3)
    with pytest.raises(ProblemError) as caught:
        await desk.report(lablet, "RUNNING", leader=older)
    assert caught.value.code is ProblemCode.STALE_LEADER
    assert await desk.lablet(lablet.id) == lablet


async def test_a_name_is_free_again_once_its_lablet_has_ended() -> None:
    desk = await LabletDesk().open()
    await desk.define()
    first = await desk.make(name="mine")
    with pytest.raises(ProblemError, match=f"name: mine is already used by lablet {first.id}") as caught:
        await desk.make(name="mine")
    assert (caught.value.code, caught.value.current) == (ProblemCode.NAME_TAKEN, {"lablet_id": first.id})
    await desk.end(first)
    assert (await desk.make(name="mine")).id != first.id


async def test_a_lablet_is_dated_by_the_clock() -> None:
    desk = await LabletDesk().open()
    await desk.define()
    assert (await desk.make()).created_at == clock.now()
