"""The instance cache: when an instance is gone, and later results over earlier ones."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lcm.cloud.instance_cache import VISIBILITY_GRACE_SECONDS, Absence, InstanceCache
from lcm.cloud.types import Instance, InstanceState, Sweep

ID = "i-1"
BASE = Instance(ID, InstanceState.RUNNING, "t3.large", "ami-1", datetime(2026, 1, 1, tzinfo=UTC))


def sweep(at: float, *instances: Instance, complete: bool = True) -> Sweep:
    return Sweep("r", {each.id: each for each in instances}, complete, at, "1")


def missed(sightings: InstanceCache, *moments: float) -> None:
    """Complete sweeps at these times without the instance, each followed by a lookup by id that fails to find it."""
    for at in moments:
        sightings.record_sweep(sweep(at), at + 1)
        sightings.record_description([ID], sweep(at + 2))


def gone(sightings: InstanceCache, since: float = 0.0, now: float = 10_000.0) -> bool:
    return sightings.is_gone(ID, since, now)


def test_nothing_seen_is_nothing_known() -> None:
    assert not gone(InstanceCache())


def test_terminated_is_gone_at_once_and_for_good() -> None:
    sightings = InstanceCache()
    sightings.record_sweep(sweep(5, replace(BASE, state=InstanceState.TERMINATED)), 6)
    assert gone(sightings, 0, 6)
    sightings.record_sweep(sweep(4000), 4001)
    assert sightings.instance(ID) is None
    assert gone(sightings, 0, 4001)


def test_a_live_instance_is_not_gone_even_if_it_was_terminated_before() -> None:
    sightings = InstanceCache()
    sightings.record_sweep(sweep(5, replace(BASE, state=InstanceState.TERMINATED)), 6)
    sightings.record_description([ID], sweep(20, BASE))
    assert not gone(sightings)


def test_other_states_are_not_gone() -> None:
    for state in InstanceState:
        if state is not InstanceState.TERMINATED:
            sightings = InstanceCache()
            sightings.record_sweep(sweep(5, replace(BASE, state=state)), 6)
            assert not gone(sightings)


def test_absent_from_three_complete_sweeps_over_five_minutes_and_then_by_id_is_gone() -> None:
    """worker-lifecycle.md#gone."""
    sightings = InstanceCache()
    missed(sightings, 1000, 1150)
    sightings.record_sweep(sweep(1300), 1301)
    assert not gone(sightings)
    sightings.record_description([ID], sweep(1302))
    assert gone(sightings)


def test_one_blip_of_the_index_proves_nothing() -> None:
    sightings = InstanceCache()
    missed(sightings, 1000)
    assert not gone(sightings)
    assert sightings.absence(ID, 0.0, 1003.0) == Absence(1000, 1000, 1002, 1)


def test_many_sweeps_within_five_minutes_and_two_over_hours_are_not_enough() -> None:
    sightings = InstanceCache()
    missed(sightings, *range(1000, 1300, 10))
    assert not gone(sightings)
    other = InstanceCache()
    missed(other, 1000, 9000)
    assert not gone(other)


def test_a_sweep_counts_once_however_often_the_id_is_looked_up() -> None:
    sightings = InstanceCache()
    missed(sightings, 1000, 1400)
    for at in (1403, 1500, 1700):
        sightings.record_description([ID], sweep(at))
    assert not gone(sightings)


def test_more_seconds_can_be_demanded() -> None:
    sightings = InstanceCache()
    missed(sightings, *range(1000, 2800, 60))
    assert gone(sightings)
    assert not sightings.is_gone(ID, 0.0, 10_000.0, 1800.0)
    missed(sightings, 2800)
    assert sightings.is_gone(ID, 0.0, 10_000.0, 1800.0)


def test_only_longer_after_the_launch_than_a_provider_may_lag() -> None:
    sightings = InstanceCache()
    missed(sightings, 1000, 1150, 1300)
    assert not gone(sightings, since=1300 - VISIBILITY_GRACE_SECONDS)
    assert gone(sightings, since=1300 - VISIBILITY_GRACE_SECONDS - 0.1)
    assert not gone(sightings, since=1010, now=1309)


def test_an_incomplete_sweep_or_lookup_proves_nothing() -> None:
    sightings = InstanceCache()
    missed(sightings, 1000, 1200)
    sightings.record_sweep(sweep(1400, complete=False), 1401)
    sightings.record_description([ID], sweep(1402))
    assert not gone(sightings)
    sightings.record_sweep(sweep(1500), 1501)
    sightings.record_description([ID], sweep(1502, complete=False))
    assert not gone(sightings)


def test_a_partial_sweep_does_not_replace_a_complete_one() -> None:
    sightings = InstanceCache()
    missed(sightings, 1000, 1200)
    sightings.record_sweep(sweep(1400, BASE), 1401)
    sightings.record_sweep(sweep(1500, complete=False), 1501)
    sightings.record_description([ID], sweep(1502))
    assert not gone(sightings)


def test_a_lookup_before_the_end_of_the_sweep_does_not_count() -> None:
    sightings = InstanceCache()
    missed(sightings, 1000, 1200)
    sightings.record_sweep(sweep(1400), 1410)
    sightings.record_description([ID], sweep(1405))
    assert not gone(sightings)
    sightings.record_description([ID], sweep(1410))
    assert gone(sightings)


def test_one_sighting_restarts_the_count() -> None:
    sightings = InstanceCache()
    missed(sightings, 1000, 1200)
    sightings.record_description([ID], sweep(1300, BASE))
    missed(sightings, 1400, 1500, 1600)
    assert not gone(sightings)
    missed(sightings, 1700)
    assert gone(sightings)
    sightings.record_sweep(sweep(1800, BASE, complete=False), 1801)
    assert not gone(sightings)
    missed(sightings, 1900)
    assert not gone(sightings)


def test_a_change_of_leader_restarts_the_count() -> None:
    sightings = InstanceCache()
    missed(sightings, 1000, 1200)
    sightings.record_sweep(sweep(1400), 1401)
    sightings.restart_absences(1402)
    # The lookup follows a sweep of the former leader: that sweep does not count.
    sightings.record_description([ID], sweep(1403))
    missed(sightings, 1500, 1600)
    assert not gone(sightings)
    missed(sightings, 1800)
    assert gone(sightings)


def test_an_early_result_that_arrives_late_changes_nothing() -> None:
    sightings = InstanceCache()
    sightings.record_sweep(sweep(1000, replace(BASE, state=InstanceState.STOPPED)), 1001)
    assert sightings.record_description([ID], sweep(990, BASE)) == []
    seen = sightings.instance(ID)
    assert seen is not None
    assert seen.state is InstanceState.STOPPED
    sightings.record_description([ID], sweep(995))
    assert sightings.instance(ID) is not None


def test_the_last_lookup_is_the_latest_that_found_or_requested_the_id() -> None:
    sightings = InstanceCache()
    assert sightings.last_lookup(ID) is None
    sightings.record_sweep(sweep(1000), 1001)
    assert sightings.last_lookup(ID) is None
    sightings.record_description([ID], sweep(1002))
    assert sightings.last_lookup(ID) == (None, 1002)
    sightings.record_sweep(sweep(1030), 1031)
    assert sightings.last_lookup(ID) == (None, 1002)
    sightings.record_sweep(sweep(1060, BASE), 1061)
    assert sightings.last_lookup(ID) == (BASE, 1060)
    sightings.record_description([ID], sweep(1050))
    assert sightings.last_lookup(ID) == (BASE, 1060)
    sightings.record_description([ID], sweep(1090, complete=False))
    assert sightings.last_lookup(ID) == (BASE, 1060)
    sightings.record_description([ID], sweep(1095))
    assert sightings.last_lookup(ID) == (None, 1095)


def test_a_state_from_before_the_last_start_does_not_count_whenever_it_was_requested() -> None:
    """Pages may show old states after new ones. A start changes the launch time."""
    stopped = replace(BASE, state=InstanceState.STOPPED)
    started = replace(BASE, state=InstanceState.PENDING, launched_at=BASE.launched_at + timedelta(hours=1))
    sightings = InstanceCache()
    sightings.record_description([ID], sightings.with_last_starts(sweep(1001, stopped)))
    assert sightings.record_sweep(sightings.with_last_starts(sweep(1000, started)), 1002) == [started]
    assert sightings.last_lookup(ID) == (started, 1001)
    sightings.record_description([ID], sightings.with_last_starts(sweep(1003, stopped)))
    assert sightings.last_lookup(ID) == (started, 1003)
    over = replace(started, state=InstanceState.STOPPED)
    sightings.record_description([ID], sightings.with_last_starts(sweep(1005, over)))
    sightings.record_description([ID], sightings.with_last_starts(sweep(1004, started)))
    assert sightings.instance(ID) == over, "stopped since that start"


def test_changes_are_reported_once() -> None:
    sightings = InstanceCache()
    assert sightings.record_sweep(sweep(1, BASE), 2) == [BASE]
    assert sightings.record_sweep(sweep(3, replace(BASE)), 4) == []
    moved = replace(BASE, public_ip="198.18.0.1")
    assert sightings.record_description([ID], sweep(5, moved)) == [moved]


def test_the_cache_does_not_grow() -> None:
    sightings = InstanceCache()
    for number in range(50):
        ended = replace(BASE, id=f"i-{number}", state=InstanceState.TERMINATED)
        sightings.record_sweep(sweep(number * 86400.0, ended), number * 86400.0)
        sightings.record_description([f"x-{number}"], sweep(number * 86400.0 + 1))
    assert len(sightings._seen) == 1
    assert len(sightings._ended) <= 3
    assert len(sightings._absent) <= 2
    assert len(sightings._lookups) == 1
