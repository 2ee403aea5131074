"""The history of the fleet: a sample every five minutes, kept for two days, and one every hour, kept for 35 days.

Each sample is a document whose id is its interval and time. Of several control planes that take it at once, the first
one stores it, and the others find it stored. So there are at most 1,416 samples, whatever the size of the fleet.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import structlog

from lcm.control_plane.records.kinds import FLEET_HISTORY, WORKERS, find_all
from lcm.control_plane.store.port import Delete, Put, RevisionConflictError, Sort, Where
from lcm.core import clock
from lcm.core.clock_guard import TOLERANCE_SECONDS
from lcm.core.hosting import HostedService, cancel_and_wait
from lcm.model.fleet.history import HISTORY_RANGES, FleetHistory, FleetSample, FleetUse, sample_fleet

if TYPE_CHECKING:
    from lcm.control_plane.fleet.service import FleetService
    from lcm.control_plane.store.port import FieldValue, Store
    from lcm.model.fleet.history import HistoryRange

log = structlog.get_logger(__name__)

SAMPLE_INTERVAL: Final = timedelta(minutes=5)
_HOUR: Final = timedelta(hours=1)
RETENTION: Final = {SAMPLE_INTERVAL: timedelta(days=2), _HOUR: timedelta(days=35)}
_MAX_SAMPLES = 1_000
_MAX_DELETED = 100  # a run: far more than expire meanwhile
_MAX_DELAY = 20.0
"""Seconds. Control planes come at different times, so that usually only one reads the fleet."""


class FleetHistoryService:
    """Takes samples of the fleet and reads them."""

    def __init__(self, store: Store, fleet: FleetService) -> None:
        self._store = store
        self._fleet = fleet

    async def record(self) -> bool:
        """Store the samples of this interval and hour unless they are stored; returns whether this call stored any."""
        now = clock.now()
        due = {interval: _begin(now, interval) for interval in RETENTION}
        ids = {interval: _sample_id(interval, at) for interval, at in due.items()}
        present = await self._store.get_many(FLEET_HISTORY, list(ids.values()))
        missing = [interval for interval in RETENTION if ids[interval] not in present]
        if not missing:
            return False
        used, lablets = await self._read_use()
        sample = sample_fleet(now, await self._fleet.summary(), used, lablets)
        puts = [sample_put(interval, sample.model_copy(update={"at": due[interval]})) for interval in missing]
        try:
            await self._store.commit(puts)
        except RevisionConflictError:
            return False  # another control plane was faster
        return True

    async def read(self, history_range: HistoryRange) -> FleetHistory:
        """The samples of a range. Those of the future are left out: a clock was ahead."""
        length, interval = HISTORY_RANGES[history_range]
        now = clock.now()
        since, until = now - length, now + timedelta(seconds=TOLERANCE_SECONDS)
        where = Where(
            any_of={"interval": [_seconds(interval)]},
            at_least={"at": _text(since)},
            below={"at": _text(until)},
        )
        page = await self._store.find(FLEET_HISTORY, where, sort=Sort("at"), limit=_MAX_SAMPLES)
        return FleetHistory(
            range=history_range,
            since=since,
            until=now,
            interval_seconds=_seconds(interval),
            items=tuple(FleetSample.model_validate_json(stored.body) for stored in page.items),
        )

    async def remove_expired(self) -> int:
        """Remove samples that are too old; returns the number."""
        removed = 0
        for interval, kept_for in RETENTION.items():
            before = _text(clock.earliest_now() - kept_for)
            where = Where(any_of={"interval": [_seconds(interval)]}, below={"at": before})
            page = await self._store.find(FLEET_HISTORY, where, sort=Sort("at"), limit=_MAX_DELETED)
            for stored in page.items:
                try:
                    await self._store.commit([Delete(FLEET_HISTORY, stored.id, stored.revision)])
                except RevisionConflictError:
                    continue  # another control plane removed it
                removed += 1
        return removed

    async def _read_use(self) -> tuple[FleetUse, int]:
        """What lablets use of the ready workers: one read of these, page by page, without decoding whole records."""
        cpu_cores = memory_gb = 0.0
        nodes = lablets = 0
        async for stored in find_all(self._store, WORKERS, Where(any_of={"ready": [True]})):
            allocation = json.loads(stored.body).get("allocation") or {}
            cpu_cores += allocation.get("cpu_cores", 0)
            memory_gb += allocation.get("memory_gb", 0)
            nodes += allocation.get("nodes", 0)
            lablets += allocation.get("lablets", 0)
        return FleetUse(cpu_cores=round(cpu_cores, 3), memory_gb=round(memory_gb, 3), nodes=nodes), lablets


class FleetHistoryRecorder(HostedService):
    """Takes a sample at the start and then in every interval. A failed one is tried again in the next interval."""

    def __init__(self, history: FleetHistoryService) -> None:
        super().__init__("fleet-history")
        self._history = history

    async def start(self) -> None:
        """The first sample is taken at once."""
        self._spawn(self._run(), "samples")

    async def stop(self) -> None:
        """A sample in progress is dropped: each is one commit."""
        await cancel_and_wait(list(self._background))

    async def _run(self) -> None:
        while True:
            try:
                await self._history.record()
                await self._history.remove_expired()
            except Exception:
                log.exception("fleet history was not recorded; will retry", retry_in_seconds=_seconds(SAMPLE_INTERVAL))
            now = clock.now()
            wait = (_begin(now, SAMPLE_INTERVAL) + SAMPLE_INTERVAL - now).total_seconds()
            await asyncio.sleep(wait + clock.rng().uniform(0.0, _MAX_DELAY))


def _begin(at: datetime, interval: timedelta) -> datetime:
    seconds = _seconds(interval)
    return datetime.fromtimestamp(at.timestamp() // seconds * seconds, UTC)


def _seconds(interval: timedelta) -> int:
    return int(interval.total_seconds())


def _text(at: datetime) -> str:
    """A time as sortable text."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _sample_id(interval: timedelta, at: datetime) -> str:
    return f"{_seconds(interval)}-{_text(at)}"


def sample_put(interval: timedelta, sample: FleetSample) -> Put:
    """The document of a sample that was taken at the begin of its interval."""
    fields: dict[str, FieldValue] = {"at": _text(sample.at), "interval": _seconds(interval)}
    return Put(FLEET_HISTORY, _sample_id(interval, sample.at), sample.model_dump_json().encode(), None, fields)
