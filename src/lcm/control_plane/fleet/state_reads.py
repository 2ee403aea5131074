"""Reads of the state of the fleet as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.records.kinds import CONTROLLER_REPORTS, FLEET, LEADERSHIPS, WORKERS
from lcm.control_plane.records.readable import readable_records
from lcm.model.fleet.state import FleetState, LeadershipTerm
from lcm.model.system import ReceivedControllerReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.store.port import Store
    from lcm.model.system import LeakedInstanceReport


async def read_fleet_state(store: Store) -> FleetState:
    """The state of the fleet as a whole."""
    stored = await store.get(FLEET, FLEET.name)
    return FleetState() if stored is None else FleetState.model_validate_json(stored.body)


async def read_leaders(store: Store) -> list[LeadershipTerm]:
    """The latest leadership term of each controller."""
    page = await store.find(LEADERSHIPS)
    return [LeadershipTerm.model_validate_json(item.body) for item in page.items]


async def read_controller_reports(store: Store) -> dict[str, ReceivedControllerReport]:
    """The last report of each controller, by its name."""
    stored = (await store.find(CONTROLLER_REPORTS)).items
    return {each.controller: each for each in readable_records(stored, ReceivedControllerReport, "controller report")}


async def read_leaks(
    store: Store, reports: Mapping[str, ReceivedControllerReport]
) -> tuple[list[LeakedInstanceReport], int]:
    """The leaked instances that controllers report, and how many there are: reports may list only some of them.

    One that has been imported since belongs to a worker, and is counted there. One that several report is counted once.
    """
    listed = [leak for _, received in sorted(reports.items()) for leak in received.report.leaks]
    unique = {leak.instance_id: leak for leak in listed}.values()
    leaks = [leak for leak in unique if await store.get_unique(WORKERS, "instance_id", leak.instance_id) is None]
    total = sum(received.report.leaks_total for received in reports.values())
    return leaks, total - (len(listed) - len(leaks))
