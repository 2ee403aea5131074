"""The breaker of a region: what opens it, who closes it, and who may be marked meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lcm.cloud.types import Sweep
from lcm.controllers.worker.discovery.breaker import RegionBreaker
from lcm.controllers.worker.discovery.sweep_diff import SweepDiff, loss_limit
from lcm.controllers.worker.observe.observation import LossVerdict
from lcm.model.fleet.state import Breaker

REGION = "eu-west-1"
SWEEP = Sweep(REGION, {}, True, 0.0, "123456789012")


class Told(RegionBreaker):
    """A breaker with a control plane that hears everything at once, and remembers."""

    def __init__(self) -> None:
        super().__init__(REGION)
        self.known: Breaker | None = None
        self.reports: list[bool] = []

    def see(
        self, lost: int, of: int = 13, *, scan: bool = False, foreign: int = 0, enabled: bool | None = True
    ) -> Told:
        """A complete sweep that finds the first `lost` workers lost, and further ones foreign."""
        self.hear(self.known)
        gone = frozenset(f"w-{number}" for number in range(lost))
        elsewhere = frozenset(f"w-{number}" for number in range(lost, lost + foreign))
        review = SweepDiff(
            region=REGION,
            sweep=SWEEP,
            workers=of,
            mismatched=gone,
            lost=gone,
            absent=gone,
            foreign=elsewhere,
            none_visible=lost + foreign == of,
            too_many=len(gone - self.accepted) > loss_limit(of),
        )
        self.evaluate(review, enabled=enabled, scan=scan)
        self.deliver()
        return self

    def scan(self, lost: int, of: int = 13, *, foreign: int = 0) -> Told:
        return self.see(lost, of, scan=True, foreign=foreign)

    def deliver(self) -> None:
        report = self.due
        if report is None:
            return
        self.reports.append(report.open)
        if report.open:
            self.known = a_breaker(manual_reset_only=report.only_a_person_closes, reason=report.reason)
        elif self.known is not None and not self.known.only_a_person_closes:
            self.known = None
        self.told(report, self.known)

    def loss(self, number: int = 0) -> LossVerdict:
        return self.verdict(f"w-{number}")[0]


def a_breaker(*, manual_reset_only: bool = False, reason: str = "too many") -> Breaker:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    return Breaker(
        region=REGION, open=True, reason=reason, since=since, affected=10, only_a_person_closes=manual_reset_only
    )


def test_nothing_is_judged_before_the_first_sweep() -> None:
    assert Told().loss() is LossVerdict.UNJUDGED


def test_three_lost_among_thirteen_are_allowed_at_the_first_review() -> None:
    breaker = Told().see(3)
    assert [breaker.loss(number) for number in range(4)] == [LossVerdict.ALLOWED] * 3 + [LossVerdict.UNJUDGED]
    assert breaker.reports == []


def test_ten_lost_among_thirteen_open_it_and_are_allowed_after_the_second_agreeing_scan() -> None:
    breaker = Told().scan(10)
    assert breaker.is_open
    assert not breaker.manual_reset_only
    assert "10 of 13" in breaker.reason
    assert REGION in breaker.reason
    verdict, why = breaker.verdict("w-0")
    assert verdict is LossVerdict.BLOCKED
    assert "10 of 13" in why
    breaker.scan(10)
    assert not breaker.is_open
    assert breaker.loss() is LossVerdict.ALLOWED
    assert breaker.reports == [True, False]
    assert breaker.known is None


def test_sweeps_between_scans_open_it_but_never_agree() -> None:
    breaker = Told().scan(0).see(10)
    assert breaker.is_open
    for _ in range(20):
        breaker.see(10)
    assert breaker.is_open
    breaker.scan(10).see(10).see(10)
    assert breaker.is_open
    assert not breaker.scan(10).is_open


def test_a_scan_that_finds_others_lost_does_not_agree() -> None:
    breaker = Told().scan(10).scan(9)
    assert breaker.is_open
    assert not breaker.scan(9).is_open


def test_scans_that_find_them_again_close_it() -> None:
    breaker = Told().scan(10).scan(0)
    assert breaker.is_open
    assert not breaker.scan(0).is_open


def test_a_sweep_that_disagrees_in_between_breaks_the_agreement() -> None:
    assert Told().scan(10).see(4).scan(10).is_open


def test_a_failed_scan_in_between_breaks_the_agreement_and_judges_nobody() -> None:
    breaker = Told().scan(10)
    breaker.sweep_failed(scan=True)
    assert breaker.loss() is LossVerdict.UNJUDGED
    assert breaker.scan(10).is_open
    assert not breaker.scan(10).is_open


def test_a_scan_from_before_it_opened_does_not_count() -> None:
    breaker = Told().scan(4, of=20)
    assert breaker.loss() is LossVerdict.ALLOWED
    breaker.scan(4, of=19)
    assert breaker.is_open


def test_the_agreed_do_not_open_it_again_and_newly_lost_ones_do() -> None:
    breaker = Told().scan(6).scan(6).see(6).scan(9)
    assert not breaker.is_open
    assert breaker.see(10).is_open


def test_who_came_back_is_lost_anew() -> None:
    breaker = Told().scan(6).scan(6).see(0)
    assert breaker.accepted == frozenset()
    assert breaker.see(6).is_open


def test_an_empty_scan_at_fifty_workers_is_closed_only_by_a_person() -> None:
    breaker = Told().scan(50, of=50)
    assert breaker.manual_reset_only
    for _ in range(5):
        breaker.scan(50, of=50)
    for _ in range(5):
        breaker.scan(0, of=50)
    assert breaker.is_open
    assert False not in breaker.reports
    breaker.scan(50, of=50).known = None
    assert breaker.see(50, of=50).loss() is LossVerdict.ALLOWED
    assert not breaker.is_open


def test_a_breaker_that_then_sees_nothing_at_all_is_closed_only_by_a_person() -> None:
    breaker = Told().scan(10).scan(13)
    assert breaker.manual_reset_only
    assert breaker.known is not None
    assert breaker.known.only_a_person_closes
    assert breaker.scan(10).scan(10).is_open


def test_another_account_opens_it_and_is_never_allowed_whoever_closes_it() -> None:
    breaker = Told().scan(2, foreign=11)
    assert breaker.manual_reset_only
    assert "another AWS account" in breaker.reason
    assert breaker.loss(0) is LossVerdict.BLOCKED
    breaker.known = None
    breaker.see(2, foreign=11)
    assert not breaker.is_open
    assert breaker.loss(0) is LossVerdict.ALLOWED
    assert {breaker.loss(number) for number in range(2, 13)} == {LossVerdict.BLOCKED}
    breaker.scan(2, foreign=11).scan(2, foreign=11)
    assert breaker.loss(5) is LossVerdict.BLOCKED
    assert breaker.reports == [True]


def test_a_person_accepts_only_who_was_lost_at_that_moment() -> None:
    breaker = Told().see(5)
    breaker.known = None
    breaker.see(13)
    assert breaker.is_open
    assert breaker.loss() is LossVerdict.BLOCKED


def test_switched_off_nothing_opens_and_all_but_foreign_ones_are_allowed() -> None:
    breaker = Told().see(9, foreign=4, enabled=False)
    assert not breaker.is_open
    assert breaker.loss(0) is LossVerdict.ALLOWED
    assert breaker.loss(10) is LossVerdict.BLOCKED
    assert breaker.reports == []


def test_switching_it_off_closes_it() -> None:
    breaker = Told().see(10).see(10, enabled=False)
    assert breaker.reports == [True, False]
    assert breaker.loss() is LossVerdict.ALLOWED


def test_settings_that_were_never_read_judge_nobody() -> None:
    breaker = Told().see(1, enabled=None)
    assert breaker.loss() is LossVerdict.UNJUDGED
    assert breaker.see(1).loss() is LossVerdict.ALLOWED
    assert breaker.see(10, enabled=None).loss() is LossVerdict.UNJUDGED
    assert not breaker.is_open


@pytest.mark.parametrize("manual_reset_only", [False, True])
def test_an_open_breaker_is_taken_over_from_the_last_leader(manual_reset_only: bool) -> None:
    breaker = Told()
    breaker.known = a_breaker(manual_reset_only=manual_reset_only)
    breaker.restore(breaker.known)
    assert breaker.see(1).loss() is LossVerdict.BLOCKED
    breaker.scan(1)
    assert breaker.is_open
    assert breaker.scan(1).is_open is manual_reset_only


def test_until_it_is_told_losses_are_blocked() -> None:
    breaker = Told().scan(10)
    breaker.deliver = lambda: None  # type: ignore[method-assign]
    breaker.scan(10)
    assert not breaker.is_open
    assert breaker.loss() is LossVerdict.BLOCKED
    del breaker.deliver
    breaker.deliver()
    assert breaker.loss() is LossVerdict.ALLOWED


def test_one_that_nobody_was_told_of_was_not_closed_by_a_person() -> None:
    breaker = Told()
    breaker.deliver = lambda: None  # type: ignore[method-assign]
    breaker.see(10).see(10)
    assert breaker.is_open
    assert breaker.due is not None


def test_one_that_opened_anew_after_a_person_closed_it_is_not_taken_for_closed() -> None:
    breaker = Told().see(10)
    breaker.known = None
    assert not breaker.see(10).is_open
    breaker.deliver = lambda: None  # type: ignore[method-assign]
    assert breaker.see(0).see(10).is_open
    assert breaker.see(10).loss() is LossVerdict.BLOCKED


def test_a_person_is_heard_although_a_report_is_on_its_way() -> None:
    breaker = Told().scan(10)
    breaker.deliver = lambda: None  # type: ignore[method-assign]
    breaker.scan(11)
    breaker.known = None
    assert breaker.see(11).loss() is LossVerdict.ALLOWED
    assert breaker.due is None


def test_a_control_plane_that_will_not_close_it_is_believed() -> None:
    breaker = Told().scan(10)
    breaker.known = a_breaker(manual_reset_only=True)
    breaker.hear = lambda known: None  # type: ignore[method-assign]
    breaker.scan(10)
    assert breaker.is_open
    assert breaker.manual_reset_only
    assert breaker.loss() is LossVerdict.BLOCKED


def test_a_count_that_creeps_is_told_from_scan_to_scan() -> None:
    breaker = Told().scan(5).see(6).see(7)
    assert breaker.reports == [True]
    assert breaker.scan(8).reports == [True, True]
    assert breaker.scan(8).reports == [True, True, False]
