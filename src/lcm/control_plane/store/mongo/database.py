"""The MongoDB database: schema migrations, the indexes of each kind, and error messages."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from pymongo import ASCENDING, IndexModel
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError, ServerSelectionTimeoutError

from lcm.control_plane.store.port import StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pymongo.asynchronous.client_session import AsyncClientSession
    from pymongo.asynchronous.database import AsyncDatabase

    from lcm.control_plane.store.port import Kind

    Database: TypeAlias = AsyncDatabase[dict[str, Any]]
    from collections.abc import Iterator


META, JOURNAL, SAMPLES = "meta", "journal", "samples"
_FIRST_HEAD = "head"  # of schema 1
HEAD = "head-2"  # the document in META that every commit moves; `schema` is the version that may
CHECK_ID = "check"  # the document in META that every control plane writes each second
RESTORE_ID = "restore"  # the document in META that is there until a restore is complete
_SCHEMA_ID = "schema"


async def _create_v1(database: Database) -> None:
    with suppress(DuplicateKeyError):
        await database[META].insert_one({"_id": _FIRST_HEAD, "revision": 0, "cursor": 0})
    await database[JOURNAL].create_indexes([_index("topic", "_id"), _index("subject", "_id")])
    await database[SAMPLES].create_indexes([_index("series", "subject", "at", "_id"), _index("series", "at", "_id")])


async def _move_head_v2(database: Database) -> None:
    """Journal entries have a team and an owner. A control plane that would write them without must not write at all.

    It fails as soon as the head is not where it looks. From this version on, each commit compares the schema.
    """

    async def move(session: AsyncClientSession) -> None:
        head = await database[META].find_one_and_delete({"_id": _FIRST_HEAD}, session=session)
        if head is not None and await database[META].find_one({"_id": HEAD}, session=session) is None:
            await database[META].insert_one({**head, "_id": HEAD, "schema": 2}, session=session)

    async with database.client.start_session() as session:
        await session.with_transaction(move)


# MIGRATIONS[n] upgrades version n to n + 1. Several control planes may run one at the same time, or repeat it after
# an interruption: a migration must be idempotent.
MIGRATIONS: Sequence[Callable[[Database], Awaitable[None]]] = (_create_v1, _move_head_v2)


async def require_replica_set(database: Database) -> None:
    """Raise for a standalone server: it has no transactions, which the store requires."""
    hello = await database.client.admin.command("hello")
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        raise StoreError(
            "MongoDB runs as a standalone server, which has no transactions:"
            " start it with --replSet and initiate the set (one member is enough)"
        )


async def require_complete(database: Database) -> None:
    """Raise if a restore was interrupted: the database has only a part of the records."""
    if await database[META].find_one({"_id": RESTORE_ID}):
        raise StoreError(f"database {database.name} is being restored, or that was interrupted: repeat the restore")


async def migrate(database: Database) -> None:
    """Migrate the schema. A newer schema is an error."""
    version = await require_known_schema(database)
    for number, step in enumerate(MIGRATIONS[version:], version + 1):
        await step(database)
        # Never lower it: another control plane may have migrated further.
        await database[META].update_one({"_id": _SCHEMA_ID}, {"$max": {"version": number}}, upsert=True)
        await database[META].update_one({"_id": HEAD}, {"$max": {"schema": number}})


async def require_known_schema(database: Database) -> int:
    """The version of the schema; raises for one of a newer LCM."""
    schema = await database[META].find_one({"_id": _SCHEMA_ID})
    version = int(schema["version"]) if schema else 0
    if version > len(MIGRATIONS):
        raise StoreError(
            f"database {database.name} was written by a newer LCM (schema {version}, this version supports"
            f" {len(MIGRATIONS)}): run that version, or restore a backup made before it"
        )
    return version


async def prepare_kind(database: Database, kind: Kind) -> None:
    """Create the indexes that the kind declares. Other indexes stay: an older control plane may still need them."""
    indexes = [
        _index(f"f_{field}", "_id", name=field_index(field)) for field in kind.fields if field not in kind.searched
    ]
    indexes += [IndexModel(f"unique.{field}", name=f"unique__{field}", sparse=True) for field in kind.unique]
    if kind.grouped:
        indexes.append(_index(*(f"f_{field}" for field in kind.grouped), name=grouped_index(kind)))
    if kind.searched and kind.listed:
        texts = (f"t_{field}" for field in kind.searched)
        indexes.append(_index(*(f"f_{field}" for field in kind.listed), *texts, name=search_index(kind)))
    if indexes:
        await database[collection(kind)].create_indexes(indexes)


def collection(kind: Kind) -> str:
    """The name of the kind's collection."""
    return f"d_{kind.name}"


def field_index(field: str) -> str:
    """The name of the index of one field."""
    return f"f_{field}___id"


def grouped_index(kind: Kind) -> str:
    """The name of the index that covers counts."""
    return f"by__{'__'.join(kind.grouped)}"


def search_index(kind: Kind) -> str:
    """The name of the index that a search reads: the texts without the documents, which are ten times as large."""
    return f"search__{'__'.join(kind.listed)}"


def _index(*fields: str, name: str | None = None) -> IndexModel:
    return IndexModel([(field, ASCENDING) for field in fields], name=name or "__".join(fields))


_MAX_TEXT = 300
ACCESS_DENIED_CODES = (13, 18, 8000)  # Unauthorized, AuthenticationFailed, Atlas


def translate_error(error: PyMongoError) -> StoreUnavailableError:
    """The error with what to do about it. The driver's message names servers but never the password."""
    text = str(error)[:_MAX_TEXT]
    if isinstance(error, OperationFailure) and error.code in ACCESS_DENIED_CODES:
        return StoreUnavailableError(f"MongoDB rejects this user. Check name, password and roles in the URI ({text})")
    if isinstance(error, ServerSelectionTimeoutError):
        return StoreUnavailableError(f"MongoDB has no reachable primary. Check servers and network ({text})")
    return StoreUnavailableError(f"MongoDB failed or is unreachable ({text})")


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translate the driver's errors to errors of the port."""
    try:
        yield
    except PyMongoError as error:
        raise translate_error(error) from error
