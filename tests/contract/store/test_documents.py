"""Documents: reads, writes with an expected revision, and atomic commits."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.store.port import (
    Delete,
    Guard,
    Kind,
    NewJournalEntry,
    Put,
    RevisionConflictError,
    StoredDocument,
    StoreUnavailableError,
    UniqueViolationError,
)
from lcm.control_plane.store.validation import MAX_BODY_BYTES, MAX_ID_LENGTH
from tests.support.records.store_documents import NOTES, WORKERS, body, entry, ids, note, revision, worker

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store
    from tests.contract.store.conftest import Bed


async def test_a_document_is_returned_byte_for_byte(store: Store) -> None:
    written = Put(NOTES, "a", b'{"b":1,  "a":"\xc3\xa4"}', None)
    await store.commit([written])
    found = await store.get(NOTES, "a")
    assert found == StoredDocument("a", found.revision if found else 0, written.body)


async def test_an_unknown_id_or_the_same_id_of_another_kind_is_none(store: Store) -> None:
    await store.commit([note("a")])
    assert await store.get(NOTES, "b") is None
    assert await store.get(WORKERS, "a") is None


async def test_the_revision_changes_with_every_write_even_of_the_same_content(store: Store) -> None:
    await store.commit([note("a")])
    seen = [await revision(store, NOTES, "a")]
    for _ in range(3):
        await store.commit([note("a", seen[-1])])
        seen.append(await revision(store, NOTES, "a"))
    assert len(set(seen)) == 4


async def test_a_recreated_document_never_reuses_a_revision(store: Store) -> None:
    seen = set()
    for _ in range(3):
        await store.commit([note("a")])
        seen.add(current := await revision(store, NOTES, "a"))
        await store.commit([Delete(NOTES, "a", current)])
    assert len(seen) == 3


async def test_a_write_from_an_old_revision_fails_with_the_current_one(store: Store) -> None:
    await store.commit([note("a", body=1)])
    old = await revision(store, NOTES, "a")
    await store.commit([note("a", old, body=2)])
    with pytest.raises(RevisionConflictError) as refused:
        await store.commit([note("a", old, body=3)])
    assert (refused.value.kind, refused.value.document_id) == ("note", "a")
    assert refused.value.current == await revision(store, NOTES, "a")
    assert await body(store, NOTES, "a") == 2


async def test_creating_an_existing_document_fails(store: Store) -> None:
    await store.commit([note("a", body=1)])
    with pytest.raises(RevisionConflictError) as refused:
        await store.commit([note("a", body=2)])
    assert refused.value.current == await revision(store, NOTES, "a")
    assert await body(store, NOTES, "a") == 1


async def test_a_deleted_document_can_neither_be_written_nor_deleted(store: Store) -> None:
    await store.commit([note("a")])
    old = await revision(store, NOTES, "a")
    await store.commit([Delete(NOTES, "a", old)])
    assert await store.get(NOTES, "a") is None
    for change in (note("a", old), Delete(NOTES, "a", old)):
        with pytest.raises(RevisionConflictError) as refused:
            await store.commit([change])
        assert refused.value.current is None


async def test_a_guard_allows_a_commit_only_if_its_document_is_unchanged(store: Store) -> None:
    await store.commit([note("a"), note("b")])
    seen = await revision(store, NOTES, "a")
    await store.commit([note("c")], guards=[Guard(NOTES, "a", seen), Guard(NOTES, "z", None)])
    await store.commit([note("a", seen)])
    for guard in (Guard(NOTES, "a", seen), Guard(NOTES, "b", None), Guard(NOTES, "z", seen)):
        with pytest.raises(RevisionConflictError) as refused:
            await store.commit([note("d")], guards=[guard])
        assert refused.value.document_id == guard.id
    assert await store.get(NOTES, "d") is None


async def test_a_guard_does_not_change_its_document(store: Store) -> None:
    await store.commit([note("a")])
    seen = await revision(store, NOTES, "a")
    await store.commit([note("b")], guards=[Guard(NOTES, "a", seen)])
    assert await revision(store, NOTES, "a") == seen


async def test_a_failed_commit_changes_nothing(store: Store) -> None:
    await store.commit([worker("a", name="a", unique={"name": "a"}), note("n", body=1)])
    a, n = await revision(store, WORKERS, "a"), await revision(store, NOTES, "n")
    refused: list[list[Put | Delete]] = [
        [worker("a", a, name="changed"), note("n", n, body=2), worker("b", 99)],
        [Delete(WORKERS, "a", a), note("m"), note("n", n + 1000)],
        [note("m"), note("n", n, body=2), worker("b", unique={"name": "a"})],
    ]
    for writes in refused:
        with pytest.raises((RevisionConflictError, UniqueViolationError)):
            await store.commit(writes, entries=[entry("a")])
    assert await ids(store) == ["a"]
    assert await ids(store, kind=NOTES) == ["n"]
    assert (await revision(store, WORKERS, "a"), await revision(store, NOTES, "n")) == (a, n)
    assert await store.read_journal() == []
    holder = await store.get_unique(WORKERS, "name", "a")
    assert holder is not None
    assert holder.id == "a"


async def test_a_commit_writes_several_kinds_at_once(store: Store) -> None:
    await store.commit([worker("a", body="w"), note("a", body="n")])
    assert (await body(store, WORKERS, "a"), await body(store, NOTES, "a")) == ("w", "n")


async def test_an_empty_commit_changes_nothing(store: Store) -> None:
    assert list(await store.commit([])) == []


@pytest.mark.parametrize(
    "change",
    [
        Put(WORKERS, "a", b"", None, {"name": "a"}),
        Put(NOTES, "a", b"", None, {"name": "a"}),
        Put(NOTES, "a", b"", None, {}, {"name": "a"}),
        worker("a", name=float("nan")),
        worker("a", cost=2**63),
        worker("a", name="a\0b"),
        worker("a", name="\ud800"),
        worker("a", unique={"name": "\0"}),
        note(""),
        note("\0"),
        note("x" * (MAX_ID_LENGTH + 1)),
        Put(NOTES, "a", bytes(MAX_BODY_BYTES + 1), None),
        Put(Kind("unknown"), "a", b"", None),
        Put(Kind("note", fields=("other",)), "a", b"", None, {"other": 1}),
    ],
)
async def test_input_that_some_adapter_cannot_store_is_rejected_by_all(store: Store, change: Put) -> None:
    with pytest.raises(ValueError):
        await store.commit([note("other"), change])
    assert await store.get(NOTES, "other") is None


async def test_a_document_occurs_once_in_a_commit(store: Store) -> None:
    with pytest.raises(ValueError, match="twice"):
        await store.commit([note("a"), note("a")])
    with pytest.raises(ValueError, match="twice"):
        await store.commit([note("a")], guards=[Guard(NOTES, "a", None)])


async def test_a_time_must_have_a_time_zone(store: Store) -> None:
    naive = NewJournalEntry("worker", "a", b"", datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point
    with pytest.raises(ValueError, match="zone"):
        await store.commit([], entries=[naive])


async def test_invalid_kinds_are_rejected(bed: Bed) -> None:
    wrong = [
        [Kind("")],
        [Kind("A")],
        [Kind("a; DROP TABLE head")],
        [Kind("a", fields=("x", "x"))],
        [Kind("a", fields=("x",), grouped=("y",))],
        [Kind("a"), Kind("a", fields=("x",))],
    ]
    for kinds in wrong:
        with pytest.raises(ValueError):
            await bed.open(kinds)


async def test_check_passes_on_a_working_store(store: Store) -> None:
    await store.check()


async def test_a_closed_store_raises_and_can_be_closed_again(bed: Bed) -> None:
    store = await bed.open()
    await store.close()
    for call in (store.check(), store.get(NOTES, "a"), store.commit([note("a")]), store.find(NOTES)):
        with pytest.raises(StoreUnavailableError):
            await call
    await store.close()


async def test_get_many_leaves_missing_documents_out(store: Store) -> None:
    made = [f"n-{number:04d}" for number in range(1_201)]
    for begin in range(0, len(made), 300):
        await store.commit([note(name, body=name) for name in made[begin : begin + 300]])
    found = await store.get_many(NOTES, [*made, "none", made[0]])
    assert sorted(found) == made
    assert found[made[700]] == await store.get(NOTES, made[700])
    assert await store.get_many(NOTES, []) == {}
    assert await store.get_many(NOTES, ["none"]) == {}
    with pytest.raises(ValueError, match="characters"):
        await store.get_many(NOTES, [""])
    with pytest.raises(ValueError, match="at once"):
        await store.get_many(NOTES, ["x"] * 10_001)
