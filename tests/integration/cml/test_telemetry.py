"""CML's list of events is read however long it is, and without stopping anything else meanwhile."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

from tests.integration.cml.conftest import ADDRESS, ADMIN, Clients, control

if TYPE_CHECKING:
    from lcm.cml.simulator import CmlSimulator

MILLION = 1_000_000
MAX_GROWTH_KIB = 64 * 1024


async def test_the_newest_events_of_a_million_are_read_in_bounded_memory(simulator: CmlSimulator, cml: Clients) -> None:
    status, _ = await control(simulator, "PUT", "/telemetry", {"older_events": MILLION})
    assert status == 200
    simulator.world.start_user_lab("student")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    activity = await cml.system.get_activity_events(ADDRESS, ADMIN)
    assert "start_lab" in {event.category for event in activity.events}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_GROWTH_KIB
