"""Rules of the architecture: which handler serves a status, in which order, and which package may use which."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.simulated.faults import ExternalAction, ExternalChange
from lcm.cloud.types import InstanceState
from lcm.cml.types import LicensePhase, LicenseProgress
from lcm.controllers.worker.controller import WorkerReconciler
from lcm.controllers.worker.decide import HANDLERS
from lcm.controllers.worker.decide.shared.conditions import STATUS_BY_STATE
from lcm.controllers.worker.decision import CheckIdle, RegisterLicense, WriteLicenseStatus, WriteStatus
from lcm.controllers.worker.observe.observation import LicenseTaskState
from lcm.core.controller.leader_election import LeaderElectedHostedService
from lcm.core.controller.reconciliation import ReconciliationHostedService
from lcm.core.controller.resources import Outcome
from lcm.core.controller.watch import WatchTriggeredHostedService
from lcm.core.hosting import HostedService
from lcm.model.worker.status import LicenseStatus, WorkerStatus
from tests.unit.controllers.worker.decide.cases import calls, decided, observing, statuses, worker_in
from tests.unit.controllers.worker.discovery.region_scene import REGION, RegionScene, region_scene

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.controllers.worker.observe.observation import Observation

SOURCE = Path(__file__).parents[4] / "src" / "lcm"


@pytest.fixture
async def scene() -> AsyncIterator[RegionScene]:
    async with region_scene() as scene:
        yield scene


# worker-lifecycle.md


def test_each_status_has_the_handler_of_its_name() -> None:
    """worker-lifecycle.md#decisions: one handler for each status; TERMINATED has none and is skipped."""
    handled = {status: handler.__module__.rpartition(".")[2] for status, handler in HANDLERS.items()}
    assert handled == {status: status.value.lower() for status in WorkerStatus if status is not WorkerStatus.TERMINATED}
    assert decided(worker_in("TERMINATED"), observing("terminated")).outcome is Outcome.SKIP


@pytest.mark.parametrize("outcome", Outcome)
def test_each_of_the_four_results_is_decided_somewhere(outcome: Outcome) -> None:
    """worker-lifecycle.md#decisions: as it should be, on its way, failed for now, nothing to do."""
    shown = {
        Outcome.SUCCESS: decided(worker_in("STOPPED", "STOPPED"), observing("stopped")),
        Outcome.REQUEUE: decided(worker_in("PROVISIONING"), observing("pending")),
        Outcome.RETRY: decided(worker_in("PENDING"), observing("none")),
        Outcome.SKIP: decided(worker_in("TERMINATED"), observing("terminated")),
    }
    assert shown[outcome].outcome is outcome
    assert shown[outcome].reason


def test_the_states_of_ec2_have_their_statuses() -> None:
    """worker-lifecycle.md#running."""
    assert {state.value: status.value for state, status in STATUS_BY_STATE.items()} == {
        "pending": "PROVISIONING",
        "running": "RUNNING",
        "stopping": "STOPPING",
        "stopped": "STOPPED",
        "shutting-down": "TERMINATING",
        "terminated": "TERMINATED",
        "unknown": "UNKNOWN",
    }
    assert set(STATUS_BY_STATE) == set(InstanceState)


def busy(column: str = "running") -> Observation:
    """An observation with something to do in every step."""
    seen = observing(column)
    return replace(seen, cml=replace(seen.cml, license=LicenseProgress(LicensePhase.UNREGISTERED)))


def test_the_steps_of_a_running_worker_are_in_order() -> None:
    """After desired state and drift the license, then activity; scale-down follows from its result.

    Reference: worker-lifecycle.md#running.
    """
    decision = decided(worker_in("RUNNING", has_license_token=True), busy())
    kinds = [type(action) for action in decision.actions]
    assert kinds == [WriteLicenseStatus, RegisterLicense, CheckIdle]


@pytest.mark.parametrize("desired", ["STOPPED", "TERMINATED"])
def test_what_is_desired_ends_the_pass_before_anything_else(desired: str) -> None:
    """worker-lifecycle.md#running: nothing of the later steps happens."""
    decision = decided(worker_in("RUNNING", desired, has_license_token=True), busy())
    assert statuses(decision) == [{"STOPPED": "STOPPING", "TERMINATED": "TERMINATING"}[desired]]
    assert not {"register"} & set(calls(decision))
    assert CheckIdle() not in decision.actions


@pytest.mark.parametrize("column", ["pending", "stopping", "stopped", "shutting-down", "terminated", "unknown"])
def test_drift_ends_the_pass_before_license_and_activity(column: str) -> None:
    """worker-lifecycle.md#running: nothing of the later steps happens."""
    decision = decided(worker_in("RUNNING", has_license_token=True), busy(column))
    assert [type(action) for action in decision.actions] == [WriteStatus]


@pytest.mark.parametrize("enabled", [True, False])
def test_activity_is_checked_where_the_worker_allows_it(enabled: bool) -> None:
    """worker-lifecycle.md#running."""
    decision = decided(worker_in("RUNNING", idle_detection_enabled=enabled), observing("running"))
    assert (CheckIdle() in decision.actions) is enabled


def test_a_refused_registration_is_failed_with_the_reason() -> None:
    """worker-lifecycle.md#licenses: what CML rejects is not requested again."""
    worker = worker_in("RUNNING", has_license_token=True, license_status=LicenseStatus.REGISTERING)
    seen = replace(
        busy(), license_task=LicenseTaskState.REFUSED, license_error="HTTP 400: no token", license_requested_at=1.0
    )
    decision = decided(worker, seen)
    (write,) = [action for action in decision.actions if isinstance(action, WriteLicenseStatus)]
    assert (write.status, write.message, write.clear_pending) == (LicenseStatus.FAILED, "HTTP 400: no token", True)
    assert "register" not in calls(decision)


def test_the_last_error_is_shown_with_the_next_attempt() -> None:
    """worker-lifecycle.md#licenses: the reason is shown."""
    seen = replace(busy(), license_task=LicenseTaskState.FAILED, license_error="no response", license_requested_at=1.0)
    decision = decided(worker_in("RUNNING", has_license_token=True, license_status=LicenseStatus.REGISTERING), seen)
    assert "register" in calls(decision)
    assert "no response" in decision.reason


# worker-lifecycle.md


def imports(package: str) -> dict[str, set[str]]:
    """By module of a package: its imports of lcm, including those for type checkers."""
    found: dict[str, set[str]] = {}
    for path in (SOURCE / package).rglob("*.py"):
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
        found[str(path.relative_to(SOURCE))] = {name for name in names if name.startswith("lcm")}
    assert found
    return found


def users(package: str, *used: str) -> list[str]:
    return sorted(
        module
        for module, names in imports(package).items()
        if any(name == one or name.startswith(f"{one}.") for name in names for one in used)
    )


def test_decisions_are_pure() -> None:
    """worker-lifecycle.md#decisions: decisions need neither the control plane, nor the cloud, nor CML."""
    assert users("controllers/worker/decide", "lcm.client", "lcm.cloud.spi", "lcm.cml.spi", "lcm.core.clock") == []
    for path in (SOURCE / "controllers" / "worker" / "decide").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        assert not any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in nodes), path.name


def test_the_worker_controller_uses_nothing_of_labs() -> None:
    """The system API alone; labs are the lablet controller's.

    Reference: controllers.md, worker-lifecycle.md#running, discovery.md.
    """
    assert users("controllers/worker", "lcm.cml.client.labs") == []
    assert users("wiring", "lcm.cml.client.labs") == []


def test_records_are_reached_through_the_control_plane_alone() -> None:
    """discovery.md: a controller has no commands and no store of its own, it talks REST."""
    assert users("controllers/worker", "lcm.control_plane") == []


def test_the_control_plane_calls_neither_cloud_nor_cml() -> None:
    """worker-lifecycle.md#licenses: only the worker controller calls license operations."""
    assert users("control_plane", "lcm.cloud", "lcm.cml") == []


# controllers.md


def test_the_layers_of_a_controller_stand_on_one_another() -> None:
    """controllers.md: hosted, reconciling, elected, watching; the worker reconciler is the last."""
    layers = [
        WatchTriggeredHostedService,
        LeaderElectedHostedService,
        ReconciliationHostedService,
        HostedService,
    ]
    assert [layer for layer in WorkerReconciler.__mro__ if layer in layers] == layers


# worker-lifecycle.md#startup-sweep


async def test_discovery_leaves_the_status_of_a_known_worker_to_its_passes(scene: RegionScene) -> None:
    """discovery.md#import: a scan that finds an instance in another state wakes its worker and writes nothing."""
    (worker,) = await scene.fleet_of(1)
    scene.world.inject_fault(REGION, ExternalChange(ExternalAction.STOP, worker.instance_id))
    await scene.discovery().scan()
    assert scene.woken == [worker.id]
    after = await scene.now(worker)
    assert (after.status, after.version) == (WorkerStatus.RUNNING, worker.version)
