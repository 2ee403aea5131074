"""What is remembered of one CML server: what it said, when, and what was asked of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from lcm.cml.client.responses import readable
from lcm.cml.licensing import LicenseProgress
from lcm.controllers.worker.observe.observation import CmlSight
from lcm.core import clock

if TYPE_CHECKING:
    from lcm.cml.types import Credentials, LicenseState, SystemInformation, SystemStats

_LONGEST_WORD: Final = 64
_LONGEST_TROUBLE: Final = 900
_NEVER: Final = -math.inf
DEFINITIONS_EVERY: Final = 3600.0
"""Seconds between two questions for the node definitions of a server; another version is asked at once."""
DEFINITIONS_AGAIN: Final = 300.0
"""Seconds after which a question for them that failed is asked again."""
_MOST_DEFINITIONS: Final = 2_000


@dataclass(slots=True)
class Findings:
    """What one look brought, as far as it came. Moments are of `clock.boottime()`."""

    licence_wanted: bool
    began: float = field(default_factory=clock.boottime)
    asked_at: datetime = field(default_factory=clock.now)
    information: SystemInformation | None = None
    stats: SystemStats | None = None
    licence: LicenseState | None = None
    licence_asked: float = _NEVER
    licence_era: int = -1
    definitions: tuple[str, ...] | None = None
    troubles: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class CmlMemory:
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
    activity_trouble: str = ""
    own_user_id: str | None = None  # by which its events name our account, where that was asked
    refused: Credentials | None = None  # the account that CML refused last
    asking_licence: bool = False  # whether the look under way asks for the licence
    definitions: tuple[str, ...] | None = None
    licence_era: int = 0  # moves when the licence is given back: what was asked before does not count
    _looked: float = _NEVER
    _licence_looked: float = _NEVER
    _licence: LicenseState | None = None
    _licence_asked: float = _NEVER  # when the call began that the licence is from
    _registration_asked: float | None = None
    _definitions_asked: float = _NEVER
    _definitions_version: str | None = None

    def fresh(self, earliest: float, *, licence: bool) -> bool:
        """Whether a look that began then or later has brought all that is wanted, or tried to."""
        return self._looked >= earliest and (not licence or self._licence_looked >= earliest)

    def take(self, found: Findings) -> None:
        """Keep what a look brought. What it did not bring is not known any more, but for the version."""
        self._looked, self.asked_at = found.began, found.asked_at
        self.ready = found.information is not None and found.information.ready
        if found.information is not None:
            self.version = readable(found.information.version)[:_LONGEST_WORD]
        self.stats = found.stats
        if found.definitions is not None:
            named = sorted({readable(name)[:_LONGEST_WORD] for name in found.definitions} - {""})
            self.definitions = tuple(named[:_MOST_DEFINITIONS])
            self._definitions_version = self.version
        self.trouble = "; ".join(found.troubles)[:_LONGEST_TROUBLE]
        if found.licence_wanted:
            self._licence_looked = found.began
            # An answer may have been on its way while the licence was given back.
            current = found.licence_era == self.licence_era
            self._licence, self._licence_asked = (found.licence, found.licence_asked) if current else (None, _NEVER)

    def definitions_due(self, version: str) -> bool:
        """Whether to ask for the node definitions now; says yes once, whatever the answer is."""
        known = self.definitions is not None and self._definitions_version == readable(version)[:_LONGEST_WORD]
        if clock.boottime() - self._definitions_asked < (DEFINITIONS_EVERY if known else DEFINITIONS_AGAIN):
            return False
        self._definitions_asked = clock.boottime()
        return True

    def note_asked(self) -> None:
        """A registration was just asked for: what was read before says nothing about it."""
        self._registration_asked = clock.boottime()
        self._licence_looked = _NEVER

    def note_released(self) -> None:
        """The licence was just given back: what was read before is not so any more."""
        self._registration_asked = None
        self._licence, self._licence_asked = None, _NEVER
        self.licence_era += 1
        self._licence_looked = _NEVER

    @property
    def licence_age(self) -> float | None:
        """Seconds since the licence was last told; None: it is not known."""
        return None if self._licence is None else clock.boottime() - self._licence_asked

    @property
    def sight(self) -> CmlSight:
        """What is known, for whoever decides."""
        stats, licence = self.stats, self._licence
        return CmlSight(
            asked_at=self.asked_at,
            ready=self.ready,
            version=self.version,
            trouble=self.trouble,
            labs=None if stats is None else stats.labs,
            nodes=None if stats is None else stats.nodes,
            running_nodes=None if stats is None else stats.running_nodes,
            license=None if licence is None else self._progress(licence),
            product="" if licence is None else readable(licence.product)[:_LONGEST_WORD],
            definitions=self.definitions,
        )

    def _progress(self, licence: LicenseState) -> LicenseProgress:
        """How far the registration was when it was read; before or shortly after asking it could not be told."""
        asked = self._registration_asked
        ago = None if asked is None else timedelta(seconds=self._licence_asked - asked)
        return LicenseProgress.of(replace(licence, failure=readable(licence.failure)), ago)
