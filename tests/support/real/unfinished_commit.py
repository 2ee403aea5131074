"""Stops in the middle of a commit, says so, and waits to be killed: `python -m …unfinished_commit URI DATABASE`."""

from __future__ import annotations

import asyncio
import sys
from unittest import mock

from lcm.control_plane.store.mongo.batch import CommitBatch
from lcm.control_plane.store.mongo.store import MongoStore
from tests.support.records.store_documents import KINDS, entry, note


async def begin(uri: str, database: str) -> None:
    """The head document is changed, and the transaction stays open."""

    async def stop(*_: object) -> None:
        sys.stdout.write("unfinished\n")
        sys.stdout.flush()
        await asyncio.Event().wait()

    store = MongoStore(uri, database)
    await store.open(KINDS)
    with mock.patch.object(CommitBatch, "_read", stop):
        await store.commit([note("unfinished")], entries=[entry("unfinished")])


if __name__ == "__main__":
    asyncio.run(begin(sys.argv[1], sys.argv[2]))
