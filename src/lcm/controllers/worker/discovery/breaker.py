"""The circuit breaker of a region: it keeps too many workers from being marked as lost.

Any sweep can open it, and so can the control plane, which counts the losses of the last 30 minutes. Only scans close
it, which are minutes apart, and only if EC2 shows all lost instances as terminated. Absence is never confirmed by more
absence: that takes a person, and so does another AWS account.
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
CLOSE_NOT_ACKNOWLEDGED: Final = "the control plane has not acknowledged yet that the breaker is closed"
NOT_LOST: Final = "no complete sweep has found the instance lost yet"
CANNOT_EVALUATE: Final = "the last sweep was incomplete, or the settings were never read"
OTHER_ACCOUNT: Final = "the worker is recorded under another AWS account than the one in use"


class RegionBreaker:
    """The breaker of one region, for one term of a leader. Pass it every sweep, in the order of their start."""

    def __init__(self, region: str) -> None:
        self.region = region
        self.is_open = False
        self.manual_reset_only = False
        self.reason = ""
        self.accepted = _NO_WORKERS  # workers whose loss was confirmed: they do not open it again
        self.pending_report: BreakerReport | None = None  # what has to be reported to the control plane
        self._enabled = True
        self._evaluated: SweepDiff | None = None  # None: nothing can be concluded now
        self._previous_scan: frozenset[str] | None = None  # the workers that the last scan found lost
        self._affected = 0
        self._announced = False  # whether the control plane has accepted that it is open

    # Sweeps

    def evaluate(self, diff: SweepDiff, *, enabled: bool | None, scan: bool) -> None:
        """Evaluate a complete sweep. `enabled` is BREAKER_ENABLED; None if the settings were never read."""
        if enabled is None:
            self.sweep_failed(scan=scan)
            return
        self._enabled = enabled
        self._evaluated = diff
        if not enabled:
            self._disable()
            return
        if diff.too_many or diff.unseen or diff.foreign - self.accepted:
            self._open(diff, scan=scan)
        if scan and self.is_open and self._agrees(diff):
            self._close(f"{self.region}: two scans in a row agree on {_count_of_workers(len(diff.lost))} lost")
        if scan:
            self._previous_scan = diff.lost
        elif diff.lost != self._previous_scan:
            self._previous_scan = None

    def sweep_failed(self, *, scan: bool) -> None:
        """A sweep failed, was incomplete or cannot be evaluated: no worker may be marked."""
        self._evaluated = None
        if scan:
            self._previous_scan = None

    # Reports

    def restore(self, reported: Breaker | None, accepted: frozenset[str] = _NO_WORKERS) -> None:
        """Take over the state in the control plane."""
        self.accepted = accepted
        if reported is None or not reported.open:
            return
        self.is_open, self.manual_reset_only, self._announced = True, reported.only_a_person_closes, True
        self.reason, self._affected, self.pending_report = reported.reason, reported.affected, None

    def update_reported(self, reported: Breaker | None, accepted: frozenset[str] = _NO_WORKERS) -> None:
        """Compare with the state in the control plane, which may have opened it, and whose memory is longer.

        If it was reported open and is no longer, a person closed it.
        """
        self.accepted = accepted
        if reported is not None and reported.open:
            if not self.is_open and self.pending_report is None:
                self.restore(reported, accepted)
            self.manual_reset_only = self.manual_reset_only or (self.is_open and reported.only_a_person_closes)
        elif self.is_open and self._announced:
            self._reset_by_person()

    def report_accepted(
        self, report: BreakerReport, reported: Breaker | None, accepted: frozenset[str] = _NO_WORKERS
    ) -> None:
        """The control plane has accepted the report and returned its state."""
        if self.pending_report is report:
            self.pending_report = None
        self._announced = report.open
        self.accepted = accepted
        if not report.open and reported is not None and reported.open:
            # It stays open for a reason that only a person can resolve.
            self.restore(reported, accepted)

    # Verdicts

    def verdict(self, worker_id: str) -> tuple[LossVerdict, str]:
        """Whether the worker may be marked as lost now; if not, why."""
        if self._evaluated is None:
            return LossVerdict.UNJUDGED, CANNOT_EVALUATE
        if worker_id in self._evaluated.foreign:
            return LossVerdict.BLOCKED, OTHER_ACCOUNT
        if worker_id not in self._evaluated.lost:
            return LossVerdict.UNJUDGED, NOT_LOST
        if not self._enabled:
            return LossVerdict.ALLOWED, ""
        if self.is_open:
            return LossVerdict.BLOCKED, f"the breaker is open: {self.reason}"
        return (
            (LossVerdict.ALLOWED, "") if self.pending_report is None else (LossVerdict.BLOCKED, CLOSE_NOT_ACKNOWLEDGED)
        )

    def _open(self, diff: SweepDiff, *, scan: bool) -> None:
        manual_reset_only = bool(diff.unseen or diff.foreign or diff.absent - self.accepted)
        affected = diff.lost | diff.foreign | diff.unseen
        is_new = not self.is_open or (manual_reset_only and not self.manual_reset_only)
        if not self.is_open:
            self._announced = False
            self._previous_scan = None  # only scans since the breaker opened can agree
        self.is_open, self.manual_reset_only = True, self.manual_reset_only or manual_reset_only
        # Each report is an audit entry: a growing count is reported only at scans.
        if is_new or (scan and len(affected) != self._affected):
            self.reason = _open_reason(diff, manual_reset_only=self.manual_reset_only)
            self._affected = len(affected)
            self.pending_report = BreakerReport(
                region=self.region,
                open=True,
                reason=self.reason,
                affected=tuple(sorted(affected)[:MAX_AFFECTED]),
                only_a_person_closes=self.manual_reset_only,
            )

    def _agrees(self, diff: SweepDiff) -> bool:
        if not self._announced:
            return False  # the control plane accepts only losses that it has heard of
        if self.manual_reset_only or diff.unseen or diff.foreign or diff.absent - self.accepted:
            return False
        return self._previous_scan == diff.lost

    def _close(self, reason: str) -> None:
        self.is_open, self.reason, self._affected = False, "", 0
        self.pending_report = BreakerReport(region=self.region, open=False, reason=reason[:_MAX_REASON])

    def _disable(self) -> None:
        self._previous_scan = None
        if self.is_open and not self.manual_reset_only:
            self._close(f"{self.region}: {BREAKER_DISABLED}")

    def _reset_by_person(self) -> None:
        self.is_open = self.manual_reset_only = False
        self.reason, self._affected, self._previous_scan, self.pending_report = "", 0, None, None


def _open_reason(diff: SweepDiff, *, manual_reset_only: bool) -> str:
    """The reason, for the person who has to decide."""
    parts = []
    if diff.foreign:
        account = diff.sweep.account_id
        parts.append(
            f"{_count_of_workers(len(diff.foreign))} recorded under another AWS account than the current one, {account}"
        )
    if diff.unseen:
        parts.append(f"none of {len(diff.unseen)} recorded instances is visible")
    if diff.lost:
        parts.append(f"{len(diff.lost)} of {diff.workers} workers would be marked as lost at once")
    closes = (
        "only a person can close the breaker"
        if manual_reset_only
        else "a second scan that agrees, or a person, closes it"
    )
    return f"{diff.region}: {'; '.join(parts)}; {closes}"[:_MAX_REASON]


def _count_of_workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
