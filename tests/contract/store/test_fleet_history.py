"""The history of the fleet is in every store: read after a restart, once an interval, and in order."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.control_plane.context import ControlPlaneContext
from lcm.control_plane.fleet.history import FleetHistoryService
from lcm.control_plane.fleet.service import FleetService
from lcm.control_plane.records.kinds import ALL_KINDS
from lcm.control_plane.records.unit_of_work import UnitOfWork
from lcm.control_plane.secrets.encryption import SecretBox
from lcm.control_plane.secrets.keys import generate_key, parse_key

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store
    from tests.contract.store.conftest import Bed


def history_of(store: Store) -> FleetHistoryService:
    box = SecretBox([parse_key(generate_key(), "test")])
    return FleetHistoryService(store, FleetService(ControlPlaneContext(store, UnitOfWork(store), box, ("eu-west-1",))))


async def test_a_sample_survives_a_restart_and_is_stored_once(bed: Bed) -> None:
    store = await bed.open(ALL_KINDS)
    one, other = history_of(store), history_of(store)
    await asyncio.gather(one.record(), other.record())
    first = (await one.read("24h")).items
    store = await bed.open(ALL_KINDS)
    again = history_of(store)
    await again.record()
    items = (await again.read("24h")).items
    assert items[: len(first)] == first
    assert len({sample.at for sample in items}) == len(items)
    assert (await again.read("30d")).items
    assert await again.remove_expired() == 0
