"""The end of a lablet can be moved, and its lab made anew: lablets.md#lablet-commands."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from lcm.control_plane.auth.teams import put_team
from lcm.control_plane.errors import PreconditionFailedError, ProblemError
from lcm.control_plane.lablets.change_previews import preview_extension, preview_reset
from lcm.control_plane.lablets.lifecycle import apply_lablet_status, extend, reset
from lcm.control_plane.lablets.service import max_lifetime_of
from lcm.control_plane.records.idempotency import IdempotencyKey
from lcm.control_plane.records.kinds import AUDIT
from lcm.core import clock
from lcm.model.lablet.lifetime import MaxLifetime
from lcm.model.lablet.record import AbandonedLab, Lablet, LabletStatusUpdate, NodeEndpoint
from lcm.model.lablet.requests import ExtendLabletRequest, LabletAction, PreviewLabletRequest
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus
from lcm.model.problems import ProblemCode
from lcm.model.team import Team, TeamLimits
from lcm.model.worker.record import Hold
from tests.support.records.lablet_records import ANNA, LabletDesk, a_lablet, a_ready_worker
from tests.support.records.workers import NOW

HOUR = timedelta(hours=1)
WEEK = timedelta(days=7)
LIMIT = MaxLifetime(WEEK)
BY_30 = ExtendLabletRequest(minutes=30)


def running(**changes: Any) -> Lablet:
    facts: dict[str, Any] = {
        "status": "RUNNING",
        "worker_id": "w-1",
        "instance_id": "i-1",
        "lab_id": "lab-1",
        "lab_started_at": NOW,
        "endpoints": (NodeEndpoint(node="R1", addresses=("10.0.0.1",)),),
        "running_since": NOW,
        "placement_attempt": 1,
        "ports": {"CON": 20000},
    }
    return a_lablet(**{**facts, **changes})


# Extend


@pytest.mark.parametrize(
    ("times", "after"),
    [
        ({"ends_at": NOW + HOUR}, NOW + 1.5 * HOUR),
        ({"time_to_live_minutes": 60.0}, NOW + 1.5 * HOUR),
        ({"time_to_live_minutes": 60.0, "ends_at": NOW + 5 * HOUR}, NOW + 1.5 * HOUR),
        ({"time_to_live_minutes": 300.0, "ends_at": NOW + HOUR}, NOW + 1.5 * HOUR),
        # Its time is over, and nobody has ended it yet: the extension counts from now.
        ({"time_to_live_minutes": 60.0, "running_since": NOW - 2 * HOUR}, NOW + 0.5 * HOUR),
    ],
)
def test_the_end_is_moved_whichever_rule_sets_it(times: dict[str, Any], after: Any) -> None:
    lablet = running(**times)
    later = extend(lablet, BY_30, NOW, LIMIT)
    assert later.expires_at == after
    assert (later.version, later.generation, later.status) == (2, 2, "RUNNING")
    same = extend(later, ExtendLabletRequest(ends_at=after), NOW, LIMIT)
    assert same is later, "the same end again changes nothing"


def test_before_it_runs_its_time_limit_grows() -> None:
    waiting = a_lablet(time_to_live_minutes=60.0)
    assert extend(waiting, BY_30, NOW, LIMIT).time_to_live_minutes == 90
    with pytest.raises(ProblemError, match="ends_at: it does not run yet, and may then run for 1 hour; give minutes"):
        extend(waiting, ExtendLabletRequest(ends_at=NOW + HOUR), NOW, LIMIT)
    both = a_lablet(time_to_live_minutes=60.0, ends_at=NOW + 5 * HOUR)
    later = extend(both, BY_30, NOW, LIMIT)
    assert (later.time_to_live_minutes, later.ends_at) == (90, NOW + 5.5 * HOUR)


@pytest.mark.parametrize(
    ("lablet", "request_", "why", "code"),
    [
        (running(), BY_30, "it has no end; it runs until someone ends it", ProblemCode.NOT_POSSIBLE_NOW),
        (
            running(ends_at=NOW + HOUR),
            ExtendLabletRequest(ends_at=NOW - HOUR),
            "ends_at: .* is not in the future",
            ProblemCode.INVALID,
        ),
        (
            running(ends_at=NOW + 2 * HOUR),
            ExtendLabletRequest(ends_at=NOW + HOUR),
            "ends_at: it already ends later, .*; to end it earlier, terminate it",
            ProblemCode.INVALID,
        ),
        (
            running(ends_at=NOW + WEEK),
            BY_30,
            r"minutes: its end may be at most .*, 168 hours after it began \(LABLET_MAX_LIFETIME_HOURS\)",
            ProblemCode.INVALID,
        ),
        (
            a_lablet(time_to_live_minutes=WEEK.total_seconds() / 60 - 10),
            BY_30,
            "minutes: it may run for 168 hours at most .*; give at most 10",
            ProblemCode.INVALID,
        ),
        (running(ends_at=NOW + HOUR, wanted=False), BY_30, "it is ending", ProblemCode.NOT_POSSIBLE_NOW),
        (running(ends_at=NOW + HOUR, ending="EXPIRED"), BY_30, "it is ending", ProblemCode.NOT_POSSIBLE_NOW),
        *(
            (a_lablet(status=status), BY_30, f"it has ended .{status}.", ProblemCode.NOT_POSSIBLE_NOW)
            for status in sorted(FINAL_LABLET_STATUSES)
        ),
    ],
)
def test_an_impossible_end_is_rejected_with_the_remedy(
    lablet: Lablet, request_: ExtendLabletRequest, why: str, code: ProblemCode
) -> None:
    with pytest.raises(ProblemError, match=why) as caught:
        extend(lablet, request_, NOW, LIMIT)
    assert caught.value.code is code
    asked = PreviewLabletRequest(action=LabletAction.EXTEND, minutes=request_.minutes, ends_at=request_.ends_at)
    assert preview_extension(lablet, asked, NOW, LIMIT).refusal == caught.value.detail


def test_without_a_maximum_it_can_be_extended_for_ever() -> None:
    assert extend(running(ends_at=NOW + WEEK), BY_30, NOW, None).ends_at == NOW + WEEK + HOUR / 2


async def test_the_lower_limit_of_a_team_holds_for_its_lablets() -> None:
    desk = await LabletDesk().open()
    limits = TeamLimits(max_lifetime_minutes=120.0)
    team = Team(id="t-1", name="bgp-course", limits=limits, created_at=clock.now(), updated_at=clock.now())
    await desk.store.commit([put_team(team, None)])
    lablet = running(team="t-1", ends_at=NOW + HOUR)
    found = await max_lifetime_of(desk.store, lablet, WEEK)
    assert found == MaxLifetime(2 * HOUR, "limit of team bgp-course")
    with pytest.raises(ProblemError, match=r"2 hours after it began \(limit of team bgp-course\)"):
        extend(lablet, ExtendLabletRequest(minutes=90), NOW, found)
    assert await max_lifetime_of(desk.store, lablet, HOUR) == MaxLifetime(HOUR)
    assert await max_lifetime_of(desk.store, running(), None) is None


def test_a_reset_does_not_lengthen_the_lifetime() -> None:
    lablet = running(time_to_live_minutes=60.0)
    again = apply_lablet_status(
        reset(lablet, NOW + HOUR / 2),
        LabletStatusUpdate(status=LabletStatus.RUNNING, version=2, reason="up"),
        NOW + 0.6 * HOUR,
    )
    assert (again.running_since, again.expires_at) == (NOW, NOW + HOUR)
    with pytest.raises(ProblemError, match="168 hours after it began"):
        extend(again, ExtendLabletRequest(ends_at=NOW + WEEK + HOUR), NOW + HOUR / 2, LIMIT)


def test_the_preview_names_the_present_and_the_latest_end() -> None:
    preview = preview_extension(
        running(ends_at=NOW + HOUR), PreviewLabletRequest(action=LabletAction.EXTEND), NOW, MaxLifetime(2 * HOUR)
    )
    assert (preview.refusal, preview.changes) == ("", True)
    assert preview.effect.startswith("It ends ")
    assert "The latest end is " in preview.effect


# Reset


def test_a_reset_keeps_worker_ports_and_end_and_leaves_the_lab_behind() -> None:
    lablet = running(ends_at=NOW + HOUR)
    after = reset(lablet, NOW + HOUR / 2)
    assert (after.status, after.status_since, after.placement_attempt) == ("INSTANTIATING", NOW + HOUR / 2, 2)
    assert after.left_behind == (AbandonedLab(worker_id="w-1", marker="l-1.1", lab_id="lab-1"),)
    assert (after.lab_id, after.lab_started_at, after.endpoints) == (None, None, ())
    for name in ("worker_id", "instance_id", "ports", "ends_at", "running_since", "wanted"):
        assert getattr(after, name) == getattr(lablet, name), name
    assert (after.version, after.generation) == (2, 2)


@pytest.mark.parametrize("status", sorted(set(LabletStatus) - {LabletStatus.RUNNING}))
def test_only_a_running_lablet_is_reset(status: LabletStatus) -> None:
    with pytest.raises(ProblemError) as caught:
        reset(running(status=status), NOW)
    assert caught.value.code is ProblemCode.NOT_POSSIBLE_NOW
    assert preview_reset(running(status=status), "alpha", None, NOW).refusal == caught.value.detail


def test_a_lablet_that_is_to_end_is_not_reset() -> None:
    with pytest.raises(ProblemError, match="it is ending and cannot be reset"):
        reset(running(wanted=False), NOW)


def test_a_failed_seat_is_reset_while_its_class_is_under_way() -> None:
    left = (AbandonedLab(worker_id="w-1", marker="l-1.1", lab_id="lab-1"),)
    facts = {"status": LabletStatus.FAILED, "ending": LabletStatus.FAILED, "booking_id": "bk-1", "retries": 4}
    seat = running(**facts, ends_at=NOW + HOUR, left_behind=left, lab_id=None, ports={})
    after = reset(seat, NOW, NOW + 2 * HOUR)
    assert (after.status, after.retries, after.ending, after.worker_id) == ("PENDING_SCHEDULING", 0, None, None)
    assert (after.ends_at, after.left_behind, after.placement_attempt) == (NOW + 2 * HOUR, left, 1)
    preview = preview_reset(seat, "", None, NOW, NOW + 2 * HOUR)
    assert preview.change == "FAILED → PENDING_SCHEDULING"
    assert "host and ports may change" in preview.effect
    for over in (seat.model_copy(update={"wanted": False}), seat.model_copy(update={"status": "EXPIRED"})):
        with pytest.raises(ProblemError, match="it has ended"):
            reset(over, NOW, NOW + 2 * HOUR)
    with pytest.raises(ProblemError, match=r"it has ended \(FAILED\) and cannot be reset"):
        reset(seat, NOW)


def test_a_reset_of_a_running_seat_begins_to_count_retries_anew() -> None:
    assert reset(running(retries=4), NOW).retries == 0


def test_a_hold_delays_the_reset_and_the_preview_says_so() -> None:
    hold = Hold(reason="exam", by="bob", since=NOW)
    assert preview_reset(running(), "alpha", hold, NOW).effect.startswith("bob put alpha or the fleet on hold. After")
    preview = preview_reset(running(), "alpha", None, NOW)
    assert preview.effect.startswith("The lab on alpha will be stopped, wiped and deleted; then a new one")
    assert preview.losses["Lab"] == "1 node on alpha, with all work of anna in them"
    assert "Ports" not in preview.losses, "they stay"


def test_the_labs_that_are_gone_are_forgotten() -> None:
    """Only those of its present worker: the same marker elsewhere is another lab."""
    after = reset(running(), NOW)
    elsewhere = AbandonedLab(worker_id="w-2", marker="l-1.1", lab_id="lab-9")
    after = after.model_copy(update={"left_behind": (elsewhere, *after.left_behind)})
    write = LabletStatusUpdate(
        status=LabletStatus.INSTANTIATING, version=2, reason="made", lab_id="lab-2", removed_labs=("l-1.1",)
    )
    made = apply_lablet_status(after, write, NOW)
    assert (made.left_behind, made.lab_id) == ((elsewhere,), "lab-2")


# In commits


async def test_each_is_one_audited_commit_and_a_repetition_changes_nothing() -> None:
    desk = await LabletDesk().open(a_ready_worker())
    await desk.define()
    lablet = await desk.report(await desk.placed(ends_at=clock.now() + HOUR), "INSTANTIATING")
    lablet = await desk.report(lablet, "RUNNING", lab_id="lab-1")
    key = IdempotencyKey("anna", "k-1", b"extend")
    desk.commits = 0
    first = await desk.people.extend(ANNA, lablet.id, BY_30, key=key)
    assert await desk.people.extend(ANNA, lablet.id, BY_30, key=key) == first
    with pytest.raises(PreconditionFailedError):
        await desk.people.reset(ANNA, lablet.id, if_match=lablet.version)
    key = IdempotencyKey("anna", "k-2", b"reset")
    second = await desk.people.reset(ANNA, lablet.id, reason="wrong turn", key=key)
    assert await desk.people.reset(ANNA, lablet.id, reason="wrong turn", key=key) == second
    assert desk.commits == 2
    assert json.loads(second)["placement_attempt"] == 2
    assert (await desk.worker()).allocation.lablets == 1, "the reservation stays"
    audit = await desk.entries(AUDIT, lablet.id)
    assert [line["action"] for line in audit[-2:]] == ["extend", "reset"]
    assert (audit[-1]["reason"], audit[-1]["details"]) == ("wrong turn", {"lab_id": "lab-1"})
