"""The manager itself: what controllers last reported, how the control plane is, what is suspended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lcm.control_plane.records.kinds import CONTROLLER_REPORTS
from lcm.control_plane.store.port import Put, StoreError
from lcm.core import clock
from lcm.model.system import (
    ControllerHealth,
    ControlPlaneHealth,
    MirrorHealth,
    ReceivedControllerReport,
    StreamHealth,
    SystemHealth,
    assess_controller,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.fleet.service import FleetService
    from lcm.control_plane.journal.mirror import MirrorCounters
    from lcm.control_plane.journal.sse import EventStream
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.workers.controller_writes import Leader
    from lcm.model.fleet.state import LeadershipTerm
    from lcm.model.system import ControllerReport

_MAX_LEAKS = 100


class MirrorStatus(Protocol):
    """What is read off the mirror."""

    figures: MirrorCounters

    @property
    def lag(self) -> float: ...

    @property
    def pending(self) -> int: ...

    def readiness(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class ProcessDetails:
    """What is told of the process. `about` may be completed after the start."""

    about: Mapping[str, object]
    store: str = ""
    mirrors: Sequence[MirrorStatus] = ()


class SystemService:
    """Takes controllers' reports and tells how all is. The last report of each is kept, and no line in the journal."""

    def __init__(
        self, plane: ControlPlaneContext, fleet: FleetService, stream: EventStream, process: ProcessDetails
    ) -> None:
        self._plane = plane
        self._fleet = fleet
        self._stream = stream
        self._process = process
        self._started_at = clock.now()
        self._latest: dict[str, ReceivedControllerReport] = {}  # also when the store cannot be asked

    async def report(self, leader: Leader, report: ControllerReport) -> ReceivedControllerReport:
        """A controller that leads says how it is."""

        async def attempt(change: Transaction) -> ReceivedControllerReport:
            await change.fence(leader.controller, leader.term)
            stored = await change.store.get(CONTROLLER_REPORTS, leader.controller)
            seen = ReceivedControllerReport(
                controller=leader.controller, term=leader.term, received_at=change.now, report=report
            )
            revision = None if stored is None else stored.revision
            change.write(Put(CONTROLLER_REPORTS, leader.controller, seen.model_dump_json().encode(), revision))
            return seen

        seen = await self._plane.records.change(leader.actor, attempt)
        self._latest[seen.controller] = seen
        return seen

    async def health(self) -> SystemHealth:
        """How all is now."""
        now = clock.now()
        reports = await self._reports()
        summary = await self._fleet.summary()
        leaders = {leader.controller: leader for leader in summary.leaders}
        leaks = [leak for _, seen in sorted(reports.items()) for leak in seen.report.leaks]
        return SystemHealth(
            plane=self._own(now),
            controllers=tuple(
                _controller_health(name, leaders.get(name), reports.get(name), now)
                for name in sorted({*leaders, *reports})
            ),
            hold=summary.hold,
            held_workers=summary.held_workers,
            breakers=summary.breakers,
            leaks=tuple(leaks[:_MAX_LEAKS]),
            leaks_total=sum(seen.report.leaks_total for seen in reports.values()),
        )

    async def _reports(self) -> dict[str, ReceivedControllerReport]:
        known = dict(self._latest)
        try:
            page = await self._plane.store.find(CONTROLLER_REPORTS)
        except StoreError:
            return known
        for stored in page.items:
            seen = ReceivedControllerReport.model_validate_json(stored.body)
            if seen.controller not in known or known[seen.controller].received_at < seen.received_at:
                known[seen.controller] = seen  # another control plane took it
        return known

    def _own(self, now: datetime) -> ControlPlaneHealth:
        about, mirrors, stream = self._process.about, self._process.mirrors, self._stream
        return ControlPlaneHealth(
            version=str(about.get("version", "unknown")),
            installation_id=str(about.get("installation_id", "")),
            store=self._process.store,
            coordination=str(about.get("coordination", "")),
            regions=self._plane.regions,
            started_at=self._started_at,
            uptime_seconds=(now - self._started_at).total_seconds(),
            mirror=_mirror_health(mirrors) if mirrors else None,
            stream=StreamHealth(
                clients=stream.clients,
                opened=stream.figures.opened,
                cut_off=stream.figures.cut_off,
                resets=stream.figures.resets,
                events=stream.figures.events,
            ),
        )


def _mirror_health(mirrors: Sequence[MirrorStatus]) -> MirrorHealth:
    """All of them as one: nobody can do anything about only one of them."""

    def total(name: str) -> int:
        return sum(getattr(mirror.figures, name) for mirror in mirrors)

    return MirrorHealth(
        lag_seconds=max(mirror.lag for mirror in mirrors),
        pending=sum(mirror.pending for mirror in mirrors),
        written=total("written"),
        deleted=total("deleted"),
        mended=total("mended"),
        failed=total("failed"),
        comparisons=total("comparisons"),
        trouble="; ".join(dict.fromkeys(word for mirror in mirrors for word in mirror.readiness())),
    )


def _controller_health(
    name: str, leader: LeadershipTerm | None, seen: ReceivedControllerReport | None, now: datetime
) -> ControllerHealth:
    verdict, said = assess_controller(seen, now)
    return ControllerHealth(
        name=name,
        verdict=verdict,
        said=said,
        term=leader.term if leader is not None else None,
        leads_since=leader.announced_at if leader is not None else None,
        startup_sweep_done=leader is not None and leader.startup_sweep_done,
        reported_at=seen.received_at if seen is not None else None,
        age_seconds=(now - seen.received_at).total_seconds() if seen is not None else None,
        report=seen.report if seen is not None else None,
    )
