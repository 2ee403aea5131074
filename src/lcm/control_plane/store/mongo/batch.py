"""Several commits in one transaction: checked one after the other against what was read, then written together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pymongo import DeleteOne, InsertOne, ReplaceOne

from lcm.control_plane.store.adapter_rules import released_unique_values, require_commit_allowed
from lcm.control_plane.store.cursors import journal_cursor
from lcm.control_plane.store.mongo.database import (
    HEAD,
    JOURNAL,
    META,
    MIGRATIONS,
    collection,
    require_known_schema,
)
from lcm.control_plane.store.mongo.queries import to_mongo
from lcm.control_plane.store.port import Put, StoreError
from lcm.control_plane.store.values import to_micros

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pymongo.asynchronous.client_session import AsyncClientSession

    from lcm.control_plane.store.adapter_rules import Commit
    from lcm.control_plane.store.mongo.database import Database
    from lcm.control_plane.store.port import Kind

Operation = InsertOne[dict[str, Any]] | ReplaceOne[dict[str, Any]] | DeleteOne

_READ_BATCH = 500


class CommitBatch:
    """The documents that the commits read and write.

    Every transaction starts with an update of the head document: of two concurrent transactions MongoDB lets only one
    proceed. So later reads see the result of the last commit, unique values need no unique index (which a swap within
    one commit would violate), and the order of cursors is the order of commits.
    """

    def __init__(self, commits: Sequence[Commit]) -> None:
        self._commits = commits
        self._documents: dict[tuple[str, str], dict[str, Any] | None] = {}
        self._owners: dict[tuple[str, str, str], str | None] = {}
        self._changed: dict[tuple[str, str], None] = {}
        self._lines: list[dict[str, Any]] = []

    async def run(self, database: Database, session: AsyncClientSession) -> list[Sequence[str] | StoreError]:
        """Read, check and write in the session's transaction; returns the result or error of each commit."""
        entries = sum(len(commit.entries) for commit in self._commits)
        moves = {"revision": len(self._commits), "cursor": entries}
        mine = {"_id": HEAD, "schema": {"$lte": len(MIGRATIONS)}}
        head = await database[META].find_one_and_update(mine, {"$inc": moves}, session=session)
        if head is None:
            await require_known_schema(database)  # a newer control plane may have migrated it meanwhile
            raise StoreError(f"database {database.name} lacks its head document: restore a backup")
        await self._read(database, session)
        revision, cursor = int(head["revision"]), int(head["cursor"])
        outcomes: list[Sequence[str] | StoreError] = []
        for commit in self._commits:
            revision += 1
            try:
                require_commit_allowed(commit, self)
            except StoreError as error:
                outcomes.append(error)
                continue
            self._apply(commit, revision)
            outcomes.append(self._add_journal_entries(commit, cursor))
            cursor += len(commit.entries)
        await self._write(database, session)
        return outcomes

    def revision(self, kind: Kind, document_id: str) -> int | None:
        found = self._documents.get((collection(kind), document_id))
        return int(found["revision"]) if found else None

    def unique_values(self, kind: Kind, document_id: str) -> Mapping[str, str]:
        found = self._documents.get((collection(kind), document_id))
        return found["unique"] if found else {}

    def owner(self, kind: Kind, field_name: str, value: str) -> str | None:
        return self._owners.get((collection(kind), field_name, value))

    async def _read(self, database: Database, session: AsyncClientSession) -> None:
        places: dict[str, dict[str, None]] = {}
        for commit in self._commits:
            for part in (*commit.guards, *commit.writes):
                places.setdefault(collection(part.kind), {})[part.id] = None
        for name, ids in places.items():
            for row in await _find_by(database, session, name, "_id", list(ids)):
                self._documents[name, row["_id"]] = row
                self._owners |= {(name, field, value): row["_id"] for field, value in row["unique"].items()}
        for (name, field), values in self._values_to_look_up().items():
            for row in await _find_by(database, session, name, f"unique.{field}", list(values)):
                self._owners[name, field, row["unique"][field]] = row["_id"]

    def _values_to_look_up(self) -> dict[tuple[str, str], dict[str, None]]:
        """Unique values to be written that no document read so far has."""
        values: dict[tuple[str, str], dict[str, None]] = {}
        for put in (write for commit in self._commits for write in commit.writes if isinstance(write, Put)):
            for field, value in put.unique.items():
                if (collection(put.kind), field, value) not in self._owners:
                    values.setdefault((collection(put.kind), field), {})[value] = None
        return values

    def _apply(self, commit: Commit, revision: int) -> None:
        for write in commit.writes:
            for field, value in released_unique_values(write, self):
                self._owners[collection(write.kind), field, value] = None
        for write in commit.writes:
            place = collection(write.kind), write.id
            self._changed[place] = None
            self._documents[place] = to_mongo(write, revision) if isinstance(write, Put) else None
            if isinstance(write, Put):
                for field, value in write.unique.items():
                    self._owners[collection(write.kind), field, value] = write.id

    def _add_journal_entries(self, commit: Commit, cursor: int) -> Sequence[str]:
        for number, entry in enumerate(commit.entries, cursor + 1):
            line = {
                "topic": entry.topic,
                "subject": entry.subject,
                "at": to_micros(entry.at),
                "body": bytes(entry.body),
                **{name: text for name, text in (("team", entry.team), ("owner", entry.owner)) if text},
            }
            self._lines.append({"_id": number, **line})
        return [journal_cursor(cursor + number) for number in range(1, len(commit.entries) + 1)]

    async def _write(self, database: Database, session: AsyncClientSession) -> None:
        operations: dict[str, list[Operation]] = {}
        for name, document_id in self._changed:
            operations.setdefault(name, []).append(_write_operation(document_id, self._documents[name, document_id]))
        if self._lines:
            operations[JOURNAL] = [InsertOne(line) for line in self._lines]
        for name, changes in operations.items():
            await database[name].bulk_write(changes, ordered=False, session=session)


def _write_operation(document_id: str, content: dict[str, Any] | None) -> Operation:
    if content is None:
        return DeleteOne({"_id": document_id})
    return ReplaceOne({"_id": document_id}, content, upsert=True)


async def _find_by(
    database: Database, session: AsyncClientSession, name: str, field: str, values: Sequence[str]
) -> list[dict[str, Any]]:
    """Revision and unique values of the documents whose field has one of these values."""
    rows: list[dict[str, Any]] = []
    for begin in range(0, len(values), _READ_BATCH):
        query = {field: {"$in": list(values[begin : begin + _READ_BATCH])}}
        cursor = database[name].find(query, {"revision": 1, "unique": 1}, session=session, batch_size=_READ_BATCH)
        rows += await cursor.to_list()
    return rows
