"""The journal: one order, which is the order of commits."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.store.port import InvalidCursorError, JournalEntry, NewJournalEntry, RevisionConflictError
from tests.support.records.store_documents import NOTES, START, entry, note, revision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.store.port import Store
    from tests.contract.store.conftest import Bed


def subjects(lines: Sequence[JournalEntry]) -> list[str]:
    return [line.subject for line in lines]


async def test_entries_are_returned_as_written_in_the_order_of_commits(store: Store) -> None:
    first = await store.commit([], entries=[entry("a", 1, topic="x"), entry("b", 2, topic="y")])
    second = await store.commit([note("n")], entries=[entry("c", 3)])
    cursors = [*first, *second]
    assert cursors == sorted(set(cursors))
    assert list(await store.read_journal()) == [
        JournalEntry(cursors[0], "x", "a", b"1", START),
        JournalEntry(cursors[1], "y", "b", b"2", START),
        JournalEntry(cursors[2], "worker", "c", b"3", START),
    ]


async def test_an_entry_keeps_its_team_and_owner(store: Store) -> None:
    lines = [
        NewJournalEntry("t", "s", b"{}", START, "team-1", "oidc:https://id#1"),
        NewJournalEntry("t", "s", b"{}", START),
    ]
    await store.commit([], entries=lines)
    found = [(line.team, line.owner) for line in await store.read_journal(subjects=["s"])]
    assert found == [("team-1", "oidc:https://id#1"), ("", "")]


async def test_a_time_keeps_its_microseconds_in_any_time_zone(store: Store) -> None:
    at = datetime(2026, 7, 1, 12, 0, 0, 123457, tzinfo=timezone(timedelta(hours=2)))
    await store.commit([], entries=[NewJournalEntry("t", "s", b"", at)])
    (line,) = await store.read_journal()
    assert line.at == at
    assert line.at.utcoffset() is not None


async def test_after_before_and_newest_first(store: Store) -> None:
    cursors = [(await store.commit([], entries=[entry(name)]))[0] for name in "abcdef"]
    assert subjects(await store.read_journal(after=cursors[3])) == ["e", "f"]
    assert subjects(await store.read_journal(before=cursors[2])) == ["a", "b"]
    assert subjects(await store.read_journal(after=cursors[0], before=cursors[4], limit=2)) == ["b", "c"]
    assert subjects(await store.read_journal(newest_first=True, limit=2)) == ["f", "e"]
    assert subjects(await store.read_journal(newest_first=True, before=cursors[4], limit=2)) == ["d", "c"]
    assert subjects(await store.read_journal(newest_first=True, after=cursors[3])) == ["f", "e"]
    assert subjects(await store.read_journal(after=cursors[-1])) == []


async def test_topics_and_subjects(store: Store) -> None:
    lines = [entry(subject, topic=topic) for topic in ("x", "y", "z") for subject in ("a", "b", "c")]
    await store.commit([], entries=lines)

    async def found(newest_first: bool = False, limit: int = 100, **which: list[str]) -> list[str]:
        entries = await store.read_journal(newest_first=newest_first, limit=limit, **which)  # type: ignore[arg-type]
        return [line.topic + line.subject for line in entries]

    assert await found(topics=["y"]) == ["ya", "yb", "yc"]
    assert await found(topics=["z", "x", "x"], limit=4) == ["xa", "xb", "xc", "za"]
    assert await found(subjects=["c", "a"]) == ["xa", "xc", "ya", "yc", "za", "zc"]
    assert await found(topics=["x", "z"], subjects=["a", "c"], newest_first=True, limit=3) == ["zc", "za", "xc"]
    assert await found(topics=["none"]) == []
    with pytest.raises(ValueError, match="100"):
        await found(topics=[str(number) for number in range(101)])


@pytest.mark.parametrize(
    "cursor", ["", "1", "x" * 16, "000000000000000\uff11", "-000000000000001", "0000000000000001\n"]
)
async def test_an_invalid_cursor_is_rejected(store: Store, cursor: str) -> None:
    with pytest.raises(InvalidCursorError):
        await store.read_journal(after=cursor)
    with pytest.raises(InvalidCursorError):
        await store.read_journal(before=cursor)


async def test_a_failed_commit_adds_no_entry(store: Store) -> None:
    await store.commit([note("a")])
    with pytest.raises(RevisionConflictError):
        await store.commit([note("a")], entries=[entry("a")])
    await store.commit([note("a", await revision(store, NOTES, "a"))], entries=[entry("b")])
    assert subjects(await store.read_journal()) == ["b"]


COMMITTERS = 16
COMMITS = 12


async def test_a_follower_misses_no_entry_and_repeats_none(store: Store) -> None:
    """With 16 concurrent committers, whose cursors give the order of their commits."""
    await store.commit([note("seen")])
    acknowledged: dict[str, str] = {}
    finished = asyncio.Event()

    async def write(committer: int) -> None:
        for number in range(COMMITS):
            names = [f"{committer}-{number}-{line}" for line in range(1 + number % 3)]
            doomed = store.commit([note("seen")], entries=[entry("never")])
            good = store.commit([note(names[0])], entries=[entry(name) for name in names])
            _, cursors = await asyncio.gather(doomed, good, return_exceptions=True)
            assert not isinstance(cursors, BaseException)
            acknowledged.update(zip(cursors, names, strict=True))

    followed: list[JournalEntry] = []

    async def follow(limit: int) -> list[JournalEntry]:
        lines: list[JournalEntry] = []
        while True:
            last_round = finished.is_set()
            batch = await store.read_journal(after=lines[-1].cursor if lines else None, limit=limit)
            lines += batch
            if last_round and not batch:
                return lines

    followers = [asyncio.create_task(follow(limit)) for limit in (1000, 7)]
    await asyncio.gather(*(write(committer) for committer in range(COMMITTERS)))
    finished.set()
    for followed in await asyncio.gather(*followers):
        assert [line.cursor for line in followed] == sorted(acknowledged)
        assert {line.cursor: line.subject for line in followed} == acknowledged


async def test_the_order_of_entries_is_the_order_of_their_writes(store: Store) -> None:
    await store.commit([note("n", body=0)])

    async def write() -> None:
        for _ in range(4):
            found = await store.get(NOTES, "n")
            assert found is not None
            number = json.loads(found.body) + 1
            try:
                await store.commit([note("n", found.revision, body=number)], entries=[entry("n", number)])
            except RevisionConflictError:
                continue

    await asyncio.gather(*(write() for _ in range(8)))
    numbers = [json.loads(line.body) for line in await store.read_journal()]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_trimming_deletes_the_oldest_entries_of_a_topic_only(store: Store) -> None:
    lines = [entry(f"{topic}{number}", topic=topic) for number in range(4) for topic in ("x", "y")]
    cursors = await store.commit([], entries=lines)
    assert await store.trim_journal("x", through=cursors[5], limit=2) == 2
    assert subjects(await store.read_journal()) == ["y0", "y1", "x2", "y2", "x3", "y3"]
    assert await store.trim_journal("x", through=cursors[5]) == 1
    assert await store.trim_journal("x", through=cursors[5]) == 0
    assert subjects(await store.read_journal()) == ["y0", "y1", "y2", "x3", "y3"]
    assert subjects(await store.read_journal(topics=["x"])) == ["x3"]
    assert subjects(await store.read_journal(subjects=["x0", "x3"])) == ["x3"]
    assert await store.trim_journal("none", through=cursors[-1]) == 0


async def test_cursors_keep_growing_after_everything_is_trimmed(bed: Bed) -> None:
    store = await bed.open()
    cursors = await store.commit([], entries=[entry("a"), entry("b")])
    assert await store.trim_journal("worker", through=cursors[-1]) == 2
    assert list(await store.read_journal()) == []
    store = await bed.open()
    (later,) = await store.commit([], entries=[entry("c")])
    assert later > cursors[-1]
    assert subjects(await store.read_journal(after=cursors[0])) == ["c"]


async def test_trimming_is_bounded_and_needs_a_cursor(store: Store) -> None:
    with pytest.raises(InvalidCursorError):
        await store.trim_journal("worker", through="1")
    with pytest.raises(ValueError, match="limit"):
        await store.trim_journal("worker", through="0000000000000001", limit=0)
    with pytest.raises(ValueError, match="NUL"):
        await store.trim_journal("a\0", through="0000000000000001")


async def test_trimming_during_commits_loses_no_new_entry(store: Store) -> None:
    (first,) = await store.commit([], entries=[entry("old")])

    async def write(committer: int) -> None:
        for number in range(10):
            await store.commit([], entries=[entry(f"{committer}-{number}")])

    await asyncio.gather(store.trim_journal("worker", through=first), *(write(committer) for committer in range(8)))
    expected = {f"{committer}-{number}" for committer in range(8) for number in range(10)}
    assert set(subjects(await store.read_journal(limit=1000))) == expected
