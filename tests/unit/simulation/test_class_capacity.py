"""What the simulation counts by itself when a booking is confirmed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.simulation.invariants.class_capacity import Records, misfits

NOW = datetime(2026, 3, 29, tzinfo=UTC)


def booking(name: str, begin: int, end: int, **facts: Any) -> dict[str, Any]:
    """One worker and one seat, so many minutes from now."""
    times = {"warm_up_at": begin, "ends_at": end}
    part = {key: (NOW + timedelta(minutes=at)).isoformat() for key, at in times.items()}
    usual = {"aws_region": "here", "template": "micro", "workers": 1, "seats": 1, "team": "t"}
    return {
        **usual,
        "name": name,
        "updated_at": NOW.isoformat(),
        "requirements": {"license": False},
        "occurrences": [{**part, "status": "CONFIRMED"}],
        **facts,
    }


def worker(**facts: Any) -> dict[str, Any]:
    usual = {"id": "w", "status": "RUNNING", "desired_status": "RUNNING", "aws_region": "here", "hold": None}
    return {**usual, "template_name": "micro", "license_status": "unregistered", **facts}


def walk_in(lives: float | None) -> dict[str, Any]:
    lablet = {"worker_id": "w", "status": "RUNNING", "booking_id": None, "wanted": True, "running_since": None}
    return {**lablet, "time_to_live_minutes": lives, "ends_at": None, "expires_at": None}


def found(*bookings: dict[str, Any], limit: int = 2, **more: Any) -> list[str]:
    by_name = {each["name"]: each for each in bookings}
    scaling = {"max_workers_per_region": limit, "license_pool_size": more.pop("pool", 0)}
    tables = {"workers": {}, "lablets": {}, "teams": {}, **more}
    records = Records(by_name, tables["workers"], tables["lablets"], tables["teams"], scaling)
    return list(misfits(records, bookings[-1], NOW, NOW + timedelta(hours=9)))


def test_classes_that_follow_one_another_fit() -> None:
    assert found(booking("a", 10, 20), booking("b", 20, 30), limit=1) == []


def test_a_minute_of_overlap_is_found() -> None:
    assert "2 workers of here" in found(booking("a", 10, 21), booking("b", 20, 30), limit=1)[0]


def test_a_worker_that_can_serve_takes_no_place_of_its_own() -> None:
    assert found(booking("a", 10, 20), limit=1, workers={"w": worker()}) == []
    assert found(booking("a", 10, 20), limit=1, workers={"w": worker(template_name="large")})
    assert found(booking("a", 10, 20), limit=1, workers={"w": worker(status="FAILED")})


def test_a_walk_in_blocks_its_worker_until_its_end() -> None:
    there = {"w": worker()}
    assert found(booking("a", 10, 20), limit=1, workers=there, lablets={"l": walk_in(None)})
    assert found(booking("a", 10, 20), limit=1, workers=there, lablets={"l": walk_in(5.0)}) == []


def test_licenses_and_seats_of_a_team_are_counted() -> None:
    exam = {"requirements": {"license": True}}
    assert "2 licenses" in found(booking("a", 1, 9, **exam), booking("b", 1, 9, **exam), pool=1)[0]
    teams = {"t": {"limits": {"max_seats": 1}}}
    assert "2 seats of a team" in found(booking("a", 1, 9), booking("b", 1, 9), teams=teams)[0]
