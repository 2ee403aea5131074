"""CML's events as the control plane takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from lcm.model.worker.idle import ACTIVITY_CATEGORIES, ActivityEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lcm.cml.types import CMLActivityEvent as CmlEvent

MAX_EVENTS: Final = 1_000
OWN_ACCOUNT: Final = "own_account"
_MAX_CATEGORY_LENGTH: Final = 64
_MAX_USER_LENGTH: Final = 128


def activity_events(events: Iterable[CmlEvent], own_user_id: str | None = None) -> tuple[ActivityEvent, ...]:
    """The newest events, oldest first. An event that the control plane would refuse is left out.

    What an account did that is ours alone is no sign of a person, yet it is a sign of telemetry: it stays, under
    another name. Nine of ten events are the server talking to itself. Where there are too many they go first: were they
    to crowd out what a person did, a worker in use would pass for idle.
    """
    told = (replace(event, category=OWN_ACCOUNT) if _is_own(event, own_user_id) else event for event in events)
    ordered = sorted((event for event in told if event.at.tzinfo), key=lambda event: event.at, reverse=True)
    if len(ordered) > MAX_EVENTS:
        intent = [event for event in ordered if event.category in ACTIVITY_CATEGORIES][:MAX_EVENTS]
        others = [event for event in ordered if event.category not in ACTIVITY_CATEGORIES]
        ordered = sorted([*intent, *others[: MAX_EVENTS - len(intent)]], key=lambda event: event.at, reverse=True)
    return _valid_events(ordered)


def _is_own(event: CmlEvent, own_user_id: str | None) -> bool:
    return own_user_id is not None and event.user_id == own_user_id


def _valid_events(newest_first: Sequence[CmlEvent]) -> tuple[ActivityEvent, ...]:
    taken: list[ActivityEvent] = []
    for event in reversed(newest_first):
        user = event.user_id
        try:
            taken.append(
                ActivityEvent(
                    category=event.category[:_MAX_CATEGORY_LENGTH],
                    at=event.at,
                    user_id=None if user is None else user[:_MAX_USER_LENGTH],
                )
            )
        except ValidationError:
            continue
    return tuple(taken)
