"""LCM itself: its installation id, its health, and the metrics of the mirrors, the event stream and the cost.

Health combines the last reports of controllers, the control plane's own state, holds and breakers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.state_reads import read_controller_reports, read_leaks
from lcm.control_plane.records.kinds import CONTROLLER_REPORTS, INSTALLATION
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Put, StoreError
from lcm.core import clock
from lcm.model.fleet.state import Installation
from lcm.model.notification.alert import leak_changes
from lcm.model.problems import ProblemCode
from lcm.model.system import (
    MAX_LEAKS,
    ControllerHealth,
    ControlPlaneHealth,
    MirrorHealth,
    NotificationHealth,
    ReceivedControllerReport,
    StreamHealth,
    SystemHealth,
    assess_controller,
    with_leaks_before,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from prometheus_client.metrics_core import Metric

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.fleet.service import FleetService
    from lcm.control_plane.journal.mirror import MirrorCounters
    from lcm.control_plane.journal.sse import EventStream
    from lcm.control_plane.notifications.sender import NotificationSender
    from lcm.control_plane.records.unit_of_work import Leader, Transaction
    from lcm.control_plane.store.port import Store
    from lcm.model.fleet.state import FleetSummary, LeadershipTerm
    from lcm.model.system import ControllerReport


_COST_TIMEOUT_SECONDS = 2.0


class MirrorStatus(Protocol):
    """What is read from a mirror."""

    counters: MirrorCounters

    @property
    def lag(self) -> float: ...

    @property
    def pending(self) -> int: ...

    def degradation(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class ControlPlaneProcess:
    """What is reported about the process. `about` may be completed after the start."""

    about: Mapping[str, object]
    store: str = ""
    mirrors: Sequence[MirrorStatus] = ()
    sender: NotificationSender | None = None


class SystemService:
    """Stores controllers' reports and reports system health. The last report of each is stored, not in the journal."""

    def __init__(
        self, context: ControlPlaneContext, fleet: FleetService, stream: EventStream, process: ControlPlaneProcess
    ) -> None:
        self._context = context
        self._fleet = fleet
        self._stream = stream
        self._process = process
        self._started_at = clock.now()

    async def report(self, leader: Leader, report: ControllerReport) -> ReceivedControllerReport:
        """Store the report of a leading controller."""

        async def attempt(tx: Transaction) -> ReceivedControllerReport:
            stored = await tx.store.get(CONTROLLER_REPORTS, leader.controller)
            before = None if stored is None else read_or_skip(stored, ReceivedControllerReport, "controller report")
            leaks = () if before is None else before.report.leaks
            leaks_total = 0 if before is None else before.report.leaks_total
            received = ReceivedControllerReport(
                controller=leader.controller,
                term=leader.term,
                received_at=tx.now,
                report=with_leaks_before(report, leaks, leaks_total),
            )
            revision = None if stored is None else stored.revision
            tx.stage(Put(CONTROLLER_REPORTS, leader.controller, received.model_dump_json().encode(), revision))
            tx.alert(leak_changes(leaks, received.report.leaks))
            return received

        return await self._context.unit_of_work.run_fenced(leader, attempt)

    async def health(self) -> SystemHealth:
        """The current health of the system."""
        now = clock.now()
        reports = await read_controller_reports(self._context.store)
        summary = await self._fleet.summary()
        leaders = {leader.controller: leader for leader in summary.leaders}
        leaks, leaks_total = await read_leaks(self._context.store, reports)
        return SystemHealth(
            plane=self._own(now),
            controllers=tuple(
                _controller_health(name, leaders.get(name), reports.get(name), now)
                for name in sorted({*leaders, *reports})
            ),
            hold=summary.hold,
            held_workers=summary.held_workers,
            breakers=summary.breakers,
            leaks=tuple(leaks[:MAX_LEAKS]),
            leaks_total=leaks_total,
        )

    def _own(self, now: datetime) -> ControlPlaneHealth:
        about, mirrors, stream = self._process.about, self._process.mirrors, self._stream
        return ControlPlaneHealth(
            version=str(about.get("version", "unknown")),
            installation_id=str(about.get("installation_id", "")),
            store=self._process.store,
            coordination=str(about.get("coordination", "")),
            regions=self._context.regions,
            started_at=self._started_at,
            uptime_seconds=(now - self._started_at).total_seconds(),
            mirror=_mirror_health(mirrors) if mirrors else None,
            stream=StreamHealth(
                clients=stream.clients,
                opened=stream.counters.opened,
                cut_off=stream.counters.cut_off,
                resets=stream.counters.resets,
                events=stream.counters.events,
            ),
            notifications=_notification_health(self._process.sender),
            clock_problem=clock.problem(),
        )


def _notification_health(sender: NotificationSender | None) -> NotificationHealth | None:
    if sender is None:
        return None
    status = sender.status()
    return NotificationHealth(
        sending=status.sending,
        subscriptions=status.subscriptions,
        lag_seconds=status.lag,
        trouble=status.problem,
    )


def _mirror_health(mirrors: Sequence[MirrorStatus]) -> MirrorHealth:
    """All mirrors added up: no operator can act on a single mirror."""

    def total(name: str) -> int:
        return sum(getattr(mirror.counters, name) for mirror in mirrors)

    return MirrorHealth(
        lag_seconds=max(mirror.lag for mirror in mirrors),
        pending=sum(mirror.pending for mirror in mirrors),
        written=total("written"),
        deleted=total("deleted"),
        mended=total("mended"),
        failed=total("failed"),
        comparisons=total("comparisons"),
        replacements=total("replacements"),
        trouble="; ".join(dict.fromkeys(reason for mirror in mirrors for reason in mirror.degradation())),
    )


def _controller_health(
    name: str, leader: LeadershipTerm | None, received: ReceivedControllerReport | None, now: datetime
) -> ControllerHealth:
    verdict, explanation = assess_controller(received, now)
    return ControllerHealth(
        name=name,
        verdict=verdict,
        said=explanation,
        term=leader.term if leader is not None else None,
        leads_since=leader.announced_at if leader is not None else None,
        startup_sweep_done=leader is not None and leader.startup_sweep_done,
        reported_at=received.received_at if received is not None else None,
        age_seconds=(now - received.received_at).total_seconds() if received is not None else None,
        report=received.report if received is not None else None,
    )


class ControlPlaneCollector(Collector):
    """Prometheus metrics of one control plane, read at scrape time. Those of all mirrors are added up."""

    def __init__(self, mirrors: Sequence[MirrorStatus], stream: EventStream) -> None:
        self._mirrors = mirrors
        self._stream = stream

    def collect(self) -> Iterator[Metric]:
        mirror = _mirror_health(self._mirrors)
        yield GaugeMetricFamily("lcm_mirror_lag_seconds", "How far the mirror is behind", value=mirror.lag_seconds)
        yield GaugeMetricFamily("lcm_mirror_pending", "Records not yet mirrored", value=mirror.pending)
        for name in ("written", "deleted", "mended", "failed", "comparisons", "replacements"):
            yield CounterMetricFamily(f"lcm_mirror_{name}", f"Mirror: {name}", value=getattr(mirror, name))
        yield GaugeMetricFamily("lcm_stream_clients", "Clients of the event stream", value=self._stream.clients)
        for name in ("opened", "cut_off", "resets", "events"):
            value = getattr(self._stream.counters, name)
            yield CounterMetricFamily(f"lcm_stream_{name}", f"Event stream: {name}", value=value)


class FleetCostCollector(Collector):
    """What the fleet costs, as `GET /api/fleet` reports it. Without an answer of the store there is no sample."""

    def __init__(self, summary: Callable[[], Awaitable[FleetSummary]]) -> None:
        self._summary = summary
        self._fleet: FleetSummary | None = None

    async def refresh(self) -> None:
        """Read the cost, right before it is collected."""
        try:
            async with asyncio.timeout(_COST_TIMEOUT_SECONDS):
                self._fleet = await self._summary()
        except (StoreError, TimeoutError, ValueError):  # ValueError: the store is not open
            self._fleet = None

    def collect(self) -> Iterator[Metric]:
        cost = GaugeMetricFamily(
            "lcm_fleet_cost_per_hour_usd", "What all instances with a known price cost an hour now, in dollars"
        )
        unknown = GaugeMetricFamily("lcm_fleet_workers_without_price", "Workers whose cost is not known")
        leaked = GaugeMetricFamily("lcm_fleet_leaked_instances", "Instances that belong to no worker; cost not known")
        if self._fleet is not None:
            cost.add_metric([], self._fleet.cost_per_hour_usd)
            unknown.add_metric([], self._fleet.workers_without_price)
            leaked.add_metric([], self._fleet.leaked_instances)
        yield cost
        yield unknown
        yield leaked


class InstallationMismatchError(Exception):
    """LCM_INSTALLATION_ID differs from the installation that the store belongs to."""

    def __init__(self, configured: str, stored: str) -> None:
        super().__init__(
            f'LCM_INSTALLATION_ID="{configured}": the store belongs to the installation {stored}, whose instances would'
            f" no longer be recognized as ours; unset LCM_INSTALLATION_ID, set it to {stored},"
            f" or set STORE_URL to the store of {configured}"
        )


async def ensure_installation(tx: Transaction, configured: str | None) -> Installation:
    """The id of this installation, created and stored at the first start.

    If two processes start at once on one store, the second to commit runs again and finds the id of the first.
    """
    stored = await _read_stored(tx.store)
    if stored is None:
        installation = Installation(installation_id=configured or clock.new_id("lcm"))
        tx.stage(Put(INSTALLATION, INSTALLATION.name, installation.model_dump_json().encode(), None))
        tx.audit("installation_named", installation.installation_id)
        return installation
    if configured is not None and configured != stored.installation_id:
        raise InstallationMismatchError(configured, stored.installation_id)
    return stored


async def read_installation(store: Store) -> Installation:
    installation = await _read_stored(store)
    if installation is None:
        raise ProblemError(
            ProblemCode.UNAVAILABLE, "the installation has no id yet; it is created when the control plane starts"
        )
    return installation


async def _read_stored(store: Store) -> Installation | None:
    stored = await store.get(INSTALLATION, INSTALLATION.name)
    return None if stored is None else Installation.model_validate_json(stored.body)
