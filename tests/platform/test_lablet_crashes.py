"""A lablet controller dies at each step of making and removing a lab, and another one takes over: once is once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.model.lablet.status import LabletStatus
from tests.support.virtual.lablet_platform import Labbing, a_labbing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.virtual.cml_servers import Life

MAKING = ["POST status", "POST import", "POST status", "PUT start", "POST status", "POST status"]
"""INSTANTIATING, the lab, which one it is, its start, that it boots, RUNNING."""
REMOVING = ["POST status", "PUT stop", "PUT wipe", "DELETE lab", "POST release"]


@pytest.fixture
async def labbing() -> AsyncIterator[Labbing]:
    async with a_labbing() as labbing:
        yield labbing


async def two_controllers(labbing: Labbing) -> Life:
    """One that leads, and whose life this is, and one that stands by."""
    await labbing.start("one")
    await labbing.until(lambda: labbing.controllers["one"].is_leader, "one leads")
    await labbing.start("two")
    return labbing.lives["one"]


async def test_these_are_all_the_steps(labbing: Labbing) -> None:
    """So that the tests below leave none out."""
    life = await two_controllers(labbing)
    lablet = await labbing.lablet(await labbing.worker())
    await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    assert life.changes == MAKING
    await asyncio.sleep(120)
    assert life.changes == MAKING, "what runs is left alone"
    await labbing.people.lablets.terminate(lablet.id)
    await labbing.until_status(lablet, LabletStatus.TERMINATED, within=120)
    assert life.changes == MAKING + REMOVING


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(len(MAKING)))
async def test_a_crash_while_a_lab_is_made_leaves_one_lab(labbing: Labbing, number: int, when: str) -> None:
    """SPEC §10: survives a restart at any step without a second lab."""
    life = await two_controllers(labbing)
    worker = await labbing.worker()
    life.die(when, number)
    lablet = await labbing.lablet(worker)
    lablet = await labbing.until_status(lablet, LabletStatus.RUNNING, within=400)
    assert life.dead
    await asyncio.sleep(700)
    (lab,) = labbing.servers.labs()
    assert labbing.servers.imports() == 1
    assert lablet.lab_id == lab.id
    assert {node.state for node in lab.nodes.values()} == {"BOOTED"}
    assert await labbing.steps(lablet) == ["PENDING_SCHEDULING", "SCHEDULED", "INSTANTIATING", "RUNNING"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(len(REMOVING)))
async def test_a_crash_while_a_lab_is_removed_leaves_none(labbing: Labbing, number: int, when: str) -> None:
    """SPEC §10: stops, wipes and deletes at the end; survives a restart at any step."""
    life = await two_controllers(labbing)
    worker = await labbing.worker()
    lablet = await labbing.lablet(worker)
    await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    life.die(when, number)
    await labbing.people.lablets.terminate(lablet.id)
    await labbing.until_status(lablet, LabletStatus.TERMINATED, within=400)
    await labbing.until(lambda: life.dead, "dead", within=1)
    assert labbing.servers.labs() == []
    assert (await labbing.control.internal.worker(worker.id)).allocation.lablets == 0
    assert (await labbing.steps(lablet))[-2:] == ["STOPPING", "TERMINATED"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(len(MAKING) - 1))
async def test_a_crash_of_one_that_is_ended_meanwhile_leaves_nothing(labbing: Labbing, number: int, when: str) -> None:
    """A lab that nobody knows of yet is found before its lablet is called ended."""
    life = await two_controllers(labbing)
    worker = await labbing.worker()
    life.die(when, number)
    lablet = await labbing.lablet(worker)
    await labbing.until(lambda: life.dead, "dead", within=120)
    await labbing.people.lablets.terminate(lablet.id)
    await labbing.until_status(lablet, LabletStatus.TERMINATED, within=400)
    assert labbing.servers.labs() == []
    assert labbing.servers.imports() <= 1


@pytest.mark.parametrize("seconds", [5, 20, 55])
async def test_an_import_that_lands_after_its_caller_died_is_not_made_twice(labbing: Labbing, seconds: float) -> None:
    """The server may be busy with it for as long as an import may take, while the next leader looks already."""
    life = await two_controllers(labbing)
    worker = await labbing.worker()
    labbing.servers.landing = seconds
    lablet = await labbing.lablet(worker)
    await labbing.until(lambda: life.changes[-1:] == ["POST import"], "asked", within=60)
    life.kill()
    lablet = await labbing.until_status(lablet, LabletStatus.RUNNING, within=400)
    await asyncio.sleep(700)
    assert labbing.servers.imports() == 1
    assert [lab.id for lab in labbing.servers.labs()] == [lablet.lab_id]


async def test_an_import_that_takes_longer_than_a_leader_may_wait_is_made_once(labbing: Labbing) -> None:
    """SPEC §2: the key stays busy until the call has really ended, also past the deadline."""
    await labbing.start()
    worker = await labbing.worker()
    labbing.servers.landing = 40
    lablet = await labbing.lablet(worker)
    lablet = await labbing.until_status(lablet, LabletStatus.RUNNING, within=400)
    assert labbing.servers.imports() == 1
    assert [lab.id for lab in labbing.servers.labs()] == [lablet.lab_id]


async def test_a_lost_reply_to_the_import_leaves_one_lab(labbing: Labbing) -> None:
    """After an unknown outcome the lab is looked for before anything else is tried."""
    await labbing.start()
    worker = await labbing.worker()
    labbing.servers.lost = ["POST /api/v0/import"]
    lablet = await labbing.lablet(worker)
    lablet = await labbing.until_status(lablet, LabletStatus.RUNNING, within=60)
    assert labbing.servers.lost == []
    assert labbing.servers.imports() == 1
    assert [lab.id for lab in labbing.servers.labs()] == [lablet.lab_id]


@pytest.mark.parametrize("request_", ["/start", "/stop", "/wipe"])
async def test_a_lost_reply_to_any_other_call_changes_nothing_but_the_delay(labbing: Labbing, request_: str) -> None:
    await labbing.start()
    labbing.servers.lost = [request_]
    lablet = await labbing.lablet(await labbing.worker())
    await labbing.until_status(lablet, LabletStatus.RUNNING, within=120)
    await labbing.people.lablets.terminate(lablet.id)
    await labbing.until_status(lablet, LabletStatus.TERMINATED, within=180)
    assert labbing.servers.lost == []
    assert labbing.servers.labs() == []
