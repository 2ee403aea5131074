"""Carrying out decisions: writes to the control plane and calls to CML, in the order in which they were decided."""

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
from lcm.controllers.common.base import as_stale_term
from lcm.controllers.lablet.decide.decision import ChangeLab, ImportLab, LabOperation, ReleaseReservation, WriteStatus
from lcm.controllers.lablet.decide.instantiating import import_rejected, lab_imported
from lcm.controllers.lablet.decide.predicates import is_reachable, worker_lost_reason
from lcm.core import clock
from lcm.core.controller.effects import EffectTimeoutError
from lcm.core.controller.leader_election import NotLeaderError
from lcm.core.controller.resources import ReconciliationResult
from lcm.core.text import single_line
from lcm.model.lablet.record import LabletStatusUpdate, ReleaseLabletRequest
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus
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
    from lcm.model.fleet.state import FleetState
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

_MAX_REASON, _MAX_MESSAGE = 500, 1000
_OUTCOME_UNKNOWN_ERRORS = (
    CMLOutcomeUnknownError,
    CMLProtocolError,
)  # the request may have taken effect, or its answer says nothing


@dataclass(slots=True)
class LabletReconcilePass:
    """One pass: the lablet as it is now, its worker, and what is remembered of it."""

    lablet: Lablet
    worker: Worker | None
    note: LabletMemory


class LabletActionExecutor:
    """The hands of the controller."""

    def __init__(
        self,
        *,
        internal: InternalApi,
        leader: Callable[[], Leader],
        servers: WorkerLabClient,
        effect: Effect,
        counters: LabletCounters,
        heard: Callable[[FleetState, Worker], None],
    ) -> None:
        self._internal = internal
        self._leader = leader
        self._servers = servers
        self._effect = effect
        self._counters = counters
        self._heard = heard  # whoever decides next must know what was heard here, or it would be decided again

    async def carry_out(self, work: LabletReconcilePass, decision: Decision) -> ReconciliationResult | None:
        """Do what was decided; None: what follows may be decided at once."""
        return await requeue_if_interrupted(self._run(work, decision))

    async def _run(self, work: LabletReconcilePass, decision: Decision) -> ReconciliationResult | None:
        told_by = _last_status_write(decision)
        if told_by is None:
            await self._say(work, decision.message)
        for action in decision.actions:
            if action.nature is not ActionKind.RECORD:
                await self._make_sure(work, dials=action.nature is ActionKind.WORLD)
            match action:
                case WriteStatus():
                    await self._write(work, action, decision.message if action is told_by else None)
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
        return ReconciliationResult(decision.outcome, decision.reason, decision.after)

    # The record

    async def _write(self, work: LabletReconcilePass, action: WriteStatus, message: str | None) -> None:
        before = work.lablet
        fields: dict[str, Any] = dict(action.fields)
        if message is not None:
            fields["message"] = single_line(message, _MAX_MESSAGE)
        body = LabletStatusUpdate(
            status=action.status, version=before.version, reason=single_line(action.reason, _MAX_REASON), **fields
        )
        work.lablet = await as_stale_term(self._internal.lablet_status(self._leader(), before.id, body))
        if "lab_id" in fields:
            work.note.refusal = ""  # whatever was said of the import: the lab is there
        if work.lablet.status is not before.status:
            self._note_step(before, work.lablet, action.reason)

    async def _release(self, work: LabletReconcilePass, action: ReleaseReservation) -> None:
        before = work.lablet
        body = ReleaseLabletRequest(
            status=action.status,
            version=before.version,
            reason=single_line(action.reason, _MAX_REASON),
            left_behind=action.left_behind,
        )
        work.lablet = await as_stale_term(self._internal.release_lablet(self._leader(), before.id, body))
        self._note_step(before, work.lablet, action.reason)

    async def _say(self, work: LabletReconcilePass, message: str | None) -> None:
        """What stands in the way, for people; only when it is news."""
        if message is None or work.lablet.status in FINAL_LABLET_STATUSES:
            return
        text = single_line(message, _MAX_MESSAGE)
        if text != work.lablet.message:
            await self._write(work, WriteStatus(work.lablet.status, text or "nothing stands in the way"), text)

    def _note_step(self, before: Lablet, after: Lablet, reason: str) -> None:
        self._counters.became(before.status, after.status)
        log.info(
            "lablet status written",
            lablet=before.id,
            name=before.name,
            before=before.status.value,
            status=after.status.value,
            reason=reason,
        )

    # The world

    async def _make_sure(self, work: LabletReconcilePass, *, dials: bool) -> None:
        """Up to a moment ago nobody has asked for anything else, and what is dialled is still to be dialled."""
        fleet = await self._internal.fleet()
        if work.worker is None:
            return
        worker = await self._internal.worker(work.worker.id)
        self._heard(fleet, worker)
        now = clock.now()
        for hold in (fleet.hold, worker.hold):
            if hold is not None and hold.active(now):
                raise PassInterruptedError(f"{HELD_PREFIX}{hold.by}: {hold.reason}")
        if not dials:
            return
        stopping = work.lablet.status is LabletStatus.STOPPING
        if worker_lost_reason(work.lablet, worker) or not (is_reachable(worker) if stopping else worker.ready):
            raise PassInterruptedError(f"worker {worker.name} is not to be dialled any more")
        current = await self._internal.lablet(work.lablet.id)
        if current.version != work.lablet.version:
            raise PassInterruptedError("it was changed meanwhile")
        work.worker = worker

    async def _import(self, work: LabletReconcilePass, action: ImportLab) -> ReconciliationResult | None:
        """Make the lab and remember which one it is, in the same pass. An answer that is lost is looked for later."""
        worker, note = work.worker, work.note
        assert worker is not None
        before = note.unsure

        async def make() -> str:
            note.import_ended = float("inf")
            try:
                made = await self._servers.import_lab(worker, action.topology, title=action.title, marker=action.marker)
            finally:
                note.import_ended = clock.boottime()
            for warning in made.warnings[:5]:
                log.warning("CML warns of a lab", lablet=work.lablet.id, lab=made.id, warning=single_line(warning, 300))
            return made.id

        note.unsure = True  # until an answer says otherwise: this pass may be cut off before it hears one
        try:
            lab_id = await self._effect(make)
        except NotLeaderError:
            note.unsure = before
            raise
        except EffectTimeoutError as error:
            return self._refused(work, "import", str(error))
        except CMLError as error:
            if not isinstance(error, _OUTCOME_UNKNOWN_ERRORS):
                note.unsure = before
            if isinstance(error, CMLInvalidRequestError):
                return await self._run(work, import_rejected(work.lablet, error.cause))
            return self._refused(work, "import", error.cause)
        note.unsure, note.refusal = False, ""
        self._counters.labs_imported_count += 1
        log.info("lab imported", lablet=work.lablet.id, worker=worker.id, lab=lab_id)
        return await self._run(work, lab_imported(work.lablet, worker, lab_id, clock.now()))

    async def _change(self, work: LabletReconcilePass, action: ChangeLab) -> ReconciliationResult | None:
        worker, call = work.worker, action.call
        assert worker is not None
        try:
            await self._effect(lambda: self._servers.change(worker, call, action.lab_id))
        except NotLeaderError:
            raise
        except EffectTimeoutError as error:
            return self._refused(work, call.value, str(error))
        except CMLNotFoundError:
            return ReconciliationResult.requeue("the lab is not there any more", after=REQUEUE_SOON_SECONDS)
        except (CMLInvalidRequestError, CMLConflictError) as error:
            self._refused(work, call.value, error.cause)
            return ReconciliationResult.retry(f"CML does not {call.value} the lab now: {error.cause}")
        except CMLError as error:
            return self._refused(work, call.value, error.cause)
        work.note.took(call)
        if call is LabOperation.DELETE:
            self._counters.labs_deleted_count += 1
        log.info("lab told", lablet=work.lablet.id, worker=worker.id, call=call.value, lab=action.lab_id)
        return None

    def _refused(self, work: LabletReconcilePass, call: str, cause: str) -> ReconciliationResult:
        work.note.refusal = single_line(cause, 300)
        log.warning("call to CML failed", lablet=work.lablet.id, call=call, error=work.note.refusal)
        return ReconciliationResult.retry(work.note.refusal)


def _last_status_write(decision: Decision) -> Action | None:
    """The action whose write tells the message along."""
    writes = [action for action in decision.actions if isinstance(action, WriteStatus | ReleaseReservation)]
    return writes[-1] if writes else None
