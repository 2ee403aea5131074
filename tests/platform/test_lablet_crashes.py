"""A lablet controller dies at each step of making and removing a lab; another takes over, and nothing happens twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.model.lablet.status import LabletStatus
from tests.support.virtual.lablet_platform import LabletPlatform, start_lablet_platform

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.virtual.cml_servers import ProcessLife

MAKING = ["POST status", "POST import", "POST status", "PUT start", "POST status", "POST status"]
"""INSTANTIATING, the import, the lab id, its start, its boot, RUNNING."""
REMOVING = ["POST status", "PUT stop", "PUT wipe", "DELETE lab", "POST release"]


@pytest.fixture
async def platform() -> AsyncIterator[LabletPlatform]:
    async with start_lablet_platform() as platform:
        yield platform


async def two_controllers(platform: LabletPlatform) -> ProcessLife:
    """A controller that leads, with its record of calls, and one that stands by."""
    await platform.start("one")
    await platform.until(lambda: platform.controllers["one"].is_leader, "one leads")
    await platform.start("two")
    return platform.lives["one"]


async def test_these_are_all_the_steps(platform: LabletPlatform) -> None:
    """The tests below cover all of these steps."""
    life = await two_controllers(platform)
    lablet = await platform.lablet(await platform.worker())
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    assert life.changes == MAKING
    await asyncio.sleep(120)
    assert life.changes == MAKING, "a running lab is not touched"
    await platform.people.lablets.terminate(lablet.id)
    await platform.until_status(lablet, LabletStatus.TERMINATED, within=120)
    assert life.changes == MAKING + REMOVING


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(len(MAKING)))
async def test_a_crash_while_a_lab_is_made_leaves_one_lab(platform: LabletPlatform, number: int, when: str) -> None:
    """lablets.md: survives a restart at any step without a second lab."""
    life = await two_controllers(platform)
    worker = await platform.worker()
    life.die(when, number)
    lablet = await platform.lablet(worker)
    lablet = await platform.until_status(lablet, LabletStatus.RUNNING, within=400)
    assert life.dead
    await asyncio.sleep(700)
    (lab,) = platform.servers.labs()
    assert platform.servers.imports() == 1
    assert lablet.lab_id == lab.id
    assert {node.state for node in lab.nodes.values()} == {"BOOTED"}
    assert await platform.steps(lablet) == ["PENDING_SCHEDULING", "SCHEDULED", "INSTANTIATING", "RUNNING"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(len(REMOVING)))
async def test_a_crash_while_a_lab_is_removed_leaves_none(platform: LabletPlatform, number: int, when: str) -> None:
    """lablets.md: stops, wipes and deletes at the end; survives a restart at any step."""
    life = await two_controllers(platform)
    worker = await platform.worker()
    lablet = await platform.lablet(worker)
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    life.die(when, number)
    await platform.people.lablets.terminate(lablet.id)
    await platform.until_status(lablet, LabletStatus.TERMINATED, within=400)
    await platform.until(lambda: life.dead, "dead", within=1)
    assert platform.servers.labs() == []
    assert (await platform.control.internal.worker(worker.id)).allocation.lablets == 0
    assert (await platform.steps(lablet))[-2:] == ["STOPPING", "TERMINATED"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(len(MAKING) - 1))
async def test_a_crash_of_one_that_is_ended_meanwhile_leaves_nothing(
    platform: LabletPlatform, number: int, when: str
) -> None:
    """A lab that is not recorded yet is found before its lablet ends."""
    life = await two_controllers(platform)
    worker = await platform.worker()
    life.die(when, number)
    lablet = await platform.lablet(worker)
    await platform.until(lambda: life.dead, "dead", within=120)
    await platform.people.lablets.terminate(lablet.id)
    await platform.until_status(lablet, LabletStatus.TERMINATED, within=400)
    assert platform.servers.labs() == []
    assert platform.servers.imports() <= 1


@pytest.mark.parametrize("seconds", [5, 20, 55])
async def test_an_import_that_lands_after_its_caller_died_is_not_made_twice(
    platform: LabletPlatform, seconds: float
) -> None:
    """The server may take the full import time while the next leader already searches."""
    life = await two_controllers(platform)
    worker = await platform.worker()
    platform.servers.landing = seconds
    lablet = await platform.lablet(worker)
    await platform.until(lambda: life.changes[-1:] == ["POST import"], "import requested", within=60)
    life.kill()
    lablet = await platform.until_status(lablet, LabletStatus.RUNNING, within=400)
    await asyncio.sleep(700)
    assert platform.servers.imports() == 1
    assert [lab.id for lab in platform.servers.labs()] == [lablet.lab_id]


async def test_an_import_that_takes_longer_than_a_leader_may_wait_is_made_once(platform: LabletPlatform) -> None:
    """controllers.md: the key stays busy until the call has ended, also past the deadline."""
    await platform.start()
    worker = await platform.worker()
    platform.servers.landing = 40
    lablet = await platform.lablet(worker)
    lablet = await platform.until_status(lablet, LabletStatus.RUNNING, within=400)
    assert platform.servers.imports() == 1
    assert [lab.id for lab in platform.servers.labs()] == [lablet.lab_id]


async def test_a_lost_reply_to_the_import_leaves_one_lab(platform: LabletPlatform) -> None:
    """After an unknown outcome the lab is searched for before anything else."""
    await platform.start()
    worker = await platform.worker()
    platform.servers.lost = ["POST /api/v0/import"]
    lablet = await platform.lablet(worker)
    lablet = await platform.until_status(lablet, LabletStatus.RUNNING, within=60)
    assert platform.servers.lost == []
    assert platform.servers.imports() == 1
    assert [lab.id for lab in platform.servers.labs()] == [lablet.lab_id]


@pytest.mark.parametrize("request_", ["/start", "/stop", "/wipe"])
async def test_a_lost_reply_to_any_other_call_changes_nothing_but_the_delay(
    platform: LabletPlatform, request_: str
) -> None:
    await platform.start()
    platform.servers.lost = [request_]
    lablet = await platform.lablet(await platform.worker())
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    await platform.people.lablets.terminate(lablet.id)
    await platform.until_status(lablet, LabletStatus.TERMINATED, within=180)
    assert platform.servers.lost == []
    assert platform.servers.labs() == []
