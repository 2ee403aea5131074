"""Defaults of processes, and settings that reach the controller framework."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from lcm.coordination.memory.client import MemoryCoordination
from lcm.core.controller.config import ReconciliationConfig, WatchConfig
from lcm.wiring.connections import connect_coordination
from lcm.wiring.controllers import ControllerRuntime, ControllerRuntimeSettings, StandaloneControllerSettings
from lcm.wiring.up import UpSettings


def test_coordination_is_etcd_unless_everything_runs_in_one_process() -> None:
    assert StandaloneControllerSettings().coordination == "etcd"
    assert UpSettings().coordination == "memory"
    assert isinstance(connect_coordination(UpSettings()), MemoryCoordination)


def test_a_process_of_its_own_refuses_memory() -> None:
    with pytest.raises(ValidationError, match="must be etcd here"):
        StandaloneControllerSettings(coordination="memory")


def test_framework_defaults_match_the_settings() -> None:
    runtime = ControllerRuntime(MemoryCoordination(), UpSettings())
    assert runtime.reconciliation == ReconciliationConfig()
    assert runtime.watch("/workers/") == WatchConfig(prefix="/workers/")
    election = runtime.election("worker-controller")
    assert election.election_key == "/lcm/worker-controller/leader"
    assert (election.lease_ttl, election.retry_interval) == (15, 5.0)
    assert election.instance_id.startswith("worker-controller-")
    assert election.instance_id != runtime.election("worker-controller").instance_id


def test_every_framework_setting_reaches_it() -> None:
    settings = ControllerRuntimeSettings(
        reconcile_interval=7,
        initial_delay=1,
        reconcile_polling_enabled=False,
        max_concurrent_reconciles=3,
        backoff_base=2,
        max_backoff=9,
        backoff_multiplier=3,
        metric_prefix="x",
        reconcile_timeout=11,
        startup_reconcile_enabled=False,
        leader_lease_ttl=5,
        election_key_prefix="/other",
        retry_interval=0.5,
        worker_controller_instance_id="me",
        watch_enabled=False,
        watch_prefix="/mine/",
        watch_reconnect_delay=4,
        watch_max_reconnect_attempts=2,
        watch_debounce_seconds=0,
        lcm_data_dir=Path("/tmp/data"),
    )
    runtime = ControllerRuntime(MemoryCoordination(), settings)
    config = runtime.reconciliation
    assert (config.interval_seconds, config.initial_delay, config.polling_enabled, config.max_concurrent) == (
        7,
        1,
        False,
        3,
    )
    assert (config.backoff_base, config.max_backoff, config.backoff_multiplier) == (2, 9, 3)
    assert (config.metric_prefix, config.reconcile_timeout, config.startup_reconcile_enabled) == ("x", 11, False)
    election = runtime.election("toy")
    assert (election.election_key, election.lease_ttl, election.retry_interval) == ("/other/toy/leader", 5, 0.5)
    assert election.instance_id == "me"
    assert runtime.watch("/ignored/") == WatchConfig(False, "/mine/", 4, 2, 0)
    assert runtime.data_dir == Path("/tmp/data")
