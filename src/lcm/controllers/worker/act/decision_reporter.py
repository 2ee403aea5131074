"""Telling the control plane what was decided, where no status write tells it: in batches, and only what is new."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from lcm.client.errors import ClientError
from lcm.controllers.common.base import told
from lcm.controllers.worker.act.control_plane_writer import report_of
from lcm.controllers.worker.decision import DetectIdle
from lcm.core import clock
from lcm.model.worker.requests import DecisionItem, DecisionsBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.client.base import Leader
    from lcm.client.resources.client_internal import Internal
    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.memory import Note
    from lcm.model.decision import DecisionReport
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

EVERY: Final = 1.0
MOST: Final = 500


class Telling:
    """Decisions that wait to be told. A worker's newer one takes the place of its older one."""

    def __init__(self, internal: Internal, leader: Callable[[], Leader]) -> None:
        self._internal = internal
        self._leader = leader
        self._waiting: dict[str, DecisionReport] = {}
        self._some = asyncio.Event()

    def note(self, worker: Worker, note: Note, decision: Decision) -> None:
        """Tell of a decision, unless the same was told before."""
        key = _key(decision)
        if note.reported != key:
            note.reported = key
            self._waiting[worker.id] = report_of(decision, clock.now())
            self._some.set()

    def told(self, note: Note, decision: Decision) -> None:
        """A status write has told of it."""
        note.reported = _key(decision)

    def forget(self) -> None:
        """Another leader tells what it decides."""
        self._waiting.clear()

    async def run(self) -> None:
        """Send what waits, again and again."""
        while True:
            await self._some.wait()
            await asyncio.sleep(EVERY)
            self._some.clear()
            while self._waiting:
                batch = dict(list(self._waiting.items())[:MOST])
                try:
                    await self._send(batch)
                except ClientError as error:
                    log.info("decisions cannot be told now", waiting=len(self._waiting), error=str(error))
                    self._some.set()
                    await asyncio.sleep(EVERY * 10)
                    break
                for worker_id, report in batch.items():
                    if self._waiting.get(worker_id) is report:
                        del self._waiting[worker_id]

    async def _send(self, batch: dict[str, DecisionReport]) -> None:
        items = tuple(DecisionItem(worker_id=worker_id, decision=report) for worker_id, report in batch.items())
        await told(self._internal.write_decisions(self._leader(), DecisionsBatch(items=items)))


def _key(decision: Decision) -> tuple[str, ...]:
    """What makes a decision another one: its reason may count minutes, and that is no news."""
    told = (str(action) for action in decision.actions if not isinstance(action, DetectIdle))
    return (decision.rule, *told)
