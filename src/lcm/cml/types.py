"""What is known about a CML server, as our own types. Values that a server may omit are None, never guessed."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Credentials:
    """An account on a CML server."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SystemInformation:
    """What a server reports without authentication.

    `certificate` is the SHA-256 fingerprint of the certificate that it presented, where certificates are pinned.
    """

    version: str
    ready: bool
    certificate: str | None = None


@dataclass(frozen=True, slots=True)
class ComputeHealth:
    """One compute host of the server's cluster."""

    hostname: str
    is_controller: bool
    valid: bool | None
    admission_state: str
    kvm_enabled: bool | None = None  # whether it can run virtual machines


@dataclass(frozen=True, slots=True)
class SystemHealth:
    """The health that the server reports about itself."""

    valid: bool | None
    is_licensed: bool | None
    is_enterprise: bool | None
    controller_valid: bool | None
    computes: tuple[ComputeHealth, ...]

    @property
    def kvm_enabled(self) -> bool | None:
        """Whether any of its computes can run virtual machines; None if none of them says so."""
        reported = [each.kvm_enabled for each in self.computes if each.kvm_enabled is not None]
        return any(reported) if reported else None


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory or disk usage in bytes."""

    used: int
    total: int

    @property
    def percent(self) -> float:
        """The used share in percent."""
        return 100.0 * self.used / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class SystemStats:
    """The server's labs and nodes, and the resources that they use."""

    labs: int | None
    nodes: int | None
    running_nodes: int | None
    cpu_count: int | None
    cpu_percent: float | None
    memory: Usage | None
    disk: Usage | None


@dataclass(frozen=True, slots=True)
class LicenseFeature:
    """A feature that is licensed by count."""

    id: str
    name: str
    in_use: int
    status: str


@dataclass(frozen=True, slots=True)
class LicenseState:
    """The license state that the server reports. The statuses are Cisco's words, and unknown ones may occur."""

    registration: str
    authorization: str
    product: str
    is_enterprise: bool | None
    features: tuple[LicenseFeature, ...]
    failure: str
    expires: datetime | None
    reservation_mode: bool


class DeregistrationResult(StrEnum):
    """The result of deregistering a license."""

    DONE = "done"
    LOCAL_ONLY = "local_only"  # the server dropped the license; Cisco could not be reached and still counts it
    WAS_NOT_REGISTERED = "was_not_registered"


@dataclass(frozen=True, slots=True)
class CMLActivityEvent:
    """An event on the server. Its time is in UTC, or the server's local time without a zone if it names none."""

    category: str
    at: datetime
    user_id: str | None = None
    lab_id: str | None = None


@dataclass(frozen=True, slots=True)
class CMLActivity:
    """The newest events, in the order in which they were recorded.

    `total` counts those that could be parsed, `skipped` those that could not. A total of zero means that the server
    keeps no telemetry. It does not mean that the server is idle.
    """

    events: tuple[CMLActivityEvent, ...]
    total: int
    skipped: int


@dataclass(frozen=True, slots=True)
class LabState:
    """A lab as it appears in a list. `marker` is LCM's marker in the title; None if LCM did not create the lab."""

    id: str
    title: str
    state: str
    marker: str | None
    owner_id: str | None
    node_count: int | None
    created: datetime | None = None


@dataclass(frozen=True, slots=True)
class ImportedLab:
    """The result of an import."""

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
    """The addresses that the server has observed on a node's interface."""

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


REGISTRATION_SETTLE_TIME = timedelta(seconds=10)

_IN_PROGRESS = ("IN_PROGRESS", "RETRY_IN_PROGRESS", "RESERVATION_IN_PROGRESS")
_COMPLIANT = ("", "INIT", "IN_COMPLIANCE")


class LicensePhase(StrEnum):
    """The progress of a registration."""

    UNREGISTERED = "unregistered"
    REGISTERING = "registering"
    REGISTERED = "registered"
    FAILED = "failed"
    UNKNOWN = "unknown"  # an unrecognized status: neither registered nor a reason to register again


@dataclass(frozen=True, slots=True)
class LicenseProgress:
    """A phase and, where there is one, its reason."""

    phase: LicensePhase
    reason: str = ""

    @classmethod
    def of(cls, state: LicenseState, since_request: timedelta | None = None) -> LicenseProgress:
        """Derive the phase from a state. `since_request` is the time since a registration was requested, if one was.

        Shortly after the request the state may still be the previous one, which must not be taken for a failure.
        """
        status = state.registration
        if status == "COMPLETED":
            return cls(LicensePhase.REGISTERED, _compliance_problem(state))
        if status in _IN_PROGRESS:
            return cls(LicensePhase.REGISTERING, state.failure)
        if status not in ("NOT_REGISTERED", "FAILED"):
            return cls(LicensePhase.UNKNOWN, f"CML reports {status!r}")
        if since_request is not None and since_request < REGISTRATION_SETTLE_TIME:
            return cls(LicensePhase.REGISTERING)
        if status == "FAILED":
            return cls(LicensePhase.FAILED, state.failure or "CML gives no reason")
        return cls(LicensePhase.UNREGISTERED, state.failure)


def _compliance_problem(state: LicenseState) -> str:
    return "" if state.authorization in _COMPLIANT else f"authorization is {state.authorization}"
