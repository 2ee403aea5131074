"""What is known of a booking whose record cannot be read: people see it, and admission counts it. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from lcm.model.booking.record import OPEN_STATUSES, AtRisk, Booking

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_REPAIRS: Final = 20
_UNKNOWN: Final[dict[str, Any]] = {
    "name": "unreadable",
    "team": "",
    "aws_region": "xx-unknown-1",
    "definition": "",
    "requirements": {},
    "seats": 0,
    "template": "",
    "seats_per_worker": 0,
    "workers": 0,
    "cost_per_hour_usd": 0,
    "zone": "UTC",
    "duration_minutes": 0,
    "learners": [],
    "occurrences": [],
    "status": "CONFIRMED",
    "created_by": "",
    "version": 1,
    "created_at": _EPOCH.isoformat(),
    "updated_at": _EPOCH.isoformat(),
}
_UNKNOWN_OF_CLASS: Final[dict[str, Any]] = {
    "start": {"at": "1970-01-01T00:00:00", "zone": "UTC"},
    "status": "CONFIRMED",
    "holds_capacity": False,
    "at_risk": None,
}


def read_known(body: bytes, booking_id: str) -> Booking:
    """The booking; of one that cannot be read what is known, with the condition AtRisk for its classes.

    It is for people and for counting: it must never be written.
    """
    try:
        return Booking.model_validate_json(body)
    except ValidationError as error:
        reason = unreadable_reason(error)
    booking = _repaired(body, booking_id)
    risk = AtRisk(since=booking.updated_at, missing=reason)
    return booking.model_copy(
        update={
            "occurrences": tuple(
                each.model_copy(update={"at_risk": risk}) if each.status in OPEN_STATUSES else each
                for each in booking.occurrences
            )
        }
    )


def unreadable_reason(error: ValidationError) -> str:
    """Why the record cannot be read, and what to do."""
    problem = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, problem["loc"]))
    text = f"its record cannot be read ({place}: {problem['msg']})" if place else "its record cannot be read"
    return f"{text[:300]}; restore it from a backup, or book anew"


def _repaired(body: bytes, booking_id: str) -> Booking:
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    record: dict[str, Any] = {**_UNKNOWN, **(found if isinstance(found, dict) else {}), "id": booking_id}
    for _ in range(_MAX_REPAIRS):
        try:
            return Booking.model_validate(record)
        except ValidationError as error:
            _repair(record, error)
    return Booking.model_validate({**_UNKNOWN, "id": booking_id})


def _repair(record: dict[str, Any], error: ValidationError) -> None:
    """Leave out what is wrong. A class without its times is left out as a whole."""
    without: set[int] = set()
    for problem in error.errors(include_url=False, include_input=False):
        field, *rest = problem["loc"]
        if field != "occurrences" or not rest or not isinstance(rest[0], int):
            record[str(field)] = _UNKNOWN.get(str(field))
        elif len(rest) > 1 and rest[1] in _UNKNOWN_OF_CLASS:
            record["occurrences"][rest[0]][rest[1]] = _UNKNOWN_OF_CLASS[str(rest[1])]
        else:
            without.add(rest[0])
    if without and isinstance(record["occurrences"], list):
        record["occurrences"] = [each for at, each in enumerate(record["occurrences"]) if at not in without]
