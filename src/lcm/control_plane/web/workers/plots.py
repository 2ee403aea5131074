"""Figures of a worker for plots: thinned, with gaps left open, and with the times of stops and of drift."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from lcm.control_plane.records.kinds import AUDIT, WORKER_HISTORY
from lcm.control_plane.web.timeline import build_worker_timeline
from lcm.control_plane.workers.metrics import METRICS_SERIES
from lcm.model.audit import ActorKind, WorkerHistoryEntry
from lcm.model.fleet.activity_summary import AutomatedAction
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import Store
    from lcm.control_plane.web.timeline import TimelineEntry
    from lcm.model.worker.record import Worker

PLOT_HOURS: Final = (1, 6, 24)
BUCKETS: Final = 149
"""Parts that a span is divided into. Each gives a point at most, and a gap one more: no plot has over 300."""

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
    3.0  # times the usual distance of two samples, and of two parts: old samples are kept every 5 minutes only
)
_STOP_STATUSES = (WorkerStatus.STOPPING, WorkerStatus.STOPPED)


@dataclass(frozen=True, slots=True)
class StoppedPeriod:
    """A time in STOPPED."""

    begin: datetime
    end: datetime
    by_policy: bool


@dataclass(frozen=True, slots=True)
class PlotMarker:
    """A moment worth a line in the plot."""

    at: datetime
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class PlotSeries:
    """Times and, for each name of `PLOTTED_METRICS`, a value at each time; None is a gap."""

    times: list[datetime]
    values: dict[str, list[float | None]]


async def read_plots(store: Store, worker: Worker, since: datetime, until: datetime) -> dict[str, Any]:
    """All that the page's plots show of a span."""
    rows = await store.series(METRICS_SERIES, worker.id, since=since, limit=_MAX_SAMPLES)
    samples: list[MetricsSample] = []
    for number, row in enumerate(rows, 1):
        samples.append(MetricsSample.model_validate_json(row.body))
        if number % _DECODE_BATCH == 0:
            await asyncio.sleep(0)  # thousands of them: others have their turn in between
    lines = await store.journal(
        topics=[WORKER_HISTORY, AUDIT], subjects=[worker.id], newest_first=True, limit=_MAX_JOURNAL_ENTRIES
    )
    recent = [line for line in lines if line.at >= since]
    told_since = recent[-1].at if len(recent) == _MAX_JOURNAL_ENTRIES else since
    steps = [
        WorkerHistoryEntry.model_validate_json(line.body) for line in reversed(recent) if line.topic == WORKER_HISTORY
    ]
    stops = stopped_periods(steps, worker, told_since, until)
    points = build_series([each for each in samples if each.collected_at <= until], stops, since, until)
    marks = plot_markers(build_worker_timeline(recent, full=False).happenings, worker, since)
    return {
        "from": _epoch_seconds(since),
        "to": _epoch_seconds(until),
        "times": [_epoch_seconds(each) for each in points.times],
        "values": points.values,
        "stops": [[_epoch_seconds(each.begin), _epoch_seconds(each.end), each.by_policy] for each in stops],
        "marks": [[_epoch_seconds(each.at), each.kind, each.words] for each in marks],
        "note": "" if points.times else _no_data_note(worker),
    }


def build_series(
    samples: Sequence[MetricsSample], stops: Sequence[StoppedPeriod], since: datetime, until: datetime
) -> PlotSeries:
    """Samples, the oldest first, as few points: of each part the highest, because a peak is what one looks for."""
    width = (until - since) / BUCKETS
    allowed = max(_GAP_FACTOR * width, _GAP_FACTOR * _median_interval(samples))
    points = PlotSeries([], {name: [] for name in PLOTTED_METRICS})
    last: MetricsSample | None = None
    for part in _buckets(samples, since, width):
        if last is not None and _is_gap(last, part[0], allowed, stops):
            _append_point(points, last.collected_at + (part[0].collected_at - last.collected_at) / 2, ())
        last = part[-1]
        _append_point(points, last.collected_at, part)
    return points


def stopped_periods(
    steps: Sequence[WorkerHistoryEntry], worker: Worker, since: datetime, until: datetime
) -> list[StoppedPeriod]:
    """Times in STOPPED, from all steps since a moment, the oldest first. What it is after the last, it still is."""
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


def plot_markers(happenings: Iterable[TimelineEntry], worker: Worker, since: datetime) -> list[PlotMarker]:
    """Stops from outside, lost instances and failures, the oldest first. `happenings` come newest first.

    That a stop came from outside the journal says only when it is dealt with: the step before is the stop.
    """
    drifted = {moment for moment in worker.drifted_at if moment >= since}
    marks: list[PlotMarker] = []
    halted: datetime | None = None
    for each in reversed(list(happenings)):
        if each.deed in (AutomatedAction.RESTARTED, AutomatedAction.DRIFT_ACCEPTED):
            drifted.add(halted or each.at)
        elif each.deed in (AutomatedAction.GONE, AutomatedAction.REPLACED):
            marks.append(PlotMarker(each.at, "lost", "instance lost"))
        elif each.after is WorkerStatus.FAILED:
            marks.append(PlotMarker(each.at, "failed", "failed"))
        if each.after in _STOP_STATUSES and each.kind is ActorKind.CONTROLLER and each.before not in _STOP_STATUSES:
            halted = each.at
    marks += [PlotMarker(moment, "drift", "stopped from outside") for moment in drifted]
    return sorted(marks, key=lambda mark: mark.at)


def _buckets(samples: Sequence[MetricsSample], since: datetime, width: timedelta) -> Iterable[list[MetricsSample]]:
    part: list[MetricsSample] = []
    number = -1
    for sample in samples:
        its_number = int((sample.collected_at - since) / width)
        if part and its_number != number:
            yield part
            part = []
        number = its_number
        part.append(sample)
    if part:
        yield part


def _median_interval(samples: Sequence[MetricsSample]) -> timedelta:
    distances = [(later.collected_at - earlier.collected_at).total_seconds() for earlier, later in pairwise(samples)]
    return timedelta(seconds=median(distances) if distances else 0)


def _is_gap(last: MetricsSample, following: MetricsSample, allowed: timedelta, stops: Sequence[StoppedPeriod]) -> bool:
    if last.instance_id != following.instance_id:
        return True
    if any(stop.begin >= last.collected_at and stop.end <= following.collected_at for stop in stops):
        return True
    return following.collected_at - last.collected_at > allowed


def _append_point(points: PlotSeries, at: datetime, part: Sequence[MetricsSample]) -> None:
    points.times.append(at)
    for name, field in PLOTTED_METRICS.items():
        known = [value for sample in part if (value := getattr(sample, field)) is not None]
        points.values[name].append(max(known) if known else None)


def _epoch_seconds(moment: datetime) -> float:
    return round(moment.timestamp(), 1)


def _no_data_note(worker: Worker) -> str:
    if worker.instance_id is None and worker.status is not WorkerStatus.TERMINATED:
        return "There are no figures yet: they come as soon as it runs."
    if worker.status in (WorkerStatus.RUNNING, WorkerStatus.DRAINING):
        return "No figures were collected in this time. They come from EC2 and from CML as soon as those answer."
    return "No figures were collected in this time: it did not run."
