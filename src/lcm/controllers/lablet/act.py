"""Executes decisions: writes to the control plane and calls to CML, in the order of the actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from lcm.cml.errors import (
    CMLConflictError,
    CMLError,
    CMLInvalidRequestError,
    CMLNotFoundError,
    CMLOutcomeUnknownError,
    CMLProtocolError,
)
from lcm.controllers.common.actions import (
    REQUEUE_SOON_SECONDS,
    ActionKind,
    PassInterruptedError,
    requeue_if_interrupted,
)
from lcm.controllers.lablet.decide.decision import ChangeLab, ImportLab, LabOperation, ReleaseReservation, WriteStatus
from lcm.controllers.lablet.decide.instantiating import import_rejected, lab_imported
from lcm.controllers.lablet.decide.predicates import is_reachable, worker_lost_reason
from lcm.core import clock
from lcm.core.authorization import NotAuthorizedError
from lcm.core.controller.effects import EffectTimeoutError
from lcm.core.controller.resources import ReconciliationResult
from lcm.core.text import single_line
from lcm.model.lablet.record import LabletStatusUpdate, ReleaseLabletRequest
from lcm.model.lablet.status import ASSIGNED_LABLET_STATUSES, FINAL_LABLET_STATUSES, LabletStatus
from lcm.model.lablet.urgency import HELD_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.controllers.common.actions import Effect
    from lcm.controllers.lablet.decide.decision import Action, Decision
    from lcm.controllers.lablet.lab_client import WorkerLabClient
    from lcm.controllers.lablet.memory import LabletMemory
    from lcm.controllers.lablet.metrics import LabletCounters
    from lcm.core.authorization import SendAuthorization
    from lcm.model.fleet.state import FleetState
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

_MAX_REASON, _MAX_MESSAGE = 500, 1000
# After these errors the request may have taken effect.
_OUTCOME_UNKNOWN_ERRORS = (CMLOutcomeUnknownError, CMLProtocolError)


@dataclass(slots=True)
class LabletReconcilePass:
    """One pass: the current lablet, its worker, and the memory about it."""

    lablet: Lablet
    worker: Worker | None
    memory: LabletMemory
    authorization: SendAuthorization | None = None  # of the next call


class LabletActionExecutor:
    """Executes the actions of a decision."""

    def __init__(
        self,
        *,
        internal: InternalApi,
        leader: Callable[[], Leader],
        lab_client: WorkerLabClient,
        authorize: Callable[[], SendAuthorization],
        effect: Effect,
        counters: LabletCounters,
        on_refreshed: Callable[[FleetState, Worker], None],
    ) -> None:
        self._internal = internal
        self._leader = leader
        self._labs = lab_client
        self._authorize = authorize
        self._effect = effect
        self._counters = counters
        self._on_refreshed = on_refreshed  # the next decision must see what was read here, or it would repeat this one

    async def execute(self, work: LabletReconcilePass, decision: Decision) -> ReconciliationResult | None:
        """Execute a decision. None means that the next decision may follow at once."""
        return await requeue_if_interrupted(self._run(work, decision))

    async def _run(self, work: LabletReconcilePass, decision: Decision) -> ReconciliationResult | None:
        last_write = _last_status_write(decision)
        if last_write is None:
            await self._write_message(work, decision.message)
        for action in decision.actions:
            if action.kind is not ActionKind.RECORD:
                await self._check_unchanged(work, calls_cml=action.kind is ActionKind.WORLD)
            match action:
                case WriteStatus():
                    await self._write(work, action, decision.message if action is last_write else None)
                case ReleaseReservation():
                    await self._release(work, action)
                case ImportLab():
                    return await self._import(work, action)
                case ChangeLab():
                    failed = await self._change(work, action)
                    if failed is not None:
                        return failed
        if decision.again:
            return None
        # If it is known when the next pass is due, or that there is none, own writes that come back need none.
        settled = decision.after is not None or work.lablet.status not in ASSIGNED_LABLET_STATUSES
        version = work.lablet.version if settled else None
        return ReconciliationResult(decision.outcome, decision.reason, decision.after, version=version)

    # Writes to the record

    async def _write(self, work: LabletReconcilePass, action: WriteStatus, message: str | None) -> None:
        before = work.lablet
        fields: dict[str, Any] = dict(action.fields)
        if message is not None:
            fields["message"] = single_line(message, _MAX_MESSAGE)
        body = LabletStatusUpdate(
            status=action.status, version=before.version, reason=single_line(action.reason, _MAX_REASON), **fields
        )
        work.lablet = await self._internal.lablet_status(self._leader(), before.id, body)
        if "lab_id" in fields:
            # Errors of the import and operations on a lab before it are obsolete: the lab exists.
            work.memory.last_error = ""
            work.memory.operations.clear()
        if work.lablet.status is not before.status:
            self._log_transition(before, work.lablet, action.reason)

    async def _release(self, work: LabletReconcilePass, action: ReleaseReservation) -> None:
        before = work.lablet
        body = ReleaseLabletRequest(
            status=action.status,
            version=before.version,
            reason=single_line(action.reason, _MAX_REASON),
            left_behind=action.left_behind,
        )
        work.lablet = await self._internal.release_lablet(self._leader(), before.id, body)
        self._log_transition(before, work.lablet, action.reason)

    async def _write_message(self, work: LabletReconcilePass, message: str | None) -> None:
        """Write the message for people, if it has changed."""
        if message is None or work.lablet.status in FINAL_LABLET_STATUSES:
            return
        text = single_line(message, _MAX_MESSAGE)
        if text != work.lablet.message:
            await self._write(work, WriteStatus(work.lablet.status, text or "no obstacle"), text)

    def _log_transition(self, before: Lablet, after: Lablet, reason: str) -> None:
        self._counters.record_transition(before.status, after.status)
        log.info(
            "lablet status written",
            lablet=before.id,
            name=before.name,
            before=before.status.value,
            status=after.status.value,
            reason=reason,
        )

    # Calls to CML

    async def _check_unchanged(self, work: LabletReconcilePass, *, calls_cml: bool) -> None:
        """Check right before a call that there is no new hold or change, and that the worker is still usable."""
        if calls_cml:
            # Before the records are read: a call that is sent later than authorized would act on outdated ones.
            work.authorization = self._authorize()
        fleet = await self._internal.fleet()
        if work.worker is None:
            return
        worker = await self._internal.worker(work.worker.id)
        self._on_refreshed(fleet, worker)
        now = clock.earliest_now()
        for hold in (fleet.hold, worker.hold):
            if hold is not None and hold.active(now):
                raise PassInterruptedError(f"{HELD_PREFIX}{hold.by}: {hold.reason}")
        if not calls_cml:
            return
        stopping = work.lablet.status is LabletStatus.STOPPING
        if worker_lost_reason(work.lablet, worker) or not (is_reachable(worker) if stopping else worker.ready):
            raise PassInterruptedError(f"worker {worker.name} is no longer usable")
        current = await self._internal.lablet(work.lablet.id)
        if current.version != work.lablet.version:
            raise PassInterruptedError("it was changed in the meantime")
        work.worker = worker

    async def _import(self, work: LabletReconcilePass, action: ImportLab) -> ReconciliationResult | None:
        """Create the lab and record its id in the same pass. A lab whose response was lost is searched for later."""
        worker, memory = work.worker, work.memory
        assert worker is not None
        before = memory.import_uncertain

        async def import_lab() -> str:
            memory.import_ended = float("inf")
            try:
                lab = await self._labs.import_lab(worker, action.topology, title=action.title, marker=action.marker)
            finally:
                memory.import_ended = clock.boottime()
            for warning in lab.warnings[:5]:
                log.warning("CML lab warning", lablet=work.lablet.id, lab=lab.id, warning=single_line(warning, 300))
            return lab.id

        memory.import_uncertain = True  # until the response arrives: this pass may be aborted before that
        try:
            lab_id = await self._effect(import_lab, authorization=work.authorization)
        except NotAuthorizedError:
            memory.import_uncertain = before
            raise
        except EffectTimeoutError as error:
            return self._record_error(work, "import", str(error))
        except CMLError as error:
            if not isinstance(error, _OUTCOME_UNKNOWN_ERRORS):
                memory.import_uncertain = before
            if isinstance(error, CMLInvalidRequestError):
                return await self._run(work, import_rejected(work.lablet, error.cause))
            return self._record_error(work, "import", error.cause)
        memory.import_uncertain, memory.last_error = False, ""
        self._counters.labs_imported_count += 1
        log.info("lab imported", lablet=work.lablet.id, worker=worker.id, lab=lab_id)
        return await self._run(work, lab_imported(work.lablet, worker, lab_id, clock.now()))

    async def _change(self, work: LabletReconcilePass, action: ChangeLab) -> ReconciliationResult | None:
        worker, call = work.worker, action.call
        assert worker is not None
        try:
            await self._effect(lambda: self._labs.change(worker, call, action.lab_id), authorization=work.authorization)
        except NotAuthorizedError:
            raise
        except EffectTimeoutError as error:
            return self._record_error(work, call.value, str(error))
        except CMLNotFoundError:
            return ReconciliationResult.requeue("the lab no longer exists", after=REQUEUE_SOON_SECONDS)
        except (CMLInvalidRequestError, CMLConflictError) as error:
            self._record_error(work, call.value, error.cause)
            return ReconciliationResult.retry(f"CML cannot {call.value} the lab now: {error.cause}")
        except CMLError as error:
            return self._record_error(work, call.value, error.cause)
        work.memory.record_operation(call)
        if call is LabOperation.DELETE:
            self._counters.labs_deleted_count += 1
        log.info("lab operation accepted", lablet=work.lablet.id, worker=worker.id, call=call.value, lab=action.lab_id)
        return None

    def _record_error(self, work: LabletReconcilePass, call: str, cause: str) -> ReconciliationResult:
        work.memory.last_error = single_line(cause, 300)
        log.warning("call to CML failed", lablet=work.lablet.id, call=call, error=work.memory.last_error)
        return ReconciliationResult.retry(work.memory.last_error)


def _last_status_write(decision: Decision) -> Action | None:
    """The action whose write also carries the message."""
    writes = [action for action in decision.actions if isinstance(action, WriteStatus | ReleaseReservation)]
    return writes[-1] if writes else None
