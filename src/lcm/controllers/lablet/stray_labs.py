"""Stray labs: labs on workers that belong to no current lablet. Our own leftovers are removed, others only reported.

A lab is a leftover if its lablet has recorded that it left the lab behind because its worker was unreachable. Any
other stray lab has an owner: it is a user's copy of one of our labs, a lab of another installation, or a lab without
a marker. Only its owner removes it.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

import structlog

from lcm.client.errors import ClientError, NotFoundError
from lcm.cml.errors import CMLError
from lcm.controllers.lablet.decide.decision import LabOperation
from lcm.controllers.lablet.decide.predicates import is_reachable, lab_marker, removable_leftovers
from lcm.controllers.lablet.decide.stopping import next_removal_operation
from lcm.controllers.lablet.memory import REPEAT_DELAY_SECONDS
from lcm.core import clock
from lcm.core.authorization import NotAuthorizedError
from lcm.core.controller.effects import EffectTimeoutError
from lcm.core.text import single_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.cml.types import LabState
    from lcm.controllers.lablet.deps import LabletPolicy
    from lcm.controllers.lablet.lab_client import WorkerLabClient
    from lcm.controllers.lablet.metrics import LabletCounters
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

SWEEP_POLL_SECONDS: Final = 5.0
MAX_CONCURRENT_SWEEPS: Final = 4
MAX_SWEEPS_PER_ROUND: Final = 40
SWEEP_TIMEOUT: Final = 60.0
RETRY_AFTER_ERROR_SECONDS: Final = 60.0
_MARKER_PATTERN = re.compile(r"([a-z0-9-]{1,64})\.([0-9]{1,9})")
_MAX_MESSAGE: Final = 500
_MAX_NAMED_LABS: Final = 5


class StrayKind(Enum):
    """The kinds of stray labs. The values are audit actions."""

    UNMARKED = "labs_without_marker"
    UNKNOWN = "labs_of_unknown_lablets"
    UNRECORDED = "labs_not_recorded"  # its lablet exists but has not recorded it: a copy
    LEFTOVER = "labs_left_behind"


@dataclass(slots=True)
class _SweepState:
    """The state of the sweep of one worker."""

    due: float = 0.0
    strays: dict[StrayKind, tuple[str, ...]] = field(default_factory=dict)
    requested: dict[tuple[str, LabOperation], float] = field(default_factory=dict)


class StrayLabSweeper:
    """Checks all labs of each worker at intervals, and at once when a worker becomes ready."""

    def __init__(
        self,
        *,
        lab_client: WorkerLabClient,
        internal: InternalApi,
        leader: Callable[[], Leader],
        workers: Callable[[], Awaitable[Iterable[Worker]]],
        policy: Callable[[], Awaitable[LabletPolicy]],
        effect: Callable[[str, Callable[[], Awaitable[None]]], Awaitable[None]],
        counters: LabletCounters,
        interval: float,
    ) -> None:
        self._labs = lab_client
        self._internal = internal
        self._leader = leader
        self._workers = workers
        self._policy = policy
        self._effect = effect
        self._counters = counters
        self._interval = interval
        self._states: dict[str, _SweepState] = {}

    def counts(self) -> Mapping[str, int]:
        """The number of stray labs of each kind, according to the last sweeps."""
        found = Counter({kind.value: 0 for kind in StrayKind})
        for state in self._states.values():
            found.update({kind.value: len(labs) for kind, labs in state.strays.items()})
        return found

    def forget(self) -> None:
        """Drop all state: another leader has swept in the meantime."""
        self._states.clear()

    async def run(self) -> None:
        """Sweep the workers that are due, forever."""
        while True:
            await asyncio.sleep(SWEEP_POLL_SECONDS)
            try:
                await self._sweep_due_workers()
            except ClientError as error:
                log.info("cannot compare labs with lablets", error=str(error))

    async def _sweep_due_workers(self) -> None:
        """Sweep each worker that is due, a few at a time."""
        ready = {worker.id: worker for worker in await self._workers() if is_reachable(worker)}
        for gone in self._states.keys() - ready.keys():
            del self._states[gone]  # it is swept as soon as it is back
        now = clock.boottime()
        due = [w for w in ready.values() if self._states.setdefault(w.id, _SweepState()).due <= now][
            :MAX_SWEEPS_PER_ROUND
        ]
        if not due:
            return
        policy = await self._policy()
        if not policy.workers_verified:
            return
        semaphore = asyncio.Semaphore(MAX_CONCURRENT_SWEEPS)

        async def sweep(worker: Worker) -> None:
            async with semaphore:
                await self._sweep(worker.id, self._states[worker.id], policy)

        await asyncio.gather(*(sweep(worker) for worker in due))

    async def _sweep(self, worker_id: str, state: _SweepState, policy: LabletPolicy) -> None:
        state.due = clock.boottime() + self._interval
        try:
            async with asyncio.timeout(SWEEP_TIMEOUT):
                worker = await self._internal.worker(worker_id)
                if not is_reachable(worker):
                    return
                busy = await self._check(worker, state, policy)
        except NotAuthorizedError:
            return
        except (CMLError, ClientError, EffectTimeoutError, TimeoutError) as error:
            log.info("cannot sweep the labs of a worker", worker=worker_id, error=str(error))
            state.due = clock.boottime() + min(RETRY_AFTER_ERROR_SECONDS, self._interval)
            return
        self._counters.sweeps_count += 1
        if busy:
            state.due = clock.boottime()

    async def _check(self, worker: Worker, state: _SweepState, policy: LabletPolicy) -> bool:
        """Sweep one worker. True if a lab is being removed, so that the next sweep follows soon."""
        labs = await self._labs.labs(worker)
        strays: dict[StrayKind, list[LabState]] = {}
        for lab in labs:
            # The lablet is read after the list, so its record is never older than the list.
            kind = await self._classify(worker, lab, labs)
            if kind is not None:
                strays.setdefault(kind, []).append(lab)
        await self._report(worker, state, strays)
        leftovers = strays.get(StrayKind.LEFTOVER, [])
        if not leftovers:
            return False
        policy = replace(policy, fleet_hold=(await self._internal.fleet()).hold)  # it may be newer than the policy
        if policy.hold_on(worker, clock.earliest_now()) is not None:
            return False
        for lab in leftovers:
            await self._remove(worker, lab, state)
        return True

    async def _classify(self, worker: Worker, lab: LabState, labs: Iterable[LabState]) -> StrayKind | None:
        """The kind of a stray lab; None if it belongs to a lablet, or a lablet is about to find it."""
        if lab.marker is None:
            return StrayKind.UNMARKED
        marker = _MARKER_PATTERN.fullmatch(lab.marker)
        lablet = None if marker is None else await self._lablet(marker.group(1))
        if marker is None or lablet is None or int(marker.group(2)) > lablet.placement_attempt:
            return StrayKind.UNKNOWN
        if lablet.assigned and lablet.worker_id == worker.id and lab.marker == lab_marker(lablet):
            return None if lablet.lab_id in (None, lab.id) else StrayKind.UNRECORDED
        if (
            lablet.assigned
            and lablet.lab_id is None
            and lab.id in {x.lab_id for x in removable_leftovers(lablet, worker)}
        ):
            return None  # it removes this lab itself before it makes another
        for left in lablet.left_behind:
            if (left.worker_id, left.marker) == (worker.id, lab.marker):
                # If only the marker is known, two labs with it are indistinguishable.
                is_only_one = sum(other.marker == lab.marker for other in labs) == 1
                return (
                    StrayKind.LEFTOVER
                    if left.lab_id == lab.id or (left.lab_id is None and is_only_one)
                    else StrayKind.UNRECORDED
                )
        return StrayKind.UNRECORDED

    async def _lablet(self, lablet_id: str) -> Lablet | None:
        try:
            return await self._internal.lablet(lablet_id)
        except NotFoundError:
            return None

    async def _remove(self, worker: Worker, lab: LabState, state: _SweepState) -> None:
        call = next_removal_operation(lab.state)
        requested_at = state.requested.get((lab.id, call), float("-inf"))
        if clock.boottime() - requested_at < REPEAT_DELAY_SECONDS:
            return
        await self._effect(f"lab {lab.id}", lambda: self._labs.change(worker, call, lab.id))
        state.requested[lab.id, call] = clock.boottime()
        log.info("leftover lab operation accepted", worker=worker.id, lab=lab.id, marker=lab.marker, call=call.value)
        if call is LabOperation.DELETE:
            self._counters.strays_removed_count += 1
            state.requested = {key: at for key, at in state.requested.items() if key[0] != lab.id}
            reason = single_line(f"lab {lab.id} ({lab.title}) was left behind by a lablet", _MAX_MESSAGE)
            await self._internal.audit(self._leader(), "lab_removed", worker.id, reason)

    async def _report(self, worker: Worker, state: _SweepState, strays: Mapping[StrayKind, list[LabState]]) -> None:
        """Report new stray labs. Each one is reported only once."""
        for kind, labs in strays.items():
            fresh = [lab for lab in labs if lab.id not in state.strays.get(kind, ())]
            if not fresh:
                continue
            some = ", ".join(f"{lab.title!r} ({lab.id})" for lab in fresh[:_MAX_NAMED_LABS])
            more = f" and {len(fresh) - _MAX_NAMED_LABS} more" if len(fresh) > _MAX_NAMED_LABS else ""
            line = single_line(f"{len(fresh)} on {worker.name}: {some}{more}", _MAX_MESSAGE)
            log.warning("stray labs found", worker=worker.id, kind=kind.value, labs=line)
            await self._internal.audit(self._leader(), kind.value, worker.id, line)
        state.strays = {kind: tuple(lab.id for lab in labs) for kind, labs in strays.items()}
