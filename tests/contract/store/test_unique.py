"""Unique values, which belong to one document at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.store.port import Delete, UniqueViolationError
from tests.support.records.store_documents import WORKERS, revision, worker

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store


async def holder(store: Store, field: str, value: str) -> str | None:
    found = await store.get_unique(WORKERS, field, value)
    return found.id if found else None


async def test_the_owner_is_found_with_its_current_content(store: Store) -> None:
    await store.commit([worker("a", unique={"name": "one", "instance": "i-1"}, body=1)])
    found = await store.get_unique(WORKERS, "instance", "i-1")
    assert found == await store.get(WORKERS, "a")
    assert await holder(store, "name", "i-1") is None
    assert await holder(store, "name", "ONE") is None


async def test_a_used_value_fails_with_its_owner(store: Store) -> None:
    await store.commit([worker("a", unique={"name": "one"})])
    with pytest.raises(UniqueViolationError) as refused:
        await store.commit([worker("b", unique={"name": "one"})])
    error = refused.value
    assert (error.kind, error.field, error.value, error.owner) == ("worker", "name", "one", "a")
    assert await store.get(WORKERS, "b") is None


async def test_the_same_value_of_another_field_is_free(store: Store) -> None:
    await store.commit([worker("a", unique={"name": "one"}), worker("b", unique={"instance": "one"})])
    assert (await holder(store, "name", "one"), await holder(store, "instance", "one")) == ("a", "b")


async def test_a_write_releases_the_values_that_it_leaves_out(store: Store) -> None:
    await store.commit([worker("a", unique={"name": "one", "instance": "i-1"})])
    await store.commit([worker("a", await revision(store, WORKERS, "a"), unique={"name": "one"})])
    assert await holder(store, "name", "one") == "a"
    assert await holder(store, "instance", "i-1") is None
    await store.commit([worker("b", unique={"instance": "i-1"})])
    assert await holder(store, "instance", "i-1") == "b"


async def test_another_value_releases_the_previous_one(store: Store) -> None:
    await store.commit([worker("a", unique={"name": "one"})])
    await store.commit([worker("a", await revision(store, WORKERS, "a"), unique={"name": "two"})])
    await store.commit([worker("b", unique={"name": "one"})])
    assert (await holder(store, "name", "two"), await holder(store, "name", "one")) == ("a", "b")


async def test_deleting_releases_unique_values(store: Store) -> None:
    await store.commit([worker("a", unique={"name": "one"})])
    await store.commit([Delete(WORKERS, "a", await revision(store, WORKERS, "a"))])
    assert await holder(store, "name", "one") is None
    await store.commit([worker("b", unique={"name": "one"})])
    assert await holder(store, "name", "one") == "b"


@pytest.mark.parametrize("taker_first", [True, False])
async def test_a_value_moves_to_another_document_within_one_commit(store: Store, taker_first: bool) -> None:
    await store.commit([worker("a", unique={"name": "one"}), worker("b", unique={"name": "two"})])
    a, b = await revision(store, WORKERS, "a"), await revision(store, WORKERS, "b")
    swap = [worker("a", a, unique={"name": "two"}), worker("b", b, unique={"name": "one"})]
    await store.commit(swap if taker_first else swap[::-1])
    assert (await holder(store, "name", "two"), await holder(store, "name", "one")) == ("a", "b")
    await store.commit([Delete(WORKERS, "a", await revision(store, WORKERS, "a")), worker("c", unique={"name": "two"})])
    assert await holder(store, "name", "two") == "c"


async def test_two_documents_of_one_commit_cannot_share(store: Store) -> None:
    with pytest.raises(UniqueViolationError) as refused:
        await store.commit([worker("a", unique={"name": "one"}), worker("b", unique={"name": "one"})])
    assert refused.value.owner == "a"
    assert await holder(store, "name", "one") is None


async def test_a_field_that_is_not_unique_cannot_be_looked_up(store: Store) -> None:
    with pytest.raises(ValueError, match="status"):
        await store.get_unique(WORKERS, "status", "x")
    with pytest.raises(ValueError, match="name"):
        await store.get_unique(WORKERS, "name", "\ud800")
