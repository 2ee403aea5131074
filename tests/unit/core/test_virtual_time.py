"""The test machinery itself: time passes only when nothing else is to be done."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from lcm.core import clock

if TYPE_CHECKING:
    from tests.support.virtual.time import VirtualClock


async def test_a_day_of_sleep_takes_no_time(virtual_clock: VirtualClock) -> None:
    began, loop_began, boot = time.monotonic(), asyncio.get_running_loop().time(), clock.boottime()
    wall = clock.now()
    await asyncio.sleep(86_400)
    assert asyncio.get_running_loop().time() - loop_began == 86_400
    assert clock.boottime() - boot == 86_400
    assert (clock.now() - wall).total_seconds() == 86_400
    assert time.monotonic() - began < 86_400


async def test_a_suspended_machine_ages_without_its_timers(virtual_clock: VirtualClock) -> None:
    boot, loop_time = clock.boottime(), asyncio.get_running_loop().time()
    virtual_clock.suspended += 100
    assert clock.boottime() - boot == 100
    assert asyncio.get_running_loop().time() == loop_time
