"""A lablet controller dies at each step of making and removing a lab; another takes over, and nothing happens twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.model.lablet.status import LabletStatus
from tests.support.virtual.lablet_platform import LabletPlatform, start_lablet_platform

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from lcm.model.lablet.record import Lablet
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


RESETTING = ["PUT stop", "PUT wipe", "DELETE lab", *MAKING[1:]]
"""The old lab is removed, and a new one made. INSTANTIATING is in the commit of the request."""


async def reset_and_follow(platform: LabletPlatform, lablet: Lablet) -> None:
    """Reset a running lablet; whatever stops on the way, one new lab replaces the old one, on the same ports."""
    await asyncio.sleep(120)  # a new leader waits for imports of earlier ones
    before = await platform.get(lablet)
    await platform.people.lablets.reset(before.id, "wrong turn")
    assert (await platform.get(before)).status is LabletStatus.INSTANTIATING
    after = await platform.until_status(before, LabletStatus.RUNNING, within=600)
    await asyncio.sleep(60)
    (lab,) = platform.servers.labs()
    assert (lab.id, platform.servers.markers()) == (after.lab_id, [f"{before.id}.2"])
    assert after.lab_id != before.lab_id
    assert platform.servers.imports() == 2, "one for each of the two labs"
    assert {node.state for node in lab.nodes.values()} == {"BOOTED"}
    assert (after.worker_id, after.ports, after.left_behind) == (before.worker_id, before.ports, ())
    assert (await platform.control.internal.worker(str(after.worker_id))).allocation.lablets == 1
    assert (await platform.steps(before))[-3:] == ["RUNNING", "INSTANTIATING", "RUNNING"]


async def test_these_are_all_the_steps_of_a_reset(platform: LabletPlatform) -> None:
    life = await two_controllers(platform)
    lablet = await platform.lablet(await platform.worker())
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    await reset_and_follow(platform, lablet)
    assert life.changes == MAKING + RESETTING


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(len(RESETTING)))
async def test_a_crash_of_the_controller_during_a_reset_leaves_one_lab(
    platform: LabletPlatform, number: int, when: str
) -> None:
    life = await two_controllers(platform)
    lablet = await platform.lablet(await platform.worker())
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    life.die(when, number)
    await reset_and_follow(platform, lablet)
    assert life.dead


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(len([step for step in RESETTING if step == "POST status"])))
async def test_a_crash_of_the_control_plane_during_a_reset_leaves_one_lab(
    platform: LabletPlatform, number: int, when: str
) -> None:
    """It is away for 20 s, before or after the commit of a controller's write."""
    outage = Outage(platform.plane.app, when)
    platform.plane.app = outage  # type: ignore[assignment]
    await two_controllers(platform)
    lablet = await platform.lablet(await platform.worker())
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    outage.begin_in(number)
    await reset_and_follow(platform, lablet)
    assert outage.over


async def test_a_lost_reply_to_the_request_resets_once(platform: LabletPlatform) -> None:
    """The control plane died after the commit: the client sends the request again, with the same key."""
    await platform.start()
    lablet = await platform.lablet(await platform.worker())
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    first = await platform.people.lablets.reset(lablet.id, key="once")
    assert await platform.people.lablets.reset(lablet.id, key="once") == first
    await platform.until_status(lablet, LabletStatus.RUNNING, within=600)
    assert await platform.people.lablets.reset(lablet.id, key="once") == first, "also long after"
    await asyncio.sleep(120)
    assert platform.servers.imports() == 2


@pytest.mark.parametrize("number", range(5))
async def test_one_that_is_ended_during_its_reset_leaves_neither_lab(platform: LabletPlatform, number: int) -> None:
    life = await two_controllers(platform)
    worker = await platform.worker()
    lablet = await platform.lablet(worker)
    await platform.until_status(lablet, LabletStatus.RUNNING, within=120)
    life.die("after", number)
    await platform.people.lablets.reset(lablet.id)
    await platform.until(lambda: life.dead, "dead", within=120)
    await platform.people.lablets.terminate(lablet.id)
    await platform.until_status(lablet, LabletStatus.TERMINATED, within=600)
    assert platform.servers.labs() == []
    assert (await platform.control.internal.worker(worker.id)).allocation.lablets == 0


class Outage:
    """A control plane that dies before or after the n-th status write from now on, and is back 20 s later."""

    def __init__(self, app: ASGIApp, when: str) -> None:
        self.over = False
        self._app = app
        self._when = when
        self._left: int | None = None
        self._until = 0.0

    def begin_in(self, writes: int) -> None:
        """After so many status writes."""
        self._left = writes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._until:
            await self._refuse(send)
        elif self._left is None or scope["method"] != "POST" or not scope["path"].endswith("/status"):
            await self._app(scope, receive, send)
        elif self._left > 0:
            self._left -= 1
            await self._app(scope, receive, send)
        else:
            self._left, self._until, self.over = None, now + 20.0, True
            if self._when == "after":
                await self._app(scope, receive, _drop)
            await self._refuse(send)

    @staticmethod
    async def _refuse(send: Send) -> None:
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def _drop(_message: Message) -> None:
    """The response is lost."""
