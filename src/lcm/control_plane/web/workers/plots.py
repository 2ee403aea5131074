"""Figures of a worker for plots: thinned, with gaps left open, and with the times of stops and of drift."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from lcm.control_plane.records.kinds import AUDIT, HISTORY
from lcm.control_plane.web.timeline import timeline_of
from lcm.control_plane.workers.metrics import SERIES
from lcm.model.audit import ActorKind, HistoryEntry
from lcm.model.fleet.activity_summary import Deed
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from lcm.control_plane.store.port import Store
    from lcm.control_plane.web.timeline import Happening
    from lcm.model.worker.record import Worker

HOURS: Final = (1, 6, 24)
PARTS: Final = 149
"""Parts that a span is divided into. Each gives a point at most, and a gap one more: no plot has over 300."""

FIGURES: Final = {
    "cpu": "cpu_utilization",
    "memory": "memory_utilization",
    "disk": "disk_utilization",
    "labs": "labs_count",
    "nodes": "running_nodes",
}
_MOST_SAMPLES = 10_000
_AT_ONCE = 250
_MOST_LINES = 1000
_A_GAP = 3.0  # times the usual distance of two samples, and of two parts: old samples are kept every 5 minutes only
_HALTED = (WorkerStatus.STOPPING, WorkerStatus.STOPPED)


@dataclass(frozen=True, slots=True)
class Stop:
    """A time in STOPPED."""

    begin: datetime
    end: datetime
    by_policy: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment worth a line in the plot."""

    at: datetime
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Points:
    """Times and, for each name of `FIGURES`, a value at each time; None is a gap."""

    times: list[datetime]
    values: dict[str, list[float | None]]


async def read_plots(store: Store, worker: Worker, since: datetime, until: datetime) -> dict[str, Any]:
    """All that the page's plots show of a span."""
    rows = await store.series(SERIES, worker.id, since=since, limit=_MOST_SAMPLES)
    samples: list[MetricsSample] = []
    for number, row in enumerate(rows, 1):
        samples.append(MetricsSample.model_validate_json(row.body))
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)  # thousands of them: others have their turn in between
    lines = await store.journal(topics=[HISTORY, AUDIT], subjects=[worker.id], newest_first=True, limit=_MOST_LINES)
    recent = [line for line in lines if line.at >= since]
    told_since = recent[-1].at if len(recent) == _MOST_LINES else since
    steps = [HistoryEntry.model_validate_json(line.body) for line in reversed(recent) if line.topic == HISTORY]
    stops = stops_of(steps, worker, told_since, until)
    points = points_of([each for each in samples if each.collected_at <= until], stops, since, until)
    marks = marks_of(timeline_of(recent, full=False).happenings, worker, since)
    return {
        "from": _seconds(since),
        "to": _seconds(until),
        "times": [_seconds(each) for each in points.times],
        "values": points.values,
        "stops": [[_seconds(each.begin), _seconds(each.end), each.by_policy] for each in stops],
        "marks": [[_seconds(each.at), each.kind, each.words] for each in marks],
        "note": "" if points.times else _nothing(worker),
    }


def points_of(samples: Sequence[MetricsSample], stops: Sequence[Stop], since: datetime, until: datetime) -> Points:
    """Samples, the oldest first, as few points: of each part the highest, because a peak is what one looks for."""
    width = (until - since) / PARTS
    allowed = max(_A_GAP * width, _A_GAP * _usual_distance(samples))
    points = Points([], {name: [] for name in FIGURES})
    last: MetricsSample | None = None
    for part in _parts(samples, since, width):
        if last is not None and _is_gap(last, part[0], allowed, stops):
            _add(points, last.collected_at + (part[0].collected_at - last.collected_at) / 2, ())
        last = part[-1]
        _add(points, last.collected_at, part)
    return points


def stops_of(steps: Sequence[HistoryEntry], worker: Worker, since: datetime, until: datetime) -> list[Stop]:
    """Times in STOPPED, from all steps since a moment, the oldest first. What it is after the last, it still is."""
    stops: list[Stop] = []
    status = steps[0].from_status if steps else worker.status
    begin, by_policy = since, bool(steps[0].stopped_by_policy) if steps else worker.stopped_by_policy
    for step in steps:
        if status is WorkerStatus.STOPPED:
            stops.append(Stop(begin, step.at, by_policy))
        status, begin, by_policy = step.to_status, step.at, bool(step.stopped_by_policy)
    if status is WorkerStatus.STOPPED:
        stops.append(Stop(begin, until, by_policy))
    return stops


def marks_of(happenings: Iterable[Happening], worker: Worker, since: datetime) -> list[Mark]:
    """Stops from outside, lost instances and failures, the oldest first. `happenings` come newest first.

    That a stop came from outside the journal says only when it is dealt with: the step before is the stop.
    """
    drifted = {moment for moment in worker.drifted_at if moment >= since}
    marks: list[Mark] = []
    halted: datetime | None = None
    for each in reversed(list(happenings)):
        if each.deed in (Deed.RESTARTED, Deed.DRIFT_ACCEPTED):
            drifted.add(halted or each.at)
        elif each.deed in (Deed.GONE, Deed.REPLACED):
            marks.append(Mark(each.at, "lost", "instance lost"))
        elif each.after is WorkerStatus.FAILED:
            marks.append(Mark(each.at, "failed", "failed"))
        if each.after in _HALTED and each.kind is ActorKind.CONTROLLER and each.before not in _HALTED:
            halted = each.at
    marks += [Mark(moment, "drift", "stopped from outside") for moment in drifted]
    return sorted(marks, key=lambda mark: mark.at)


def _parts(samples: Sequence[MetricsSample], since: datetime, width: timedelta) -> Iterable[list[MetricsSample]]:
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


def _usual_distance(samples: Sequence[MetricsSample]) -> timedelta:
    distances = [(later.collected_at - earlier.collected_at).total_seconds() for earlier, later in pairwise(samples)]
    return timedelta(seconds=median(distances) if distances else 0)


def _is_gap(last: MetricsSample, following: MetricsSample, allowed: timedelta, stops: Sequence[Stop]) -> bool:
    if last.instance_id != following.instance_id:
        return True
    if any(stop.begin >= last.collected_at and stop.end <= following.collected_at for stop in stops):
        return True
    return following.collected_at - last.collected_at > allowed


def _add(points: Points, at: datetime, part: Sequence[MetricsSample]) -> None:
    points.times.append(at)
    for name, field in FIGURES.items():
        known = [value for sample in part if (value := getattr(sample, field)) is not None]
        points.values[name].append(max(known) if known else None)


def _seconds(moment: datetime) -> float:
    return round(moment.timestamp(), 1)


def _nothing(worker: Worker) -> str:
    if worker.instance_id is None and worker.status is not WorkerStatus.TERMINATED:
        return "There are no figures yet: they come as soon as it runs."
    if worker.status in (WorkerStatus.RUNNING, WorkerStatus.DRAINING):
        return "No figures were collected in this time. They come from EC2 and from CML as soon as those answer."
    return "No figures were collected in this time: it did not run."
