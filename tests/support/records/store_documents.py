"""Documents and stores for tests."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from lcm.control_plane.store.port import Kind, NewJournalEntry, Put, Sample, Where

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.store.port import DocumentPage, FieldValue, Sort, Store, StoredDocument

START = datetime(2026, 1, 17, 10, 30, tzinfo=UTC)

WORKERS = Kind(
    "worker",
    fields=("name", "status", "region", "cost", "held", "text"),
    searched=("text",),
    unique=("name", "instance"),
    grouped=("status", "region", "cost"),
    archived=(("status", ("gone",)),),
)
NOTES = Kind("note")
KINDS = (WORKERS, NOTES)


def worker(
    document_id: str,
    expected: int | None = None,
    *,
    unique: Mapping[str, str] | None = None,
    body: object = None,
    **fields: FieldValue,
) -> Put:
    """A worker whose fields are None by default."""
    values = {name: fields.get(name) for name in WORKERS.fields}
    return Put(WORKERS, document_id, encode(body), expected, values, unique or {})


def note(document_id: str, expected: int | None = None, body: object = None) -> Put:
    return Put(NOTES, document_id, encode(body), expected)


def encode(body: object) -> bytes:
    return json.dumps(body).encode()


def entry(subject: str, body: object = None, *, topic: str = "worker") -> NewJournalEntry:
    return NewJournalEntry(topic, subject, encode(body), START)


def sample(subject: str, seconds: float, body: object = None) -> Sample:
    return Sample(subject, START + timedelta(seconds=seconds), encode(body))


async def revision(store: Store, kind: Kind, document_id: str) -> int:
    return (await existing(store, kind, document_id)).revision


async def existing(store: Store, kind: Kind, document_id: str) -> StoredDocument:
    found = await store.get(kind, document_id)
    assert found is not None, f"{kind.name} {document_id} is gone"
    return found


async def body(store: Store, kind: Kind, document_id: str) -> Any:
    return json.loads((await existing(store, kind, document_id)).body)


async def ids(store: Store, where: Where | None = None, sort: Sort | None = None, kind: Kind = WORKERS) -> list[str]:
    """The ids of all matching documents, in order."""
    return [item.id for page in await pages(store, where, sort, kind=kind) for item in page.items]


async def pages(
    store: Store, where: Where | None = None, sort: Sort | None = None, *, kind: Kind = WORKERS, limit: int = 100
) -> list[DocumentPage]:
    """All pages, one after the other."""
    found = [await store.find(kind, where, sort=sort, limit=limit)]
    while (after := found[-1].next_cursor) is not None:
        found.append(await store.find(kind, where, sort=sort, after=after, limit=limit))
    return found
