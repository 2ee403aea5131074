"""Long lists, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.client import ProtocolError
from lcm.model.access import Role
from lcm.model.worker.requests import CreateWorkerRequest
from lcm.model.worker.status import WorkerStatus
from tests.unit.client.fakes import FaultyNetwork, ScriptedServer, json_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.client import Client
    from tests.support.virtual.control_plane import TestPlane


async def test_250_workers_come_in_three_pages_each_once(plane: TestPlane, connect: Callable[..., Client]) -> None:
    network = FaultyNetwork(plane.app)
    client = connect(network, plane.tokens[Role.OPERATOR])
    names = [f"w{number:03}" for number in range(250)]
    for name in names:
        await client.workers.create(CreateWorkerRequest(name=name, template_name="small"))
    network.requests.clear()
    assert [worker.name async for worker in client.workers.list(sort="name")] == names
    assert [request.url.params["limit"] for request in network.requests] == ["100"] * 3
    inside = connect(network, plane.tokens[Role.CONTROLLER]).internal
    pending = [WorkerStatus.PENDING, WorkerStatus.FAILED]
    assert [worker async for worker in inside.workers(exclude_statuses=pending)] == []
    assert len([worker async for worker in inside.workers(aws_region=["eu-west-1"], page_size=30)]) == 250


async def test_a_list_that_is_left_early_requests_no_more_pages(
    plane: TestPlane, connect: Callable[..., Client]
) -> None:
    network = FaultyNetwork(plane.app)
    async for template in connect(network, plane.tokens[Role.VIEWER]).templates.list(page_size=1):
        assert template.name
        break
    assert len(network.requests) == 1


@pytest.mark.parametrize("size", [0, 1001])
async def test_pages_are_bounded(size: int, connect: Callable[..., Client]) -> None:
    server = ScriptedServer(json_response({"items": []}))
    with pytest.raises(ValueError, match="between 1 and 1000"):
        await anext(connect(FaultyNetwork(server)).workers.list(page_size=size))
    assert server.requests == []


async def test_a_repeated_cursor_ends_the_list(connect: Callable[..., Client]) -> None:
    server = ScriptedServer(json_response({"items": [], "next_cursor": "again"}))
    with pytest.raises(ProtocolError, match="same cursor twice"):
        await anext(connect(FaultyNetwork(server)).workers.list())
    assert len(server.requests) == 2
