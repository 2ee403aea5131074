"""Telemetry events are parsed whatever the format of their time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.cml.client.responses import MalformedResponseError
from lcm.cml.client.system import parse_activity, parse_event

AT = datetime(2025, 11, 19, 21, 11, 59, tzinfo=UTC)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "stamp",
    [
        "2025-11-19T21:11:59",
        "2025-11-19 21:11:59",
        "2025-11-19T21:11:59Z",
        "2025-11-19T21:11:59.000000",
        "2025-11-19T21:11:59.000Z",
        "2025-11-19T22:11:59+01:00",
        "2025-11-19T16:41:59.000-04:30",
        " 2025-11-19T21:11:59 ",
    ],
)
def test_all_time_formats_are_parsed_alike(stamp: str) -> None:
    event = parse_event({"category": "start_lab", "timestamp": stamp, "data": {}})
    assert event is not None
    assert event.at == AT
    assert event.at.tzinfo is UTC


@given(
    st.timedeltas(timedelta(days=-9000), timedelta(days=25000)).map(lambda span: AT.replace(tzinfo=None) + span),
    st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))) | st.none(),
)
def test_any_iso_time_is_parsed(naive: datetime, zone: timezone | None) -> None:
    written = naive if zone is None else naive.replace(tzinfo=zone)
    event = parse_event({"category": "x", "timestamp": written.isoformat()})
    assert event is not None
    assert event.at == (naive.replace(tzinfo=UTC) if zone is None else written)


@given(st.lists(JSON | st.fixed_dictionaries({"category": JSON, "timestamp": JSON, "data": JSON})))
def test_arbitrary_entries_never_raise(entries: list[Any]) -> None:
    activity = parse_activity(entries)
    assert activity.total + activity.skipped == len(entries)


def test_user_lab_and_unknown_categories_are_kept() -> None:
    entry = {
        "category": "quantum_leap",
        "timestamp": "2025-11-19T21:11:59",
        "data": {"user_id": "u1", "lab_id": "l1", "more": 1},
    }
    event = parse_event(entry)
    assert event is not None
    assert (event.category, event.user_id, event.lab_id) == ("quantum_leap", "u1", "l1")


@pytest.mark.parametrize(
    "entry",
    [
        None,
        7,
        [],
        {},
        {"category": "start_lab"},
        {"category": "", "timestamp": "2025-11-19T21:11:59"},
        {"category": 3, "timestamp": "2025-11-19T21:11:59"},
        {"category": "start_lab", "timestamp": "yesterday"},
        {"category": "start_lab", "timestamp": 1763586719},
        {"category": "start_lab", "timestamp": "2" * 5000},
        {"category": "start_lab", "timestamp": "0001-01-01T00:00:00+23:59"},
    ],
)
def test_unparsable_entries_are_counted_and_skipped(entry: Any) -> None:
    good = {"category": "stop_lab", "timestamp": "2025-11-19T21:11:59", "data": None}
    activity = parse_activity([entry, good])
    assert [event.category for event in activity.events] == ["stop_lab"]
    assert (activity.total, activity.skipped) == (1, 1)


def test_events_are_sorted_and_filtered_by_time() -> None:
    entries = [{"category": f"c{hour}", "timestamp": f"2025-11-19T{hour:02d}:00:00"} for hour in (5, 3, 4)]
    since = datetime(2025, 11, 19, 3, tzinfo=UTC)
    activity = parse_activity(entries, since)
    assert [event.category for event in activity.events] == ["c4", "c5"]
    assert activity.total == 3, "the total must show that telemetry exists even if there are no new events"


def test_a_response_that_is_not_a_list_is_rejected() -> None:
    with pytest.raises(MalformedResponseError, match="not a list"):
        parse_activity({"events": []})
