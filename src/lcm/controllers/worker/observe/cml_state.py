"""What is remembered of one CML server: what it said, when, and what was asked of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from lcm.cml.client.responses import printable_text
from lcm.cml.licensing import LicenseProgress
from lcm.controllers.worker.observe.observation import CmlObservation
from lcm.core import clock

if TYPE_CHECKING:
    from lcm.cml.types import Credentials, LicenseState, SystemInformation, SystemStats

_MAX_WORD_LENGTH: Final = 64
_MAX_ERROR_LENGTH: Final = 900
_NEVER: Final = -math.inf
DEFINITIONS_INTERVAL: Final = 3600.0
"""Seconds between two questions for the node definitions of a server; another version is asked at once."""
DEFINITIONS_RETRY_INTERVAL: Final = 300.0
"""Seconds after which a question for them that failed is asked again."""
_MAX_DEFINITIONS: Final = 2_000


@dataclass(slots=True)
class CmlQueryResult:
    """What one look brought, as far as it came. Moments are of `clock.boottime()`."""

    license_requested: bool
    began: float = field(default_factory=clock.boottime)
    asked_at: datetime = field(default_factory=clock.now)
    information: SystemInformation | None = None
    stats: SystemStats | None = None
    licence: LicenseState | None = None
    license_call_began: float = _NEVER
    license_epoch: int = -1
    definitions: tuple[str, ...] | None = None
    troubles: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class CmlServerState:
    """One server, as one instance under one address. Without an address there is nobody to ask."""

    worker_id: str
    instance_id: str | None
    address: str | None
    record_version: int  # of the newest record in which the worker was seen like this
    asked_at: datetime | None = None
    ready: bool | None = None
    version: str | None = None
    stats: SystemStats | None = None
    trouble: str = ""
    activity_error: str = ""
    own_user_id: str | None = None  # by which its events name our account, where that was asked
    refused: Credentials | None = None  # the account that CML refused last
    querying_license: bool = False  # whether the look under way asks for the licence
    definitions: tuple[str, ...] | None = None
    license_epoch: int = 0  # moves when the licence is given back: what was asked before does not count
    _looked: float = _NEVER
    _license_queried_at: float = _NEVER
    _licence: LicenseState | None = None
    _license_call_began: float = _NEVER  # when the call began that the licence is from
    _registration_requested_at: float | None = None
    _definitions_queried_at: float = _NEVER
    _definitions_version: str | None = None

    def fresh(self, earliest: float, *, licence: bool) -> bool:
        """Whether a look that began then or later has brought all that is wanted, or tried to."""
        return self._looked >= earliest and (not licence or self._license_queried_at >= earliest)

    def take(self, found: CmlQueryResult) -> None:
        """Keep what a look brought. What it did not bring is not known any more, but for the version."""
        self._looked, self.asked_at = found.began, found.asked_at
        self.ready = found.information is not None and found.information.ready
        if found.information is not None:
            self.version = printable_text(found.information.version)[:_MAX_WORD_LENGTH]
        self.stats = found.stats
        if found.definitions is not None:
            named = sorted({printable_text(name)[:_MAX_WORD_LENGTH] for name in found.definitions} - {""})
            self.definitions = tuple(named[:_MAX_DEFINITIONS])
            self._definitions_version = self.version
        self.trouble = "; ".join(found.troubles)[:_MAX_ERROR_LENGTH]
        if found.license_requested:
            self._license_queried_at = found.began
            # An answer may have been on its way while the licence was given back.
            current = found.license_epoch == self.license_epoch
            self._licence, self._license_call_began = (
                (found.licence, found.license_call_began) if current else (None, _NEVER)
            )

    def definitions_due(self, version: str) -> bool:
        """Whether to ask for the node definitions now; says yes once, whatever the answer is."""
        known = self.definitions is not None and self._definitions_version == printable_text(version)[:_MAX_WORD_LENGTH]
        if clock.boottime() - self._definitions_queried_at < (
            DEFINITIONS_INTERVAL if known else DEFINITIONS_RETRY_INTERVAL
        ):
            return False
        self._definitions_queried_at = clock.boottime()
        return True

    def registration_requested(self) -> None:
        """A registration was just asked for: what was read before says nothing about it."""
        self._registration_requested_at = clock.boottime()
        self._license_queried_at = _NEVER

    def license_released(self) -> None:
        """The licence was just given back: what was read before is not so any more."""
        self._registration_requested_at = None
        self._licence, self._license_call_began = None, _NEVER
        self.license_epoch += 1
        self._license_queried_at = _NEVER

    @property
    def license_age(self) -> float | None:
        """Seconds since the licence was last told; None: it is not known."""
        return None if self._licence is None else clock.boottime() - self._license_call_began

    @property
    def sight(self) -> CmlObservation:
        """What is known, for whoever decides."""
        stats, licence = self.stats, self._licence
        return CmlObservation(
            asked_at=self.asked_at,
            ready=self.ready,
            version=self.version,
            trouble=self.trouble,
            labs=None if stats is None else stats.labs,
            nodes=None if stats is None else stats.nodes,
            running_nodes=None if stats is None else stats.running_nodes,
            license=None if licence is None else self._progress(licence),
            product="" if licence is None else printable_text(licence.product)[:_MAX_WORD_LENGTH],
            definitions=self.definitions,
        )

    def _progress(self, licence: LicenseState) -> LicenseProgress:
        """How far the registration was when it was read; before or shortly after asking it could not be told."""
        asked = self._registration_requested_at
        ago = None if asked is None else timedelta(seconds=self._license_call_began - asked)
        return LicenseProgress.of(replace(licence, failure=printable_text(licence.failure)), ago)
