"""A control plane of this version beside one of the next: both change the same record, and neither loses anything."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.auth.session_record import SESSIONS
from lcm.control_plane.auth.tokens import TOKENS
from lcm.control_plane.records.kinds import ALL_KINDS, WORKERS, worker_fields, worker_unique_keys
from lcm.control_plane.store.mongo.store import MongoStore
from lcm.control_plane.store.port import Put, RevisionConflictError
from lcm.control_plane.store.sqlite.store import SqliteStore
from lcm.model.worker.record import Worker
from tests.support.records.newer_version import FROZEN, upgrade
from tests.support.virtual.control_plane import serving_plane

if TYPE_CHECKING:
    from pathlib import Path

    from lcm.control_plane.store.port import Store

WRITES = 20


async def write_as_newer(store: Store, worker_id: str) -> None:
    """The newer version counts its own writes in a field and in a condition that this version does not know."""
    for _ in range(WRITES):
        while True:
            stored = await store.get(WORKERS, worker_id)
            assert stored is not None
            body = json.loads(stored.body)
            count = body.get("added_by_newer", 0) + 1
            others = [condition for condition in body["conditions"] if condition["type"] != "Frozen"]
            body |= {"added_by_newer": count, "conditions": [*others, {**FROZEN, "reason": f"Write{count}"}]}
            body["version"] += 1
            worker, written = Worker.model_validate(body), json.dumps(body).encode()
            put = Put(WORKERS, worker_id, written, stored.revision, worker_fields(worker), worker_unique_keys(worker))
            try:
                await store.commit([put])
                break
            except RevisionConflictError:
                continue


@pytest.mark.parametrize("adapter", ["sqlite", "mongo"])
async def test_two_versions_change_one_record_and_nothing_is_lost(
    adapter: str, tmp_path: Path, mongodb_uri: str, database: str
) -> None:
    store: Store = SqliteStore(tmp_path / "lcm.db") if adapter == "sqlite" else MongoStore(mongodb_uri, database)
    newer: Store = store if adapter == "sqlite" else MongoStore(mongodb_uri, database)
    async with serving_plane(store=store) as plane:
        if newer is not store:
            await newer.open([*ALL_KINDS, TOKENS, SESSIONS])
        worker = await plane.running()
        prefix = f"/api/workers/{worker['id']}"

        async def change() -> None:
            for number in range(WRITES):
                tags = {"tags": {"number": str(number)}}
                assert (await plane.ask("PATCH", prefix, json=tags)).status_code == 200
                held = await plane.ask("POST", f"{prefix}/{('hold', 'release')[number % 2]}", json={"reason": "mine"})
                assert held.status_code == 202, held.text

        await asyncio.gather(write_as_newer(newer, worker["id"]), change())
        after = (await plane.ask("GET", prefix)).json()
        assert (after["added_by_newer"], after["tags"]) == (WRITES, {"number": str(WRITES - 1)})
        assert [each["reason"] for each in after["conditions"] if each["type"] == "Frozen"] == [f"Write{WRITES}"]
        if newer is not store:
            await newer.close()


@pytest.mark.parametrize("adapter", ["sqlite", "mongo"])
async def test_a_status_of_a_newer_version_is_listed_counted_and_left_alone(
    adapter: str, tmp_path: Path, mongodb_uri: str, database: str
) -> None:
    store: Store = SqliteStore(tmp_path / "lcm.db") if adapter == "sqlite" else MongoStore(mongodb_uri, database)
    async with serving_plane(store=store) as plane:
        worker = await plane.running()
        await plane.running("other")
        await upgrade(store, WORKERS, worker["id"], status="HIBERNATING")
        listed = (await plane.ask("GET", "/api/workers?exclude_statuses=TERMINATED,FAILED")).json()["items"]
        assert sorted(each["status"] for each in listed) == ["HIBERNATING", "RUNNING"]
        assert (await plane.ask("GET", "/api/fleet")).json()["by_status"]["HIBERNATING"] == 1
        held = await plane.ask("POST", f"/api/workers/{worker['id']}/hold", json={"reason": "look"})
        assert (held.status_code, held.json()["status"]) == (202, "HIBERNATING")
