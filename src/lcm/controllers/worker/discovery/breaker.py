"""The breaker of a region: whether workers may be marked as lost now, or too many would be at once.

It opens at any sweep and closes only at scans, which are minutes apart: two glances at the same moment of trouble would
agree with each other. Who sees nothing at all, or looks into another account, cannot agree with anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.controllers.worker.observe.observation import LossVerdict
from lcm.model.worker.requests import BreakerReport

if TYPE_CHECKING:
    from lcm.controllers.worker.discovery.sweep_diff import SweepDiff
    from lcm.model.fleet.state import Breaker

MAX_AFFECTED: Final = 10_000
_MAX_REASON: Final = 500
_NO_WORKERS: Final[frozenset[str]] = frozenset()

BREAKER_DISABLED: Final = "BREAKER_ENABLED is false"
CLOSE_NOT_ACKNOWLEDGED: Final = "the control plane has not heard yet that the breaker is closed"
NOT_LOST: Final = "no complete sweep has found it lost yet"
CANNOT_EVALUATE: Final = "the last sweep was incomplete, or the settings were never read"
OTHER_ACCOUNT: Final = "it is recorded under another AWS account than the one that was looked into"


class RegionBreaker:
    """One region's breaker, for one term of a leader. Feed it every sweep, in the order in which they began."""

    def __init__(self, region: str) -> None:
        self.region = region
        self.is_open = False
        self.manual_reset_only = False
        self.reason = ""
        self.accepted = _NO_WORKERS  # lost, and agreed to be: they do not open it again
        self.due: BreakerReport | None = None  # what the control plane has to be told
        self._accepted_foreign = _NO_WORKERS  # of another account, and a person knows
        self._enabled = True
        self._judged: SweepDiff | None = None  # None: nothing may be concluded now
        self._last: SweepDiff | None = None
        self._previous_scan: frozenset[str] | None = None  # whom the last scan would have marked
        self._affected = 0
        self._announced = False  # whether the control plane knows that it is open

    # What was seen

    def evaluate(self, review: SweepDiff, *, enabled: bool | None, scan: bool) -> None:
        """A complete sweep was compared with the records. `enabled` is BREAKER_ENABLED, None: it was never read."""
        if enabled is None:
            self.sweep_failed(scan=scan)
            return
        self._enabled = enabled
        self._judged = self._last = review
        # Who came back and is lost once more is lost anew.
        self.accepted &= review.lost
        self._accepted_foreign &= review.foreign
        if not enabled:
            self._switch_off()
            return
        if review.too_many or review.foreign - self._accepted_foreign:
            self._open(review, scan=scan)
        if scan and self.is_open and self._agrees(review):
            self.accepted = review.lost
            self._close(f"{self.region}: two scans in a row agree on {_count_of_workers(len(review.lost))} lost")
        if scan:
            self._previous_scan = review.lost
        elif review.lost != self._previous_scan:
            self._previous_scan = None

    def sweep_failed(self, *, scan: bool) -> None:
        """A sweep failed, was incomplete, or cannot be judged: it marks nobody."""
        self._judged = None
        if scan:
            self._previous_scan = None

    # What others say

    def restore(self, known: Breaker | None) -> None:
        """An earlier leader left it like this."""
        if known is None or not known.open:
            return
        self.is_open, self.manual_reset_only, self._announced = True, known.only_a_person_closes, True
        self.reason, self._affected, self.due = known.reason, known.affected, None

    def hear(self, known: Breaker | None) -> None:
        """What the control plane says now. One that it knew to be open, and that is not any more, a person closed."""
        if known is not None and known.open:
            if not self.is_open and self.due is None:
                self.restore(known)
            self.manual_reset_only = self.manual_reset_only or (self.is_open and known.only_a_person_closes)
        elif self.is_open and self._announced:
            self._closed_by_a_person()

    def told(self, report: BreakerReport, known: Breaker | None) -> None:
        """The control plane has taken the report, and answers how things stand."""
        if self.due is report:
            self.due = None
        self._announced = report.open
        if not report.open and known is not None and known.open:
            # It knows of a reason that only a person can settle.
            self.accepted = _NO_WORKERS
            self.restore(known)

    # What follows

    def verdict(self, worker_id: str) -> tuple[LossVerdict, str]:
        """Whether the worker may be marked as lost now; if not, why."""
        if self._judged is None:
            return LossVerdict.UNJUDGED, CANNOT_EVALUATE
        if worker_id in self._judged.foreign:
            return LossVerdict.BLOCKED, OTHER_ACCOUNT
        if worker_id not in self._judged.lost:
            return LossVerdict.UNJUDGED, NOT_LOST
        if not self._enabled:
            return LossVerdict.ALLOWED, ""
        if self.is_open:
            return LossVerdict.BLOCKED, f"the breaker is open: {self.reason}"
        return (LossVerdict.ALLOWED, "") if self.due is None else (LossVerdict.BLOCKED, CLOSE_NOT_ACKNOWLEDGED)

    def _open(self, review: SweepDiff, *, scan: bool) -> None:
        manual_reset_only = review.none_visible or bool(review.foreign)
        affected = review.lost | review.foreign
        news = not self.is_open or (manual_reset_only and not self.manual_reset_only)
        if not self.is_open:
            self._announced = False
            self._previous_scan = None  # a scan agrees with one that met the breaker open, or opened it
        self.is_open, self.manual_reset_only = True, self.manual_reset_only or manual_reset_only
        # Each report is a line in the audit: a count that creeps is told from scan to scan.
        if news or (scan and len(affected) != self._affected):
            self.reason = _open_reason(review, manual_reset_only=self.manual_reset_only)
            self._affected = len(affected)
            self.due = BreakerReport(
                region=self.region,
                open=True,
                reason=self.reason,
                affected=tuple(sorted(affected)[:MAX_AFFECTED]),
                only_a_person_closes=self.manual_reset_only,
            )

    def _agrees(self, review: SweepDiff) -> bool:
        if self.manual_reset_only or review.none_visible or review.foreign:
            return False
        return self._previous_scan == review.lost

    def _close(self, reason: str) -> None:
        self.is_open, self.reason, self._affected = False, "", 0
        self.due = BreakerReport(region=self.region, open=False, reason=reason[:_MAX_REASON])

    def _switch_off(self) -> None:
        self._previous_scan = None
        if self.is_open and not self.manual_reset_only:
            self._close(f"{self.region}: {BREAKER_DISABLED}")

    def _closed_by_a_person(self) -> None:
        self.is_open = self.manual_reset_only = False
        self.reason, self._affected, self._previous_scan, self.due = "", 0, None, None
        if self._last is not None:
            self.accepted, self._accepted_foreign = self._last.lost, self._last.foreign


def _open_reason(review: SweepDiff, *, manual_reset_only: bool) -> str:
    """In words for the one who has to decide."""
    parts = []
    if review.foreign:
        account = review.sweep.account_id
        parts.append(
            f"{_count_of_workers(len(review.foreign))} recorded under another AWS account than {account}, seen now"
        )
    if review.none_visible:
        parts.append("none of the recorded instances can be seen")
    if review.lost:
        parts.append(f"{len(review.lost)} of {review.workers} workers would be marked lost at once")
    closes = (
        "only a person closes the breaker" if manual_reset_only else "a second scan that agrees, or a person, closes it"
    )
    return f"{review.region}: {'; '.join(parts)}; {closes}"[:_MAX_REASON]


def _count_of_workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
