"""Which of CML's events are sent on, and in what form."""

from __future__ import annotations

from datetime import datetime, timedelta

from lcm.cml.types import CMLActivityEvent
from lcm.controllers.worker.observe.cml_state import MAX_EVENTS, OWN_ACCOUNT, activity_events
from lcm.model.worker.idle import ACTIVITY_CATEGORIES
from tests.support.records.workers import NOW


def event(category: str, minute: int, user: str | None = None) -> CMLActivityEvent:
    return CMLActivityEvent(category, NOW + timedelta(minutes=minute), user)


def test_oldest_first_whatever_the_order() -> None:
    found = activity_events([event("stop_lab", 3), event("start_lab", 1, "u-1"), event("system_stats", 2)])
    assert [(one.category, one.user_id) for one in found] == [
        ("start_lab", "u-1"),
        ("system_stats", None),
        ("stop_lab", None),
    ]


def test_no_events_are_no_events() -> None:
    assert activity_events([]) == ()


def test_what_our_own_account_did_is_no_sign_of_a_person_but_one_of_telemetry() -> None:
    """idle-and-scaling.md: our own account's events are left out only where it is ours alone."""
    events = [event("start_lab", 1, "us"), event("start_lab", 2, "ada")]
    assert [one.category for one in activity_events(events, "us")] == [OWN_ACCOUNT, "start_lab"]
    assert [one.category for one in activity_events(events)] == ["start_lab", "start_lab"]
    assert OWN_ACCOUNT not in ACTIVITY_CATEGORIES


def test_the_newest_are_sent() -> None:
    found = activity_events([event("system_stats", minute) for minute in range(MAX_EVENTS + 500)])
    assert len(found) == MAX_EVENTS
    assert found[0].at == NOW + timedelta(minutes=500)
    assert found[-1].at == NOW + timedelta(minutes=MAX_EVENTS + 499)


def test_noise_does_not_crowd_out_what_a_person_did() -> None:
    noise = [event("system_stats", minute) for minute in range(1, MAX_EVENTS + 500)]
    found = activity_events([event("start_node", 0), *noise])
    assert len(found) == MAX_EVENTS
    assert found[0].category == "start_node"


def test_of_too_much_activity_the_newest_counts() -> None:
    found = activity_events([event("start_node", minute) for minute in range(MAX_EVENTS + 1)])
    assert (len(found), found[0].at) == (MAX_EVENTS, NOW + timedelta(minutes=1))


def test_long_texts_are_cut_to_the_limits_of_the_control_plane() -> None:
    (found,) = activity_events([event("c" * 100, 0, "u" * 200)])
    assert (len(found.category), len(found.user_id or "")) == (64, 128)


def test_what_would_be_refused_is_left_out() -> None:
    naive = CMLActivityEvent("start_lab", datetime(2026, 1, 1))  # noqa: DTZ001 - that is what is wrong with it
    assert [one.category for one in activity_events([naive, event("stop_lab", 0)])] == ["stop_lab"]
    assert [one.category for one in activity_events([event("\udc80", 0), event("start_lab", 1)])] == ["start_lab"]
