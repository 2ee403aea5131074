"""Lablet controllers as processes, killed with SIGKILL: still one lab on CML, and the right result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.real.lablet_platform import RealLablets, real_lablets
from tests.support.real.worker_platform import PATIENCE
from tests.support.servers.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.network.http_gate import Hold


@pytest.fixture(scope="module")
def lablets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealLablets]:
    with real_lablets(tmp_path_factory.mktemp("lablets"), "one", "two") as platform:
        yield platform


@pytest.fixture
def calm(lablets: RealLablets) -> Iterator[RealLablets]:
    """Two controllers. Held requests are released after the test."""
    for name, process in lablets.controllers.items():
        if not process.running:
            lablets.start_controller(name)
    lablets.until_led()
    yield lablets
    lablets.gate.holds.clear()


def test_the_whole_path(calm: RealLablets) -> None:
    """lablets.md: imports, starts, waits, publishes the addresses; stops, wipes and deletes at the end."""
    before = calm.imports()
    worker_id = calm.worker()
    made = [calm.lablet(worker_id) for _ in range(3)]
    for lablet_id in made:
        lablet = calm.until(lablet_id, "RUNNING")
        assert {node["node"]: node["addresses"] for node in lablet["endpoints"]} == {
            "host": ["192.168.254.10"],
            "sw": [],
        }
    assert len(calm.labs()) == 3
    assert calm.imports() - before == 3

    def managed() -> bool:
        status, health = calm.until_led().get("/health")
        return status == 200 and health["lablets_managed"] == 3

    wait_until(managed, "the leader manages all three", PATIENCE)
    leader = calm.until_led()
    assert leader.get("/info")[1]["service"] == "lablet-controller"
    assert leader.get("/admin/stats")[0] == 401
    for lablet_id in made:
        calm.ask("POST", f"/api/lablets/{lablet_id}/terminate")
    for lablet_id in made:
        calm.until(lablet_id, "TERMINATED")
    assert calm.labs() == []
    assert calm.ask("GET", f"/api/workers/{worker_id}")["allocation"]["lablets"] == 0


def hold_making(platform: RealLablets, worker_id: str, number: int, status: str) -> tuple[str, Hold]:
    """A lablet whose n-th status write is held before it is processed; earlier ones pass."""
    held = platform.gate.holds.add(f"status {status}", after=False)
    lablet_id = platform.lablet(worker_id)
    for _ in range(number - 1):
        held.wait()
        following = platform.gate.holds.add(f"status {status}", after=False)
        held.let_go()
        held = following
    return lablet_id, held


@pytest.mark.parametrize(
    ("number", "status"),
    [(1, "INSTANTIATING"), (2, "INSTANTIATING"), (1, "RUNNING")],
    ids=["before-the-intent", "before-its-lab-is-known", "after-it-was-started"],
)
def test_killed_while_a_lab_is_made(calm: RealLablets, number: int, status: str) -> None:
    """lablets.md: survives a restart at any step without a second lab."""
    before = calm.imports()
    lablet_id, hold = hold_making(calm, calm.worker(), number, status)
    killed = calm.kill_at(hold)
    lablet = calm.until(lablet_id, "RUNNING")
    assert calm.imports() - before == 1
    assert [lab.id for lab in calm.labs()] == [lablet["lab_id"]]
    calm.start_controller(killed.name)
    calm.ask("POST", f"/api/lablets/{lablet_id}/terminate")
    calm.until(lablet_id, "TERMINATED")
    assert calm.labs() == []


@pytest.mark.parametrize(
    ("operation", "after"),
    [("status STOPPING", False), ("status STOPPING", True), ("release", False), ("release", True)],
    ids=["before-it-stops", "after-it-stops", "before-it-ends", "after-it-ends"],
)
def test_killed_while_a_lab_is_removed(calm: RealLablets, operation: str, after: bool) -> None:
    """lablets.md: stops, wipes and deletes at the end; survives a restart at any step."""
    worker_id = calm.worker()
    lablet_id = calm.lablet(worker_id)
    calm.until(lablet_id, "RUNNING")
    hold = calm.gate.holds.add(operation, after=after)
    calm.ask("POST", f"/api/lablets/{lablet_id}/terminate")
    calm.kill_at(hold)
    calm.until(lablet_id, "TERMINATED")
    wait_until(lambda: calm.labs() == [], "nothing is left", PATIENCE)
    assert calm.ask("GET", f"/api/workers/{worker_id}")["allocation"]["lablets"] == 0
