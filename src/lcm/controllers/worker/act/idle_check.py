"""Idle detection of a running worker, and the scale-down that follows from it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from lcm.client.errors import ApiError, NotPossibleNowError
from lcm.controllers.worker.decide.shared.conditions import TELEMETRY_PRESENT
from lcm.controllers.worker.decide.shared.scale_down import decide_scale_down
from lcm.controllers.worker.decision import ConditionUpdate, WriteAuditEntry, success, wait
from lcm.core import clock
from lcm.core.hosting import cancel_and_wait
from lcm.model.formatting import count_minutes
from lcm.model.problems import ProblemCode
from lcm.model.worker.conditions import ConditionStatus, ConditionType
from lcm.model.worker.requests import IdleDetectionRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lcm.controllers.worker.act.control_plane_writer import ControlPlaneWriter
    from lcm.controllers.worker.decision import Decision, Drain
    from lcm.controllers.worker.fleet_cache import FleetCache
    from lcm.controllers.worker.memory import WorkerMemory
    from lcm.controllers.worker.metrics.prometheus import Counters
    from lcm.controllers.worker.observe.cml_monitor import CmlMonitor
    from lcm.model.fleet.settings import FleetSettings
    from lcm.model.worker.idle import ActivityEvent, IdleDetectionResult
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

MAX_AGE = 60.0
"""Seconds for which activity that was read may be used: a user may have begun to work since."""
_SKIP_LABELS: dict[str, str] = {
    ProblemCode.MIN_WORKERS: "skipped_min_workers",
    ProblemCode.COOLDOWN: "skipped_cooldown",
    ProblemCode.HELD: "skipped_not_eligible",
}


@dataclass(frozen=True, slots=True)
class _ActivityRead:
    """The activity of an instance, None if it could not be read, and when the read ended."""

    instance_id: str | None
    events: tuple[ActivityEvent, ...] | None
    read_at: datetime
    ended: float


class IdleChecker:
    """Reports a worker's activity to the control plane, which may pause it, and drains it if scale-down applies."""

    def __init__(
        self,
        writer: ControlPlaneWriter,
        cml_monitor: CmlMonitor,
        cache: FleetCache,
        counters: Counters,
        on_read: Callable[[str], None],
    ) -> None:
        self._writer = writer
        self._cml_monitor = cml_monitor
        self._cache = cache
        self._counters = counters
        self._on_read = on_read
        self._reads: dict[str, asyncio.Task[_ActivityRead]] = {}
        self._started = False

    def prepare(self, worker: Worker, memory: WorkerMemory) -> bool:
        """Begin to read the worker's activity if a check is due; returns whether it has been read.

        A long list takes minutes, so it is read beside the passes, and wakes the worker when it was read. A failed read
        is not repeated in every pass.
        """
        settings = self._cache.settings_unless_held()
        if (
            not self._started
            or settings is None
            or clock.boottime() - memory.idle_checked_at < settings.idle.idle_detection_interval
        ):
            return False
        task = self._reads.get(worker.id)
        if task is None or (task.done() and not _is_usable(task, worker)):
            task = self._reads[worker.id] = asyncio.create_task(self._read(worker), name=f"cml-activity:{worker.id}")
            task.add_done_callback(lambda _: self._on_read(worker.id))
        return task.done()

    async def check(self, worker: Worker, memory: WorkerMemory) -> Decision | None:
        """Send the activity that was read to the control plane, and decide on the result."""
        settings = self._cache.settings_unless_held()
        assert settings is not None
        activity = self._reads.pop(worker.id).result()
        memory.idle_checked_at = clock.boottime()
        request = IdleDetectionRequest(events=activity.events, observed_at=activity.read_at)
        result = await self._writer.detect_idle(worker, request)
        self._counters.idle_detection_count += 1
        if result.auto_pause_triggered:
            self._counters.auto_pause_count += 1
            idle = count_minutes(60 * (result.idle_minutes or 0.0))
            return wait("idle.paused", f"paused after {idle} without activity", after=0.0)
        return await self._scale_down(result, settings)

    def forget(self, worker_id: str) -> None:
        """Drop what was read of a worker that no longer exists."""
        task = self._reads.pop(worker_id, None)
        if task is not None:
            task.cancel()

    def start(self) -> None:
        """Allow reads: a term has begun."""
        self._started = True

    async def stop(self) -> None:
        """Cancel all reads and begin no others: passes may still end."""
        self._started = False
        reads, self._reads = list(self._reads.values()), {}
        await cancel_and_wait(reads)

    async def _read(self, worker: Worker) -> _ActivityRead:
        events = await self._cml_monitor.activity(worker)
        return _ActivityRead(worker.instance_id, events, clock.now(), clock.boottime())

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


def _is_usable(task: asyncio.Task[_ActivityRead], worker: Worker) -> bool:
    """Whether this was read from the worker's instance, and just now."""
    if task.cancelled() or task.exception() is not None:
        return False
    read = task.result()
    return read.instance_id == worker.instance_id and clock.boottime() - read.ended <= MAX_AGE


def _idle_condition(result: IdleDetectionResult) -> tuple[ConditionUpdate, ...]:
    if not result.idle_check_performed:
        return (TELEMETRY_PRESENT,) if result.telemetry_fetched else ()
    status = ConditionStatus.TRUE if result.is_idle else ConditionStatus.FALSE
    return (
        ConditionUpdate(ConditionType.IDLE, status, "Idle" if result.is_idle else "Active", _describe_idle(result)),
        TELEMETRY_PRESENT,
    )


def _describe_idle(result: IdleDetectionResult) -> str:
    if result.idle_minutes is None:
        text = "not checked"
    elif result.idle_minutes < 1:
        text = "last activity less than a minute ago"
    else:
        text = f"no activity for {count_minutes(60 * result.idle_minutes)}"
    return f"{text}: {result.error}" if result.error else text
