"""Telemetry events are parsed whatever the format of their time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.cml.client.bodies import BodyEnds, TooLongError
from lcm.cml.client.responses import MalformedResponseError
from lcm.cml.client.telemetry import parse_activity, parse_event, parse_list_ends

AT = datetime(2025, 11, 19, 21, 11, 59, tzinfo=UTC)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@pytest.mark.parametrize(
    "stamp",
    [
        "2025-11-19T21:11:59Z",
        "2025-11-19T21:11:59.000Z",
        "2025-11-19T22:11:59+01:00",
        "2025-11-19T16:41:59.000-04:30",
        " 2025-11-19T21:11:59+00:00 ",
    ],
)
def test_times_with_a_zone_are_in_utc(stamp: str) -> None:
    event = parse_event({"category": "start_lab", "timestamp": stamp, "data": {}})
    assert event is not None
    assert event.at == AT
    assert event.at.tzinfo is UTC


@pytest.mark.parametrize("stamp", ["2025-11-19T21:11:59", "2025-11-19 21:11:59", "2025-11-19T21:11:59.000000"])
def test_a_time_without_a_zone_stays_without_one(stamp: str) -> None:
    """The server's zone is not known here: only the newest of its events shows it."""
    event = parse_event({"category": "start_lab", "timestamp": stamp, "data": {}})
    assert event is not None
    assert event.at == AT.replace(tzinfo=None)


@given(
    st.timedeltas(timedelta(days=-9000), timedelta(days=25000)).map(lambda span: AT.replace(tzinfo=None) + span),
    st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))) | st.none(),
)
def test_any_iso_time_is_parsed(naive: datetime, zone: timezone | None) -> None:
    written = naive if zone is None else naive.replace(tzinfo=zone)
    event = parse_event({"category": "x", "timestamp": written.isoformat()})
    assert event is not None
    assert event.at == written


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


@pytest.mark.parametrize(("hours", "expected"), [((3, 5, 4), "c3 c5 c4"), ((5, 4, 3), "c3 c4 c5")])
def test_events_stay_in_the_order_of_recording(hours: tuple[int, ...], expected: str) -> None:
    """A time may go back when clocks change; a list with the newest first is turned round."""
    entries = [{"category": f"c{hour}", "timestamp": f"2025-11-19T{hour:02d}:00:00"} for hour in hours]
    assert " ".join(event.category for event in parse_activity(entries).events) == expected


def test_a_response_that_is_not_a_list_is_rejected() -> None:
    with pytest.raises(MalformedResponseError, match="not a list"):
        parse_activity({"events": []})


def list_ends(body: bytes, *, head: int, tail: int, chunk: int = 1000) -> BodyEnds:
    ends = BodyEnds(head, tail, max_bytes=10**9)
    for begin in range(0, len(body), chunk):
        ends.add(body[begin : begin + chunk])
    return ends


def entry(number: int, **data: object) -> dict[str, Any]:
    return {"category": f"c{number}", "timestamp": (AT + timedelta(seconds=number)).isoformat(), "data": data}


@pytest.mark.parametrize("indent", [None, 2])
@given(tail=st.integers(400, 3000), chunk=st.integers(1, 700), text=st.text(max_size=10))
def test_the_newest_events_of_a_long_list_are_read_wherever_it_is_cut(
    indent: int | None, tail: int, chunk: int, text: str
) -> None:
    entries = [entry(number, text=text, parts=[{"a": 1}, {"b": '"},{"'}]) for number in range(100)]
    body = json.dumps(entries, indent=indent, ensure_ascii=False).encode()
    ends = list_ends(body, head=300, tail=tail, chunk=chunk)
    categories = [event.category for event in parse_list_ends(ends).events]
    assert categories[-1] == "c99"
    assert categories == sorted(categories, key=lambda name: int(name[1:])), "none is twice or out of order"
    assert ends.kept_bytes <= 300 + tail + chunk, "memory does not grow with the list"


def test_a_list_with_the_newest_first_is_read_at_its_beginning() -> None:
    body = json.dumps([entry(number) for number in reversed(range(1000))]).encode()
    assert parse_list_ends(list_ends(body, head=500, tail=500)).events[-1].category == "c999"


def test_a_short_list_is_read_as_a_whole() -> None:
    body = json.dumps([entry(number) for number in range(5)]).encode()
    assert parse_list_ends(list_ends(body, head=300, tail=10**6)).total == 5


@pytest.mark.parametrize("body", [b'"' + b"x" * 9000 + b'"', b"[" + b'{"a": 1},' * 900, b"[" * 9000, b"{}" * 4000])
def test_what_does_not_end_like_a_list_is_rejected(body: bytes) -> None:
    with pytest.raises(MalformedResponseError):
        parse_list_ends(list_ends(body, head=100, tail=1000))


def test_a_bad_list_is_given_up_soon() -> None:
    body = b"[" + b"{},\n" * 400_000 + b'{"'
    with pytest.raises(MalformedResponseError, match="no end"):
        parse_list_ends(list_ends(body, head=100, tail=2**20, chunk=2**16))


def test_a_response_beyond_all_limits_is_given_up() -> None:
    ends = BodyEnds(10, 10, max_bytes=100)
    for _ in range(10):
        ends.add(b"x" * 10)
    with pytest.raises(TooLongError):
        ends.add(b"x")
