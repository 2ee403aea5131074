"""The contract tables, row by row: settings with names and defaults, keys, ports and prefixes."""

from __future__ import annotations

from typing import Any

import pytest

from lcm import settings
from lcm.coordination.memory.client import MemoryCoordination
from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
from lcm.core.controller.resources import ResourceState, ResourceStatus
from lcm.settings import Settings, load
from lcm.wiring.controllers import ControllerRuntime, StandaloneControllerSettings

GROUPS = [group for group in vars(settings).values() if isinstance(group, type) and issubclass(group, Settings)]


def read(variable: str, **env: str) -> Any:
    """The value of a setting, by its variable name."""
    (group,) = [group for group in GROUPS if variable.lower() in group.model_fields]
    value = getattr(load(group, env=env).settings, variable.lower())
    return value.get_secret_value() if hasattr(value, "get_secret_value") else value


LIFECYCLE: list[tuple[str, Any, str, Any]] = [
    ("RECONCILE_INTERVAL", 30, "7", 7),
    ("RECONCILE_POLLING_ENABLED", True, "false", False),
    ("IDLE_DETECTION_INTERVAL", 300, "60", 60),
    ("CML_DEFAULT_USERNAME", "admin", "lcm", "lcm"),
    ("CML_DEFAULT_PASSWORD", "", "secret", "secret"),
    ("SCALE_DOWN_ENABLED", False, "true", True),
    ("MIN_WORKERS", 0, "3", 3),
    ("SCALE_DOWN_COOLDOWN_SECONDS", 600, "5", 5),
]


@pytest.mark.parametrize(("variable", "default", "text", "value"), LIFECYCLE)
def test_settings_of_the_lifecycle(variable: str, default: Any, text: str, value: Any) -> None:
    """settings.md: each row's variable and default."""
    assert read(variable) == default
    assert read(variable, **{variable: text}) == value


ARCHITECTURE: list[tuple[str, Any, str, Any]] = [
    ("ETCD_HOST", "localhost", "etcd", "etcd"),
    ("ETCD_PORT", 2379, "2380", 2380),
    ("CONTROL_PLANE_API_URL", "http://localhost:8080", "http://plane:9", "http://plane:9"),
    ("WORKER_CONTROLLER_INSTANCE_ID", None, "me", "me"),
    ("LEADER_LEASE_TTL", 15, "5", 5),
    ("RECONCILE_INTERVAL", 30, "7", 7),
    ("METRICS_COLLECT_INTERVAL", 60, "9", 9),
]


@pytest.mark.parametrize(("variable", "default", "text", "value"), ARCHITECTURE)
def test_settings_of_the_architecture(variable: str, default: Any, text: str, value: Any) -> None:
    """settings.md: each row's variable and default."""
    assert read(variable) == default
    assert read(variable, **{variable: text}) == value


def test_discovery_is_switched_off_under_either_name() -> None:
    """settings.md, discovery.md#import: one switch."""
    assert read("WORKER_DISCOVERY_ENABLED") is True
    assert read("WORKER_DISCOVERY_ENABLED", AUTO_IMPORT_ENABLED="false") is False
    assert read("WORKER_DISCOVERY_ENABLED", WORKER_DISCOVERY_ENABLED="false") is False


def test_an_instance_id_is_generated_by_default() -> None:
    """settings.md: the instance id is generated where none is given."""
    made = {LeaderElectionConfig().instance_id for _ in range(5)}
    assert len(made) == 5
    assert all(made)


DISCOVERY: list[tuple[str, Any, str, Any]] = [
    ("DISCOVERY_INTERVAL", 300, "60", 60),
    ("WORKER_DISCOVERY_TAG_FILTER", None, "team=labs", "team=labs"),
    ("WORKER_DISCOVERY_AMI_FILTER", "", "cml-*", "cml-*"),
]


@pytest.mark.parametrize(("variable", "default", "text", "value"), DISCOVERY)
def test_settings_of_discovery(variable: str, default: Any, text: str, value: Any) -> None:
    """discovery.md#import: each row's variable and default."""
    assert read(variable) == default
    assert read(variable, **{variable: text}) == value


CONTROLLERS = [
    ("worker-controller", "WORKER_CONTROLLER_PORT", 8083),
    ("resource-scheduler", "RESOURCE_SCHEDULER_PORT", 8081),
    ("lablet-controller", "LABLET_CONTROLLER_PORT", 8082),
]


@pytest.mark.parametrize(("name", "variable", "port"), CONTROLLERS)
def test_each_controller_has_an_election_and_a_port_of_its_own(name: str, variable: str, port: int) -> None:
    """controllers.md#leader-election."""
    assert (
        ControllerRuntime(MemoryCoordination(), StandaloneControllerSettings()).election(name).election_key
        == f"/lcm/{name}/leader"
    )
    assert read(variable) == port


def test_the_configuration_classes_have_the_fields_of_the_tables() -> None:
    """settings.md: three classes, each field with its default; §5: those of the watch."""
    reconciliation, election, watch = ReconciliationConfig(), LeaderElectionConfig(), WatchConfig()
    actual = {name: getattr(reconciliation, name) for name in ReconciliationConfig.__dataclass_fields__}
    expected = {
        "interval_seconds": 30.0,
        "initial_delay": 5.0,
        "polling_enabled": True,
        "max_concurrent": 10,
        "backoff_base": 1.0,
        "max_backoff": 60.0,
        "backoff_multiplier": 2.0,
        "metric_prefix": "reconciliation",
    }
    assert actual.items() >= expected.items()
    assert (election.etcd_endpoints, election.election_key_prefix) == (["localhost:2379"], "/elections")
    assert (election.lease_ttl, election.retry_interval, election.service_name) == (15, 5.0, "service")
    assert (watch.enabled, watch.prefix, watch.reconnect_delay) == (True, "", 1.0)
    assert (watch.max_reconnect_attempts, watch.debounce_seconds) == (10, 0.5)


def test_what_is_remembered_of_a_resource() -> None:
    """controllers.md#work-queue."""
    state = ResourceState("w-1")
    assert (state.resource_id, state.status, state.retry_count) == ("w-1", ResourceStatus.PENDING, 0)
    assert (state.next_retry_at, state.last_reconciled_at) == (None, None)
    assert [status.value for status in ResourceStatus] == ["PENDING", "IN_PROGRESS", "SUCCESS", "FAILED"]
