"""The breaker of a region: what opens it, who closes it, and who may be marked meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lcm.cloud.types import Sweep
from lcm.controllers.worker.discovery.breaker import RegionBreaker
from lcm.controllers.worker.discovery.sweep_diff import SweepDiff
from lcm.controllers.worker.observe.observation import LossVerdict
from lcm.model.fleet.losses import RegionLosses, loss_limit
from lcm.model.fleet.state import Breaker

REGION = "eu-west-1"
SWEEP = Sweep(REGION, {}, True, 0.0, "123456789012")


class ReportingBreaker(RegionBreaker):
    """A breaker with a control plane that hears everything at once, and remembers."""

    def __init__(self) -> None:
        super().__init__(REGION)
        self.reported: Breaker | None = None
        self.losses = RegionLosses()
        self.reports: list[bool] = []

    def see(
        self,
        lost: int,
        of: int = 13,
        *,
        scan: bool = False,
        foreign: int = 0,
        enabled: bool | None = True,
        absent: bool = False,
    ) -> ReportingBreaker:
        """A complete sweep that finds the first `lost` workers lost, and further ones foreign.

        EC2 shows the lost ones as terminated; with `absent` it does not list them.
        """
        self.update_reported(self.reported, frozenset(self.losses.accepted))
        gone = frozenset(f"w-{number}" for number in range(lost))
        elsewhere = frozenset(f"w-{number}" for number in range(lost, lost + foreign))
        diff = SweepDiff(
            region=REGION,
            sweep=SWEEP,
            workers=of,
            mismatched=gone,
            lost=gone,
            absent=gone if absent else frozenset(),
            foreign=elsewhere,
            unseen=gone - self.accepted if absent and lost == of else frozenset(),
            too_many=len(gone - self.accepted) > loss_limit(of),
        )
        self.evaluate(diff, enabled=enabled, scan=scan)
        self.deliver()
        return self

    def scan(self, lost: int, of: int = 13, *, foreign: int = 0, absent: bool = False) -> ReportingBreaker:
        return self.see(lost, of, scan=True, foreign=foreign, absent=absent)

    def deliver(self) -> None:
        report = self.pending_report
        if report is None:
            return
        self.reports.append(report.open)
        if report.open:
            self.reported = a_breaker(manual_reset_only=report.only_a_person_closes, reason=report.reason)
            self.losses = self.losses.with_withheld(report.affected)
        elif self.reported is not None and not self.reported.only_a_person_closes:
            self.reset()
        self.report_accepted(report, self.reported, frozenset(self.losses.accepted))

    def reset(self) -> None:
        """A person closes it, or a report that the control plane accepts."""
        self.reported, self.losses = None, self.losses.closed()

    def came_back(self, number: int) -> None:
        """A controller has recorded that the instance of a worker is visible again."""
        self.losses = self.losses.without(f"w-{number}")

    def loss_verdict(self, number: int = 0) -> LossVerdict:
        return self.verdict(f"w-{number}")[0]


def a_breaker(*, manual_reset_only: bool = False, reason: str = "too many") -> Breaker:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    return Breaker(
        region=REGION, open=True, reason=reason, since=since, affected=10, only_a_person_closes=manual_reset_only
    )


def test_nothing_is_judged_before_the_first_sweep() -> None:
    assert ReportingBreaker().loss_verdict() is LossVerdict.UNJUDGED


@pytest.mark.parametrize("absent", [False, True])
def test_two_lost_among_thirteen_are_allowed_at_the_first_sweep(absent: bool) -> None:
    breaker = ReportingBreaker().see(2, absent=absent)
    assert [breaker.loss_verdict(number) for number in range(3)] == [LossVerdict.ALLOWED] * 2 + [LossVerdict.UNJUDGED]
    assert breaker.reports == []


def test_ten_lost_among_thirteen_open_it_and_are_allowed_after_the_second_agreeing_scan() -> None:
    breaker = ReportingBreaker().scan(10)
    assert breaker.is_open
    assert not breaker.manual_reset_only
    assert "10 of 13" in breaker.reason
    assert REGION in breaker.reason
    verdict, why = breaker.verdict("w-0")
    assert verdict is LossVerdict.BLOCKED
    assert "10 of 13" in why
    breaker.scan(10)
    assert not breaker.is_open
    assert breaker.loss_verdict() is LossVerdict.ALLOWED
    assert breaker.reports == [True, False]
    assert breaker.reported is None


def test_absence_is_never_confirmed_by_more_absence() -> None:
    """worker-lifecycle.md#breaker: only instances that EC2 shows as terminated are confirmed by a second scan."""
    breaker = ReportingBreaker()
    for _ in range(20):
        breaker.scan(10, absent=True)
    assert breaker.is_open
    assert breaker.manual_reset_only
    assert "only a person" in breaker.reason
    for _ in range(20):
        breaker.scan(0)
    assert breaker.is_open
    breaker.reset()
    assert breaker.scan(10, absent=True).loss_verdict() is LossVerdict.ALLOWED


def test_a_sweep_that_shows_none_of_two_opens_it_at_once() -> None:
    breaker = ReportingBreaker().see(2, of=2, absent=True)
    assert breaker.is_open
    assert breaker.manual_reset_only
    assert "none of 2 recorded instances is visible" in breaker.reason


def test_sweeps_between_scans_open_it_but_never_agree() -> None:
    breaker = ReportingBreaker().scan(0).see(10)
    assert breaker.is_open
    for _ in range(20):
        breaker.see(10)
    assert breaker.is_open
    breaker.scan(10).see(10).see(10)
    assert breaker.is_open
    assert not breaker.scan(10).is_open


def test_a_scan_that_finds_others_lost_does_not_agree() -> None:
    breaker = ReportingBreaker().scan(10).scan(9)
    assert breaker.is_open
    assert not breaker.scan(9).is_open


def test_scans_that_find_them_again_close_it() -> None:
    breaker = ReportingBreaker().scan(10).scan(0)
    assert breaker.is_open
    assert not breaker.scan(0).is_open


def test_a_sweep_that_disagrees_in_between_breaks_the_agreement() -> None:
    assert ReportingBreaker().scan(10).see(4).scan(10).is_open


def test_a_failed_scan_breaks_the_agreement_and_gives_no_verdict() -> None:
    breaker = ReportingBreaker().scan(10)
    breaker.sweep_failed(scan=True)
    assert breaker.loss_verdict() is LossVerdict.UNJUDGED
    assert breaker.scan(10).is_open
    assert not breaker.scan(10).is_open


def test_a_scan_from_before_it_opened_does_not_count() -> None:
    breaker = ReportingBreaker().scan(4, of=20)
    assert breaker.loss_verdict() is LossVerdict.ALLOWED
    breaker.scan(4, of=19)
    assert breaker.is_open


def test_the_agreed_do_not_open_it_again_and_newly_lost_ones_do() -> None:
    breaker = ReportingBreaker().scan(6).scan(6).see(6).scan(8)
    assert not breaker.is_open
    assert breaker.see(9).is_open


def test_a_worker_that_came_back_can_be_lost_again() -> None:
    breaker = ReportingBreaker().scan(6).scan(6).see(0)
    for number in range(6):
        breaker.came_back(number)
    assert breaker.see(6).is_open


def test_an_empty_scan_at_fifty_workers_is_closed_only_by_a_person() -> None:
    breaker = ReportingBreaker().scan(50, of=50, absent=True)
    assert breaker.manual_reset_only
    for _ in range(5):
        breaker.scan(50, of=50, absent=True)
    for _ in range(5):
        breaker.scan(0, of=50)
    assert breaker.is_open
    assert False not in breaker.reports
    breaker.scan(50, of=50, absent=True).reset()
    assert breaker.see(50, of=50, absent=True).loss_verdict() is LossVerdict.ALLOWED
    assert not breaker.is_open


def test_a_breaker_that_then_sees_nothing_at_all_is_closed_only_by_a_person() -> None:
    breaker = ReportingBreaker().scan(10).scan(13, absent=True)
    assert breaker.manual_reset_only
    assert breaker.reported is not None
    assert breaker.reported.only_a_person_closes
    assert breaker.scan(10).scan(10).is_open


def test_another_account_opens_it_and_is_never_allowed_whoever_closes_it() -> None:
    breaker = ReportingBreaker().scan(2, foreign=11)
    assert breaker.manual_reset_only
    assert "another AWS account" in breaker.reason
    assert breaker.loss_verdict(0) is LossVerdict.BLOCKED
    breaker.reset()
    breaker.see(2, foreign=11)
    assert not breaker.is_open
    assert breaker.loss_verdict(0) is LossVerdict.ALLOWED
    assert {breaker.loss_verdict(number) for number in range(2, 13)} == {LossVerdict.BLOCKED}
    breaker.scan(2, foreign=11).scan(2, foreign=11)
    assert breaker.loss_verdict(5) is LossVerdict.BLOCKED
    assert breaker.reports == [True]


def test_a_person_accepts_only_the_workers_lost_at_that_time() -> None:
    breaker = ReportingBreaker().see(5)
    breaker.reset()
    breaker.see(13)
    assert breaker.is_open
    assert breaker.loss_verdict() is LossVerdict.BLOCKED


def test_switched_off_nothing_opens_and_all_but_foreign_ones_are_allowed() -> None:
    breaker = ReportingBreaker().see(9, foreign=4, enabled=False)
    assert not breaker.is_open
    assert breaker.loss_verdict(0) is LossVerdict.ALLOWED
    assert breaker.loss_verdict(10) is LossVerdict.BLOCKED
    assert breaker.reports == []


def test_switching_it_off_closes_it() -> None:
    breaker = ReportingBreaker().see(10).see(10, enabled=False)
    assert breaker.reports == [True, False]
    assert breaker.loss_verdict() is LossVerdict.ALLOWED


def test_without_settings_there_is_no_verdict() -> None:
    breaker = ReportingBreaker().see(1, enabled=None)
    assert breaker.loss_verdict() is LossVerdict.UNJUDGED
    assert breaker.see(1).loss_verdict() is LossVerdict.ALLOWED
    assert breaker.see(10, enabled=None).loss_verdict() is LossVerdict.UNJUDGED
    assert not breaker.is_open


@pytest.mark.parametrize("manual_reset_only", [False, True])
def test_an_open_breaker_is_taken_over_from_the_last_leader(manual_reset_only: bool) -> None:
    breaker = ReportingBreaker()
    breaker.reported = a_breaker(manual_reset_only=manual_reset_only)
    breaker.restore(breaker.reported)
    assert breaker.see(1).loss_verdict() is LossVerdict.BLOCKED
    breaker.scan(1)
    assert breaker.is_open
    assert breaker.scan(1).is_open is manual_reset_only


def test_until_it_is_reported_losses_are_blocked() -> None:
    breaker = ReportingBreaker().scan(10)
    breaker.deliver = lambda: None  # type: ignore[method-assign]
    breaker.scan(10)
    assert not breaker.is_open
    assert breaker.loss_verdict() is LossVerdict.BLOCKED
    del breaker.deliver
    breaker.deliver()
    assert breaker.loss_verdict() is LossVerdict.ALLOWED


def test_the_next_leader_does_not_count_what_was_accepted() -> None:
    """worker-lifecycle.md#breaker: losses that a closing accepted are not counted again, also by the next leader."""
    before = ReportingBreaker().scan(10, absent=True)
    before.reset()
    after = ReportingBreaker()
    after.losses = before.losses
    after.restore(None, frozenset(after.losses.accepted))
    assert not after.see(10, absent=True).is_open
    assert after.loss_verdict() is LossVerdict.ALLOWED
    assert after.see(13, absent=True).is_open


def test_one_that_the_control_plane_has_opened_is_open_here() -> None:
    breaker = ReportingBreaker().see(1)
    breaker.reported = a_breaker(reason="3 of 13 workers lost within 30 minutes")
    assert breaker.see(1).loss_verdict() is LossVerdict.BLOCKED
    assert "30 minutes" in breaker.reason


def test_an_unreported_breaker_was_not_closed_by_a_person() -> None:
    breaker = ReportingBreaker()
    breaker.deliver = lambda: None  # type: ignore[method-assign]
    breaker.see(10).see(10)
    assert breaker.is_open
    assert breaker.pending_report is not None


def test_one_that_opened_anew_after_a_person_closed_it_is_not_taken_for_closed() -> None:
    breaker = ReportingBreaker().see(10)
    breaker.reset()
    assert not breaker.see(10).is_open
    breaker.deliver = lambda: None  # type: ignore[method-assign]
    assert breaker.see(13).is_open
    assert breaker.see(13).loss_verdict() is LossVerdict.BLOCKED


def test_a_reset_by_a_person_counts_while_a_report_is_in_flight() -> None:
    breaker = ReportingBreaker().scan(10)
    breaker.deliver = lambda: None  # type: ignore[method-assign]
    breaker.scan(11)
    breaker.reset()
    assert breaker.see(11).loss_verdict() is LossVerdict.ALLOWED
    assert breaker.pending_report is None


def test_a_control_plane_that_will_not_close_it_is_believed() -> None:
    breaker = ReportingBreaker().scan(10)
    breaker.reported = a_breaker(manual_reset_only=True)
    breaker.update_reported = lambda reported, accepted=frozenset(): None  # type: ignore[method-assign]
    breaker.scan(10)
    assert breaker.is_open
    assert breaker.manual_reset_only
    assert breaker.loss_verdict() is LossVerdict.BLOCKED


def test_a_growing_count_is_reported_at_scans() -> None:
    breaker = ReportingBreaker().scan(5).see(6).see(7)
    assert breaker.reports == [True]
    assert breaker.scan(8).reports == [True, True]
    assert breaker.scan(8).reports == [True, True, False]
