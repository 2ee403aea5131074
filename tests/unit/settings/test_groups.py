"""Names and defaults that others rely on."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from lcm import settings
from lcm.http.listener import SHUTDOWN_SECONDS
from lcm.model.fleet.settings import DriftPolicy, IdleAction, LicenseOnStop, MaintenancePolicy
from lcm.settings import Settings, load
from tests.unit.settings.test_error_messages import FIELDS, GROUPS

DEFAULTS = {
    "tls_cert_file": None,
    "tls_key_file": None,
    "shutdown_seconds": SHUTDOWN_SECONDS,
    "coordination": "etcd",
    "etcd_endpoints": None,
    "etcd_host": "localhost",
    "etcd_port": 2379,
    "lcm_ca_file": None,
    "etcd_ca_file": None,
    "etcd_cert_file": None,
    "etcd_key_file": None,
    "etcd_user": None,
    "etcd_password": None,
    "etcd_namespace": "",
    "leader_lease_ttl": 15,
    "election_key_prefix": "/lcm",
    "retry_interval": 5.0,
    "worker_controller_instance_id": None,
    "reconcile_interval": 30.0,
    "reconcile_polling_enabled": True,
    "startup_reconcile_enabled": True,
    "initial_delay": 5.0,
    "max_concurrent_reconciles": 10,
    "reconcile_timeout": 60.0,
    "backoff_base": 1.0,
    "max_backoff": 60.0,
    "backoff_multiplier": 2.0,
    "metric_prefix": "reconciliation",
    "watch_enabled": True,
    "watch_prefix": "",
    "watch_reconnect_delay": 1.0,
    "watch_max_reconnect_attempts": 10,
    "watch_debounce_seconds": 0.5,
    "bind_host": "127.0.0.1",
    "control_plane_port": 8080,
    "resource_scheduler_port": 8081,
    "lablet_controller_port": 8082,
    "worker_controller_port": 8083,
    "log_level": "info",
    "log_format": "auto",
    "store_url": None,
    "lcm_secret_key": None,
    "lcm_secret_key_file": None,
    "lcm_installation_id": None,
    "metrics_retention_hours": 48.0,
    "journal_retention_days": 90.0,
    "lablet_retention_days": 30.0,
    "event_retention_hours": 24.0,
    "lcm_bootstrap_token": None,
    "lcm_controller_token": None,
    "oidc_issuer": None,
    "oidc_client_id": None,
    "oidc_client_secret": None,
    "lcm_public_url": None,
    "oidc_scopes": ("profile", "email", "offline_access"),
    "oidc_audience": None,
    "oidc_jwks_url": None,
    "oidc_role_claim": "role",
    "oidc_role_map": "",
    "worker_idle_timeout_minutes": 60.0,
    "worker_auto_pause_enabled": True,
    "worker_auto_pause_snooze_minutes": 60.0,
    "idle_detection_interval": 300.0,
    "license_on_stop": LicenseOnStop.KEEP,
    "idle_action": IdleAction.PAUSE,
    "worker_discovery_enabled": True,
    "discovery_interval": 300.0,
    "worker_discovery_tag_filter": None,
    "worker_discovery_ami_filter": "",
    "terminate_leaked_instances": False,
    "breaker_enabled": True,
    "drift_policy": DriftPolicy.RESTORE,
    "scale_down_enabled": False,
    "min_workers": 0,
    "scale_down_cooldown_seconds": 600.0,
    "maintenance_policy": MaintenancePolicy.REPORT,
    "impaired_after": 900.0,
    "max_workers_per_region": 10,
    "license_pool_size": 0,
    "worker_templates_config_path": None,
    "scale_up_license_token": None,
    "storage_price_per_gb_month_usd": 0.08,
    "notify_allowed_hosts": (),
    "notify_digest_seconds": 60.0,
    "notify_docs_url": None,
    "smtp_host": None,
    "smtp_port": 587,
    "smtp_security": "starttls",
    "smtp_from": None,
    "smtp_username": None,
    "smtp_password": None,
    "lablet_max_lifetime_hours": 168.0,
    "lablet_port_range": "20000-29999",
    "aws_default_region": "us-east-1",
    "aws_region_configs": None,
    "cml_dedicated_account": False,
    "control_plane_api_url": "http://localhost:8080",
    "metrics_collect_interval": 60.0,
    "provisioning_timeout": 900.0,
    "starting_timeout": 900.0,
    "stuck_after": 900.0,
    "cml_ready_timeout": 1800.0,
    "capacity_wait_limit": 1800.0,
    "telemetry_missing_after": 21_600.0,
    "drain_timeout": 600.0,
    "license_release_timeout": 120.0,
    "lablet_lead_time": 900.0,
    "scale_up_cooldown_seconds": 30.0,
    "lablet_start_timeout": 1800.0,
    "lablet_stop_timeout": 900.0,
    "lablet_worker_timeout": 900.0,
    "lablet_sweep_interval": 600.0,
    "cml_default_username": "admin",
    "cml_default_password": SecretStr(""),
    "cml_tls": "pin",
    "cml_ca_file": None,
    "cml_use_private_address": False,
    "cml_proxy_url": None,
    "cml_max_idle_connections": 3000,
    "cml_poller_processes": 0,
    "cml_reader_url": None,
    "cloud_provider": "aws",
    "aws_endpoint_url": None,
    "ami_name_pattern": "cml-*",
    "ami_owners": ("self",),
    "lcm_data_dir": Path("~/.local/share/lcm").expanduser(),
}


@pytest.mark.parametrize(("group", "name"), FIELDS, ids=[name for _, name in FIELDS])
def test_default(group: type[Settings], name: str) -> None:
    loaded = load(group, env={})
    value = getattr(loaded.settings, name)
    assert value == DEFAULTS[name]
    assert type(value) is type(DEFAULTS[name])
    assert loaded.source_of(name) == "default"


def test_the_table_has_exactly_the_settings_there_are() -> None:
    assert sorted(name for _, name in FIELDS) == sorted(DEFAULTS)


@pytest.mark.parametrize("group", GROUPS)
def test_each_setting_is_described_in_one_sentence(group: type[Settings]) -> None:
    for doc in settings.describe(group):
        assert doc.description.endswith(".")
        assert doc.description[0].isupper()
        assert doc.variable == doc.name.upper()
        assert doc.type_name
        assert doc.allowed


def test_describe_lists_groups_as_written() -> None:
    class Service(settings.LogSettings, settings.ElectionSettings):
        own: int = 1

    names = [doc.name for doc in settings.describe(Service)]
    assert names[:3] == ["own", "log_level", "log_format"]
    assert names[3] == "leader_lease_ttl"


def test_describe_masks_the_default_of_a_secret() -> None:
    class Service(Settings):
        api_token: SecretStr = SecretStr("hunter2")

    (doc,) = settings.describe(Service)
    assert doc.secret
    assert doc.default == "***"


@pytest.mark.parametrize(
    ("env", "endpoints"),
    [
        ({}, ("localhost:2379",)),
        ({"ETCD_HOST": "etcd", "ETCD_PORT": "1"}, ("etcd:1",)),
        ({"ETCD_HOST": "::1"}, ("[::1]:2379",)),
        ({"ETCD_ENDPOINTS": "a:1, b:2 ,[::1]:3,a:1", "ETCD_HOST": "other"}, ("a:1", "b:2", "[::1]:3")),
    ],
)
def test_endpoints(env: dict[str, str], endpoints: tuple[str, ...]) -> None:
    assert load(settings.CoordinationSettings, env=env).settings.endpoints == endpoints


def test_a_direct_instance_ignores_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG_LEVEL", "debug")
    assert settings.LogSettings().log_level == "info"
