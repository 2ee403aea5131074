"""The state of one CML server as its responses show it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from lcm.cml.client.responses import printable_text
from lcm.cml.types import LicenseProgress
from lcm.controllers.worker.observe.activity import ServerZone
from lcm.controllers.worker.observe.observation import CmlObservation
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.cml.types import Credentials, LicenseState, SystemInformation, SystemStats
    from lcm.model.worker.record import Worker


_MAX_WORD_LENGTH: Final = 64
_MAX_ERROR_LENGTH: Final = 900
_NEVER: Final = -math.inf
INFORMATION_INTERVAL: Final = 120.0
"""Seconds between two reads of version and readiness while a server is ready and its statistics can be read."""
LABS_INTERVAL: Final = 300.0
"""Seconds between two counts of the labs while the numbers of nodes stay the same."""
DEFINITIONS_INTERVAL: Final = 3600.0
"""Seconds between two reads of the node definitions of a server; a new CML version is followed by one more."""
DEFINITIONS_RETRY_INTERVAL: Final = 300.0
"""Seconds after which a failed read of them is retried."""
_MAX_DEFINITIONS: Final = 2_000
KVM_INTERVAL: Final = 3600.0
"""Seconds between two reads of whether a server has KVM; one that just became ready is asked at once."""
KVM_RETRY_INTERVAL: Final = 300.0
"""Seconds after which it is asked again if it has none, or did not say."""


@dataclass(slots=True)
class CmlQueryResult:
    """What one query returned, as far as it got. Times are of `clock.boottime()`."""

    license_requested: bool
    began: float = field(default_factory=clock.boottime)
    queried_at: datetime = field(default_factory=clock.now)
    information: SystemInformation | None = None
    still_ready: bool = False  # whether the information of an earlier query counts on
    is_unknown: bool = False  # whether the server was not asked at all
    stats: SystemStats | None = None
    labs_counted: bool = False
    license_state: LicenseState | None = None
    license_call_began: float = _NEVER
    license_epoch: int = -1
    definitions: tuple[str, ...] | None = None
    kvm_enabled: bool | None = None
    refusal: str = ""  # why CML does not accept our account
    account_withheld: bool = False  # whether no account may be sent to it
    presented: str | None = None  # another certificate than the pinned one
    errors: list[str] = field(default_factory=list)

    @property
    def is_ready(self) -> bool:
        """Whether the server says that it is ready, or said so shortly before."""
        return self.still_ready if self.information is None else self.information.ready


@dataclass(frozen=True, slots=True)
class ServerOwner:
    """The worker of a server, as far as queries need it: whole records must not be in memory twice."""

    id: str
    name: str
    instance_id: str | None
    version: int
    is_adopted: bool

    @classmethod
    def of(cls, worker: Worker) -> ServerOwner:
        """What the record says."""
        return cls(worker.id, worker.name, worker.instance_id, worker.version, worker.is_adopted)


# What an observation is made from.
_SHOWN: Final = attrgetter(
    "queried_at",
    "ready",
    "version",
    "error",
    "refusal",
    "account_withheld",
    "certificate",
    "presented",
    "activity_error",
    "stats",
    "_last_running_nodes",
    "_license_state",
    "_license_call_began",
    "_registration_requested_at",
    "kvm_enabled",
    "definitions",
)


@dataclass(slots=True, eq=False)
class CmlServerState:
    """One server: one instance at one address. Without an address it cannot be queried."""

    worker: ServerOwner  # by its newest record with this instance and address
    address: str | None
    queried_at: datetime | None = None
    ready: bool | None = None
    version: str | None = None
    stats: SystemStats | None = None
    error: str = ""
    certificate: str | None = None  # the fingerprint of the pinned one; kept when nothing is read
    presented: str | None = None
    refusal: str = ""
    account_withheld: bool = False
    activity_error: str = ""
    zone: ServerZone = field(default_factory=ServerZone)  # of times in its events that name none
    own_user_id: str | None = None  # the id of our account in activity events, where that was read
    refused: Credentials | None = None  # the account that CML refused last
    querying_license: bool = False  # whether the query in flight reads the license
    definitions: tuple[str, ...] | None = None
    kvm_enabled: bool | None = None
    license_epoch: int = 0  # grows when the license is deregistered: responses to earlier requests do not count
    is_slow: bool = False  # whether the query takes long, or the last one did: others must not wait for it
    on_slow: list[Callable[[], None]] = field(default_factory=list)  # called when the query in flight takes long
    _queried_at: float = _NEVER
    _information_read_at: float = _NEVER
    _labs: int | None = None
    _labs_counted_at: float = _NEVER
    _nodes_when_counted: tuple[int | None, int | None] | None = None
    _last_running_nodes: int | None = None
    _license_queried_at: float = _NEVER
    _license_state: LicenseState | None = None
    _license_call_began: float = _NEVER  # when the call began that returned the license
    _registration_requested_at: float | None = None
    _definitions_queried_at: float = _NEVER
    _definitions_version: str | None = None
    _kvm_queried_at: float = _NEVER
    _observation: CmlObservation | None = None
    _shown_from: tuple[object, ...] = ()  # what it was made from

    @property
    def worker_id(self) -> str:
        """The worker that this server belongs to."""
        return self.worker.id

    @property
    def instance_id(self) -> str | None:
        """The instance that this server runs on."""
        return self.worker.instance_id

    def becomes_slow(self) -> None:
        """The query in flight takes long."""
        self.is_slow = True
        for notify in self.on_slow:
            notify()

    def fresh(self, earliest: float, *, with_license: bool) -> bool:
        """Whether a query that began then or later has read all that is requested, or tried to."""
        return self._queried_at >= earliest and (not with_license or self._license_queried_at >= earliest)

    def update(self, result: CmlQueryResult) -> None:
        """Store the result of a query. What it did not return becomes unknown, except the version."""
        self._queried_at, self.queried_at = result.began, result.queried_at
        self.ready = None if result.is_unknown else result.is_ready and not result.refusal
        self.refusal, self.presented = result.refusal, result.presented
        self.account_withheld = result.account_withheld
        if result.information is not None:
            self.version = printable_text(result.information.version)[:_MAX_WORD_LENGTH]
            self._information_read_at = result.began
        self._update_stats(result)
        if result.definitions is not None:
            names = sorted({printable_text(name)[:_MAX_WORD_LENGTH] for name in result.definitions} - {""})
            self.definitions = tuple(names[:_MAX_DEFINITIONS])
            self._definitions_version = self.version
        if result.kvm_enabled is not None:
            self.kvm_enabled = result.kvm_enabled
        self.error = "; ".join(result.errors)[:_MAX_ERROR_LENGTH]
        if result.license_requested:
            self._license_queried_at = result.began
            # The response may have been in flight while the license was deregistered.
            current = result.license_epoch == self.license_epoch
            self._license_state, self._license_call_began = (
                (result.license_state, result.license_call_began) if current else (None, _NEVER)
            )

    def _update_stats(self, result: CmlQueryResult) -> None:
        if result.stats is not None and result.labs_counted:
            self._labs, self._labs_counted_at = result.stats.labs, result.began
            self._nodes_when_counted = (result.stats.nodes, result.stats.running_nodes)
        self.stats = None if result.stats is None else replace(result.stats, labs=self._labs)
        if result.stats is not None and result.stats.running_nodes is not None:
            self._last_running_nodes = result.stats.running_nodes

    @property
    def information_due(self) -> bool:
        """Whether to read version and readiness now. Those of a server that was not ready are always due."""
        return self.ready is not True or clock.boottime() - self._information_read_at >= INFORMATION_INTERVAL

    @property
    def labs_due(self) -> bool:
        """Whether to count the labs now, whatever the numbers of nodes are."""
        return self._labs is None or clock.boottime() - self._labs_counted_at >= LABS_INTERVAL

    @property
    def nodes_when_counted(self) -> tuple[int | None, int | None] | None:
        """Nodes and running nodes when the labs were counted; other numbers mean that the labs may have changed."""
        return self._nodes_when_counted

    def definitions_due(self, version: str) -> bool:
        """Whether to read the node definitions now; returns True once, whatever the read returns."""
        is_current = (
            self.definitions is not None and self._definitions_version == printable_text(version)[:_MAX_WORD_LENGTH]
        )
        if clock.boottime() - self._definitions_queried_at < (
            DEFINITIONS_INTERVAL if is_current else DEFINITIONS_RETRY_INTERVAL
        ):
            return False
        self._definitions_queried_at = clock.boottime()
        return True

    def kvm_due(self) -> bool:
        """Whether to ask for KVM now; returns True once, whatever the response. A restart may have changed it."""
        interval = KVM_INTERVAL if self.kvm_enabled else KVM_RETRY_INTERVAL
        if self.ready and clock.boottime() - self._kvm_queried_at < interval:
            return False
        self._kvm_queried_at = clock.boottime()
        return True

    def registration_requested(self) -> None:
        """A registration was just requested: what was read before says nothing about it."""
        self._registration_requested_at = clock.boottime()
        self._license_queried_at = _NEVER

    def license_released(self) -> None:
        """The license was just deregistered: what was read before no longer holds."""
        self._registration_requested_at = None
        self._license_state, self._license_call_began = None, _NEVER
        self.license_epoch += 1
        self._license_queried_at = _NEVER

    @property
    def license_age(self) -> float | None:
        """Seconds since the license was last read; None if it is unknown."""
        return None if self._license_state is None else clock.boottime() - self._license_call_began

    @property
    def observation(self) -> CmlObservation:
        """What decisions are made from; the same object as long as nothing changes."""
        shown_from = _SHOWN(self)
        if self._observation is None or shown_from != self._shown_from:
            self._observation, self._shown_from = self._make_observation(), shown_from
        return self._observation

    def _make_observation(self) -> CmlObservation:
        stats, license_state = self.stats, self._license_state
        return CmlObservation(
            queried_at=self.queried_at,
            ready=self.ready,
            version=self.version,
            error=self.error,
            refusal=self.refusal,
            account_withheld=self.account_withheld,
            certificate=None if self.queried_at is None else self.certificate,
            presented=self.presented,
            activity_error=self.activity_error,
            labs=None if stats is None else stats.labs,
            nodes=None if stats is None else stats.nodes,
            running_nodes=None if stats is None else stats.running_nodes,
            last_running_nodes=self._last_running_nodes,
            license=None if license_state is None else self._progress(license_state),
            product="" if license_state is None else printable_text(license_state.product)[:_MAX_WORD_LENGTH],
            kvm_enabled=self.kvm_enabled,
            definitions=self.definitions,
        )

    def _progress(self, license_state: LicenseState) -> LicenseProgress:
        """The progress of the registration when it was read; unknown before and shortly after the request."""
        requested = self._registration_requested_at
        ago = None if requested is None else timedelta(seconds=self._license_call_began - requested)
        return LicenseProgress.of(replace(license_state, failure=printable_text(license_state.failure)), ago)
