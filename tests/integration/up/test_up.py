"""`lcm up` as a user runs it: a process, its data folder, signals, and a kill."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.servers.etcd import free_ports
from tests.support.servers.lcm_up import TOKEN, LcmUpProcess, ready
from tests.support.servers.processes import LcmProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., LcmUpProcess]]:
    made: list[LcmUpProcess] = []

    def start(name: str = "up", *arguments: str, **env: str) -> LcmUpProcess:
        made.append(LcmUpProcess(folder, name, *arguments, RECONCILE_INTERVAL="2", **env).unforked())
        return made[-1].start()

    yield start
    for up in made:
        up.process.end()


def test_a_fleet_comes_up_by_itself_and_is_the_same_after_a_restart(start: Callable[..., LcmUpProcess]) -> None:
    first = start("first", "--speed", "10")
    before = first.until(ready("alpha", "bravo", "charlie"), "the demo's workers are ready")
    assert before["delta"]["status"] == "PENDING"
    before = first.until(lambda workers: "found-by-discovery" in workers, "an instance is discovered")
    log = first.process.log_path.read_text()
    assert "lcm workers list" in log
    assert TOKEN not in log
    (kept,) = first.process.log_path.parent.glob("first.config/lcm/contexts.json")
    assert kept.stat().st_mode & 0o077 == 0
    assert TOKEN in kept.read_text()
    first.process.signal(signal.SIGINT)
    assert first.process.wait() == 0

    second = start("second", "--speed", "10")
    after = second.until(ready("alpha", "bravo", "charlie"), "they are ready again")
    assert {name: worker["instance_id"] for name, worker in after.items()} == {
        name: worker["instance_id"] for name, worker in before.items()
    }


def test_a_kill_in_the_middle_loses_and_duplicates_nothing(start: Callable[..., LcmUpProcess]) -> None:
    up = start("first", "--empty", "--speed", "20")
    for name in ("stops", "drains", "ends"):
        up.ask("POST", "/api/workers", {"name": name, "template_name": "small"})
    workers = up.until(ready("stops", "drains", "ends"), "three are ready")
    up.ask("POST", f"/api/workers/{workers['stops']['id']}/stop")
    up.ask("POST", f"/api/workers/{workers['drains']['id']}/drain")
    up.ask("POST", f"/api/workers/{workers['ends']['id']}/terminate")
    for number in range(3):
        up.ask("POST", "/api/workers", {"name": f"launched-{number}", "template_name": "small"})
    up.process.signal(signal.SIGKILL)
    up.process.wait()

    again = start("second", "--empty", "--speed", "20")
    launched = [f"launched-{number}" for number in range(3)]
    after = again.until(ready(*launched), "the launches have come to their end")
    settled = {"stops": "STOPPED", "drains": "STOPPED", "ends": "TERMINATED"}
    after = again.until(lambda now: all(now[name]["status"] == at for name, at in settled.items()), "all has settled")
    live = {worker["instance_id"] for name, worker in after.items() if name != "ends"}
    file = again.process.log_path.parent / "data" / "simulated-cloud.json"

    def live_on_disk() -> set[str]:
        regions = json.loads(file.read_text())["regions"].values()
        machines = [machine for region in regions for machine in region["machines"]]
        return {machine["id"] for machine in machines if machine["state"] not in ("shutting-down", "terminated")}

    wait_until(lambda: live_on_disk() == live, f"the simulated cloud has these machines and no others: {live}")


def test_a_second_process_on_the_same_folder_is_rejected_in_one_line(
    start: Callable[..., LcmUpProcess], folder: Path
) -> None:
    start("first", "--empty")
    other = LcmProcess(
        folder,
        "other",
        "up",
        env={"CONTROL_PLANE_PORT": str(free_ports(1)[0]), "LCM_DATA_DIR": str(folder / "data")},
    )
    other.start()
    assert other.wait() == 1
    complaints = [line for line in other.log_path.read_text().splitlines() if line.startswith("lcm: ")]
    assert len(complaints) == 1
    assert "in use by process" in complaints[0]


def test_a_port_that_is_taken_and_a_folder_that_cannot_be_written(
    start: Callable[..., LcmUpProcess], folder: Path
) -> None:
    up = start("first", "--empty")
    taken = LcmProcess(folder, "taken", "up", env={"CONTROL_PLANE_PORT": str(up.plane_port)})
    taken.start()
    assert taken.wait() == 1
    assert "CONTROL_PLANE_PORT" in taken.log_path.read_text()
    (folder / "file").write_text("no folder")
    barred = LcmProcess(folder, "barred", "up", env={"LCM_DATA_DIR": str(folder / "file")})
    barred.start()
    assert barred.wait() in (1, 2)
    assert "LCM_DATA_DIR" in barred.log_path.read_text()
