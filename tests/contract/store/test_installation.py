"""Control planes that start at the same time on one store agree on the installation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.control_plane.fleet.system import ensure_installation
from lcm.control_plane.records.kinds import ALL_KINDS, AUDIT
from lcm.control_plane.records.unit_of_work import UnitOfWork
from lcm.model.audit import Actor, ActorKind

if TYPE_CHECKING:
    from tests.contract.store.conftest import Bed

START_UP = Actor(kind=ActorKind.SYSTEM, name="start-up")


async def test_control_planes_that_start_at_once_agree_on_the_installation(bed: Bed) -> None:
    store = await bed.open(ALL_KINDS)
    starts = [UnitOfWork(store).run(START_UP, lambda tx: ensure_installation(tx, None)) for _ in range(12)]
    settled = await asyncio.gather(*starts)
    assert len({each.installation_id for each in settled}) == 1
    assert len(await store.read_journal(topics=[AUDIT])) == 1
    again = await bed.open(ALL_KINDS)
    later = await UnitOfWork(again).run(START_UP, lambda tx: ensure_installation(tx, None))
    assert later == settled[0]
