"""What is known of a CML server, in words of ours. Whatever a server may leave out is None, never a guess."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Credentials:
    """An account on a CML server."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SystemInformation:
    """What a server tells anybody."""

    version: str
    ready: bool


@dataclass(frozen=True, slots=True)
class ComputeHealth:
    """One machine of the server's cluster."""

    hostname: str
    is_controller: bool
    valid: bool | None
    admission_state: str


@dataclass(frozen=True, slots=True)
class SystemHealth:
    """The server's own verdict on itself."""

    valid: bool | None
    is_licensed: bool | None
    is_enterprise: bool | None
    controller_valid: bool | None
    computes: tuple[ComputeHealth, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes of memory or disk."""

    used: int
    total: int

    @property
    def percent(self) -> float:
        """How full it is."""
        return 100.0 * self.used / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class SystemStats:
    """What the server carries and what that costs it."""

    labs: int | None
    nodes: int | None
    running_nodes: int | None
    cpu_count: int | None
    cpu_percent: float | None
    memory: Usage | None
    disk: Usage | None


@dataclass(frozen=True, slots=True)
class LicenseFeature:
    """Something that is licensed by count."""

    id: str
    name: str
    in_use: int
    status: str


@dataclass(frozen=True, slots=True)
class LicenseState:
    """What the server says of its licence. The statuses are Cisco's words, and there may be more than are known."""

    registration: str
    authorization: str
    product: str
    is_enterprise: bool | None
    features: tuple[LicenseFeature, ...]
    failure: str
    expires: datetime | None
    reservation_mode: bool


class DeregistrationResult(StrEnum):
    """How giving back a licence ended."""

    DONE = "done"
    LOCAL_ONLY = "local_only"  # the server forgot it, Cisco's side was not reached and still counts it
    WAS_NOT_REGISTERED = "was_not_registered"


@dataclass(frozen=True, slots=True)
class CMLActivityEvent:
    """Something that happened on the server, at a time in UTC."""

    category: str
    at: datetime
    user_id: str | None = None
    lab_id: str | None = None


@dataclass(frozen=True, slots=True)
class CMLActivity:
    """The events since a moment. `total` counts the readable ones of all times, `skipped` those beyond reading.

    A total of zero means that the server keeps no telemetry, which says nothing about idleness.
    """

    events: tuple[CMLActivityEvent, ...]
    total: int
    skipped: int


@dataclass(frozen=True, slots=True)
class LabState:
    """A lab as a list shows it. `marker` is ours, from its title; None for a lab of somebody else."""

    id: str
    title: str
    state: str
    marker: str | None
    owner_id: str | None
    node_count: int | None
    created: datetime | None = None


@dataclass(frozen=True, slots=True)
class ImportedLab:
    """The outcome of an import."""

    id: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node of a lab."""

    id: str
    label: str
    definition: str
    state: str


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """What an interface of a node was seen to use."""

    node_id: str
    interface: str
    mac: str
    ipv4: tuple[str, ...]
    ipv6: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ElementStates:
    """The state of everything in a lab, by id."""

    nodes: Mapping[str, str]
    links: Mapping[str, str]
    interfaces: Mapping[str, str]
