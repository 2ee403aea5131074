"""Whether confirmed bookings fit together, counted from the records, one instant after the other. Pure.

It shares no code with the admission of bookings. Where it does not know better it assumes that a worker can serve.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

OPEN = ("CONFIRMED", "WARMING", "ACTIVE")
ASSIGNED = ("SCHEDULED", "INSTANTIATING", "RUNNING", "STOPPING")
_FOREVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Records:
    """All records at one time."""

    bookings: Mapping[str, dict[str, Any]]
    workers: Mapping[str, dict[str, Any]]
    lablets: Mapping[str, dict[str, Any]]
    teams: Mapping[str, dict[str, Any]]
    scaling: Mapping[str, Any]


def moment(text: str) -> datetime:
    """An instant of a record."""
    return datetime.fromisoformat(text)


def misfits(records: Records, booking: dict[str, Any], begin: datetime, end: datetime) -> Iterator[str]:
    """What is exceeded while this booking takes place."""
    now = moment(booking["updated_at"])
    begin = max(begin, now)
    taken = [(each, part) for each in records.bookings.values() for part in each["occurrences"] if _is_open(part)]
    starts = {moment(part["warm_up_at"]) for _, part in taken}
    for at in sorted({begin, *(each for each in starts if begin < each < end)}):
        if at >= end:
            continue
        there = [each for each, part in taken if moment(part["warm_up_at"]) <= at < moment(part["ends_at"])]
        yield from _too_many_workers(records, booking["aws_region"], there, at, now)
        if booking["requirements"]["license"] or _started_for(records, booking, there, at, now):
            yield from _too_many_licenses(records, there, at, now)
        yield from _too_many_seats(records, booking["team"], there, at)


def walk_ins(records: Records, worker_id: str) -> list[dict[str, Any]]:
    """The lablets of no booking that are on a worker."""
    return [
        each
        for each in records.lablets.values()
        if each["worker_id"] == worker_id and each["status"] in ASSIGNED and each["booking_id"] is None
    ]


def earliest_end(lablet: dict[str, Any], now: datetime) -> datetime:
    """When a lablet that nobody ends is over at the earliest."""
    if not lablet["wanted"]:
        return now
    lives, began = lablet["time_to_live_minutes"], lablet["running_since"]
    ends = [] if lives is None else [(now if began is None else moment(began)) + timedelta(minutes=lives)]
    return min([*ends, *([] if lablet["ends_at"] is None else [moment(lablet["ends_at"])])], default=_FOREVER)


def will_register(worker: dict[str, Any]) -> bool:
    """Whether a worker has a license, or takes one as it is."""
    if worker["status"] == "TERMINATED" or worker["license_status"] == "failed":
        return False
    running = worker["desired_status"] == "RUNNING" and bool(worker.get("has_license_token"))
    return worker["license_status"] == "registered" or running


def _is_open(occurrence: dict[str, Any]) -> bool:
    return occurrence["status"] in OPEN


def _can_serve(records: Records, worker: dict[str, Any], at: datetime, now: datetime) -> bool:
    if worker["status"] == "FAILED" or worker["desired_status"] == "TERMINATED":
        return False
    hold = worker["hold"]
    if hold is not None and (hold["until"] is None or moment(hold["until"]) > at):
        return False
    return all(earliest_end(each, now) <= at for each in walk_ins(records, worker["id"]))


def _too_many_workers(
    records: Records, region: str, there: Sequence[dict[str, Any]], at: datetime, now: datetime
) -> Iterator[str]:
    live = [each for each in _live(records) if each["aws_region"] == region]
    serving = [each for each in live if _can_serve(records, each, at, now)]
    usable = Counter(each["template_name"] for each in serving)
    needed = Counter[str]()
    for each in there:
        if each["aws_region"] == region:
            needed[each["template"]] += each["workers"]
    count = sum(max(needed[name], usable[name]) for name in needed.keys() | usable.keys()) + len(live) - len(serving)
    most = records.scaling.get("max_workers_per_region", 10)
    if count > most:
        yield f"{count} workers of {region} at {at:%d %H:%M}, at most {most}: {_names(there)}"


def _too_many_licenses(records: Records, there: Sequence[dict[str, Any]], at: datetime, now: datetime) -> Iterator[str]:
    pool = records.scaling.get("license_pool_size", 0)
    if not pool:
        return
    registered = [each for each in _live(records) if each["license_status"] == "registered"]
    usable = Counter(
        (each["aws_region"], each["template_name"]) for each in registered if _can_serve(records, each, at, now)
    )
    needed = Counter[tuple[str, str]]()
    for each in there:
        if each["requirements"]["license"]:
            needed[each["aws_region"], each["template"]] += each["workers"]
    count = len(registered) + sum(max(0, needed[kind] - usable[kind]) for kind in needed)
    if count > pool:
        yield f"{count} licenses at {at:%d %H:%M}, the pool has {pool}: {_names(there)}"


def _started_for(
    records: Records, booking: dict[str, Any], there: Sequence[dict[str, Any]], at: datetime, now: datetime
) -> bool:
    """Whether stopped workers that would register have to serve it, since all others are needed."""
    kind = (booking["aws_region"], booking["template"])
    alike = [each for each in _live(records) if (each["aws_region"], each["template_name"]) == kind]
    serving = [each for each in alike if _can_serve(records, each, at, now)]
    needed = sum(each["workers"] for each in there if (each["aws_region"], each["template"]) == kind)
    registers = [each for each in serving if each.get("has_license_token") and not will_register(each)]
    return bool(registers) and needed >= len(serving)


def _too_many_seats(records: Records, team: str, there: Sequence[dict[str, Any]], at: datetime) -> Iterator[str]:
    most = records.teams.get(team, {}).get("limits", {}).get("max_seats")
    count = sum(each["seats"] for each in there if each["team"] == team)
    if most is not None and count > most:
        yield f"{count} seats of a team at {at:%d %H:%M}, at most {most}: {_names(there)}"


def _live(records: Records) -> Iterable[dict[str, Any]]:
    return [each for each in records.workers.values() if each["status"] != "TERMINATED"]


def _names(there: Sequence[dict[str, Any]]) -> str:
    return ", ".join(sorted(each["name"] for each in there))
