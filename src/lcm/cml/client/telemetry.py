"""CML's list of events. It only grows and has no filter, so both its ends are kept while it is received.

The newest events are at the end. The beginning is read as well: if a version listed the newest first, its users would
look idle otherwise.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, Final

from lcm.cml.client.bodies import BodyEnds
from lcm.cml.client.responses import (
    MalformedResponseError,
    as_list,
    check_depth,
    optional_text,
    parse_json,
    parse_timestamp,
    reject_constant,
)
from lcm.cml.types import CMLActivity, CMLActivityEvent

if TYPE_CHECKING:
    from lcm.cml.client.responses import CMLResponse

TELEMETRY_TIMEOUT: Final = 120.0
"""Seconds for the whole list: a server with a million events sends more than 100 MiB."""
HEAD_BYTES: Final = 64 * 1024
TAIL_BYTES: Final = 1024 * 1024
MAX_LIST_BYTES: Final = 1024**3
_INLINE_BYTES: Final = 64 * 1024  # decoding this much takes about a millisecond
_MAX_DECODED: Final = 200_000
"""How many entries are decoded to find where the last part of a list begins: a bad list must not cost minutes."""

_DECODER: Final = json.JSONDecoder(parse_constant=reject_constant)
_BETWEEN_OBJECTS: Final = re.compile(r"\}\s*,\s*(?=\{)")
_SEPARATOR: Final = re.compile(r"\s*(?:(,)\s*|\]\s*\Z)")
_OPENING: Final = re.compile(r"\s*\[\s*")


def telemetry_buffer() -> BodyEnds:
    """What is kept of the list while it is received."""
    return BodyEnds(HEAD_BYTES, TAIL_BYTES, MAX_LIST_BYTES)


async def read_activity(response: CMLResponse) -> CMLActivity:
    """The newest events, oldest first. A long list is decoded in a thread, so that the event loop is not held up."""
    ends: BodyEnds = response.content
    if ends.kept_bytes <= _INLINE_BYTES:
        return parse_list_ends(ends)
    return await asyncio.to_thread(parse_list_ends, ends)


def parse_list_ends(ends: BodyEnds) -> CMLActivity:
    """The events at both ends of a list, or all of them if the list is short."""
    if ends.complete:
        return parse_activity(parse_json(ends.first_bytes() + ends.last_bytes))
    first = _first_entries(ends.first_bytes().decode(errors="replace"))
    last = _last_entries(ends.last_bytes.decode(errors="replace"))
    return parse_activity([*first, *last])


def _first_entries(text: str) -> list[Any]:
    """The entries that are complete in the first part of a list."""
    opening = _OPENING.match(text)
    if opening is None:
        raise MalformedResponseError("the list of events is not a list")
    return _read_entries(text, opening.end())[0]


def _last_entries(text: str) -> list[Any]:
    """The entries that are complete in the last part of a list, which begins anywhere, also within an entry."""
    decoded = 0
    for between in _BETWEEN_OBJECTS.finditer(text):
        entries, closed = _read_entries(text, between.end())
        if closed:
            return entries
        decoded += 1 + len(entries)  # the place was within an entry that contains a list of objects
        if decoded > _MAX_DECODED:
            break
    raise MalformedResponseError("the list of events has no end that can be read")


def _read_entries(text: str, begin: int) -> tuple[list[Any], bool]:
    """The entries from a position on, and whether the list ends after the last of them and nothing follows."""
    entries: list[Any] = []
    while True:
        try:
            entry, end = _DECODER.raw_decode(text, begin)
        except (ValueError, RecursionError):
            return entries, False
        entries.append(entry)
        separator = _SEPARATOR.match(text, end)
        if separator is None:
            return entries, False
        if separator.group(1) is None:
            return entries, True
        begin = separator.end()


def parse_activity(content: Any) -> CMLActivity:
    """All events, in the order in which they were recorded. Entries that cannot be parsed are counted and skipped.

    Unknown categories are kept: the caller decides what counts as activity. Events are not sorted by time: when clocks
    are set back, a later event has an earlier time.
    """
    entries = as_list(content, "the list of events")
    events = [event for event in map(parse_event, entries) if event is not None]
    if events and events[0].at.replace(tzinfo=None) > events[-1].at.replace(tzinfo=None):
        events.reverse()
    return CMLActivity(tuple(events), total=len(events), skipped=len(entries) - len(events))


def parse_event(entry: Any) -> CMLActivityEvent | None:
    """One event, or None if it has no category or no time."""
    if not isinstance(entry, dict) or not check_depth(entry):
        return None
    category = optional_text(entry, "category")
    at = parse_timestamp(entry.get("timestamp"))
    if not category or at is None:
        return None
    data = entry.get("data")
    if not isinstance(data, dict):
        data = {}
    return CMLActivityEvent(category, at, user_id=optional_text(data, "user_id"), lab_id=optional_text(data, "lab_id"))
