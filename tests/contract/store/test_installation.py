"""Whatever the store: control planes that start at once on it agree which installation they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.control_plane.fleet.installation import ensure_installation
from lcm.control_plane.records.kinds import ALL_KINDS, AUDIT
from lcm.control_plane.records.unit_of_work import UnitOfWork
from lcm.model.audit import Actor, ActorKind

if TYPE_CHECKING:
    from tests.contract.store.conftest import Bed

START_UP = Actor(kind=ActorKind.SYSTEM, name="start-up")


async def test_many_that_start_at_once_agree_and_one_has_made_it(bed: Bed) -> None:
    store = await bed.open(ALL_KINDS)
    starts = [UnitOfWork(store).change(START_UP, lambda change: ensure_installation(change, None)) for _ in range(12)]
    settled = await asyncio.gather(*starts)
    assert len({each.installation_id for each in settled}) == 1
    assert len(await store.journal(topics=[AUDIT])) == 1
    again = await bed.open(ALL_KINDS)
    later = await UnitOfWork(again).change(START_UP, lambda change: ensure_installation(change, None))
    assert later == settled[0]
