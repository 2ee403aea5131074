"""Alerts about LCM itself: a controller that does not lead, coordination that is away, a store that was away.

No record changes when these begin or end, so they are checked periodically, by the control plane that sends. Which are
open is stored in the commit that raises or resolves them: whoever checks next goes on from there.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog

from lcm.control_plane.records.kinds import OPEN_ALERTS, find_all
from lcm.control_plane.records.readable import read_or_skip
from lcm.control_plane.store.port import Delete, Put, StoreError
from lcm.core import clock
from lcm.core.hosting import HostedService, cancel_and_wait
from lcm.model.audit import Actor, ActorKind
from lcm.model.notification.alert import AlertChange, AlertState, AlertSubject, AlertType, Finding, SubjectKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Set
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.fleet.system import MirrorStatus, SystemService
    from lcm.control_plane.notifications.sender import NotificationSender
    from lcm.control_plane.records.unit_of_work import Transaction

    Findings: TypeAlias = Mapping[tuple[AlertType, str], Finding]

log = structlog.get_logger(__name__)

CHECK_SECONDS: Final = 15.0
SILENT_AFTER: Final = timedelta(minutes=2)
"""How long a controller may not report before nobody seems to lead: longer than an election takes."""
UNWATCHED_AFTER: Final = 60.0
"""A longer pause between two checks, such as a suspension or an outage of the store, says nothing about controllers."""
DEGRADED_SECONDS: Final = 60.0
OUTAGE_NEWS_SECONDS: Final = 300.0
"""How long after an outage a control plane that begins to send still reports it: the one that sent then may be gone."""
_ACTOR: Final = Actor(kind=ActorKind.SYSTEM, name="notifications")
_COORDINATION: Final = AlertSubject(kind=SubjectKind.CONTROL_PLANE, id="coordination", name="coordination")
_STORE: Final = AlertSubject(kind=SubjectKind.CONTROL_PLANE, id="store", name="store")


@dataclass(frozen=True, slots=True)
class _Outage:
    detail: str
    ended: float


@dataclass(frozen=True, slots=True)
class _LastReport:
    """The last report of a controller, and since when this process knows it."""

    at: datetime
    known_since: float
    arrived: bool  # whether it came while this process watched: then the controller was there a moment ago


class SystemAlerts(HostedService):
    """Raises and resolves alerts about LCM itself."""

    def __init__(
        self,
        context: ControlPlaneContext,
        system: SystemService,
        mirrors: Sequence[MirrorStatus],
        sender: NotificationSender,
        store_problems: Callable[[], list[str]],
    ) -> None:
        super().__init__("system alerts")
        self._context = context
        self._system = system
        self._mirrors = mirrors
        self._sender = sender
        self._store_problems = store_problems
        self._mirror_since: float | None = None
        self._store_since: float | None = None
        self._store_outage: _Outage | None = None  # one that is over and not recorded yet
        self._last_reports: dict[str, _LastReport] = {}
        self._watched_at: float | None = None

    async def start(self) -> None:
        """Check in the background."""
        self._spawn(self._run(), "check")

    async def stop(self) -> None:
        """Stop checking. What is open stays open."""
        await cancel_and_wait(list(self._background))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.check()
            except StoreError:
                continue  # the next check finds out for how long it is away
            except Exception:
                log.exception("alerts about the system could not be checked; will retry")

    async def check(self) -> None:
        """Raise what is wrong now and resolve what is not wrong any more."""
        self._watch_store()
        if self._store_since is not None or not self._sender.status().sending:
            return
        if self._store_outage is not None:
            if clock.boottime() - self._store_outage.ended < OUTAGE_NEWS_SECONDS:
                finding = Finding(_STORE, self._store_outage.detail)
                await self._context.unit_of_work.run(_ACTOR, partial(_record_outage, finding))
            self._store_outage = None
        opened = {_parse_key(each.id) async for each in find_all(self._context.store, OPEN_ALERTS)}
        found = {**await self._silent_controllers(opened), **self._late_mirrors()}
        for key in sorted({*found, *opened}):
            await self._context.unit_of_work.run(_ACTOR, partial(_settle, key, found.get(key)))

    def _watch_store(self) -> None:
        """Nothing can be recorded while the store is away: an outage is reported when it is over."""
        now, problems = clock.boottime(), self._store_problems()
        if problems:
            self._store_since = self._store_since if self._store_since is not None else now
        elif self._store_since is not None:
            seconds = now - self._store_since
            if seconds >= DEGRADED_SECONDS:
                self._store_outage = _Outage(f"the store took no writes for {seconds:.0f} s", now)
            self._store_since = None

    async def _silent_controllers(self, opened: Set[tuple[AlertType, str]]) -> Findings:
        """Controllers from which no report came for some time while this process watched.

        The age of a stored report does not say that: after an outage of everything, or when clocks differ, all are old.
        Until a controller was watched for long enough, an alert about it stays as it is.
        """
        now = clock.boottime()
        if self._watched_at is None or now - self._watched_at > UNWATCHED_AFTER:
            self._last_reports.clear()
        self._watched_at = now
        silent: dict[tuple[AlertType, str], Finding] = {}
        for each in (await self._system.health()).controllers:
            if each.reported_at is None:
                continue
            last = self._last_reports.get(each.name)
            if last is None or last.at != each.reported_at:
                last = self._last_reports[each.name] = _LastReport(each.reported_at, now, arrived=last is not None)
            key = AlertType.NO_LEADER, each.name
            if now - last.known_since >= SILENT_AFTER.total_seconds() or (not last.arrived and key in opened):
                silent[key] = Finding(
                    AlertSubject(kind=SubjectKind.CONTROLLER, id=each.name, name=each.name), each.said
                )
        return silent

    def _late_mirrors(self) -> Findings:
        reasons = list(dict.fromkeys(reason for mirror in self._mirrors for reason in mirror.degradation()))
        now = clock.boottime()
        if not reasons:
            self._mirror_since = None
            return {}
        self._mirror_since = self._mirror_since if self._mirror_since is not None else now
        if now - self._mirror_since < DEGRADED_SECONDS:
            return {}
        return {(AlertType.MIRROR_DEGRADED, _COORDINATION.id): Finding(_COORDINATION, "; ".join(reasons))}


async def _record_outage(outage: Finding, tx: Transaction) -> None:
    states = (AlertState.RAISED, AlertState.RESOLVED)
    tx.alert(AlertChange(AlertType.STORE_DEGRADED, state, outage) for state in states)


async def _settle(key: tuple[AlertType, str], finding: Finding | None, tx: Transaction) -> None:
    """Raise or resolve one alert, unless another control plane has done it."""
    alert_type, subject_id = key
    document_id = f"{alert_type.value}.{subject_id}"
    stored = await tx.store.get(OPEN_ALERTS, document_id)
    if (stored is None) == (finding is None):
        return
    if finding is not None:
        tx.stage(Put(OPEN_ALERTS, document_id, finding.subject.model_dump_json().encode(), None))
        tx.alert([AlertChange(alert_type, AlertState.RAISED, finding)])
    elif stored is not None:
        tx.stage(Delete(OPEN_ALERTS, document_id, stored.revision))
        kind = SubjectKind.CONTROLLER if alert_type is AlertType.NO_LEADER else SubjectKind.CONTROL_PLANE
        known = AlertSubject(kind=kind, id=subject_id, name=subject_id)
        subject = read_or_skip(stored, AlertSubject, "open alert") or known
        tx.alert([AlertChange(alert_type, AlertState.RESOLVED, Finding(subject, "it is over"))])


def _parse_key(document_id: str) -> tuple[AlertType, str]:
    word, _, subject_id = document_id.partition(".")
    return AlertType.carry(word) if word not in set(AlertType) else AlertType(word), subject_id
