"""CML's telemetry events, in whatever form a version writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.cml.client.json_values import items, maybe_text, moment
from lcm.cml.types import Activity, ActivityEvent

if TYPE_CHECKING:
    from datetime import datetime


def read_activity(answer: Any, since: datetime | None = None) -> Activity:
    """The events after `since`, oldest first. Entries that cannot be read are counted and left out.

    Categories nobody has heard of are kept: what counts as activity is decided elsewhere.
    """
    found: list[ActivityEvent] = []
    skipped = 0
    for entry in items(answer, "the list of events"):
        event = read_event(entry)
        if event is None:
            skipped += 1
        else:
            found.append(event)
    wanted = [event for event in found if since is None or event.at > since]
    wanted.sort(key=lambda event: event.at)
    return Activity(tuple(wanted), total=len(found), skipped=skipped)


def read_event(entry: Any) -> ActivityEvent | None:
    """One event, or None when it has no category or no time."""
    if not isinstance(entry, dict):
        return None
    category = maybe_text(entry, "category")
    at = moment(entry.get("timestamp"))
    if not category or at is None:
        return None
    data = entry.get("data")
    if not isinstance(data, dict):
        data = {}
    return ActivityEvent(category, at, user_id=maybe_text(data, "user_id"), lab_id=maybe_text(data, "lab_id"))
