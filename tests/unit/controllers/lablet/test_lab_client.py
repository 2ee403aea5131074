"""The client for the labs on workers: shared lists, and addresses that change hands."""

from __future__ import annotations

import asyncio

import pytest

from lcm.cml.types import Credentials, LabState
from lcm.controllers.common.accounts import CmlAccounts
from lcm.controllers.lablet.deps import LabletControllerConfig
from lcm.controllers.lablet.lab_client import WorkerLabClient
from lcm.core import clock
from tests.support.virtual.fake_cml import FakeSecrets
from tests.unit.controllers.lablet.builders import a_ready_worker

ACCOUNT = Credentials("admin", "pw")


class FakeLabsClient:
    """A labs client whose lists take a while."""

    def __init__(self) -> None:
        self.lists = 0
        self.labs: list[LabState] = []

    async def list_labs(self, _address: str, _account: Credentials) -> list[LabState]:
        self.lists += 1
        found = list(self.labs)
        await asyncio.sleep(10)
        return found


@pytest.fixture
async def clients() -> tuple[WorkerLabClient, FakeLabsClient, list[str]]:
    forgotten_addresses: list[str] = []
    config = LabletControllerConfig(ACCOUNT)
    accounts = CmlAccounts(FakeSecrets(), ACCOUNT)
    client = WorkerLabClient(None, accounts, config.address_of, forgotten_addresses.append)  # type: ignore[arg-type]
    labs = FakeLabsClient()
    client._labs = labs  # type: ignore[assignment]
    return client, labs, forgotten_addresses


async def test_a_list_that_began_before_the_call_is_not_used(
    clients: tuple[WorkerLabClient, FakeLabsClient, list[str]],
) -> None:
    """It may miss a lab created since then, and a second one would be created."""
    client, labs, _ = clients
    worker = a_ready_worker()
    early = [asyncio.create_task(client.labs(worker)) for _ in range(5)]
    await asyncio.sleep(5)
    labs.labs.append(LabState("new", "t", "STARTED", "m", None, 1))
    late = [asyncio.create_task(client.labs(worker)) for _ in range(5)]
    began = clock.boottime()
    assert [await task for task in early] == [()] * 5
    assert {tuple(lab.id for lab in await task) for task in late} == {("new",)}
    assert labs.lists == 2, "concurrent callers share a list"
    assert clock.boottime() - began == pytest.approx(15, abs=1)


async def test_sessions_end_when_another_instance_gets_the_address(
    clients: tuple[WorkerLabClient, FakeLabsClient, list[str]],
) -> None:
    client, _, forgotten_addresses = clients
    await client.labs(a_ready_worker())
    await client.labs(a_ready_worker())
    assert forgotten_addresses == []
    await client.labs(a_ready_worker(id="w-2", instance_id="i-2"))
    assert forgotten_addresses == ["192.0.2.7"]
