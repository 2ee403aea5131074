"""Instances, images and related types, independent of any provider's API."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime  # noqa: TC003 - pydantic reads the annotations
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKER_TAG = "lcm:worker_id"
ATTEMPT_TAG = "lcm:attempt"
MANAGED_BY_TAG = "lcm:managed_by"
INSTALLATION_TAG = "lcm:installation"
MANAGED_BY = "lcm"


class InstanceState(Enum):
    """The state of an instance; an unrecognized state is UNKNOWN."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"
    UNKNOWN = "unknown"

    @property
    def in_transition(self) -> bool:
        """Whether the state will change without further calls."""
        return self in (InstanceState.PENDING, InstanceState.STOPPING, InstanceState.SHUTTING_DOWN)

    @property
    def live(self) -> bool:
        """Whether the instance exists and is not being terminated; an unknown state counts as live."""
        return self not in (InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED)


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance as described by the provider."""

    id: str
    state: InstanceState
    instance_type: str
    image_id: str
    launched_at: datetime
    public_ip: str | None = None
    private_ip: str | None = None
    subnet_id: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    state_reason: str = ""

    @property
    def worker_id(self) -> str | None:
        """The worker for which it was launched, by its tag."""
        return self.tags.get(WORKER_TAG)


@dataclass(frozen=True, slots=True)
class InstanceTypeInfo:
    """What an instance type offers."""

    name: str
    cpu_cores: int
    memory_gb: float
    nested_virtualization: bool = False


@dataclass(frozen=True, slots=True)
class InstanceSelection:
    """Which instances a sweep lists: those with one of the tag keys, and those of one of the images."""

    tag_keys: tuple[str, ...] = (WORKER_TAG,)
    image_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sweep:
    """The instances that a call found in a region. Only a complete sweep says anything about missing instances.

    `began_at` is the boot-time clock when the first request was sent: later changes may be missing in the sweep.
    """

    region: str
    instances: Mapping[str, Instance]
    complete: bool
    began_at: float
    account_id: str
    error: str = ""
    calls: int = 1


@dataclass(frozen=True, slots=True)
class Image:
    """A machine image."""

    id: str
    name: str
    owner_id: str
    created_at: datetime


class HealthKind(Enum):
    """The kind of a health notice."""

    INSTANCE_IMPAIRED = "instance-impaired"
    SYSTEM_IMPAIRED = "system-impaired"
    MAINTENANCE = "maintenance"
    CHECKS_PENDING = "checks-pending"  # a status check has no result yet, as after each start


@dataclass(frozen=True, slots=True)
class HealthNotice:
    """A status check that does not pass, or scheduled maintenance, for which `code` is EC2's word."""

    instance_id: str
    kind: HealthKind
    detail: str
    not_before: datetime | None = None
    code: str = ""


@dataclass(frozen=True, slots=True)
class RegionLaunchSettings:
    """Launch settings of a region, which complement those of the template."""

    region: str
    subnet_ids: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()
    key_name: str | None = None
    default_tags: Mapping[str, str] = field(default_factory=dict)
    instance_profile: str | None = None


@dataclass(frozen=True, slots=True)
class LaunchParameters:
    """All parameters of a launch, resolved once per attempt and stored before the call.

    A replay uses exactly these: the provider rejects a client token with changed parameters.
    """

    region: str
    client_token: str
    image_id: str
    instance_type: str
    subnet_id: str | None
    security_group_ids: tuple[str, ...]
    key_name: str | None
    tags: Mapping[str, str]
    root_volume_gb: int | None = None
    instance_profile: str | None = None
    metadata_hop_limit: int | None = None  # None: recorded before IMDSv2 was required; a replay must not add it
    nested_virtualization: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the stored form; the same parameters always give the same JSON.

        What attempts stored by earlier versions do not have is stored only if it is used.
        """
        stored: dict[str, Any] = {
            "region": self.region,
            "client_token": self.client_token,
            "image_id": self.image_id,
            "instance_type": self.instance_type,
            "subnet_id": self.subnet_id,
            "security_group_ids": list(self.security_group_ids),
            "key_name": self.key_name,
            "tags": dict(sorted(self.tags.items())),
            "root_volume_gb": self.root_volume_gb,
            "instance_profile": self.instance_profile,
        }
        if self.metadata_hop_limit is not None:
            stored["metadata_hop_limit"] = self.metadata_hop_limit
        if self.nested_virtualization:
            stored["nested_virtualization"] = True
        return stored

    @classmethod
    def are_known(cls, stored: Mapping[str, Any]) -> bool:
        """Whether this version knows all stored parameters; a newer one may have stored others."""
        return stored.keys() <= {each.name for each in fields(cls)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> LaunchParameters:
        """Restore the parameters from `to_json`, if they `are_known`."""
        groups = tuple(stored["security_group_ids"])
        return cls(**{**stored, "security_group_ids": groups, "tags": dict(stored["tags"])})


METADATA_HOP_LIMIT: Final = 1
"""Network hops that a response of the instance metadata service survives.

CML asks from the host itself. Nodes of a lab are a hop farther away: they must not get the instance's credentials.
"""


def launch_token(worker_id: str, attempt: int) -> str:
    """Return the client token of an attempt. It depends on worker and attempt alone, so that a replay uses the same."""
    return f"lcm-{worker_id}-{attempt}"


@dataclass(frozen=True, slots=True)
class InstanceMetrics:
    """The latest metrics of an instance; unavailable values are None. Bytes are per second."""

    instance_id: str
    at: datetime
    cpu_utilization: float | None = None
    memory_utilization: float | None = None
    disk_utilization: float | None = None
    network_in: float | None = None
    network_out: float | None = None
    disk_read: float | None = None
    disk_write: float | None = None
