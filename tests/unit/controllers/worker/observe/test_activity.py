"""Which of CML's events are sent on, and in what form."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.cml.types import CMLActivityEvent
from lcm.controllers.worker.observe.activity import (
    MAX_EVENTS,
    OWN_ACCOUNT,
    ClockUnusableError,
    ServerZone,
    activity_events,
)
from lcm.model.worker.idle import ACTIVITY_CATEGORIES, ActivityEvent
from tests.support.records.workers import NOW

if TYPE_CHECKING:
    from collections.abc import Sequence


def event(category: str, minute: int, user: str | None = None) -> CMLActivityEvent:
    return CMLActivityEvent(category, NOW + timedelta(minutes=minute), user)


def sent(
    events: Sequence[CMLActivityEvent], own: str | None = None, zone: ServerZone | None = None, at: datetime = NOW
) -> tuple[ActivityEvent, ...]:
    return activity_events(events, zone or ServerZone(), at, own)


def test_oldest_first_whatever_the_order() -> None:
    found = sent([event("stop_lab", 3), event("start_lab", 1, "u-1"), event("system_stats", 2)])
    assert [(one.category, one.user_id) for one in found] == [
        ("start_lab", "u-1"),
        ("system_stats", None),
        ("stop_lab", None),
    ]


def test_no_events_are_no_events() -> None:
    assert sent([]) == ()


def test_what_our_own_account_did_is_no_sign_of_a_person_but_one_of_telemetry() -> None:
    """idle-and-scaling.md: our own account's events are left out only where it is ours alone."""
    events = [event("start_lab", 1, "us"), event("start_lab", 2, "ada")]
    assert [one.category for one in sent(events, "us")] == [OWN_ACCOUNT, "start_lab"]
    assert [one.category for one in sent(events)] == ["start_lab", "start_lab"]
    assert OWN_ACCOUNT not in ACTIVITY_CATEGORIES


def test_the_newest_are_sent() -> None:
    found = sent([event("system_stats", minute) for minute in range(MAX_EVENTS + 500)])
    assert len(found) == MAX_EVENTS
    assert found[0].at == NOW + timedelta(minutes=500)
    assert found[-1].at == NOW + timedelta(minutes=MAX_EVENTS + 499)


def test_noise_does_not_crowd_out_what_a_person_did() -> None:
    noise = [event("system_stats", minute) for minute in range(1, MAX_EVENTS + 500)]
    found = sent([event("start_node", 0), *noise])
    assert len(found) == MAX_EVENTS
    assert found[0].category == "start_node"


def test_of_too_much_activity_the_newest_counts() -> None:
    found = sent([event("start_node", minute) for minute in range(MAX_EVENTS + 1)])
    assert (len(found), found[0].at) == (MAX_EVENTS, NOW + timedelta(minutes=1))


def test_long_texts_are_cut_to_the_limits_of_the_control_plane() -> None:
    (found,) = sent([event("c" * 100, 0, "u" * 200)])
    assert (len(found.category), len(found.user_id or "")) == (64, 128)


def test_what_would_be_refused_is_left_out() -> None:
    assert [one.category for one in sent([event("\udc80", 0), event("start_lab", 1)])] == ["start_lab"]
    first = CMLActivityEvent("start_lab", datetime(1, 1, 1))  # noqa: DTZ001 - the earliest time that can be written
    assert [one.category for one in sent([first, local("system_stats", 0, hours=5)])] == ["system_stats"]


def local(category: str, minutes_ago: float, *, hours: float, at: datetime = NOW) -> CMLActivityEvent:
    """An event in the time of a server this far from UTC, which does not say so."""
    return CMLActivityEvent(category, (at - timedelta(minutes=minutes_ago, hours=-hours)).replace(tzinfo=None))


@pytest.mark.parametrize("hours", [-12, -5, -3.5, 0, 1, 5.75, 14])
def test_times_without_a_zone_are_calibrated_by_the_newest_event(hours: float) -> None:
    """idle-and-scaling.md#idle-detection: a CML host at UTC-5 looked five hours idle and was paused in use."""
    found = sent([local("start_node", 20, hours=hours), local("system_stats", 2, hours=hours)])
    assert [NOW - one.at for one in found] == [timedelta(minutes=20), timedelta(minutes=2)]


@given(st.integers(-48, 56), st.floats(0, 3000), st.floats(0, 600))
def test_an_event_never_looks_older_than_it_is(quarters: int, newest_ago: float, older: float) -> None:
    """Whatever the zone is and however long ago the newest event was: unknown is not idle."""
    hours = quarters / 4
    events = [local("start_lab", newest_ago + older, hours=hours), local("system_stats", newest_ago, hours=hours)]
    by_category = {one.category: one.at for one in sent(events)}
    assert NOW - timedelta(minutes=newest_ago + older) <= by_category["start_lab"] <= NOW


def test_without_new_events_a_server_becomes_idle_with_time() -> None:
    zone, last = ServerZone(), local("start_lab", 1, hours=-5)
    assert [NOW - one.at for one in sent([last], zone=zone)] == [timedelta(minutes=1)]
    later = NOW + timedelta(hours=3)
    assert [later - one.at for one in sent([last], zone=zone, at=later)] == [timedelta(hours=3, minutes=1)]


@pytest.mark.parametrize(("before", "after"), [(-5, -4), (-4, -5)])
def test_no_event_looks_older_when_the_clocks_change(before: float, after: float) -> None:
    zone = ServerZone()
    sent([local("system_stats", 1, hours=before)], zone=zone)
    later = NOW + timedelta(minutes=5)
    events = [local("start_lab", 4, hours=before, at=later), local("system_stats", 1, hours=after, at=later)]
    assert min(one.at for one in sent(events, zone=zone, at=later)) >= later - timedelta(minutes=4)


def test_no_event_looks_older_for_an_hour_after_the_clocks_have_changed() -> None:
    zone = ServerZone()
    sent([local("system_stats", 1, hours=-5)], zone=zone)
    ages = []
    for minutes in (5, 10, 18, 60, 66):
        now = NOW + timedelta(minutes=minutes)
        events = [local("start_lab", minutes, hours=-5, at=now), local("system_stats", 1, hours=-4, at=now)]
        ages.append([now - one.at for one in sent(events, zone=zone, at=now) if one.category == "start_lab"])
    assert ages[:4] == [[timedelta(minutes=minutes)] for minutes in (5, 10, 18, 60)]
    assert ages[4] == [timedelta(minutes=66 + 60)], "the new offset alone counts"


def test_a_wrong_offset_does_not_last_however_often_others_are_measured() -> None:
    """A long silence before the first read makes events look recent; it must not do so for ever."""
    zone = ServerZone()
    sent([local("system_stats", 240, hours=0)], zone=zone)
    for minutes in range(0, 90, 5):
        now = NOW + timedelta(minutes=minutes)
        sent([local("system_stats", 1 + 18 * (minutes % 2), hours=0, at=now)], zone=zone, at=now)
    now = NOW + timedelta(minutes=90)
    events = [local("start_lab", 40, hours=0, at=now), local("system_stats", 1, hours=0, at=now)]
    assert now - sent(events, zone=zone, at=now)[0].at >= timedelta(minutes=25)


def test_a_clock_that_is_right_in_no_zone_is_reported() -> None:
    with pytest.raises(ClockUnusableError, match="20 hours ahead"):
        sent([local("system_stats", 0, hours=20)])
