"""Data for plots: few points, peaks and gaps are kept, stops and drift are at their times."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from lcm.control_plane.store.port import Sample
from lcm.control_plane.web.timeline import TimelineEntry
from lcm.control_plane.web.workers.plots import (
    BUCKETS,
    PLOTTED_METRICS,
    PlotSeries,
    StoppedPeriod,
    build_series,
    plot_markers,
    stopped_periods,
)
from lcm.control_plane.workers.metrics import METRICS_SERIES
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.audit import Actor, ActorKind, WorkerHistoryEntry
from lcm.model.fleet.activity_summary import AutomatedAction
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.status import WorkerStatus
from tests.support.records.workers import NOW, a_worker
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane

SINCE = NOW - timedelta(hours=1)
CONTROLLER = Actor(kind=ActorKind.CONTROLLER, name="worker-controller")
MAX_POINTS = 300


def sample(seconds: float, cpu: float | None = 10.0, **facts: Any) -> MetricsSample:
    at = SINCE + timedelta(seconds=seconds)
    given_facts = {"worker_id": "w-1", "instance_id": "i-1", "labs_count": 1, **facts}
    return MetricsSample(collected_at=at, cpu_utilization=cpu, **given_facts)


def points(samples: list[MetricsSample], stops: tuple[StoppedPeriod, ...] = (), since: datetime = SINCE) -> PlotSeries:
    return build_series(samples, stops, since, NOW)


def step(minute: int, before: str, after: str, **facts: Any) -> WorkerHistoryEntry:
    at = SINCE + timedelta(minutes=minute)
    given_facts = {"worker_id": "w-1", "reason": "seen", "actor": CONTROLLER, "version": 1, **facts}
    return WorkerHistoryEntry.model_validate({"at": at, "from_status": before, "to_status": after, **given_facts})


@given(st.sets(st.integers(0, 3600), max_size=900), st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 600))))
def test_there_are_never_too_many_points_and_times_only_grow(seconds: set[int], spans: list[tuple[int, int]]) -> None:
    stops = tuple(
        StoppedPeriod(SINCE + timedelta(seconds=begin), SINCE + timedelta(seconds=begin + length), by_policy=False)
        for begin, length in spans
    )
    found = points([sample(each) for each in sorted(seconds)], stops)
    assert len(found.times) <= MAX_POINTS
    assert found.times == sorted(set(found.times))
    assert all(len(values) == len(found.times) for values in found.values.values())
    assert set(found.values) == set(PLOTTED_METRICS)


def test_few_points_stay_as_they_are_and_of_many_the_peak_stays() -> None:
    few = points([sample(minute * 60, cpu=minute) for minute in range(60)])
    assert few.values["cpu"] == [float(minute) for minute in range(60)]
    many = points([sample(second, cpu=99.0 if second == 1801 else 1.0) for second in range(3600)])
    assert len(many.times) <= BUCKETS + 1
    assert len(many.times) <= MAX_POINTS
    assert max(value or 0 for value in many.values["cpu"]) == 99.0


def test_not_even_a_stop_between_any_two_samples_makes_too_many_points() -> None:
    stops = tuple(
        StoppedPeriod(SINCE + timedelta(seconds=each + 0.2), SINCE + timedelta(seconds=each + 0.8), by_policy=True)
        for each in range(3600)
    )
    found = points([sample(each) for each in range(3601)], stops)
    assert len(found.times) <= MAX_POINTS
    assert found.values["cpu"].count(None) >= BUCKETS - 1


def test_a_gap_stays_a_gap() -> None:
    found = points([sample(minute * 60) for minute in (*range(10), *range(30, 40))])
    assert found.values["cpu"].count(None) == 1
    assert found.values["cpu"].index(None) == 10
    assert found.values["labs"][10] is None


def test_a_stop_between_two_samples_is_a_gap_however_short() -> None:
    stop = StoppedPeriod(SINCE + timedelta(seconds=605), SINCE + timedelta(seconds=610), by_policy=True)
    found = points([sample(600), sample(615), sample(630)], (stop,))
    assert found.values["cpu"] == [10.0, None, 10.0, 10.0]


def test_another_instance_begins_another_line() -> None:
    found = points([sample(0), sample(60), sample(120, instance_id="i-2")])
    assert found.values["cpu"] == [10.0, 10.0, None, 10.0]


def test_a_failed_source_leaves_a_gap_only_in_its_own_metric() -> None:
    found = points([sample(0), sample(60, cpu=None), sample(120)])
    assert found.values["cpu"] == [10.0, None, 10.0]
    assert found.values["labs"] == [1, 1, 1]


def test_old_samples_that_were_thinned_are_no_gaps() -> None:
    old = [sample(-5 * 3600 + number * 300) for number in range(5 * 12)]
    fresh = [sample(number * 10) for number in range(360)]
    found = points([*old, *fresh], since=NOW - timedelta(hours=6))
    assert None not in found.values["cpu"]
    late = points([*old, *fresh[180:]], since=NOW - timedelta(hours=6))
    assert late.values["cpu"].count(None) == 1


def test_times_of_stops() -> None:
    worker = a_worker(status="RUNNING")
    steps = [
        step(5, "STOPPED", "STARTING", stopped_by_policy=True),
        step(20, "RUNNING", "STOPPED", stopped_by_policy=False),
        step(30, "STOPPED", "STARTING", stopped_by_policy=False),
    ]
    minutes = [
        ((each.begin - SINCE) / timedelta(minutes=1), (each.end - SINCE) / timedelta(minutes=1), each.by_policy)
        for each in stopped_periods(steps, worker, SINCE, NOW)
    ]
    assert minutes == [(0, 5, True), (20, 30, False)]
    asleep = a_worker(status="STOPPED", stopped_by_policy=True)
    assert stopped_periods([], asleep, SINCE, NOW) == [StoppedPeriod(SINCE, NOW, by_policy=True)]
    assert stopped_periods([], worker, SINCE, NOW) == []
    assert stopped_periods(steps[:2], asleep, SINCE, NOW)[-1].end == NOW


def timeline_entry(minute: int, **facts: Any) -> TimelineEntry:
    at = SINCE + timedelta(minutes=minute)
    return TimelineEntry(at, ActorKind.CONTROLLER, "worker-controller", "reported", **facts)


def test_drift_is_marked_at_the_stop_and_not_at_the_repair() -> None:
    entries = [
        timeline_entry(5, before=WorkerStatus.RUNNING, after=WorkerStatus.STOPPING),
        timeline_entry(6, before=WorkerStatus.STOPPING, after=WorkerStatus.STOPPED),
        timeline_entry(
            7, before=WorkerStatus.STOPPED, after=WorkerStatus.STARTING, automated_action=AutomatedAction.RESTARTED
        ),
        timeline_entry(
            30, before=WorkerStatus.RUNNING, after=WorkerStatus.PENDING, automated_action=AutomatedAction.REPLACED
        ),
        timeline_entry(
            40, before=WorkerStatus.PROVISIONING, after=WorkerStatus.FAILED, automated_action=AutomatedAction.FAILED
        ),
    ]
    now_drifted = a_worker(drifted_at=(SINCE - timedelta(minutes=1), SINCE + timedelta(minutes=50)))
    markers = plot_markers(reversed(entries), now_drifted, SINCE)
    found = [((mark.at - SINCE) / timedelta(minutes=1), mark.kind) for mark in markers]
    assert found == [(5, "drift"), (30, "lost"), (40, "failed"), (50, "drift")]


async def test_the_page_gets_what_it_draws(plane: TestPlane) -> None:
    worker = await plane.running()
    now = clock.now()
    rows = [
        MetricsSample(
            worker_id=worker["id"], instance_id="i-alpha", collected_at=now - timedelta(minutes=each), **facts
        )
        for each, facts in ((90, {"cpu_utilization": 90.0}), (2, {"cpu_utilization": 20.0}), (1, {"labs_count": 3}))
    ]
    await plane.services.context.store.append_samples(
        METRICS_SERIES, [Sample(worker["id"], row.collected_at, row.model_dump_json().encode()) for row in rows]
    )
    stopped = (await plane.ask("POST", f"/api/workers/{worker['id']}/stop")).json()
    await plane.report(await plane.report(stopped, "STOPPING"), "STOPPED")
    visitor = await signed_in(plane, Role.VIEWER)
    response = await visitor.ask("GET", f"/workers/{worker['id']}/plots?hours=1")
    assert response.status_code == 200
    found = response.json()
    assert found["values"]["cpu"] == [20.0, None]
    assert found["values"]["labs"] == [None, 3]
    assert found["to"] - found["from"] == 3600
    assert [policy for _, _, policy in found["stops"]] == [False]
    assert found["note"] == ""
    day = (await visitor.ask("GET", f"/workers/{worker['id']}/plots?hours=24")).json()
    assert 90.0 in day["values"]["cpu"]
    odd = (await visitor.ask("GET", f"/workers/{worker['id']}/plots?hours=1000")).json()
    assert odd["to"] - odd["from"] == 3600


async def test_without_metrics_a_note_says_why(plane: TestPlane) -> None:
    fresh = await plane.create()
    visitor = await signed_in(plane, Role.VIEWER)
    found = (await visitor.ask("GET", f"/workers/{fresh['id']}/plots")).json()
    assert (found["times"], found["note"]) == ([], "No metrics yet. They are collected once the worker runs.")
    assert (await visitor.ask("GET", "/workers/w-none/plots")).status_code == 404
