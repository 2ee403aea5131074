"""Cursors, values and downsampling, which all adapters share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcm.control_plane.store.adapter_rules import Downsampler
from lcm.control_plane.store.cursors import (
    PagePosition,
    journal_cursor,
    page_cursor,
    parse_journal_cursor,
    parse_page_cursor,
)
from lcm.control_plane.store.port import FieldValue, InvalidCursorError, Kind, Sort
from lcm.control_plane.store.values import from_micros, order_key, to_micros

KIND = Kind("worker", fields=("name",))
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), TEXT)


@settings(deadline=None)
@given(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(-1e300, 1e300), TEXT),
    TEXT.filter(bool),
)
def test_a_cursor_round_trips(value: FieldValue, document_id: str) -> None:
    position = parse_page_cursor(KIND, Sort("name"), page_cursor(KIND, Sort("name"), PagePosition(value, document_id)))
    assert (type(position.value), position.value, position.id) == (type(value), value, document_id)


@settings(deadline=None)
@given(st.text(max_size=60))
def test_any_other_text_is_rejected_as_a_cursor(text: str) -> None:
    with pytest.raises(InvalidCursorError):
        parse_page_cursor(KIND, Sort("name"), text)


@settings(deadline=None)
@given(st.integers(0, 10**16 - 1), st.integers(0, 10**16 - 1))
def test_journal_cursors_are_ordered_as_text(one: int, other: int) -> None:
    assert (journal_cursor(one) < journal_cursor(other)) == (one < other)
    assert parse_journal_cursor(journal_cursor(one)) == one


@settings(deadline=None)
@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7))])))
def test_times_keep_their_microseconds(time: datetime) -> None:
    assert from_micros(to_micros(time)) == time


@settings(deadline=None)
@given(VALUES, VALUES)
def test_a_boolean_is_never_a_number(one: FieldValue, other: FieldValue) -> None:
    if order_key(one) == order_key(other):
        assert isinstance(one, bool) == isinstance(other, bool)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 10**9)), max_size=40), st.integers(1, 300))
def test_one_sample_is_kept_per_interval_and_subject(rows: list[tuple[str, int]], interval: int) -> None:
    rows.sort(key=lambda row: row[1])
    downsampler = Downsampler(interval)
    numbered = [(number, subject, at) for number, (subject, at) in enumerate(rows)]
    dropped = {*downsampler.rows_to_drop(numbered[:7]), *downsampler.rows_to_drop(numbered[7:])}
    intervals = [(subject, at // (interval * 1_000_000)) for subject, at in rows]
    kept = [intervals[number] for number, _, _ in numbered if number not in dropped]
    assert len(set(kept)) == len(kept)
    assert set(kept) == set(intervals)
