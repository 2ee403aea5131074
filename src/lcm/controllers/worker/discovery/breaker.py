"""The breaker of a region: whether workers may be marked as lost now, or too many would be at once.

It opens at any sweep and closes only at scans, which are minutes apart: two glances at the same moment of trouble would
agree with each other. Who sees nothing at all, or looks into another account, cannot agree with anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.controllers.worker.observe.observation import Loss
from lcm.model.worker.requests import BreakerReport

if TYPE_CHECKING:
    from lcm.controllers.worker.discovery.sweep_diff import Review
    from lcm.model.fleet.state import Breaker

MOST_AFFECTED: Final = 10_000
_LONGEST_REASON: Final = 500
_NOBODY: Final[frozenset[str]] = frozenset()

SWITCHED_OFF: Final = "BREAKER_ENABLED is false"
NOT_TOLD: Final = "the control plane has not heard yet that the breaker is closed"
NOT_LOST: Final = "no complete sweep has found it lost yet"
CANNOT_JUDGE: Final = "the last sweep was incomplete, or the settings were never read"
FOREIGN: Final = "it is recorded under another AWS account than the one that was looked into"


class RegionBreaker:
    """One region's breaker, for one term of a leader. Feed it every sweep, in the order in which they began."""

    def __init__(self, region: str) -> None:
        self.region = region
        self.is_open = False
        self.only_a_person = False
        self.reason = ""
        self.accepted = _NOBODY  # lost, and agreed to be: they do not open it again
        self.due: BreakerReport | None = None  # what the control plane has to be told
        self._overlooked = _NOBODY  # of another account, and a person knows
        self._enabled = True
        self._judged: Review | None = None  # None: nothing may be concluded now
        self._last: Review | None = None
        self._former_scan: frozenset[str] | None = None  # whom the last scan would have marked
        self._affected = 0
        self._announced = False  # whether the control plane knows that it is open

    # What was seen

    def consider(self, review: Review, *, enabled: bool | None, scan: bool) -> None:
        """A complete sweep was compared with the records. `enabled` is BREAKER_ENABLED, None: it was never read."""
        if enabled is None:
            self.look_failed(scan=scan)
            return
        self._enabled = enabled
        self._judged = self._last = review
        # Who came back and is lost once more is lost anew.
        self.accepted &= review.lost
        self._overlooked &= review.foreign
        if not enabled:
            self._switch_off()
            return
        if review.too_many or review.foreign - self._overlooked:
            self._open(review, scan=scan)
        if scan and self.is_open and self._agrees(review):
            self.accepted = review.lost
            self._close(f"{self.region}: two scans in a row agree on {_workers(len(review.lost))} lost")
        if scan:
            self._former_scan = review.lost
        elif review.lost != self._former_scan:
            self._former_scan = None

    def look_failed(self, *, scan: bool) -> None:
        """A sweep failed, was incomplete, or cannot be judged: it marks nobody."""
        self._judged = None
        if scan:
            self._former_scan = None

    # What others say

    def take_over(self, known: Breaker | None) -> None:
        """An earlier leader left it like this."""
        if known is None or not known.open:
            return
        self.is_open, self.only_a_person, self._announced = True, known.only_a_person_closes, True
        self.reason, self._affected, self.due = known.reason, known.affected, None

    def hear(self, known: Breaker | None) -> None:
        """What the control plane says now. One that it knew to be open, and that is not any more, a person closed."""
        if known is not None and known.open:
            if not self.is_open and self.due is None:
                self.take_over(known)
            self.only_a_person = self.only_a_person or (self.is_open and known.only_a_person_closes)
        elif self.is_open and self._announced:
            self._closed_by_a_person()

    def told(self, report: BreakerReport, known: Breaker | None) -> None:
        """The control plane has taken the report, and answers how things stand."""
        if self.due is report:
            self.due = None
        self._announced = report.open
        if not report.open and known is not None and known.open:
            # It knows of a reason that only a person can settle.
            self.accepted = _NOBODY
            self.take_over(known)

    # What follows

    def verdict(self, worker_id: str) -> tuple[Loss, str]:
        """Whether the worker may be marked as lost now; if not, why."""
        if self._judged is None:
            return Loss.UNJUDGED, CANNOT_JUDGE
        if worker_id in self._judged.foreign:
            return Loss.BLOCKED, FOREIGN
        if worker_id not in self._judged.lost:
            return Loss.UNJUDGED, NOT_LOST
        if not self._enabled:
            return Loss.ALLOWED, ""
        if self.is_open:
            return Loss.BLOCKED, f"the breaker is open: {self.reason}"
        return (Loss.ALLOWED, "") if self.due is None else (Loss.BLOCKED, NOT_TOLD)

    def _open(self, review: Review, *, scan: bool) -> None:
        only_a_person = review.sees_none or bool(review.foreign)
        affected = review.lost | review.foreign
        news = not self.is_open or (only_a_person and not self.only_a_person)
        if not self.is_open:
            self._announced = False
            self._former_scan = None  # a scan agrees with one that met the breaker open, or opened it
        self.is_open, self.only_a_person = True, self.only_a_person or only_a_person
        # Each report is a line in the audit: a count that creeps is told from scan to scan.
        if news or (scan and len(affected) != self._affected):
            self.reason = _why(review, only_a_person=self.only_a_person)
            self._affected = len(affected)
            self.due = BreakerReport(
                region=self.region,
                open=True,
                reason=self.reason,
                affected=tuple(sorted(affected)[:MOST_AFFECTED]),
                only_a_person_closes=self.only_a_person,
            )

    def _agrees(self, review: Review) -> bool:
        if self.only_a_person or review.sees_none or review.foreign:
            return False
        return self._former_scan == review.lost

    def _close(self, reason: str) -> None:
        self.is_open, self.reason, self._affected = False, "", 0
        self.due = BreakerReport(region=self.region, open=False, reason=reason[:_LONGEST_REASON])

    def _switch_off(self) -> None:
        self._former_scan = None
        if self.is_open and not self.only_a_person:
            self._close(f"{self.region}: {SWITCHED_OFF}")

    def _closed_by_a_person(self) -> None:
        self.is_open = self.only_a_person = False
        self.reason, self._affected, self._former_scan, self.due = "", 0, None, None
        if self._last is not None:
            self.accepted, self._overlooked = self._last.lost, self._last.foreign


def _why(review: Review, *, only_a_person: bool) -> str:
    """In words for the one who has to decide."""
    parts = []
    if review.foreign:
        account = review.sweep.account_id
        parts.append(f"{_workers(len(review.foreign))} recorded under another AWS account than {account}, seen now")
    if review.sees_none:
        parts.append("none of the recorded instances can be seen")
    if review.lost:
        parts.append(f"{len(review.lost)} of {review.workers} workers would be marked lost at once")
    closes = (
        "only a person closes the breaker" if only_a_person else "a second scan that agrees, or a person, closes it"
    )
    return f"{review.region}: {'; '.join(parts)}; {closes}"[:_LONGEST_REASON]


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
