"""The installation id: created once, the same for all, and never silently replaced."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.system import InstallationMismatchError, ensure_installation, read_installation
from lcm.control_plane.records.kinds import ALL_KINDS, AUDIT
from lcm.control_plane.records.unit_of_work import UnitOfWork
from lcm.control_plane.store.memory.store import MemoryDisk, MemoryStore
from lcm.model.access import Role
from lcm.model.fleet.state import Installation
from lcm.settings import StoreSettings
from tests.support.records.gated_store import GatedStore
from tests.support.records.worker_records import ANNA, Desk
from tests.support.virtual.control_plane import serving_plane

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store


async def settle(store: Store, given: str | None = None) -> str:
    """Do what a control plane does at its start."""
    return (await UnitOfWork(store).run(ANNA, lambda tx: ensure_installation(tx, given))).installation_id


async def test_the_first_start_creates_an_id_and_the_others_find_it(desk: Desk) -> None:
    made = await settle(desk.store)
    assert re.fullmatch(r"lcm-[a-z0-9]{12}", made)
    assert await settle(desk.store) == made
    assert await settle(desk.store, made) == made
    assert (await read_installation(desk.store)).installation_id == made
    assert [line["action"] for line in await desk.entries(AUDIT)] == ["installation_named"]


async def test_what_is_given_first_is_kept(desk: Desk) -> None:
    assert await settle(desk.store, "acme-prod") == "acme-prod"
    assert await settle(desk.store) == "acme-prod"


async def test_a_different_id_given_later_is_rejected_with_a_remedy_in_one_line(desk: Desk) -> None:
    await settle(desk.store, "acme-prod")
    with pytest.raises(InstallationMismatchError) as refused:
        await settle(desk.store, "acme-test")
    line = str(refused.value)
    assert line.startswith('LCM_INSTALLATION_ID="acme-test": ')
    assert "\n" not in line
    assert "set it to acme-prod" in line
    assert "unset" in line
    assert await settle(desk.store) == "acme-prod"


async def test_two_that_start_at_once_agree() -> None:
    """The second has read and found nothing when the first commits."""
    disk, gate = MemoryDisk(), asyncio.Event()
    slow, quick = GatedStore(disk), MemoryStore(disk)
    for store in (slow, quick):
        await store.open(ALL_KINDS)
    slow.gate = gate
    starting = asyncio.create_task(settle(slow))
    await asyncio.sleep(0.01)
    made = await settle(quick)
    assert not starting.done()
    gate.set()
    assert await starting == made


async def test_of_two_different_ids_that_start_at_once_one_is_rejected() -> None:
    disk, gate = MemoryDisk(), asyncio.Event()
    slow, quick = GatedStore(disk), MemoryStore(disk)
    for store in (slow, quick):
        await store.open(ALL_KINDS)
    slow.gate = gate
    starting = asyncio.create_task(settle(slow, "slow-one"))
    await asyncio.sleep(0.01)
    await settle(quick, "quick-one")
    gate.set()
    with pytest.raises(InstallationMismatchError, match="quick-one"):
        await starting


async def test_before_the_first_start_there_is_no_id(desk: Desk) -> None:
    with pytest.raises(ProblemError, match="no id yet"):
        await read_installation(desk.store)


async def test_controllers_read_the_id() -> None:
    async with serving_plane() as plane:
        response = await plane.ask("GET", "/api/internal/installation", role=Role.CONTROLLER)
        expected = await read_installation(plane.services.context.store)
        assert response.json() == {"installation_id": expected.installation_id}


@pytest.mark.parametrize("good", ["abc", "0-a", "lcm-3f9k2m1xq0ab", "a" * 63])
def test_valid_ids(good: str) -> None:
    assert StoreSettings(lcm_installation_id=good).lcm_installation_id == good
    assert Installation(installation_id=good).installation_id == good


@pytest.mark.parametrize("bad", ["ab", "-abc", "Abc", "a_b", "a b", "a" * 64, "abc\n", "äbc"])
def test_invalid_ids(bad: str) -> None:
    """The setting and the model have the same rules, although neither may import the other."""
    with pytest.raises(ValidationError):
        StoreSettings(lcm_installation_id=bad)
    with pytest.raises(ValidationError):
        Installation(installation_id=bad)
