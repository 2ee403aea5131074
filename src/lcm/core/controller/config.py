"""How a controller polls, campaigns and watches. The settings of a process take their defaults from here."""

from __future__ import annotations

from dataclasses import dataclass, field

from lcm.core import clock
from lcm.core.backoff import Backoff


@dataclass(frozen=True, slots=True)
class ReconciliationConfig:
    """How a controller polls, retries and names its metrics."""

    interval_seconds: float = 30.0
    initial_delay: float = 5.0
    polling_enabled: bool = True
    max_concurrent: int = 10
    backoff_base: float = 1.0
    max_backoff: float = 60.0
    backoff_multiplier: float = 2.0
    metric_prefix: str = "reconciliation"
    reconcile_timeout: float = 60.0
    startup_reconcile_enabled: bool = True
    startup_sweep_delay: float = 2.0
    startup_sweep_timeout: float = 300.0

    @property
    def backoff(self) -> Backoff:
        """The delays between retries."""
        return Backoff(self.backoff_base, self.backoff_multiplier, self.max_backoff)


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    """How to campaign.

    Nothing here connects to etcd: a service uses the `Coordination` that it is given. `etcd_endpoints` belongs to the
    contract of this class and is meant for the code that makes that connection.
    """

    etcd_endpoints: list[str] = field(default_factory=lambda: ["localhost:2379"])
    election_key_prefix: str = "/elections"
    lease_ttl: int = 15
    retry_interval: float = 5.0
    instance_id: str = field(default_factory=lambda: clock.new_id("instance"))
    service_name: str = "service"

    @property
    def election_key(self) -> str:
        """The key whose holder is the leader."""
        return f"{self.election_key_prefix}/{self.service_name}/leader"


@dataclass(frozen=True, slots=True)
class WatchConfig:
    """What to watch and how to reconnect when the stream is lost."""

    enabled: bool = True
    prefix: str = ""
    reconnect_delay: float = 1.0
    max_reconnect_attempts: int = 10
    debounce_seconds: float = 0.5
