"""Data for the plots of a worker: downsampled metrics with gaps, stopped periods, and markers of drift and failures."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from lcm.control_plane.records.kinds import AUDIT, WORKER_HISTORY
from lcm.control_plane.web.timeline import build_worker_timeline
from lcm.control_plane.workers.metrics import read_metrics
from lcm.model.audit import ActorKind, WorkerHistoryEntry
from lcm.model.fleet.activity_summary import AutomatedAction
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.status import CML_STATUSES, STOP_STATUSES, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import Store
    from lcm.control_plane.web.timeline import TimelineEntry
    from lcm.model.worker.record import Worker

PLOT_HOURS: Final = (1, 6, 24)
BUCKETS: Final = 149
"""A range is divided into this many buckets. Each gives at most a point and a gap: a plot has at most 300."""

PLOTTED_METRICS: Final = {
    "cpu": "cpu_utilization",
    "memory": "memory_utilization",
    "disk": "disk_utilization",
    "labs": "labs_count",
    "nodes": "running_nodes",
}
_MAX_SAMPLES = 10_000
_DECODE_BATCH = 250
_MAX_JOURNAL_ENTRIES = 1000
_GAP_FACTOR = (
    3.0  # times the median interval of samples, and the bucket width: old samples are kept every 5 minutes only
)


@dataclass(frozen=True, slots=True)
class StoppedPeriod:
    """A period in STOPPED."""

    begin: datetime
    end: datetime
    by_policy: bool


@dataclass(frozen=True, slots=True)
class PlotMarker:
    """A vertical line in the plot."""

    at: datetime
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class PlotSeries:
    """Times and, for each name of `PLOTTED_METRICS`, a value at each time; None is a gap."""

    times: list[datetime]
    values: dict[str, list[float | None]]


async def read_plots(store: Store, worker: Worker, since: datetime, until: datetime) -> dict[str, Any]:
    """The data of all plots of a range."""
    rows = await read_metrics(store, worker.id, since=since, limit=_MAX_SAMPLES)
    samples: list[MetricsSample] = []
    for number, row in enumerate(rows, 1):
        samples.append(MetricsSample.model_validate_json(row.body))
        if number % _DECODE_BATCH == 0:
            await asyncio.sleep(0)  # there may be thousands: let other requests run in between
    lines = await store.read_journal(
        topics=[WORKER_HISTORY, AUDIT], subjects=[worker.id], newest_first=True, limit=_MAX_JOURNAL_ENTRIES
    )
    recent = [line for line in lines if line.at >= since]
    complete_since = recent[-1].at if len(recent) == _MAX_JOURNAL_ENTRIES else since
    steps = [
        WorkerHistoryEntry.model_validate_json(line.body) for line in reversed(recent) if line.topic == WORKER_HISTORY
    ]
    stops = stopped_periods(steps, worker, complete_since, until)
    series = build_series([each for each in samples if each.collected_at <= until], stops, since, until)
    markers = plot_markers(build_worker_timeline(recent, full=False).entries, worker, since)
    return {
        "from": _epoch_seconds(since),
        "to": _epoch_seconds(until),
        "times": [_epoch_seconds(each) for each in series.times],
        "values": series.values,
        "stops": [[_epoch_seconds(each.begin), _epoch_seconds(each.end), each.by_policy] for each in stops],
        "marks": [[_epoch_seconds(each.at), each.kind, each.text] for each in markers],
        "note": "" if series.times else _no_data_note(worker),
    }


def build_series(
    samples: Sequence[MetricsSample], stops: Sequence[StoppedPeriod], since: datetime, until: datetime
) -> PlotSeries:
    """Downsample samples, oldest first. Each point is the maximum of its bucket, so that peaks stay visible."""
    width = (until - since) / BUCKETS
    allowed = max(_GAP_FACTOR * width, _GAP_FACTOR * _median_interval(samples))
    series = PlotSeries([], {name: [] for name in PLOTTED_METRICS})
    last: MetricsSample | None = None
    for bucket in _buckets(samples, since, width):
        if last is not None and _is_gap(last, bucket[0], allowed, stops):
            _append_point(series, last.collected_at + (bucket[0].collected_at - last.collected_at) / 2, ())
        last = bucket[-1]
        _append_point(series, last.collected_at, bucket)
    return series


def stopped_periods(
    steps: Sequence[WorkerHistoryEntry], worker: Worker, since: datetime, until: datetime
) -> list[StoppedPeriod]:
    """Periods in STOPPED since a time. `steps` are the steps since then, oldest first; the last one still applies."""
    stops: list[StoppedPeriod] = []
    status = steps[0].from_status if steps else worker.status
    begin, by_policy = since, bool(steps[0].stopped_by_policy) if steps else worker.stopped_by_policy
    for step in steps:
        if status is WorkerStatus.STOPPED:
            stops.append(StoppedPeriod(begin, step.at, by_policy))
        status, begin, by_policy = step.to_status, step.at, bool(step.stopped_by_policy)
    if status is WorkerStatus.STOPPED:
        stops.append(StoppedPeriod(begin, until, by_policy))
    return stops


def plot_markers(entries: Iterable[TimelineEntry], worker: Worker, since: datetime) -> list[PlotMarker]:
    """Stops outside LCM, lost instances and failures, oldest first. `entries` are newest first.

    The journal records that a stop came from outside only when LCM reacts to it. The stop itself is the step before.
    """
    drifted = {time for time in worker.drifted_at if time >= since}
    markers: list[PlotMarker] = []
    stopped_at: datetime | None = None
    for each in reversed(list(entries)):
        if each.automated_action in (AutomatedAction.RESTARTED, AutomatedAction.DRIFT_ACCEPTED):
            drifted.add(stopped_at or each.at)
        elif each.automated_action in (AutomatedAction.GONE, AutomatedAction.REPLACED):
            markers.append(PlotMarker(each.at, "lost", "instance lost"))
        elif each.after is WorkerStatus.FAILED:
            markers.append(PlotMarker(each.at, "failed", "failed"))
        if each.after in STOP_STATUSES and each.kind is ActorKind.CONTROLLER and each.before not in STOP_STATUSES:
            stopped_at = each.at
    markers += [PlotMarker(time, "drift", "stopped outside LCM") for time in drifted]
    return sorted(markers, key=lambda marker: marker.at)


def _buckets(samples: Sequence[MetricsSample], since: datetime, width: timedelta) -> Iterable[list[MetricsSample]]:
    bucket: list[MetricsSample] = []
    number = -1
    for sample in samples:
        sample_number = int((sample.collected_at - since) / width)
        if bucket and sample_number != number:
            yield bucket
            bucket = []
        number = sample_number
        bucket.append(sample)
    if bucket:
        yield bucket


def _median_interval(samples: Sequence[MetricsSample]) -> timedelta:
    intervals = [(later.collected_at - earlier.collected_at).total_seconds() for earlier, later in pairwise(samples)]
    return timedelta(seconds=median(intervals) if intervals else 0)


def _is_gap(last: MetricsSample, following: MetricsSample, allowed: timedelta, stops: Sequence[StoppedPeriod]) -> bool:
    if last.instance_id != following.instance_id:
        return True
    if any(stop.begin >= last.collected_at and stop.end <= following.collected_at for stop in stops):
        return True
    return following.collected_at - last.collected_at > allowed


def _append_point(series: PlotSeries, at: datetime, bucket: Sequence[MetricsSample]) -> None:
    series.times.append(at)
    for name, field in PLOTTED_METRICS.items():
        values = [value for sample in bucket if (value := getattr(sample, field)) is not None]
        series.values[name].append(max(values) if values else None)


def _epoch_seconds(time: datetime) -> float:
    return round(time.timestamp(), 1)


def _no_data_note(worker: Worker) -> str:
    if worker.instance_id is None and worker.status is not WorkerStatus.TERMINATED:
        return "No metrics yet. They are collected once the worker runs."
    if worker.status in CML_STATUSES:
        return "No metrics were collected in this period. They appear as soon as EC2 and CML respond."
    return "No metrics were collected in this period: the worker was not running."
