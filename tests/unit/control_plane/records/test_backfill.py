"""Query fields that are new in this version: written beside older records when the control plane starts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.records.backfill import backfill_fields
from lcm.control_plane.records.kinds import ALL_KINDS, DEFINITIONS, LABLETS, WORKERS, worker_fields, worker_unique_keys
from lcm.control_plane.records.search_text import SEARCH_FIELD
from lcm.control_plane.store.memory.store import MemoryStore
from lcm.control_plane.store.port import Put, Where
from lcm.model.worker.cost import DEFAULT_STORAGE_PRICE
from tests.support.records.workers import a_worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.control_plane.store.port import Delete, Guard, NewJournalEntry

_WITHOUT_TEXT = Where(any_of={SEARCH_FIELD: [None]})


class CountingStore(MemoryStore):
    """Counts commits, and can let another writer come first."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0
        self.changed_first: str | None = None

    async def commit(
        self,
        writes: Sequence[Put | Delete],
        *,
        entries: Sequence[NewJournalEntry] = (),
        guards: Sequence[Guard] = (),
    ) -> Sequence[str]:
        self.commits += 1
        other, self.changed_first = self.changed_first, None
        if other is not None:
            await store_worker(self, other, with_text=True)
        return await super().commit(writes, entries=entries, guards=guards)


async def store_worker(store: MemoryStore, worker_id: str, *, with_text: bool = False, body: bytes = b"") -> None:
    """Store a worker as an older version did, without the text that is searched."""
    price = {"storage_price_per_gb_month_usd": DEFAULT_STORAGE_PRICE}
    worker = a_worker(id=worker_id, name=f"name-{worker_id}", instance_id=None, **price)
    fields = worker_fields(worker) if with_text else {**worker_fields(worker), SEARCH_FIELD: None}
    stored, written = await store.get(WORKERS, worker_id), body or worker.model_dump_json().encode()
    revision = None if stored is None else stored.revision
    put = Put(WORKERS, worker_id, written, revision, fields, worker_unique_keys(worker))
    await MemoryStore.commit(store, [put])


@pytest.fixture
async def store() -> CountingStore:
    made = CountingStore()
    await made.open(ALL_KINDS)
    return made


async def test_many_old_records_take_few_commits(store: CountingStore) -> None:
    for number in range(450):
        await store_worker(store, f"w-{number:04}")
    assert await backfill_fields(store) == 450
    assert store.commits == 5
    assert (await store.find(WORKERS, _WITHOUT_TEXT)).items == []


async def test_a_record_that_another_process_changes_meanwhile_stops_no_other(store: CountingStore) -> None:
    for number in range(3):
        await store_worker(store, f"w-{number}")
    store.changed_first = "w-1"
    assert await backfill_fields(store) == 2
    assert (await store.find(WORKERS, _WITHOUT_TEXT)).items == []


async def test_a_record_that_cannot_be_read_does_not_prevent_the_start(store: CountingStore) -> None:
    for number in range(3):
        await store_worker(store, f"w-{number}", body=b'{"id": "w-1"}' if number == 1 else b"")
    assert await backfill_fields(store) == 2
    assert [each.id for each in (await store.find(WORKERS, _WITHOUT_TEXT)).items] == ["w-1"]


async def test_lablets_of_versions_without_teams_keep_the_name_of_their_owner_only(store: CountingStore) -> None:
    """What `owner` held was any text: it must not open the lablet to a person who is called so."""
    requirements = {"cpu_cores": 1}
    at = "2026-01-17T10:30:00Z"
    lablet = {"id": "l-1", "name": "one", "owner": "token:t-1", "definition": "ospf@1", "requirements": requirements}
    lablet |= {"status": "RUNNING", "status_since": at, "created_at": at, "updated_at": at}
    fields = dict.fromkeys(LABLETS.fields) | {"name": "one", "status": "RUNNING", "owner": "token:t-1"}
    definition = {"id": "ospf@1", "name": "ospf", "version": "1", "created_at": at, "created_by": "ann"}
    put = Put(LABLETS, "l-1", json.dumps(lablet).encode(), None, fields, {"name": "one"})
    old = dict.fromkeys(DEFINITIONS.fields)
    await store.commit([put, Put(DEFINITIONS, "ospf@1", json.dumps(definition).encode(), None, old)])
    assert await backfill_fields(store) == 2
    (stored,) = (await store.find(LABLETS, Where(any_of={"team": [""], "team_owner": [" "]}))).items
    read = json.loads(stored.body)
    assert (read["owner"], read["owner_name"], read["team"]) == ("", "token:t-1", "")
    found = await store.get_unique(DEFINITIONS, "name", "ospf@1")
    assert found is not None
    assert json.loads(found.body)["team"] == ""
    assert await backfill_fields(store) == 0
