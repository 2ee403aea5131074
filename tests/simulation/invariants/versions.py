"""What a newer version adds to records, and whether it is still there after ours has written them."""

from __future__ import annotations

from typing import Any

from lcm.control_plane.records.kinds import (
    BOOKINGS,
    DEFINITIONS,
    FLEET,
    LABLETS,
    LEADERSHIPS,
    SCHEDULES,
    SETTINGS,
    TEAMS,
    TEMPLATES,
)

_ADDED: dict[str, Any] = {"added_by_newer": {"gpus": 2}}
_LASTING_OBJECTS = ("idle", "scaling", "discovery", "maintenance", "requirements", "cml")
"""Objects in settings, definitions, bookings and workers of which only single fields are changed."""
CHANGED_BY_BOTH = (LABLETS, DEFINITIONS, BOOKINGS, SCHEDULES, TEAMS, TEMPLATES, LEADERSHIPS, SETTINGS, FLEET)


def with_newer_fields(body: dict[str, Any]) -> dict[str, Any]:
    """The record with an added field, also in the objects in it that are not replaced as a whole."""
    inner = {name: {**value, **_ADDED} for name, value in _lasting_objects(body).items()}
    return {**body, **inner, **_ADDED}


def erased(newer: dict[str, Any], body: dict[str, Any]) -> list[str]:
    """Where a record lacks what a newer version had added."""
    after = _lasting_objects(body)
    inner = [name for name in _lasting_objects(newer) if name in after and "added_by_newer" not in after[name]]
    return [*inner, *([] if "added_by_newer" in body else ["added_by_newer"])]


def _lasting_objects(body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: value for name, value in body.items() if name in _LASTING_OBJECTS and isinstance(value, dict)}
