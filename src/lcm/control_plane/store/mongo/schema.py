"""The database: its schema version, the steps from one version to the next, the indexes of each kind."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from pymongo import ASCENDING, IndexModel
from pymongo.errors import DuplicateKeyError

from lcm.control_plane.store.port import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pymongo.asynchronous.database import AsyncDatabase

    from lcm.control_plane.store.port import Kind

    Database: TypeAlias = AsyncDatabase[dict[str, Any]]

META, JOURNAL, SAMPLES = "meta", "journal", "samples"
HEAD = "head"  # the document in META that every commit moves
_SCHEMA_ID = "schema"


async def _create_v1(database: Database) -> None:
    with suppress(DuplicateKeyError):
        await database[META].insert_one({"_id": HEAD, "revision": 0, "cursor": 0})
    await database[JOURNAL].create_indexes([_index("topic", "_id"), _index("subject", "_id")])
    await database[SAMPLES].create_indexes([_index("series", "subject", "at", "_id"), _index("series", "at", "_id")])


# STEPS[n] makes version n + 1 of version n. Several control planes may take a step at once, or one again after it was
# cut off: a step must do no harm when it is repeated.
MIGRATIONS: Sequence[Callable[[Database], Awaitable[None]]] = (_create_v1,)


async def require_replica_set(database: Database) -> None:
    """Without a replica set there are no transactions: a standalone server cannot keep the store's promise."""
    hello = await database.client.admin.command("hello")
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        raise StoreError(
            "MongoDB runs as a standalone server, which has no transactions:"
            " start it with --replSet and initiate the set (one member is enough)"
        )


async def migrate(database: Database) -> None:
    """Bring the database up to date, or refuse a newer one."""
    found = await database[META].find_one({"_id": _SCHEMA_ID})
    version = int(found["version"]) if found else 0
    if version > len(MIGRATIONS):
        raise StoreError(
            f"database {database.name} was written by a newer LCM (schema {version}, this one knows {len(MIGRATIONS)}):"
            " run that version, or restore a backup made before it"
        )
    for number, step in enumerate(MIGRATIONS[version:], version + 1):
        await step(database)
        # Never back: another control plane may have gone further meanwhile.
        await database[META].update_one({"_id": _SCHEMA_ID}, {"$max": {"version": number}}, upsert=True)


async def prepare_kind(database: Database, kind: Kind) -> None:
    """Make the indexes that the kind declares. Others stay: an older control plane may still run and need them."""
    indexes = [_index(f"f_{field}", "_id") for field in kind.fields]
    indexes += [IndexModel(f"unique.{field}", name=f"unique__{field}", sparse=True) for field in kind.unique]
    if kind.grouped:
        indexes.append(_index(*(f"f_{field}" for field in kind.grouped), name=grouped_index(kind)))
    if indexes:
        await database[collection(kind)].create_indexes(indexes)


def collection(kind: Kind) -> str:
    """The name of the kind's collection."""
    return f"d_{kind.name}"


def grouped_index(kind: Kind) -> str:
    """The name of the index that covers counts."""
    return f"by__{'__'.join(kind.grouped)}"


def _index(*fields: str, name: str | None = None) -> IndexModel:
    return IndexModel([(field, ASCENDING) for field in fields], name=name or "__".join(fields))
