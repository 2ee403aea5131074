"""CML's list of events is read however long it is, and without stopping anything else meanwhile."""

from __future__ import annotations

import resource
import threading
from typing import TYPE_CHECKING

import pytest

from lcm.cml.client import telemetry
from lcm.cml.client.telemetry import parse_list_ends
from tests.integration.cml.conftest import ADDRESS, ADMIN, Clients, control

if TYPE_CHECKING:
    from lcm.cml.client.bodies import BodyEnds
    from lcm.cml.simulator import CmlSimulator
    from lcm.cml.types import CMLActivity

MILLION = 1_000_000
MAX_GROWTH_KIB = 64 * 1024


@pytest.mark.parametrize(("older_events", "on_the_loop"), [(10, True), (50_000, False)])
async def test_a_long_list_is_not_decoded_on_the_loop(
    simulator: CmlSimulator, cml: Clients, monkeypatch: pytest.MonkeyPatch, older_events: int, on_the_loop: bool
) -> None:
    """A list of 5 MiB takes half a second, in which nothing else would go on."""
    decoded_in = []

    def parse(ends: BodyEnds) -> CMLActivity:
        decoded_in.append(threading.current_thread())
        return parse_list_ends(ends)

    monkeypatch.setattr(telemetry, "parse_list_ends", parse)
    await control(simulator, "PUT", "/telemetry", {"older_events": older_events})
    simulator.world.start_user_lab("student")
    assert (await cml.system.get_activity_events(ADDRESS, ADMIN)).events
    assert [each is threading.current_thread() for each in decoded_in] == [on_the_loop]


async def test_the_newest_events_of_a_million_are_read_in_bounded_memory(simulator: CmlSimulator, cml: Clients) -> None:
    status, _ = await control(simulator, "PUT", "/telemetry", {"older_events": MILLION})
    assert status == 200
    simulator.world.start_user_lab("student")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    activity = await cml.system.get_activity_events(ADDRESS, ADMIN)
    assert "start_lab" in {event.category for event in activity.events}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_GROWTH_KIB
