"""Lists of workers: only what changed is decoded again, and nothing is kept for longer than somebody uses it."""

from __future__ import annotations

import gc
import json
from typing import TYPE_CHECKING, Any

import pytest

from lcm.client import ProtocolError
from lcm.model.access import Role
from lcm.model.worker.requests import CreateWorkerRequest
from tests.unit.client.fakes import FaultyNetwork, ScriptedServer, json_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.client import Client
    from lcm.model.worker.record import Worker
    from tests.support.virtual.control_plane import TestPlane


async def listed(client: Client) -> dict[str, Worker]:
    return {worker.id: worker async for worker in client.internal.workers(page_size=2)}


@pytest.fixture
async def workers(plane: TestPlane, connect: Callable[..., Client]) -> list[str]:
    client = connect(FaultyNetwork(plane.app), plane.tokens[Role.OPERATOR])
    requests = [CreateWorkerRequest(name=f"w{number}", template_name="small") for number in range(5)]
    return [(await client.workers.create(request)).id for request in requests]


async def test_what_has_not_changed_is_the_same_object(
    plane: TestPlane, connect: Callable[..., Client], workers: list[str]
) -> None:
    controller = connect(FaultyNetwork(plane.app), plane.tokens[Role.CONTROLLER])
    people = connect(FaultyNetwork(plane.app), plane.tokens[Role.OPERATOR])
    before = await listed(controller)
    assert sorted(before) == sorted(workers)
    await people.workers.stop(workers[3])
    after = await listed(controller)
    assert {key for key in workers if after[key] is not before[key]} == {workers[3]}
    assert after[workers[3]] == await controller.internal.worker(workers[3])


async def test_a_restored_store_with_the_same_versions_is_read_anew(
    connect: Callable[..., Client], plane: TestPlane, workers: list[str]
) -> None:
    worker = await connect(FaultyNetwork(plane.app), plane.tokens[Role.OPERATOR]).workers.get(workers[0])
    stored = json.loads(worker.model_dump_json())
    restored = {**stored, "name": "other", "updated_at": "2026-01-01T00:00:00Z"}
    server = ScriptedServer(json_response({"items": [stored]}), json_response({"items": [restored]}))
    client = connect(FaultyNetwork(server))
    first, second = await listed(client), await listed(client)
    assert (first[worker.id].name, second[worker.id].name) == (worker.name, "other")


async def test_a_page_with_the_same_bytes_is_not_decoded(
    plane: TestPlane, connect: Callable[..., Client], workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = connect(FaultyNetwork(plane.app), plane.tokens[Role.CONTROLLER])
    before = await listed(controller)
    monkeypatch.setattr("lcm.client.known_records.from_json", None)
    after = await listed(controller)
    assert list(after) == list(before)
    assert all(after[key] is before[key] for key in workers)


async def test_pages_whose_records_were_dropped_are_decoded_again(
    plane: TestPlane, connect: Callable[..., Client], workers: list[str]
) -> None:
    controller = connect(FaultyNetwork(plane.app), plane.tokens[Role.CONTROLLER])
    before = await listed(controller)
    kept = before.pop(workers[0])
    del before
    gc.collect()
    after = await listed(controller)
    assert sorted(after) == sorted(workers)
    assert after[workers[0]] is kept


async def test_nothing_is_kept_that_nobody_uses(
    plane: TestPlane, connect: Callable[..., Client], workers: list[str]
) -> None:
    controller = connect(FaultyNetwork(plane.app), plane.tokens[Role.CONTROLLER])
    one = (await listed(controller))[workers[0]]
    gc.collect()
    assert list(controller.internal._known_workers._known.values()) == [one]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"items": [{"id": "w", "version": 1, "updated_at": "2026-01-01T00:00:00Z"}]}, r"items\.0\.name"),
        ({"items": ["w"]}, r"items\.0"),
        ({"items": None}, "items"),
        ({"items": [], "next_cursor": 3}, "next_cursor"),
        ([], "body"),
    ],
)
async def test_an_invalid_page_names_the_field(body: Any, where: str, connect: Callable[..., Client]) -> None:
    with pytest.raises(ProtocolError, match=f"internal.workers: invalid response: {where}"):
        await listed(connect(FaultyNetwork(ScriptedServer(json_response(body)))))


async def test_a_worker_that_was_read_by_itself_is_the_one_of_the_list_and_the_other_way_round(
    plane: TestPlane, connect: Callable[..., Client], workers: list[str]
) -> None:
    """A controller keeps the record that it read last: the next list would decode each of those once more."""
    controller = connect(FaultyNetwork(plane.app), plane.tokens[Role.CONTROLLER])
    people = connect(FaultyNetwork(plane.app), plane.tokens[Role.OPERATOR])
    before = await listed(controller)
    first = (await controller.internal.worker_context(workers[0])).worker
    assert first is before[workers[0]]
    await people.workers.stop(workers[0])
    changed = (await controller.internal.worker_context(workers[0])).worker
    assert changed is not first
    assert changed.version > first.version
    assert (await listed(controller))[workers[0]] is changed
