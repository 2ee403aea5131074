"""Labs on workers that are not a lablet's present one: our own leftovers are removed, all others are only told of.

A lab is a leftover of ours when its lablet has written down that it left it behind, because its worker was out of
reach. Whatever else there is belongs to somebody: a copy that a person made of ours, a lab of another installation, a
lab without a marker. Nobody but its owner removes it.
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
from lcm.controllers.common.base import as_stale_term
from lcm.controllers.lablet.decide.decision import LabOperation
from lcm.controllers.lablet.decide.predicates import is_reachable, lab_marker
from lcm.controllers.lablet.decide.stopping import next_removal_operation
from lcm.controllers.lablet.memory import REPEAT_DELAY_SECONDS
from lcm.core import clock
from lcm.core.controller.effects import EffectTimeoutError
from lcm.core.controller.leader_election import NotLeaderError
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
    """Whose a lab is that no lablet has at present. The values are what the audit calls it."""

    UNMARKED = "labs_without_marker"
    UNKNOWN = "labs_of_unknown_lablets"
    UNRECORDED = "labs_not_recorded"  # of a lablet that we know and that knows nothing of it: a copy
    LEFTOVER = "labs_left_behind"


@dataclass(slots=True)
class _SweepState:
    """What is remembered of one worker."""

    due: float = 0.0
    strays: dict[StrayKind, tuple[str, ...]] = field(default_factory=dict)
    asked: dict[tuple[str, LabOperation], float] = field(default_factory=dict)


class StrayLabSweeper:
    """Looks at all labs of each worker now and then, and at once when a worker becomes ready."""

    def __init__(
        self,
        *,
        servers: WorkerLabClient,
        internal: InternalApi,
        leader: Callable[[], Leader],
        workers: Callable[[], Awaitable[Iterable[Worker]]],
        policy: Callable[[], Awaitable[LabletPolicy]],
        effect: Callable[[str, Callable[[], Awaitable[None]]], Awaitable[None]],
        counters: LabletCounters,
        every: float,
    ) -> None:
        self._servers = servers
        self._internal = internal
        self._leader = leader
        self._workers = workers
        self._policy = policy
        self._effect = effect
        self._counters = counters
        self._every = every
        self._seen: dict[str, _SweepState] = {}

    def counts(self) -> Mapping[str, int]:
        """How many there are of each kind, as far as the last looks showed."""
        found = Counter({kind.value: 0 for kind in StrayKind})
        for seen in self._seen.values():
            found.update({kind.value: len(labs) for kind, labs in seen.strays.items()})
        return found

    def forget(self) -> None:
        """Another leader has looked meanwhile: begin anew."""
        self._seen.clear()

    async def run(self) -> None:
        """Look at those that are due, again and again."""
        while True:
            await asyncio.sleep(SWEEP_POLL_SECONDS)
            try:
                await self.round()
            except ClientError as error:
                log.info("labs cannot be compared with lablets now", error=str(error))

    async def round(self) -> None:
        """One look at each worker that is due, some at a time."""
        ready = {worker.id: worker for worker in await self._workers() if is_reachable(worker)}
        for gone in self._seen.keys() - ready.keys():
            del self._seen[gone]  # it is looked at as soon as it is back
        now = clock.boottime()
        due = [w for w in ready.values() if self._seen.setdefault(w.id, _SweepState()).due <= now][
            :MAX_SWEEPS_PER_ROUND
        ]
        if not due:
            return
        policy = await self._policy()
        if not policy.workers_verified:
            return
        gate = asyncio.Semaphore(MAX_CONCURRENT_SWEEPS)

        async def look(worker: Worker) -> None:
            async with gate:
                await self._sweep(worker.id, self._seen[worker.id], policy)

        await asyncio.gather(*(look(worker) for worker in due))

    async def _sweep(self, worker_id: str, seen: _SweepState, policy: LabletPolicy) -> None:
        seen.due = clock.boottime() + self._every
        try:
            async with asyncio.timeout(SWEEP_TIMEOUT):
                worker = await self._internal.worker(worker_id)
                if not is_reachable(worker):
                    return
                busy = await self._look(worker, seen, policy)
        except NotLeaderError:
            return
        except (CMLError, ClientError, EffectTimeoutError, TimeoutError) as error:
            log.info("labs of a worker cannot be looked through now", worker=worker_id, error=str(error))
            seen.due = clock.boottime() + min(RETRY_AFTER_ERROR_SECONDS, self._every)
            return
        self._counters.sweeps_count += 1
        if busy:
            seen.due = clock.boottime()

    async def _look(self, worker: Worker, seen: _SweepState, policy: LabletPolicy) -> bool:
        """Says whether something is being removed, so that it is looked at again soon."""
        labs = await self._servers.labs(worker)
        strays: dict[StrayKind, list[LabState]] = {}
        for lab in labs:
            # The lablet is read after the list: what it says of a marker now can only have become truer.
            kind = await self._judge(worker, lab, labs)
            if kind is not None:
                strays.setdefault(kind, []).append(lab)
        await self._report(worker, seen, strays)
        leftovers = strays.get(StrayKind.LEFTOVER, [])
        if not leftovers:
            return False
        policy = replace(policy, fleet_hold=(await self._internal.fleet()).hold)  # it may be newer than our look
        if policy.hold_on(worker, clock.now()) is not None:
            return False
        for lab in leftovers:
            await self._remove(worker, lab, seen)
        return True

    async def _judge(self, worker: Worker, lab: LabState, labs: Iterable[LabState]) -> StrayKind | None:
        """None: a lablet has it, or is about to find it."""
        if lab.marker is None:
            return StrayKind.UNMARKED
        marker = _MARKER_PATTERN.fullmatch(lab.marker)
        lablet = None if marker is None else await self._lablet(marker.group(1))
        if marker is None or lablet is None or int(marker.group(2)) > lablet.placement_attempt:
            return StrayKind.UNKNOWN
        if lablet.assigned and lablet.worker_id == worker.id and lab.marker == lab_marker(lablet):
            return None if lablet.lab_id in (None, lab.id) else StrayKind.UNRECORDED
        for left in lablet.left_behind:
            if (left.worker_id, left.marker) == (worker.id, lab.marker):
                # Where only the marker is known, nobody can say of two labs which one is ours.
                alone = sum(other.marker == lab.marker for other in labs) == 1
                return (
                    StrayKind.LEFTOVER
                    if left.lab_id == lab.id or (left.lab_id is None and alone)
                    else StrayKind.UNRECORDED
                )
        return StrayKind.UNRECORDED

    async def _lablet(self, lablet_id: str) -> Lablet | None:
        try:
            return await self._internal.lablet(lablet_id)
        except NotFoundError:
            return None

    async def _remove(self, worker: Worker, lab: LabState, seen: _SweepState) -> None:
        call = next_removal_operation(lab.state)
        asked = seen.asked.get((lab.id, call), float("-inf"))
        if clock.boottime() - asked < REPEAT_DELAY_SECONDS:
            return
        await self._effect(f"lab {lab.id}", lambda: self._servers.change(worker, call, lab.id))
        seen.asked[lab.id, call] = clock.boottime()
        log.info("leftover lab told", worker=worker.id, lab=lab.id, marker=lab.marker, call=call.value)
        if call is LabOperation.DELETE:
            self._counters.strays_removed_count += 1
            seen.asked = {known: at for known, at in seen.asked.items() if known[0] != lab.id}
            reason = single_line(f"lab {lab.id} ({lab.title}) was left behind by a lablet", _MAX_MESSAGE)
            await as_stale_term(self._internal.audit(self._leader(), "lab_removed", worker.id, reason))

    async def _report(self, worker: Worker, seen: _SweepState, strays: Mapping[StrayKind, list[LabState]]) -> None:
        """Tell of what is new. What was told once is not told at every look."""
        for kind, labs in strays.items():
            fresh = [lab for lab in labs if lab.id not in seen.strays.get(kind, ())]
            if not fresh:
                continue
            some = ", ".join(f"{lab.title!r} ({lab.id})" for lab in fresh[:_MAX_NAMED_LABS])
            more = f" and {len(fresh) - _MAX_NAMED_LABS} more" if len(fresh) > _MAX_NAMED_LABS else ""
            line = single_line(f"{len(fresh)} on {worker.name}: {some}{more}", _MAX_MESSAGE)
            log.warning("labs that no lablet has", worker=worker.id, kind=kind.value, labs=line)
            await as_stale_term(self._internal.audit(self._leader(), kind.value, worker.id, line))
        seen.strays = {kind: tuple(lab.id for lab in labs) for kind, labs in strays.items()}
