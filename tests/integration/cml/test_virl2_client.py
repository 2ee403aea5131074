"""Cisco's client library works with the simulator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.cml.simulator import VERSION_PROFILES, CmlSimulator, SimulatorSettings
from tests.support.cml.virl2 import VERSIONS, run_session

if TYPE_CHECKING:
    from lcm.cml.simulator.listener import ServerIdentity


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_whole_session(identity: ServerIdentity, version: str) -> None:
    settings = SimulatorSettings(version=version, speed=50, boot_seconds=0)
    simulator = CmlSimulator(settings, identity=identity)
    await simulator.start()
    try:
        seen = await asyncio.to_thread(run_session, version, simulator.url, settings.username, settings.password)
    finally:
        await simulator.stop()
    assert seen.pop("client").startswith(f"{version}.")
    assert seen == {
        "server": VERSION_PROFILES[version].version,
        "labs_before": [],
        "listed": True,
        "title": "Small lab",
        "new": ["DEFINED_ON_CORE"] * 3,
        "started": ["BOOTED"] * 3,
        "lab_state": "STARTED",
        "one_wiped": ["BOOTED", "BOOTED", "DEFINED_ON_CORE"],
        "one_started": "BOOTED",
        "addresses": 2,
        "stopped": ["STOPPED"] * 3,
        "wiped": ["DEFINED_ON_CORE"] * 3,
        "labs_after": [],
        "not_found": True,
        "license_before": "NOT_REGISTERED",
        "license_registered": "COMPLETED",
        "license_after": "NOT_REGISTERED",
        "product": "CML_Personal",
        "definitions": True,
        "health": True,
        "computes": 1,
    }
    assert (simulator.world.account.total_registrations, len(simulator.world.account.holders)) == (1, 0)
    assert simulator.world.labs.imported == 1
