"""What schedules want of a worker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcm.model.calendar.precedence import Authority, OtherClaims, decide_desired
from lcm.model.calendar.schedule import (
    OutsideAction,
    Schedule,
    WorkerSelector,
    closed_reason,
    closed_template_reason,
    due_change,
    next_boundary,
    next_scheduled_change,
    schedule_claim,
)
from lcm.model.calendar.schedule_text import scheduled_step
from lcm.model.worker.record import Hold, Override
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.support.records.workers import a_worker

RUNNING, STOPPED = DesiredStatus.RUNNING, DesiredStatus.STOPPED
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NOON = datetime(2026, 11, 18, 11, tzinfo=UTC)  # a Wednesday, noon in Brussels
EVENING = NOON + 8 * HOUR


def a_schedule(*windows: str, **changes: Any) -> Schedule:
    facts: dict[str, Any] = {
        "id": "s-1",
        "name": "office-hours",
        "zone": "Europe/Brussels",
        "windows": windows or ("mon-fri 08:00-18:00",),
        "selector": WorkerSelector(names=("alpha",)),
        "created_at": NOON - 90 * DAY,
        "updated_at": NOON,
    }
    return Schedule(**{**facts, **changes})


OFFICE = a_schedule()
BY_OFFICE = {"desired_status": STOPPED, "paused_by_policy": True, "pause_reason": "schedule:s-1"}


def test_an_open_window_keeps_a_worker_up() -> None:
    claim = schedule_claim(a_worker(), [OFFICE], NOON)
    assert claim is not None
    assert (claim.authority, claim.desired, claim.until) == (Authority.SCHEDULE, RUNNING, NOON + 6 * HOUR)
    assert claim.reason == "schedule office-hours is open until 17:00 UTC (mon-fri 08:00-18:00, Europe/Brussels)"


def test_a_schedule_starts_nothing_that_a_person_stopped_before_it_existed() -> None:
    """An override stays on the record when its time is over."""
    stopped = Override(desired=STOPPED, until=NOON - 2 * DAY, by="bob", since=NOON - 2 * DAY - 3 * HOUR)
    worker = a_worker(desired_status=STOPPED, override=stopped)
    assert schedule_claim(worker, [OFFICE], NOON) is not None
    assert schedule_claim(worker, [a_schedule(created_at=NOON - DAY)], NOON) is None
    assert schedule_claim(worker, [a_schedule(created_at=NOON - 2 * DAY - HOUR)], NOON) is not None


def test_a_worker_is_stopped_outside_and_the_record_says_by_which_schedule() -> None:
    claim = schedule_claim(a_worker(), [OFFICE], EVENING)
    assert claim is not None
    assert (claim.desired, claim.pause_reason) == (STOPPED, "schedule:s-1")
    assert claim.reason == (
        "schedule office-hours is closed (mon-fri 08:00-18:00, Europe/Brussels), and opens at 07:00 UTC on 19 November"
    )
    assert claim.until == datetime(2026, 11, 19, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "started"),
    [
        (BY_OFFICE, True),
        ({**BY_OFFICE, "pause_reason": "schedule:s-2"}, False),  # another schedule stopped it
        ({**BY_OFFICE, "pause_reason": "idle_timeout"}, False),
        ({"desired_status": STOPPED, "pause_reason": "manual"}, False),
        ({"desired_status": STOPPED, "pause_reason": "schedule:s-1"}, False),  # a person gave this as a reason
        (
            {"desired_status": STOPPED, "override": Override(desired=STOPPED, until=NOON, by="bob", since=NOON - HOUR)},
            True,  # a person stopped it until now
        ),
    ],
)
def test_an_opening_window_starts_only_what_its_schedule_stopped(fields: dict[str, Any], started: bool) -> None:
    worker = a_worker(status="STOPPED", **fields)
    claim = schedule_claim(worker, [OFFICE], NOON)
    assert (claim is not None and claim.desired is RUNNING) is started


def test_any_open_window_keeps_a_worker_up() -> None:
    late = a_schedule("daily 18:00-22:00", id="s-2", name="evening")
    claim = schedule_claim(a_worker(), [OFFICE, late], EVENING)
    assert claim is not None
    assert (claim.desired, claim.until) == (RUNNING, datetime(2026, 11, 18, 21, tzinfo=UTC))
    assert next_boundary(a_worker(), [OFFICE, late], NOON) == datetime(2026, 11, 18, 21, tzinfo=UTC)


def test_the_schedule_that_opens_first_is_the_one_that_starts_the_worker_again() -> None:
    early = a_schedule("daily 06:00-07:00", id="s-2", name="morning")
    night = datetime(2026, 11, 18, 22, tzinfo=UTC)
    claim = schedule_claim(a_worker(), [OFFICE, early], night)
    assert claim is not None
    assert claim.pause_reason == "schedule:s-2"
    stopped = a_worker(desired_status=STOPPED, paused_by_policy=True, pause_reason=claim.pause_reason)
    change = next_scheduled_change(stopped, [OFFICE, early], night)
    assert change is not None
    assert (change.desired, change.at) == (RUNNING, datetime(2026, 11, 19, 5, tzinfo=UTC))


@pytest.mark.parametrize(
    "changes",
    [
        {"outside": OutsideAction.NOTHING},
        {"enabled": False},
        {"selector": WorkerSelector(names=("beta",))},
        {"selector": WorkerSelector()},
        {"zone": "Mars/Olympus"},
        {"windows": ("every full moon",)},
    ],
)
def test_what_is_not_said_stops_no_worker(changes: dict[str, Any]) -> None:
    assert schedule_claim(a_worker(), [a_schedule(**changes)], EVENING) is None


def test_a_schedule_that_cannot_be_evaluated_may_be_open() -> None:
    unreadable = a_schedule(id="s-2", zone="Mars/Olympus")
    assert schedule_claim(a_worker(), [OFFICE, unreadable], EVENING) is None
    open_claim = schedule_claim(a_worker(), [OFFICE, unreadable], NOON)
    assert open_claim is not None
    assert open_claim.desired is RUNNING


def test_selectors_need_all_their_conditions() -> None:
    worker = a_worker(tags={"room": "1", "floor": "2"})
    selector = WorkerSelector(templates=("small",), tags={"room": "1"})
    assert selector.matches(worker)
    assert str(selector) == "template small, tag room=1"
    assert not WorkerSelector(templates=("small",), tags={"room": "2"}).matches(worker)
    assert not WorkerSelector(names=("beta",), templates=("small",)).matches(worker)
    assert not WorkerSelector().matches(worker)


def test_a_worker_outside_its_windows_takes_no_lablets_unless_a_person_wants_it_up() -> None:
    assert closed_reason(a_worker(), [OFFICE], NOON) is None
    assert (closed_reason(a_worker(), [OFFICE], EVENING) or "").startswith("schedule office-hours is closed")
    kept = a_worker(override=Override(desired=RUNNING, until=EVENING + HOUR, by="bob", since=NOON))
    assert closed_reason(kept, [OFFICE], EVENING) is None
    assert closed_reason(kept, [OFFICE], EVENING + HOUR) is not None


def test_no_worker_is_launched_from_a_template_that_is_closed_as_a_whole() -> None:
    by_template = a_schedule(selector=WorkerSelector(templates=("small",)))
    assert closed_template_reason("small", [by_template], NOON) is None
    assert closed_template_reason("small", [by_template], EVENING) is not None
    assert closed_template_reason("large", [by_template], EVENING) is None
    tagged = a_schedule(selector=WorkerSelector(templates=("small",), tags={"room": "1"}))
    assert closed_template_reason("small", [tagged], EVENING) is None
    always = a_schedule("daily 00:00-24:00", id="s-2", selector=WorkerSelector(templates=("small",)))
    assert closed_template_reason("small", [by_template, always], EVENING) is None


def test_after_a_persons_stop_in_a_window_the_next_window_starts_the_worker() -> None:
    """The stop counts until the next boundary, which is the end of the window."""
    boundary = next_boundary(a_worker(), [OFFICE], NOON)
    stop = Override(desired=STOPPED, until=boundary, by="bob", since=NOON)
    change = next_scheduled_change(a_worker(desired_status=STOPPED, override=stop), [OFFICE], NOON)
    assert change is not None
    assert (change.desired, change.at) == (RUNNING, datetime(2026, 11, 19, 7, tzinfo=UTC))


def test_after_a_persons_start_outside_the_worker_is_stopped_at_the_end_of_the_next_window() -> None:
    start = Override(desired=RUNNING, until=next_boundary(a_worker(), [OFFICE], EVENING), by="bob", since=EVENING)
    change = next_scheduled_change(a_worker(override=start), [OFFICE], EVENING)
    assert change is not None
    assert (change.desired, change.at) == (STOPPED, datetime(2026, 11, 19, 17, tzinfo=UTC))


def test_nothing_is_scheduled_for_a_worker_that_is_terminated_or_has_no_schedule() -> None:
    assert next_scheduled_change(a_worker(desired_status=DesiredStatus.TERMINATED), [OFFICE], EVENING) is None
    assert next_scheduled_change(a_worker(), [], EVENING) is None
    held = a_worker(hold=Hold(reason="look", by="ann", since=NOON))
    assert next_scheduled_change(held, [OFFICE], EVENING) is not None


# They begin and end at half hours, so that a check every half hour sees every boundary.
WINDOWS = st.sampled_from(
    (
        "daily 08:00-18:00",
        "sat 22:00-06:00",
        "sun 01:00-02:30",
        "sun 02:30-05:00",
        "sat,sun 12:00-13:00",
        "sun 00:00-24:00",
    )
)
NIGHT = datetime(2026, 10, 24, 12, tzinfo=UTC)  # clocks are put back in the night that follows


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Schedule], dict[str, Any]]:
    schedules = [
        a_schedule(
            *draw(st.lists(WINDOWS, min_size=1, max_size=2)),
            id=f"s-{number}",
            outside=draw(st.sampled_from(OutsideAction)),
        )
        for number in range(draw(st.integers(1, 3)))
    ]
    fields: dict[str, Any] = {"desired_status": draw(st.sampled_from((RUNNING, STOPPED)))}
    if fields["desired_status"] is STOPPED:
        fields |= draw(st.sampled_from(({}, {"paused_by_policy": True, "pause_reason": "schedule:s-0"})))
    until = draw(st.none() | st.integers(0, 30).map(lambda hours: NIGHT + hours * HOUR))
    if until is not None:
        fields["override"] = Override(desired=fields["desired_status"], until=until, by="bob", since=NIGHT)
    return schedules, fields


@settings(max_examples=60)
@given(cases())
def test_the_next_change_is_the_first_that_a_check_every_half_hour_finds(
    case: tuple[list[Schedule], dict[str, Any]],
) -> None:
    schedules, fields = case
    worker = a_worker(**fields)
    expected = None
    for number in range(36 * 2):
        moment = NIGHT + number * HOUR / 2
        claim = schedule_claim(worker, schedules, moment)
        winner = decide_desired(worker, moment, OtherClaims(schedule=claim))
        if winner.authority is Authority.SCHEDULE and winner.desired is not worker.desired_status:
            expected = (winner.desired, moment)
            break
    change = next_scheduled_change(worker, schedules, NIGHT)
    if expected is not None:
        assert change is not None
        assert (change.desired, change.at) == expected
    else:
        assert change is None or change.at >= NIGHT + 36 * HOUR


def test_a_class_outlasts_the_window_and_the_stop_is_foreseen_for_its_end() -> None:
    """calendar.md#carrying-out: a booking outranks schedules until the class ends."""
    over = EVENING + HOUR
    booked = a_worker(booking_id="bk-1", booked_until=over)
    assert due_change(booked, [OFFICE], EVENING) is None
    assert closed_reason(booked, [OFFICE], EVENING) is None
    change = next_scheduled_change(booked, [OFFICE], NOON)
    assert change is not None
    assert (change.desired, change.at) == (STOPPED, over)
    assert due_change(booked, [OFFICE], over) is not None
    assert closed_reason(booked, [OFFICE], over) is not None


def test_old_and_newer_records_open() -> None:
    stored = OFFICE.model_dump(mode="json")
    for name in ("exceptions", "outside", "enabled", "zone_rules", "version"):
        del stored[name]
    assert Schedule.model_validate(stored) == OFFICE
    newer = Schedule.model_validate({**stored, "outside": "hibernate", "season": "winter"})
    assert newer.model_dump(mode="json")["season"] == "winter"
    assert schedule_claim(a_worker(), [newer], EVENING) is None


def test_a_stop_that_is_due_waits_until_the_worker_is_not_in_use() -> None:
    running = a_worker(status=WorkerStatus.RUNNING)
    due, later = (scheduled_step(running, [OFFICE], now) for now in (EVENING, NOON))
    assert due == "It will be stopped by its schedule as soon as it is not in use."
    assert later is not None
    assert later.startswith("It will be stopped by its schedule at 17:00 UTC, in 6 hours, or as soon after that as ")
