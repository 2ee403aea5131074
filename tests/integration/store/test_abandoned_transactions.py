"""operations.md#a-control-plane-is-killed-while-it-writes: the others can write again soon, and nothing is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from pymongo import MongoClient

from lcm.control_plane.store.mongo.abandoned import ENDED
from lcm.control_plane.store.mongo.batch import CommitBatch
from lcm.control_plane.store.mongo.store import MongoStore
from tests.support.records.store_documents import KINDS, NOTES, entry, ids, note
from tests.support.servers.mongod import MongoServer
from tests.support.servers.processes import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pymongo.collection import Collection


def kill_during_commit(uri: str, database: str) -> None:
    """Run a control plane's store in another process and kill it when its transaction has changed the head."""
    command = [sys.executable, "-m", "tests.support.real.unfinished_commit", uri, database]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "unfinished\n"
        finally:
            process.kill()


async def subjects(store: MongoStore) -> list[str]:
    return [line.subject for line in await store.read_journal()]


async def test_a_killed_control_plane_does_not_keep_others_from_writing(tmp_path: Path, database: str) -> None:
    """With the rights of LCM's own user. A commit fails after 20 s; MongoDB itself ends the transaction after 60."""
    server = MongoServer(tmp_path, with_users=True).start()
    try:
        uri = server.add_lcm_user(database)
        living = MongoStore(uri, database)
        await living.open(KINDS)
        await living.commit([note("before")], entries=[entry("before")])
        await asyncio.to_thread(kill_during_commit, uri, database)
        ended = ENDED._value.get()
        restarted = MongoStore(uri, database)
        await restarted.open(KINDS)
        await asyncio.gather(
            *(store.commit([note(name)], entries=[entry(name)]) for name, store in (("a", living), ("b", restarted)))
        )
        assert ENDED._value.get() > ended
        assert await ids(living, kind=NOTES) == ["a", "b", "before"]
        assert sorted(await subjects(restarted)) == ["a", "b", "before"]
        await living.close()
        await restarted.close()
    finally:
        server.kill()


async def test_a_commit_that_was_taken_for_abandoned_is_repeated(
    mongodb_uri: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control plane was suspended in the middle of a commit, and another one ended its transaction meanwhile."""
    suspended, other = (MongoStore(mongodb_uri, database) for _ in range(2))
    await suspended.open(KINDS)
    await other.open(KINDS)
    began, resumed = asyncio.Event(), asyncio.Event()
    read = CommitBatch._read

    async def pause_once(batch: CommitBatch, *arguments: Any) -> None:
        if not began.is_set():
            began.set()
            await resumed.wait()
        await read(batch, *arguments)

    monkeypatch.setattr(CommitBatch, "_read", pause_once)
    commit = asyncio.create_task(suspended.commit([note("suspended")], entries=[entry("suspended")]))
    await began.wait()
    await other.commit([note("other")], entries=[entry("other")])
    resumed.set()
    await commit
    assert await subjects(other) == ["other", "suspended"]
    assert await ids(other, kind=NOTES) == ["other", "suspended"]
    await suspended.close()
    await other.close()


async def test_transactions_of_other_databases_are_left_alone(mongodb_uri: str, database: str) -> None:
    """Without users on the server, all sessions belong to the same nobody."""
    store = MongoStore(mongodb_uri, database)
    await store.open(KINDS)
    foreign: MongoClient[dict[str, Any]]
    with MongoClient(mongodb_uri, appname=f"lcm {database}-too") as foreign, foreign.start_session() as session:
        documents: Collection[dict[str, Any]] = foreign[f"{database}-too"]["documents"]
        documents.insert_one({"_id": 1})
        with session.start_transaction():
            documents.delete_one({"_id": 1}, session=session)
            await asyncio.to_thread(kill_during_commit, mongodb_uri, database)
            await store.commit([note("a")])
        assert documents.find_one() is None
        foreign.drop_database(f"{database}-too")
    await store.close()
