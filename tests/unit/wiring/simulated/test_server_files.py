"""Files of simulated CML servers: written on change, deleted with their machine, and harmless when damaged."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from lcm.cml.simulator import persistence
from lcm.cml.simulator.state.license import SmartAccount
from lcm.cml.simulator.state.world import SimulatorSettings, World
from lcm.wiring.simulated import server_files
from lcm.wiring.simulated.server_files import ServerFiles

if TYPE_CHECKING:
    from pathlib import Path

ONE, TWO = "i-1", "i-2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "simulated-cml"


@pytest.fixture
def account() -> SmartAccount:
    return SmartAccount()


def a_world(account: SmartAccount) -> World:
    made = World(SimulatorSettings(), account)
    made.power_on()
    return made


def opened(folder: Path, *machines: str) -> ServerFiles:
    files = ServerFiles(folder)
    files.open(machines)
    return files


async def licensed(account: SmartAccount) -> World:
    made = a_world(account)
    made.licensing.register("good-token", reregister=False)
    await asyncio.sleep(20)
    made.time.advance()
    return made


async def test_what_was_saved_is_found_again_and_others_cannot_read_it(folder: Path, account: SmartAccount) -> None:
    first = await licensed(account)
    lab = first.start_user_lab("ada")
    opened(folder, ONE).save({ONE: first}, account)
    assert folder.stat().st_mode & 0o077 == 0

    later, again = SmartAccount(), opened(folder, ONE)
    again.restore_account(later)
    second = World(SimulatorSettings(), later)
    assert again.has(ONE)
    assert again.restore(ONE, second)
    assert (later.holders, later.total_registrations) == (account.holders, 1)
    assert second.labs.get(lab.id).plan == lab.plan
    assert not again.has(TWO)


async def test_only_what_changed_is_written(folder: Path, account: SmartAccount) -> None:
    worlds = {ONE: a_world(account), TWO: a_world(account)}
    files = opened(folder, ONE, TWO)
    files.save(worlds, account)
    before = {path.name: path.stat().st_ino for path in folder.iterdir()}
    assert sorted(before) == ["account.json", f"{ONE}.json", f"{TWO}.json"]
    worlds[TWO].start_user_lab("ada")
    files.save(worlds, account)
    after = {path.name: path.stat().st_ino for path in folder.iterdir()}
    assert [name for name in before if before[name] != after[name]] == [f"{TWO}.json"]


async def test_the_file_of_a_removed_machine_is_deleted(folder: Path, account: SmartAccount) -> None:
    worlds = {ONE: await licensed(account), TWO: a_world(account)}
    files = opened(folder, ONE, TWO)
    files.save(worlds, account)
    del worlds[ONE]
    files.save(worlds, account)
    assert not files.has(ONE)
    (folder / f"{TWO}.json.new").write_text("half a")
    opened(folder)
    assert [path.name for path in folder.iterdir()] == ["account.json"]
    later = SmartAccount()
    opened(folder).restore_account(later)
    assert len(later.holders) == 1, "its license was never released"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"format": 0}', "\x00", "[" * 100_000, '{"format": 1, "version": "2.9"}']
)
async def test_a_damaged_file_is_logged_in_one_line(folder: Path, account: SmartAccount, text: str) -> None:
    files = opened(folder, ONE)
    (folder / f"{ONE}.json").write_text(text)
    (folder / "account.json").write_text(text)
    with structlog.testing.capture_logs() as logs:
        files.restore_account(account)
        assert not files.restore(ONE, World(SimulatorSettings(), account))
    assert [(line["log_level"], line["file"].rpartition("/")[2]) for line in logs] == [
        ("warning", "account.json"),
        ("warning", f"{ONE}.json"),
    ]
    assert not account.holders
    files.save({ONE: a_world(account)}, account)
    assert json.loads((folder / f"{ONE}.json").read_text())["format"] == 1


async def test_without_the_account_file_license_holders_are_counted(folder: Path, account: SmartAccount) -> None:
    first = await licensed(account)
    opened(folder, ONE).save({ONE: first}, account)
    (folder / "account.json").unlink()
    later = SmartAccount()
    opened(folder, ONE).restore(ONE, World(SimulatorSettings(), later))
    assert later.holders == {first.licensing.product_uuid}


async def test_labs_that_are_too_large_are_skipped_and_logged_once(
    folder: Path, account: SmartAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await licensed(account)
    first.start_user_lab("ada")
    monkeypatch.setattr(server_files, "MAX_FILE_BYTES", 4_000)
    files = opened(folder, ONE)
    with structlog.testing.capture_logs() as logs:
        for _ in range(2):
            first.start_user_lab("ada")
            files.save({ONE: first}, account)
    assert len(logs) == 1
    stored = json.loads((folder / f"{ONE}.json").read_text())
    assert (stored["labs"], stored[persistence.LICENSE_KEY]["status"]) == ([], "COMPLETED")


async def test_yaml_values_that_json_lacks_are_saved(folder: Path, account: SmartAccount) -> None:
    node = "{id: n0, label: a, node_definition: alpine, configuration: 2026-01-01, tags: [{2026-01-01: 1}]}"
    first = a_world(account)
    first.start_user_lab("ada", f"lab: {{version: 0.2.2}}\nnodes: [{node}]")
    files = opened(folder, ONE)
    files.save({ONE: first}, account)
    second: Any = World(SimulatorSettings(), account)
    assert files.restore(ONE, second)
    assert second.labs.all[0].plan.nodes[0].details["configuration"] == "2026-01-01"
