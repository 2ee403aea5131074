"""While clocks disagree, deadlines are measured with the earliest: operations.md#clocks-differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.core.clock_guard import OWN_CLOCK, SETTLE_SECONDS, TOLERANCE_SECONDS, ClockGuard

WALL = 1_800_000_000.0  # what the clock shows at boot time 0
PLANE = "the clock of the control plane"


def a_guard(**clocks: float) -> ClockGuard:
    """A guard that has seen its own clock at boot time 0, and then others that are off by so much."""
    guard = ClockGuard()
    guard.observe(OWN_CLOCK, WALL, 0.0)
    for name, off in clocks.items():
        guard.observe(name, WALL + off, 0.0)
    return guard


def test_a_clock_that_runs_normally_is_the_time() -> None:
    guard = a_guard()
    for boot in (1.0, 60.0, 86_400.0):
        guard.observe(OWN_CLOCK, WALL + boot, boot)
        assert guard.earliest(boot) == WALL + boot
        assert not guard.problem(boot)


def test_a_clock_that_is_corrected_slowly_is_followed() -> None:
    guard = a_guard()
    for minute in range(600):
        boot = minute * 60.0
        guard.observe(OWN_CLOCK, WALL + boot + minute, boot)  # a second a minute
        assert guard.earliest(boot) == WALL + boot + minute


@pytest.mark.parametrize("jump", [7500.0, -3600.0])
def test_a_jump_brings_no_deadline_forward(jump: float) -> None:
    guard = a_guard()
    guard.observe(OWN_CLOCK, WALL + jump + 10.0, 10.0)
    assert guard.earliest(10.0) <= WALL + 10.0
    assert "the clock of this host before it changed: " in guard.problem(10.0)


def test_moments_that_were_written_while_a_clock_was_set_back_are_not_old_when_it_is_right_again() -> None:
    guard = a_guard()
    guard.observe(OWN_CLOCK, WALL - 3600.0 + 10.0, 10.0)
    written = WALL - 3600.0 + 10.0
    guard.observe(OWN_CLOCK, WALL + 20.0, 20.0)
    assert guard.earliest(20.0) - written == 10.0
    guard.observe(OWN_CLOCK, WALL + 4000.0, 4000.0)
    assert guard.earliest(4000.0) == WALL + 4000.0
    assert not guard.problem(4000.0)


@pytest.mark.parametrize("jump", [7500.0, -3600.0])
def test_a_clock_that_keeps_its_jump_is_trusted_when_it_has_settled(jump: float) -> None:
    guard, steps = a_guard(), [10.0, 600.0, SETTLE_SECONDS - 1.0, SETTLE_SECONDS]
    for boot in steps:
        guard.observe(OWN_CLOCK, WALL + jump + boot, boot)
        if boot != steps[-1]:
            assert guard.problem(boot)
    assert not guard.problem(steps[-1])
    assert guard.earliest(steps[-1]) == WALL + jump + steps[-1]


def test_another_jump_starts_the_wait_again() -> None:
    guard = a_guard()
    guard.observe(OWN_CLOCK, WALL + 7500.0 + 3000.0, 3000.0)
    guard.observe(OWN_CLOCK, WALL + 9000.0 + 3500.0, 3500.0)
    guard.observe(OWN_CLOCK, WALL + 9000.0 + 3700.0, 3700.0)
    assert guard.earliest(3700.0) == WALL + 7500.0 + 3700.0
    guard.observe(OWN_CLOCK, WALL + 9000.0 + 6700.0, 6700.0)
    assert guard.earliest(6700.0) == WALL + 9000.0 + 6700.0


@pytest.mark.parametrize("off", [7500.0, -3600.0])
def test_of_two_clocks_that_disagree_the_earlier_counts(off: float) -> None:
    guard = a_guard(**{PLANE: off})
    guard.authority = PLANE
    assert guard.earliest(5.0) == WALL + 5.0 + min(0.0, off)
    assert ("host: " if off > 0 else "") in guard.problem(5.0)
    assert guard.problem(5.0)


def test_after_they_have_settled_the_clock_of_the_records_counts() -> None:
    guard = a_guard(**{PLANE: 7500.0})
    guard.authority = PLANE
    for boot in (100.0, SETTLE_SECONDS + 1.0):
        guard.observe(OWN_CLOCK, WALL + boot, boot)
        guard.observe(PLANE, WALL + 7500.0 + boot, boot)
    assert guard.earliest(4000.0) == WALL + 7500.0 + 4000.0
    assert not guard.problem(4000.0)


def test_clocks_that_agree_within_the_tolerance_leave_the_own_time_exact() -> None:
    guard = a_guard(**{PLANE: -2.0})
    guard.authority = PLANE
    assert guard.earliest(5.0) == WALL + 5.0


def test_two_processes_do_not_remind_each_other_of_a_jump_for_ever() -> None:
    one, other = ClockGuard(), ClockGuard()
    boot = 0.0
    while boot < 3 * SETTLE_SECONDS:
        jump = -3600.0 if 60.0 <= boot < 120.0 else 0.0
        one.observe(OWN_CLOCK, WALL + boot + jump, boot)
        other.observe(OWN_CLOCK, WALL + boot, boot)
        one.record_earliest("other", other.earliest_known(boot), boot)
        other.record_earliest("one", one.earliest_known(boot), boot)
        if 120.0 <= boot < 60.0 + SETTLE_SECONDS:
            assert other.earliest(boot) == WALL + boot - 3600.0
        if boot > 180.0 + SETTLE_SECONDS:
            assert (one.problem(boot), other.problem(boot)) == ("", "")
        boot += 30.0


def test_what_is_heard_counts_no_longer_when_nobody_says_it_any_more() -> None:
    guard = ClockGuard()
    guard.observe(OWN_CLOCK, WALL, 0.0)
    guard.record_earliest("a process that is gone", WALL - 600.0, 0.0)
    guard.observe(OWN_CLOCK, WALL + 60.0, 60.0)
    assert guard.earliest(60.0) == WALL + 60.0 - 600.0
    guard.observe(OWN_CLOCK, WALL + SETTLE_SECONDS, SETTLE_SECONDS)
    assert guard.earliest(SETTLE_SECONDS) == WALL + SETTLE_SECONDS


def test_a_clock_that_flaps_is_bounded_and_its_earliest_time_counts() -> None:
    guard = a_guard()
    for number in range(1000):
        guard.observe(OWN_CLOCK, WALL + 100.0 * (number % 50) + number, float(number))
    assert guard.earliest(1000.0) == WALL + 1000.0


def test_the_number_of_clocks_is_bounded() -> None:
    guard = a_guard()
    for number in range(100):
        guard.observe(f"controller {number}", WALL, 0.0)
    guard.observe("one more", WALL - 3600.0, 0.0)
    assert guard.earliest(0.0) == WALL


@given(
    st.lists(
        st.tuples(
            st.floats(0.1, 600.0),
            st.sampled_from([OWN_CLOCK, PLANE]),
            st.sampled_from([0.0, 0.0, 0.0, 7500.0, -3600.0]),
        ),
        max_size=40,
    )
)
def test_no_sequence_of_jumps_brings_a_deadline_forward(
    steps: list[tuple[float, str, float]],
) -> None:
    """A deadline of an hour or less is never concluded before so much time has passed."""
    guard, boot = a_guard(**{PLANE: 0.0}), 0.0
    guard.authority = PLANE
    off = {OWN_CLOCK: 0.0, PLANE: 0.0}
    recorded: list[tuple[float, float]] = []  # a moment of the records, and the boot time at which it was written
    for pause, name, jump in steps:
        boot += pause
        off[name] += jump
        for each, by in off.items():
            guard.observe(each, WALL + by + boot, boot)
        recorded.append((WALL + off[PLANE] + boot, boot))
        for moment, written_at in recorded:
            span = guard.earliest(boot) - moment
            assert span <= max(boot - written_at, 0.0) + TOLERANCE_SECONDS or boot - written_at >= SETTLE_SECONDS
