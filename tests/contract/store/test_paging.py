"""Pages: no document twice and none missing, also during changes."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lcm.control_plane.store.port import Delete, InvalidCursorError, RevisionConflictError, Sort, StoreError, Where
from tests.support.records.store_documents import NOTES, WORKERS, note, pages, revision, worker

if TYPE_CHECKING:
    from lcm.control_plane.store.port import FieldValue, Store


async def test_pages_end_where_the_documents_end(store: Store) -> None:
    await store.commit([note(f"n{number}") for number in range(6)])
    sizes = [len(page.items) for page in await pages(store, kind=NOTES, limit=3)]
    assert sizes == [3, 3]
    assert [len(page.items) for page in await pages(store, kind=NOTES, limit=4)] == [4, 2]
    assert (await store.find(NOTES, limit=6)).next_cursor is None


async def test_a_page_continues_after_a_deleted_document(store: Store) -> None:
    await store.commit([note(name) for name in "abcd"])
    first = await store.find(NOTES, limit=2)
    await store.commit([Delete(NOTES, "b", await revision(store, NOTES, "b"))])
    second = await store.find(NOTES, after=first.next_cursor, limit=2)
    assert [item.id for item in second.items] == ["c", "d"]


def forged(*parts: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "äöü",
        "!!!!",
        "0000000000000001",
        forged(),
        forged("note", None, False, None),
        forged("note", None, False, None, 7),
        forged("note", None, False, None, ""),
        forged("note", None, False, {"$gt": ""}, "a"),
        forged("note", None, False, None, "a") + "\n",
        "W" * 100_000,
    ],
)
async def test_a_forged_cursor_is_rejected(store: Store, cursor: str) -> None:
    with pytest.raises(InvalidCursorError) as refused:
        await store.find(NOTES, after=cursor)
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, StoreError)


async def test_a_cursor_of_another_list_is_rejected(store: Store) -> None:
    await store.commit([worker(name, name=name) for name in "abc"])
    cursor = (await store.find(WORKERS, sort=Sort("name"), limit=1)).next_cursor
    assert cursor is not None
    for kind, sort in ((NOTES, Sort()), (WORKERS, Sort()), (WORKERS, Sort("name", descending=True))):
        with pytest.raises(InvalidCursorError):
            await store.find(kind, sort=sort, after=cursor)


VALUES = st.one_of(st.none(), st.integers(0, 3), st.sampled_from(["a", "b"]), st.booleans())
CHANGES = st.lists(st.tuples(st.sampled_from(["insert", "change", "delete"]), st.integers(0, 30), VALUES), max_size=6)


async def change(store: Store, what: str, document_id: str, value: FieldValue, space: int) -> None:
    found = await store.get(WORKERS, document_id)
    if what == "delete":
        if found is not None:
            await store.commit([Delete(WORKERS, document_id, found.revision)])
    else:
        await store.commit([worker(document_id, found.revision if found else None, name=value, cost=space)])


_spaces = iter(range(1_000_000))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    fixed=st.lists(VALUES, min_size=1, max_size=10),
    changes=st.lists(CHANGES, min_size=1, max_size=8),
    descending=st.booleans(),
    by_name=st.booleans(),
    limit=st.integers(1, 4),
)
async def test_a_document_that_keeps_its_place_is_on_exactly_one_page(
    store: Store,
    fixed: list[FieldValue],
    changes: list[list[tuple[str, int, FieldValue]]],
    descending: bool,
    by_name: bool,
    limit: int,
) -> None:
    space = next(_spaces)
    here, sort = Where(any_of={"cost": [space]}), Sort("name" if by_name else None, descending)
    # Stable documents have even numbers and changing ones odd numbers, so that they alternate in the order.
    steady = [f"{space}-{2 * number:03}" for number in range(len(fixed))]
    await store.commit([worker(name, name=value, cost=space) for name, value in zip(steady, fixed, strict=True)])
    seen: list[str] = []
    after: str | None = None
    for step in range(200):
        page = await store.find(WORKERS, here, sort=sort, after=after, limit=limit)
        seen += [item.id for item in page.items]
        if (after := page.next_cursor) is None:
            break
        for what, number, value in changes[step] if step < len(changes) else ():
            await change(store, what, f"{space}-{2 * number + 1:03}", value, space)
    assert after is None
    assert sorted(name for name in seen if name in set(steady)) == steady


async def test_a_page_read_during_writes_has_no_document_twice(store: Store) -> None:
    await store.commit([worker(f"w{number:03}", name=number) for number in range(60)])
    for round_number in range(3):
        seen: list[str] = []
        after: str | None = None
        while True:
            page = await store.find(WORKERS, sort=Sort("name"), after=after, limit=7)
            seen += [item.id for item in page.items]
            victim = f"w{(len(seen) * 7) % 60:03}"
            try:
                await store.commit(
                    [worker(victim, await revision(store, WORKERS, victim), name=int(victim[1:]), held=True)]
                )
                await store.commit([worker(f"x{round_number}-{len(seen)}", name=len(seen))])
            except RevisionConflictError as error:
                raise AssertionError("nobody else writes here") from error
            if (after := page.next_cursor) is None:
                break
        originals = [name for name in seen if name.startswith("w")]
        assert originals == [f"w{number:03}" for number in range(60)]
