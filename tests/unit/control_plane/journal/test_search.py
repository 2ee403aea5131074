"""Searching the audit by actor, action, time and text, with a bounded scan."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.control_plane.journal import search as reading
from lcm.control_plane.journal.search import AuditFilter, AuditSearchResult, cursor_after, cursor_before, search_audit
from lcm.control_plane.records.kinds import ALL_KINDS, AUDIT
from lcm.control_plane.store.memory.store import MemoryStore
from lcm.control_plane.store.port import NewJournalEntry
from lcm.model.access import Role
from lcm.model.audit import Actor, ActorKind, AuditEntry
from tests.support.records.workers import NOW
from tests.support.virtual.control_plane import TestPlane, serving_plane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

MINUTE = timedelta(minutes=1)


class CountedStore(MemoryStore):
    """Counts the entries that were read from the journal."""

    read = 0

    async def read_journal(self, **options: Any) -> Any:
        entries = await super().read_journal(**options)
        self.read += len(entries)
        return entries


def line(
    minute: float, action: str = "stop", *, who: str = "anna", subject: str = "w-1", **more: Any
) -> NewJournalEntry:
    kind = ActorKind.CONTROLLER if who.endswith("controller") else ActorKind.PERSON
    at = NOW + minute * MINUTE
    entry = AuditEntry(at=at, actor=Actor(kind=kind, name=who), action=action, subject=subject, **more)
    return NewJournalEntry(AUDIT, subject, entry.model_dump_json().encode(), at)


async def a_store(*entries: NewJournalEntry) -> CountedStore:
    store = CountedStore()
    await store.open(ALL_KINDS)
    for begin in range(0, len(entries), 1000):
        await store.commit([], entries=entries[begin : begin + 1000])
    return store


def minutes(found: AuditSearchResult) -> list[int]:
    return [round((each.at - NOW) / MINUTE) for each in found.entries]


FEW = (
    line(0, "created", reason="for the course"),
    line(1, "auto_paused", who="worker-controller"),
    line(2, "hold", who="Berta", subject="fleet", reason="check First"),
    line(3, "stop", subject="w-2", details={"ticket": "LAB-77"}),
    line(4, "auto_paused", who="worker-controller", subject="w-2"),
)


@pytest.mark.parametrize(
    ("audit_filter", "expected"),
    [
        (AuditFilter(), [4, 3, 2, 1, 0]),
        (AuditFilter(subjects=("w-2", "fleet")), [4, 3, 2]),
        (AuditFilter(actors=("berta", "worker-controller")), [4, 2, 1]),
        (AuditFilter(actor_kinds=("person",)), [3, 2, 0]),
        (AuditFilter(actions=("auto_paused", "created")), [4, 1, 0]),
        (AuditFilter(q="first"), [2]),
        (AuditFilter(q="lab-7"), [3]),
        (AuditFilter(q="W-2"), [4, 3]),
        (AuditFilter(since=NOW + 2 * MINUTE), [4, 3, 2]),
        (AuditFilter(until=NOW + 2 * MINUTE), [1, 0]),
        (AuditFilter(since=NOW + MINUTE, until=NOW + 3 * MINUTE, actor_kinds=("controller",)), [1]),
        (AuditFilter(subjects=("w-2",), actions=("stop",)), [3]),
        (AuditFilter(q="nowhere"), []),
    ],
)
async def test_all_conditions_must_match(audit_filter: AuditFilter, expected: list[int]) -> None:
    store = await a_store(*FEW)
    assert minutes(await search_audit(store, audit_filter)) == expected
    assert minutes(await search_audit(store, audit_filter, newest_first=False)) == expected[::-1]


@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_return_every_entry_once_and_each_request_scans_few(
    monkeypatch: pytest.MonkeyPatch, newest_first: bool
) -> None:
    monkeypatch.setattr(reading, "MAX_ENTRIES_SCANNED", 1000)
    store = await a_store(*(line(number, "stop" if number % 900 == 0 else "skipped") for number in range(4000)))
    found: list[int] = []
    cursor, requests, empty = None, 0, 0
    while True:
        store.read = 0
        page = await search_audit(
            store, AuditFilter(actions=("stop",)), newest_first=newest_first, cursor=cursor, limit=2
        )
        assert store.read <= 1500  # at most what one request scans, and the rest of a page
        found += minutes(page)
        empty += not page.entries
        requests, cursor = requests + 1, page.next_cursor
        if cursor is None:
            break
    assert sorted(found) == [0, 900, 1800, 2700, 3600]
    assert (found == sorted(found)) is not newest_first
    assert requests >= 4


async def test_an_empty_page_may_have_a_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_ENTRIES_SCANNED", 500)
    store = await a_store(line(0, "hold"), *(line(number) for number in range(1, 1200)))
    page = await search_audit(store, AuditFilter(actions=("hold",)))
    assert (page.entries, page.next_cursor is None) == ([], False)


async def test_an_old_range_is_found_without_reading_newer_entries() -> None:
    store = await a_store(*(line(number) for number in range(20_000)))
    audit_filter = AuditFilter(since=NOW + 100 * MINUTE, until=NOW + 110 * MINUTE)
    found = await search_audit(store, audit_filter)
    assert minutes(found) == list(range(109, 99, -1))
    assert found.next_cursor is None
    assert store.read < 1200
    store.read = 0
    assert minutes(await search_audit(store, audit_filter, newest_first=False)) == list(range(100, 110))
    assert store.read < 1200


async def test_an_entry_that_was_committed_late_is_still_in_its_range() -> None:
    late = [line(number) for number in range(300)]
    late.insert(201, line(199.5, "late"))
    late.insert(150, line(151.5, "early"))
    store = await a_store(*late)
    audit_filter = AuditFilter(since=NOW + 199 * MINUTE, until=NOW + 200 * MINUTE, actions=("late",))
    assert len((await search_audit(store, audit_filter)).entries) == 1
    audit_filter = AuditFilter(since=NOW + 151 * MINUTE, until=NOW + 152 * MINUTE, actions=("early",))
    assert len((await search_audit(store, audit_filter)).entries) == 1


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=200).map(sorted),
    st.integers(-10, 410),
    st.lists(st.booleans(), max_size=200),
)
def test_a_cursor_by_time_separates_older_from_younger_entries(
    times: list[int], moment: int, between: list[bool]
) -> None:
    entries: list[NewJournalEntry] = []
    for number, minute in enumerate(times):
        if number < len(between) and between[number]:
            entries += [NewJournalEntry("history", "w-1", b"{}", NOW)] * 70  # with other topics in between
        entries.append(line(minute))

    async def check() -> None:
        store = await a_store(*entries)
        low = await cursor_before(store, AUDIT, NOW + moment * MINUTE)
        high = await cursor_after(store, AUDIT, NOW + moment * MINUTE)
        assert low is not None
        assert high is not None
        for each in await store.read_journal(topics=[AUDIT], limit=1000):
            minute = round((each.at - NOW) / MINUTE)
            assert not (each.cursor <= low and minute >= moment)
            assert not (each.cursor >= high and minute < moment)

    run(check())


def run(coroutine: Any) -> None:
    import asyncio

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(coroutine)
    finally:
        loop.close()


# Over HTTP


@pytest.fixture
async def plane() -> AsyncIterator[TestPlane]:
    async with serving_plane() as plane:
        yield plane


async def actions(plane: TestPlane, query: str) -> Sequence[str]:
    response = await plane.ask("GET", f"/api/audit?{query}", role=Role.VIEWER)
    assert response.status_code == 200, response.text
    return [each["action"] for each in response.json()["items"]]


async def test_filters_of_the_route_repeat_or_take_commas(plane: TestPlane) -> None:
    worker = await plane.running()
    await plane.ask("POST", f"/api/workers/{worker['id']}/stop", json={"reason": "over & out"})
    assert await actions(plane, "actor=operator") == ["stop", "created"]
    assert await actions(plane, "actor=operator&action=stop,created&action=hold") == ["stop", "created"]
    assert await actions(plane, "actor_kind=Person&q=OVER%20%26") == ["stop"]
    assert set(await actions(plane, "actor_kind=controller,system&limit=500")) >= {
        "status_reported",
        "template_created",
    }
    assert "stop" not in await actions(plane, "actor_kind=controller,system&limit=500")
    assert await actions(plane, "since=2999-01-01T00:00:00Z") == []
    assert await actions(plane, "until=1999-01-01T00:00:00Z") == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("actor_kind=robot", "actor_kind"),
        ("since=yesterday", "since"),
        ("until=12", "until"),
        ("q=" + "x" * 101, "q"),
        ("subject=" + ",".join(["w-1"] * 101), "subject"),
        ("subject=%00", "subject"),
        ("actor=%EF%BF%BF", "actor"),
    ],
)
async def test_an_invalid_filter_is_named_in_the_error(plane: TestPlane, query: str, field: str) -> None:
    response = await plane.ask("GET", f"/api/audit?{query}", role=Role.VIEWER)
    assert response.status_code == 422, response.text
    assert json.loads(response.text)["detail"].startswith(f"{field}: ")
