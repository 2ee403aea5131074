"""Settings that several services share, in groups that a service combines by inheritance.

A description is one sentence in plain English; the documentation is generated from it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from lcm.core.controller.config import LeaderElectionConfig, ReconciliationConfig, WatchConfig
from lcm.settings.base import Settings, SettingsConflict
from lcm.settings.describe import Allowed, env_variable
from lcm.settings.types import (
    CaFile,
    Endpoint,
    Folder,
    Host,
    KeyPrefix,
    KeyPrefixOrEmpty,
    MetricName,
    NonBlankText,
    Port,
    ReadableFile,
    Seconds,
    SecondsOrZero,
)

_ELECTION, _RECONCILIATION, _WATCH = (
    LeaderElectionConfig(instance_id=""),
    ReconciliationConfig(),
    WatchConfig(),
)  # for their defaults


class PrivateCaSettings(Settings):
    """A private certificate authority."""

    lcm_ca_file: CaFile | None = Field(
        default=None,
        description="The CA certificates, in PEM form, that verify the control plane, etcd unless ETCD_CA_FILE is set, "
        "and MongoDB unless STORE_URL has tlsCAFile; if unset, the CAs of the host. Client commands read it too.",
    )


class CoordinationSettings(Settings):
    """Coordination: leader election and change notifications."""

    coordination: Literal["etcd", "memory"] = Field(
        default="etcd",
        description="What coordinates the controllers: an etcd cluster, or the memory of this one process.",
    )
    etcd_endpoints: Annotated[
        tuple[Endpoint, ...] | None, Allowed("a comma-separated list of host:port, with https:// before each for TLS")
    ] = Field(
        default=None,
        min_length=1,
        description="All members of the etcd cluster; if set, ETCD_HOST and ETCD_PORT are ignored.",
    )
    etcd_host: Host = Field(default="localhost", description="The host of a single etcd server.")
    etcd_port: Port = Field(default=2379, description="The port of a single etcd server.")
    etcd_ca_file: ReadableFile | None = Field(
        default=None,
        description="The CA certificates, in PEM form, that verify etcd's certificate; if unset, those of LCM_CA_FILE.",
    )
    etcd_cert_file: ReadableFile | None = Field(
        default=None, description="The client certificate for etcd, in PEM form."
    )
    etcd_key_file: ReadableFile | None = Field(
        default=None, description="The private key, in PEM form, of the client certificate."
    )
    etcd_user: NonBlankText | None = Field(default=None, description="The user to sign in to etcd as.")
    etcd_password: SecretStr | None = Field(default=None, description="The password of the etcd user.")
    etcd_namespace: KeyPrefixOrEmpty = Field(
        default="", description="A prefix of all keys in etcd, for a shared cluster."
    )

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The etcd members to talk to, each once."""
        if self.etcd_endpoints:
            return tuple(dict.fromkeys(self.etcd_endpoints))
        host = f"[{self.etcd_host}]" if ":" in self.etcd_host else self.etcd_host
        return (f"{host}:{self.etcd_port}",)

    def conflicts(self) -> Iterator[SettingsConflict]:
        yield from super().conflicts()
        for one, other in (("etcd_cert_file", "etcd_key_file"), ("etcd_user", "etcd_password")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                yield SettingsConflict(one, other, rule="must be given together, or neither")


class ElectionSettings(Settings):
    """Leader election."""

    leader_lease_ttl: int = Field(
        default=_ELECTION.lease_ttl,
        ge=2,
        le=3600,
        description="Seconds after which a leader that no longer renews its lease loses the leadership.",
    )
    election_key_prefix: KeyPrefix = Field(default="/lcm", description="The prefix of leader election keys.")
    retry_interval: Seconds = Field(
        default=_ELECTION.retry_interval,
        description="Seconds between attempts to become leader, besides those when a leader resigns.",
    )


class InstanceIdSettings(Settings):
    """The identity of this process among its replicas."""

    worker_controller_instance_id: NonBlankText | None = Field(
        default=None,
        description="The name of this process among several of its kind, whichever controller it is;"
        " if unset, one is generated at each start.",
    )


class ReconcileSettings(Settings):
    """Reconciliation: interval, concurrency and backoff."""

    reconcile_interval: Seconds = Field(
        default=_RECONCILIATION.interval_seconds, description="Seconds between two polls of all resources."
    )
    reconcile_polling_enabled: bool = Field(
        default=_RECONCILIATION.polling_enabled, description="Whether all resources are polled regularly."
    )
    startup_reconcile_enabled: bool = Field(
        default=_RECONCILIATION.startup_reconcile_enabled,
        description="Whether all resources are reconciled once when leadership begins, even without polling.",
    )
    initial_delay: SecondsOrZero = Field(
        default=_RECONCILIATION.initial_delay,
        description="Seconds from the election to the first poll, if STARTUP_RECONCILE_ENABLED is false;"
        " otherwise the startup sweep comes first, after 2 seconds.",
    )
    max_concurrent_reconciles: int = Field(
        default=_RECONCILIATION.max_concurrent,
        ge=1,
        le=1000,
        description="How many resources are reconciled at the same time; in the worker controller, in each region.",
    )
    reconcile_timeout: Seconds = Field(
        default=_RECONCILIATION.reconcile_timeout, description="Seconds after which one reconcile times out."
    )
    backoff_base: Seconds = Field(
        default=_RECONCILIATION.backoff_base, description="Seconds to wait after the first failure of a resource."
    )
    max_backoff: Seconds = Field(
        default=_RECONCILIATION.max_backoff,
        description="The longest wait, in seconds, however often a resource failed.",
    )
    backoff_multiplier: float = Field(
        default=_RECONCILIATION.backoff_multiplier,
        ge=1,
        description="The factor by which the wait grows with each further failure.",
    )
    metric_prefix: MetricName = Field(
        default=_RECONCILIATION.metric_prefix, description="The prefix of the names of reconcile metrics."
    )

    def conflicts(self) -> Iterator[SettingsConflict]:
        yield from super().conflicts()
        if self.max_backoff < self.backoff_base:
            rule = f"{env_variable('max_backoff')} must be at least {env_variable('backoff_base')}"
            yield SettingsConflict("max_backoff", "backoff_base", rule=rule)


class WatchSettings(Settings):
    """Watching for changes between polls."""

    watch_enabled: bool = Field(default=_WATCH.enabled, description="Whether changes are watched as they happen.")
    watch_prefix: str = Field(
        default="", description="The prefix of the keys to watch; if empty, the controller's own."
    )
    watch_reconnect_delay: Seconds = Field(
        default=_WATCH.reconnect_delay,
        description="Seconds before the first reconnect of a broken watch; each further wait is longer by as much.",
    )
    watch_max_reconnect_attempts: int = Field(
        default=_WATCH.max_reconnect_attempts,
        ge=1,
        description="Failed reconnects after which a watch is reported as broken and its wait stops growing.",
    )
    watch_debounce_seconds: SecondsOrZero = Field(
        default=_WATCH.debounce_seconds,
        description="Seconds for which further changes are combined with the first one.",
    )


class HttpSettings(Settings):
    """Listening."""

    bind_host: Host = Field(default="127.0.0.1", description="The address on which services listen.")
    control_plane_port: Port = Field(default=8080, description="The port of the control plane.")
    resource_scheduler_port: Port = Field(default=8081, description="The port of the resource scheduler.")
    lablet_controller_port: Port = Field(default=8082, description="The port of the lablet controller.")
    worker_controller_port: Port = Field(default=8083, description="The port of the worker controller.")
    tls_cert_file: ReadableFile | None = Field(
        default=None,
        description="The certificate of the server with its chain, as PEM; if set, services listen with TLS. A renewed "
        "file is used within seconds, without a restart.",
    )
    tls_key_file: ReadableFile | None = Field(default=None, description="The private key of that certificate, as PEM.")
    shutdown_seconds: SecondsOrZero = Field(
        default=5.0,  # as lcm.http.listener has it, whose import would make every command start later
        description="Seconds that running requests may take to finish after SIGTERM, when no new ones are accepted. "
        "Set the kill timeout at least 10 s higher: `TimeoutStopSec` of systemd, "
        "`stop_grace_period` of Compose, `terminationGracePeriodSeconds` of Kubernetes.",
    )

    def conflicts(self) -> Iterator[SettingsConflict]:
        """A certificate and its key are set together."""
        yield from super().conflicts()
        if (self.tls_cert_file is None) is not (self.tls_key_file is None):
            yield SettingsConflict("tls_cert_file", "tls_key_file", rule="must be given together, or neither")


class ControllerTokenSettings(Settings):
    """The controllers' token."""

    lcm_controller_token: SecretStr | None = Field(default=None, description="The token of the controllers.")


class RegionSettings(Settings):
    """Regions for workers."""

    aws_default_region: NonBlankText = Field(
        default="us-east-1",
        description="The default region of workers; the only region without AWS_REGION_CONFIGS.",
    )
    aws_region_configs: str | None = Field(default=None, description="The regions: the path of a YAML file, or JSON.")


class LogSettings(Settings):
    """Logging."""

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least severe level that is logged."
    )
    log_format: Literal["json", "console", "auto"] = Field(
        default="auto", description="The format of log lines; auto is console on a terminal and json elsewhere."
    )


class DataSettings(Settings):
    """The data folder."""

    lcm_data_dir: Folder = Field(default=Path("~/.local/share/lcm"), description="The folder for data files.")
