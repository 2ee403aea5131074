"""Calls that launch, start, stop or terminate the instance of a worker, and what follows from their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from lcm.client.errors import VersionConflictError
from lcm.cloud.errors import (
    CloudError,
    CloudOutcomeUnknownError,
    InsufficientCapacityError,
    LaunchTokenMismatchError,
    UnsupportedInZoneError,
)
from lcm.controllers.worker.decide.pending import DEFINITE_ERRORS, launch_failed, launched
from lcm.controllers.worker.decide.shared.instance import instance_call_failed, instance_terminated
from lcm.controllers.worker.decision import CloudCall, WriteStatus
from lcm.controllers.worker.memory import AttemptCalls, CapacityRefusal, UnsupportedLaunch
from lcm.core import clock
from lcm.core.authorization import NotAuthorizedError
from lcm.core.controller.effects import EffectTimeoutError
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.cloud.types import Instance, InstanceState
    from lcm.controllers.worker.act.control_plane_writer import ControlPlaneWriter
    from lcm.controllers.worker.act.reconcile_pass import CloudCalls, ReconcilePass
    from lcm.controllers.worker.decision import Decision, Launch
    from lcm.controllers.worker.metrics.prometheus import Counters

log = structlog.get_logger(__name__)

_MAX_LAUNCH_WRITES: Final = 10


class InstanceCaller:
    """Calls the cloud. `write_status` records a launched instance, with the decision that follows from it."""

    def __init__(
        self,
        calls: CloudCalls,
        writer: ControlPlaneWriter,
        counters: Counters,
        write_status: Callable[[ReconcilePass, WriteStatus, Decision], Awaitable[None]],
    ) -> None:
        self._calls = calls
        self._writer = writer
        self._counters = counters
        self._write_status = write_status

    async def change(self, current: ReconcilePass, call: CloudCall) -> Decision | None:
        """Start, stop or terminate the instance; returns what follows if the call failed or settled it."""
        worker = current.worker
        instance_id = worker.instance_id
        assert instance_id is not None

        async def change() -> InstanceState:
            try:
                if call is CloudCall.START:
                    return await self._calls.cloud.start_instance(worker.aws_region, instance_id)
                if call is CloudCall.STOP:
                    return await self._calls.cloud.stop_instance(worker.aws_region, instance_id)
                return await self._calls.cloud.terminate_instance(worker.aws_region, instance_id)
            finally:
                current.memory.changed_at = clock.boottime()

        try:
            state = await self._calls.effect(change, authorization=current.authorization)
        except NotAuthorizedError:
            raise
        except (CloudError, EffectTimeoutError) as error:
            log.warning("call failed", worker=worker.id, call=call.value, instance=instance_id, error=str(error))
            if call is CloudCall.START and isinstance(error, InsufficientCapacityError):
                current.memory.capacity_refusal = CapacityRefusal(worker.generation, clock.boottime())
            return instance_call_failed(worker, call, error, current.observed)
        finally:
            self._calls.track(worker.aws_region, instance_id)
        log.info(
            "instance operation requested", worker=worker.id, name=worker.name, call=call.value, instance=instance_id
        )
        return instance_terminated(worker, state, current.observed) if call is CloudCall.TERMINATE else None

    async def launch(self, current: ReconcilePass, action: Launch) -> Decision:
        """Launch an instance and record its id; returns what follows."""
        memory = current.memory
        if memory.calls is None or memory.calls.attempt != action.attempt:
            # Another process that stored the intent may have made the call as well.
            memory.calls = AttemptCalls(action.attempt, current.term_began, uncertain=not current.intent_stored)
        calls, before = memory.calls, memory.calls.uncertain

        async def launch() -> Instance:
            calls.deadline = float("inf")
            try:
                return await self._calls.cloud.launch_instance(action.parameters)
            finally:
                calls.deadline = clock.boottime()

        calls.uncertain = True  # until a response arrives: this pass may be cancelled before that
        try:
            instance = await self._calls.effect(launch, authorization=current.authorization)
        except NotAuthorizedError:
            calls.uncertain = before
            raise
        except (CloudError, EffectTimeoutError) as error:
            if not isinstance(error, CloudOutcomeUnknownError | EffectTimeoutError | LaunchTokenMismatchError):
                calls.uncertain = before
            calls.refusal = error if isinstance(error, DEFINITE_ERRORS) else None
            if isinstance(error, InsufficientCapacityError):
                memory.capacity_refusal = CapacityRefusal(current.worker.generation, clock.boottime())
            if isinstance(error, UnsupportedInZoneError):
                wanted = action.parameters
                refused = UnsupportedLaunch(current.worker.generation, wanted.instance_type, wanted.subnet_id)
                memory.record_unsupported(refused, str(error))
            log.warning("launch failed", worker=current.worker.id, attempt=action.attempt, error=str(error))
            return launch_failed(current.worker, error, certain=not calls.uncertain)
        return await self._launched(current, instance)

    async def _launched(self, current: ReconcilePass, instance: Instance) -> Decision:
        """Record the id of the launched instance, even if the record changed in the meantime."""
        self._counters.provisioned_count += 1
        self._calls.track(current.worker.aws_region, instance.id)
        log.info("instance launched", worker=current.worker.id, name=current.worker.name, instance=instance.id)
        decision = launched(instance, None)
        write = decision.actions[0]
        assert isinstance(write, WriteStatus)
        for _ in range(_MAX_LAUNCH_WRITES):
            try:
                await self._write_status(current, write, decision)
                break
            except VersionConflictError:
                current.worker = await self._writer.internal.worker(current.worker.id)
                if current.worker.instance_id is not None or current.worker.status is not WorkerStatus.PENDING:
                    raise
        return decision.without(write)
