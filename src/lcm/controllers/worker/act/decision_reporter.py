"""Telling the control plane what was decided, where no status write tells it: in batches, and only what is new."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from lcm.client.errors import ClientError
from lcm.controllers.common.base import as_stale_term
from lcm.controllers.worker.act.control_plane_writer import decision_report
from lcm.controllers.worker.decision import CheckIdle
from lcm.core import clock
from lcm.model.worker.requests import DecisionBatch, WorkerDecision

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.memory import WorkerMemory
    from lcm.model.decision import DecisionReport
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

REPORT_INTERVAL: Final = 1.0
MAX_BATCH: Final = 500


class DecisionReporter:
    """Decisions that wait to be told. A worker's newer one takes the place of its older one."""

    def __init__(self, internal: InternalApi, leader: Callable[[], Leader]) -> None:
        self._internal = internal
        self._leader = leader
        self._waiting: dict[str, DecisionReport] = {}
        self._some = asyncio.Event()

    def note(self, worker: Worker, note: WorkerMemory, decision: Decision) -> None:
        """Tell of a decision, unless the same was told before."""
        key = _decision_key(decision)
        if note.reported != key:
            note.reported = key
            self._waiting[worker.id] = decision_report(decision, clock.now())
            self._some.set()

    def recorded(self, note: WorkerMemory, decision: Decision) -> None:
        """A status write has told of it."""
        note.reported = _decision_key(decision)

    def forget(self) -> None:
        """Another leader tells what it decides."""
        self._waiting.clear()

    async def run(self) -> None:
        """Send what waits, again and again."""
        while True:
            await self._some.wait()
            await asyncio.sleep(REPORT_INTERVAL)
            self._some.clear()
            while self._waiting:
                batch = dict(list(self._waiting.items())[:MAX_BATCH])
                try:
                    await self._send(batch)
                except ClientError as error:
                    log.info("decisions cannot be told now", waiting=len(self._waiting), error=str(error))
                    self._some.set()
                    await asyncio.sleep(REPORT_INTERVAL * 10)
                    break
                for worker_id, report in batch.items():
                    if self._waiting.get(worker_id) is report:
                        del self._waiting[worker_id]

    async def _send(self, batch: dict[str, DecisionReport]) -> None:
        items = tuple(WorkerDecision(worker_id=worker_id, decision=report) for worker_id, report in batch.items())
        await as_stale_term(self._internal.write_decisions(self._leader(), DecisionBatch(items=items)))


def _decision_key(decision: Decision) -> tuple[str, ...]:
    """What makes a decision another one: its reason may count minutes, and that is no news."""
    as_stale_term = (str(action) for action in decision.actions if not isinstance(action, CheckIdle))
    return (decision.rule, *as_stale_term)
