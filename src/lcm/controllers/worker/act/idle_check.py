"""Whether anybody uses a worker, and what scale-down makes of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from lcm.client.errors import ApiError, NotPossibleNowError
from lcm.controllers.worker.decide.shared.scale_down import decide_scale_down
from lcm.controllers.worker.decision import ConditionUpdate, WriteAuditEntry, success, wait
from lcm.core import clock
from lcm.model.problems import ProblemCode
from lcm.model.worker.conditions import ConditionStatus, ConditionType
from lcm.model.worker.requests import IdleDetectionRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.client.resources.internal import InternalApi
    from lcm.controllers.worker.act.control_plane_writer import ControlPlaneWriter
    from lcm.controllers.worker.decision import Decision, Drain
    from lcm.controllers.worker.memory import WorkerMemory
    from lcm.controllers.worker.metrics.prometheus import Counters
    from lcm.controllers.worker.observe.cml_monitor import CmlMonitor
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.worker.idle import IdleDetectionResult
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

FETCH_TIMEOUT = 10.0
_SKIP_LABELS = {
    ProblemCode.MIN_WORKERS: "skipped_min_workers",
    ProblemCode.COOLDOWN: "skipped_cooldown",
    ProblemCode.HELD: "skipped_not_eligible",
}


class IdleChecker:
    """Steps five and six of a pass over a running worker."""

    def __init__(
        self,
        *,
        internal: InternalApi,
        writes: ControlPlaneWriter,
        watch: CmlMonitor,
        counters: Counters,
        settings: Callable[[], FleetSettings | None],
        running: Callable[[], int],
    ) -> None:
        self._internal = internal
        self._writes = writes
        self._watch = watch
        self._counters = counters
        self._settings = settings
        self._running = running

    def due(self, note: WorkerMemory) -> bool:
        """Whether it is time to: telemetry that could not be fetched is not asked for in every pass."""
        settings = self._settings()
        return settings is not None and clock.boottime() - note.idle_checked_at >= settings.idle.idle_detection_interval

    async def check(self, worker: Worker, note: WorkerMemory) -> Decision | None:
        """Send what people did on a worker that is due and hear whether it is idle, and what follows from that."""
        settings = self._settings()
        assert settings is not None
        note.idle_checked_at = clock.boottime()
        observed_at = clock.now()
        try:
            async with asyncio.timeout(FETCH_TIMEOUT):
                events = await self._watch.activity(worker)
        except TimeoutError:
            events = None
        found = await self._writes.detect_idle(worker, IdleDetectionRequest(events=events, observed_at=observed_at))
        self._counters.idle_detection_count += 1
        if found.auto_pause_triggered:
            self._counters.auto_pause_count += 1
            minutes = found.idle_minutes or 0.0
            return wait("idle.paused", f"idle for {minutes:.0f} minutes: it is paused", after=0.0)
        return await self._scale_down(found, settings)

    async def _scale_down(self, found: IdleDetectionResult, settings: FleetSettings) -> Decision | None:
        said = _idle_condition(found)
        decided: Decision | None = None
        if settings.scaling.scale_down_enabled and found.idle_check_performed:
            state = await self._internal.fleet()
            decided = decide_scale_down(
                found,
                settings,
                running=self._running(),
                last_scale_down_at=state.last_scale_down_at,
                now=clock.now(),
            )
        if decided is not None:
            return decided.adding(conditions=said)
        return success("running.idle_checked", _describe_idle(found), conditions=said) if said else None

    async def drain(self, worker: Worker, action: Drain) -> Decision:
        """Take it out of service; the control plane has the last word on floor and cooldown."""
        try:
            await self._writes.drain(worker, action.reason)
        except NotPossibleNowError as refusal:
            label = _SKIP_LABELS.get(ProblemCode(refusal.code), "scale_down_failed")
            return success(f"scale_down.{label}", refusal.detail, WriteAuditEntry(label, refusal.detail))
        except ApiError as refusal:
            return success("scale_down.failed", refusal.detail, WriteAuditEntry("scale_down_failed", refusal.detail))
        self._counters.scale_down_drain_count += 1
        log.info("scale-down drains a worker", worker=worker.id, name=worker.name, reason=action.reason)
        return wait("scale_down.draining", action.reason, after=0.0)


def _idle_condition(found: IdleDetectionResult) -> tuple[ConditionUpdate, ...]:
    if not found.idle_check_performed:
        return ()
    status = ConditionStatus.TRUE if found.is_idle else ConditionStatus.FALSE
    return (ConditionUpdate(ConditionType.IDLE, status, "Idle" if found.is_idle else "Active", _describe_idle(found)),)


def _describe_idle(found: IdleDetectionResult) -> str:
    minutes = f"no activity for {found.idle_minutes:.0f} minutes" if found.idle_minutes is not None else "not checked"
    return f"{minutes}: {found.error}" if found.error else minutes
