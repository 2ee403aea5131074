"""Idle detection of a running worker, and the scale-down that follows from it."""

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
    from lcm.controllers.worker.act.control_plane_writer import ControlPlaneWriter
    from lcm.controllers.worker.decision import Decision, Drain
    from lcm.controllers.worker.fleet_cache import FleetCache
    from lcm.controllers.worker.memory import WorkerMemory
    from lcm.controllers.worker.metrics.prometheus import Counters
    from lcm.controllers.worker.observe.cml_monitor import CmlMonitor
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.worker.idle import IdleDetectionResult
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

FETCH_TIMEOUT = 10.0
_SKIP_LABELS: dict[str, str] = {
    ProblemCode.MIN_WORKERS: "skipped_min_workers",
    ProblemCode.COOLDOWN: "skipped_cooldown",
    ProblemCode.HELD: "skipped_not_eligible",
}


class IdleChecker:
    """Reports a worker's activity to the control plane, which may pause it, and drains it if scale-down applies."""

    def __init__(
        self, writer: ControlPlaneWriter, cml_monitor: CmlMonitor, cache: FleetCache, counters: Counters
    ) -> None:
        self._writer = writer
        self._cml_monitor = cml_monitor
        self._cache = cache
        self._counters = counters

    def due(self, memory: WorkerMemory) -> bool:
        """Whether a check is due; a failed fetch of activity events is not repeated in every pass."""
        settings = self._cache.settings_unless_held()
        return (
            settings is not None and clock.boottime() - memory.idle_checked_at >= settings.idle.idle_detection_interval
        )

    async def check(self, worker: Worker, memory: WorkerMemory) -> Decision | None:
        """Send the worker's activity to the control plane, and decide on the result."""
        settings = self._cache.settings_unless_held()
        assert settings is not None
        memory.idle_checked_at = clock.boottime()
        observed_at = clock.now()
        try:
            async with asyncio.timeout(FETCH_TIMEOUT):
                events = await self._cml_monitor.activity(worker)
        except TimeoutError:
            events = None
        result = await self._writer.detect_idle(worker, IdleDetectionRequest(events=events, observed_at=observed_at))
        self._counters.idle_detection_count += 1
        if result.auto_pause_triggered:
            self._counters.auto_pause_count += 1
            minutes = result.idle_minutes or 0.0
            return wait("idle.paused", f"paused after {minutes:.0f} idle minutes", after=0.0)
        return await self._scale_down(result, settings)

    async def _scale_down(self, result: IdleDetectionResult, settings: FleetSettings) -> Decision | None:
        conditions = _idle_condition(result)
        decision: Decision | None = None
        if settings.scaling.scale_down_enabled and result.idle_check_performed:
            state = await self._writer.internal.fleet()
            decision = decide_scale_down(
                result,
                settings,
                running=self._cache.count_in_service(),
                last_scale_down_at=state.last_scale_down_at,
                now=clock.earliest_now(),
            )
        if decision is not None:
            return decision.with_added(conditions=conditions)
        return success("running.idle_checked", _describe_idle(result), conditions=conditions) if conditions else None

    async def drain(self, worker: Worker, action: Drain) -> Decision:
        """Drain the worker. The control plane has the last word on MIN_WORKERS and the cooldown."""
        try:
            await self._writer.drain(worker, action.reason)
        except NotPossibleNowError as refusal:
            label = _SKIP_LABELS.get(refusal.code, "scale_down_failed")
            return success(f"scale_down.{label}", refusal.detail, WriteAuditEntry(label, refusal.detail))
        except ApiError as refusal:
            return success("scale_down.failed", refusal.detail, WriteAuditEntry("scale_down_failed", refusal.detail))
        self._counters.scale_down_drain_count += 1
        log.info("scale-down drains a worker", worker=worker.id, name=worker.name, reason=action.reason)
        return wait("scale_down.draining", action.reason, after=0.0)


def _idle_condition(result: IdleDetectionResult) -> tuple[ConditionUpdate, ...]:
    if not result.idle_check_performed:
        return ()
    status = ConditionStatus.TRUE if result.is_idle else ConditionStatus.FALSE
    return (
        ConditionUpdate(ConditionType.IDLE, status, "Idle" if result.is_idle else "Active", _describe_idle(result)),
    )


def _describe_idle(result: IdleDetectionResult) -> str:
    if result.idle_minutes is None:
        text = "not checked"
    elif result.idle_minutes < 1:
        text = "last activity less than a minute ago"
    else:
        minutes = round(result.idle_minutes)
        text = f"no activity for {minutes} {'minute' if minutes == 1 else 'minutes'}"
    return f"{text}: {result.error}" if result.error else text
