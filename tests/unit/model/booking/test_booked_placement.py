"""Seats of a class are placed on the workers that are booked for it, and nothing else is placed there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lcm.model.calendar.precedence import Authority, decide_desired
from lcm.model.fleet.settings import FleetSettings
from lcm.model.fleet.state import FleetState
from lcm.model.formatting import format_clock_time
from lcm.model.lablet.placement import rejection_reason
from lcm.model.lablet.scheduling.planner import WAITING_FOR_BOOKED, PlanningConfig, make_plan
from lcm.model.worker.explain import ExplainInput, explain
from lcm.model.worker.record import Hold, Worker
from lcm.model.worker.status import DesiredStatus
from lcm.model.worker.template import DEFAULT_TEMPLATES
from tests.support.records.lablet_records import a_lablet, a_ready_worker
from tests.support.records.workers import NOW

LATER = NOW + timedelta(hours=1)
CONFIG = PlanningConfig()


def booked(booking_id: str = "bk-1", **facts: Any) -> Worker:
    return a_ready_worker(booking_id=booking_id, booked_until=LATER, **facts)


@pytest.mark.parametrize(
    ("worker", "booking_id", "words"),
    [
        (booked(), "bk-1", None),
        (booked(), None, "it is booked for bk-1 until"),
        (booked(), "bk-2", "it is booked for bk-1 until"),
        (a_ready_worker(), "bk-1", "it is not booked for this class"),
        (a_ready_worker(), None, None),
    ],
)
def test_who_may_be_placed_on_a_worker(worker: Worker, booking_id: str | None, words: str | None) -> None:
    reason = rejection_reason(worker, a_lablet().requirements, now=NOW, booking_id=booking_id)
    assert reason is None if words is None else words in (reason or "")


def test_a_booking_that_is_over_keeps_nobody_away() -> None:
    assert rejection_reason(booked(), a_lablet().requirements, now=LATER) is None


def test_a_seat_waits_for_its_workers_and_a_walk_in_gets_another_one() -> None:
    seat = a_lablet(id="l-seat", booking_id="bk-1", starts_at=LATER + timedelta(days=1))
    walk_in = a_lablet(id="l-walk-in", name="other")
    free = a_ready_worker(id="w-2", name="beta", instance_id="i-2")
    plan = make_plan([seat, walk_in], [booked(), free], DEFAULT_TEMPLATES, now=NOW, config=CONFIG)
    assert {each.lablet.id: each.worker_id for each in plan.placed} == {"l-seat": "w-1", "l-walk-in": "w-2"}
    plan = make_plan([seat, walk_in], [booked("bk-2")], DEFAULT_TEMPLATES, now=NOW, config=CONFIG)
    assert plan.placed == []
    assert [(each.lablet.id, each.reason) for each in plan.waiting] == [("l-seat", WAITING_FOR_BOOKED)]
    assert [each.lablets[0].lablet.id for each in plan.needs] == ["l-walk-in"], "no worker is requested for a seat"


def test_a_paused_worker_that_is_booked_is_not_resumed_for_others() -> None:
    stopped: dict[str, Any] = {"status": "STOPPED", "desired_status": "STOPPED", "paused_by_policy": True}
    stopped["template_name"] = "medium"
    for worker, resumed in ((booked(**stopped), None), (a_ready_worker(**stopped), "w-1")):
        plan = make_plan([a_lablet()], [worker], DEFAULT_TEMPLATES, now=NOW, config=CONFIG)
        assert [each.resumes for each in plan.needs] == [resumed]


def test_a_booking_outranks_a_person_and_policies_but_no_hold() -> None:
    worker = booked(desired_status=DesiredStatus.STOPPED)
    claim = decide_desired(worker, NOW)
    assert (claim.authority, claim.desired, claim.until) == (Authority.BOOKING, DesiredStatus.RUNNING, LATER)
    held = worker.model_copy(update={"hold": Hold(reason="a test", by="anna", since=NOW)})
    assert decide_desired(held, NOW).authority is Authority.HOLD
    assert decide_desired(worker, LATER).authority is Authority.POLICY


def test_an_explanation_names_the_booking_and_its_end() -> None:
    sentences = explain(
        ExplainInput(worker=booked(), decision=None, fleet=FleetState(), settings=FleetSettings(), last=None, now=NOW)
    )
    text = str(sentences)
    assert "Policies do not change it: it is booked for bk-1 until" in text
    assert f"It keeps running, and policies do not pause it until {format_clock_time(LATER, NOW)}." in text
