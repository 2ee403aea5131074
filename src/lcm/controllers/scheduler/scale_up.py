"""Asking for more workers: one request for one need, in rounds, and not again at once where it was refused."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from lcm.client.errors import ApiError, OutcomeUnknownError
from lcm.controllers.common.base import as_stale_term
from lcm.controllers.scheduler.capacity import is_arriving
from lcm.controllers.scheduler.planner import NO_CAPACITY, arriving_worker_reason
from lcm.controllers.scheduler.template_choice import will_be_licensed
from lcm.core import clock
from lcm.core.backoff import Backoff
from lcm.core.text import single_line
from lcm.model.worker.requests import ScaleUpRequest
from lcm.model.worker.status import WorkerOrigin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.controllers.scheduler.controller import SchedulerCounters
    from lcm.controllers.scheduler.plan import CapacityNeed, WaitingLablet
    from lcm.controllers.scheduler.worker_cache import WorkerCache
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

BATCH_WINDOW_SECONDS = 1.0
"""A need waits so long for others that come with it: ten lablets made one after the other need one plan, not ten."""

_MAX_RETRY_SECONDS = 120.0
_MAX_REASON = 1000


@dataclass(slots=True)
class _ScaleUpRejection:
    """A kind of worker that could not be had."""

    reason: str
    again_at: float
    times: int


class ScaleUpRequester:
    """Requests for more workers, of one leader."""

    def __init__(
        self,
        internal: InternalApi,
        leader: Callable[[], Leader],
        view: WorkerCache,
        counters: SchedulerCounters,
        cooldown: float,
    ) -> None:
        self._internal = internal
        self._leader = leader
        self._view = view
        self._counters = counters
        self._cooldown = cooldown
        self._pause = Backoff(max(cooldown, 1.0), longest=max(_MAX_RETRY_SECONDS, cooldown))
        self._needed_since: float | None = None
        self._next_round = 0.0
        self._refusals: dict[tuple[str | None, str], _ScaleUpRejection] = {}

    def forget(self) -> None:
        """A new term begins."""
        self._needed_since = None
        self._next_round = 0.0
        self._refusals.clear()

    async def ask(self, needs: Sequence[CapacityNeed]) -> tuple[list[WaitingLablet], float | None]:
        """What the lablets of these needs wait for now; and in how many seconds to ask for what is still needed."""
        time = asyncio.get_running_loop().time()
        if not needs:
            self._needed_since = None
            return [], None
        if self._needed_since is None:
            self._needed_since = time
        gathered = self._needed_since + BATCH_WINDOW_SECONDS
        if time < gathered:
            return [], gathered - time  # not worth a word: they are told in a moment what they wait for
        if time < self._next_round:
            return [waiting for need in needs for waiting in need.lablets], self._next_round - time
        answers: list[WaitingLablet] = []
        got: list[Worker] = []
        for need in needs:
            # The first one told that launched workers get no licence: more of them would stand there for nothing.
            useless = need.licensed and any(map(_lacks_license, got))
            worker = None if useless else await self._ask_one(need, time)
            if worker is not None:
                got.append(worker)
            answers.extend(self._answer(need, worker))
        if got:
            self._next_round = time + self._cooldown
        return answers, self._until_next(needs, time)

    async def _ask_one(self, need: CapacityNeed, time: float) -> Worker | None:
        """The worker that the request yielded; None: there is none, or nobody knows yet."""
        kind = (need.aws_region, need.template)
        known = self._refusals.get(kind)
        if known is not None and time < known.again_at:
            return None
        fields = {"template": need.template, "aws_region": need.aws_region, "reason": need.reason, "for": need.key}
        try:
            worker = await as_stale_term(self._internal.scale_up(self._leader(), ScaleUpRequest.model_validate(fields)))
        except OutcomeUnknownError as error:
            log.warning("nobody knows whether a worker was asked for; looking again", need=need.key, error=str(error))
            self._view.invalidate()
            return None
        except ApiError as refusal:
            self._refused(kind, refusal, known, time)
            return None
        self._refusals.pop(kind, None)
        self._view.put(worker)
        self._counters.scale_up_accepted_count += 1
        log.info("worker asked for", worker=worker.name, template=need.template, lablets=len(need.lablets))
        return worker

    def _refused(
        self, kind: tuple[str | None, str], refusal: ApiError, known: _ScaleUpRejection | None, time: float
    ) -> None:
        times = 0 if known is None else known.times + 1
        if known is None or known.reason != refusal.detail:
            log.warning("no more workers can be had", region=kind[0], template=kind[1], reason=refusal.detail)
        self._refusals[kind] = _ScaleUpRejection(refusal.detail, time + self._pause.exact(times), times)
        self._counters.scale_up_refused_count += 1

    def _answer(self, need: CapacityNeed, worker: Worker | None) -> list[WaitingLablet]:
        if worker is not None:
            if is_arriving(worker, clock.now()):
                reason = arriving_worker_reason(worker.name)
            else:
                reason = f"{NO_CAPACITY}; worker {worker.name}, which was asked for, is {worker.status}"
            return [replace(waiting, reason=reason, worker_id=worker.id) for waiting in need.lablets]
        refusal = self._refusals.get((need.aws_region, need.template))
        if refusal is None:
            return list(need.lablets)
        reason = single_line(f"{NO_CAPACITY}, and no more can be had: {refusal.reason}", _MAX_REASON)
        return [replace(waiting, reason=reason) for waiting in need.lablets]

    def _until_next(self, needs: Sequence[CapacityNeed], time: float) -> float | None:
        refused = [self._refusals.get((need.aws_region, need.template)) for need in needs]
        waits = [refusal.again_at - time for refusal in refused if refusal is not None]
        return min(waits, default=None)


def _lacks_license(worker: Worker) -> bool:
    return worker.origin is WorkerOrigin.SCALE_UP and not will_be_licensed(worker)
