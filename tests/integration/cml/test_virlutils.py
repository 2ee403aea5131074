"""Cisco's command line works with the simulator."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.cml.simulator import CmlSimulator, SimulatorSettings
from tests.support.cml.virl2 import run_commands
from tests.support.cml.virl2_session import LAB

if TYPE_CHECKING:
    from pathlib import Path

    from lcm.cml.simulator.listener import ServerIdentity

_TITLE = "Small lab"
_COMMANDS = [
    *(["up", "-f", "topology.yaml"], ["ls"], ["id"], ["nodes"], ["stop", "host1"], ["start", "host1"]),
    *(["save"], ["extract"], ["generate", "pyats"], ["generate", "ansible"]),
    *(["users", "ls"], ["groups", "ls"], ["definitions", "nodes", "ls"], ["definitions", "images", "ls"]),
    *(["license", "show"], ["version"], ["clear"], ["use", "-n", _TITLE], ["down"]),
]


async def test_its_commands_work(identity: ServerIdentity, tmp_path: Path) -> None:
    settings = SimulatorSettings(version="2.9", speed=50, boot_seconds=0)
    simulator = CmlSimulator(settings, identity=identity)
    (tmp_path / "topology.yaml").write_text(LAB)
    await simulator.start()
    try:
        account = (settings.username, settings.password)
        printed = await asyncio.to_thread(run_commands, tmp_path, simulator.url, *account, _COMMANDS)
    finally:
        await simulator.stop()
    assert set(printed) == {" ".join(command) for command in _COMMANDS}
    assert _TITLE in printed["ls"]
    assert "host1" in printed["nodes"]
    assert "alpine" in printed["definitions nodes ls"]
    assert "alpine" in printed["definitions images ls"]
    assert settings.username in printed["users ls"]
    assert list(tmp_path.glob("*_testbed.yaml"))
    assert list(tmp_path.glob("*_inventory.yaml"))
    assert simulator.world.labs.imported == 1
    assert "SUCCESS" in printed["down"]
