"""Requests more workers: one request per need, with a cooldown, and with a backoff after a rejection."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from lcm.client.errors import ApiError, OutcomeUnknownError
from lcm.core import clock
from lcm.core.backoff import Backoff
from lcm.core.text import single_line
from lcm.model.lablet.placement import FOREVER, lablet_end
from lcm.model.lablet.scheduling.capacity import is_arriving
from lcm.model.lablet.scheduling.planner import NO_CAPACITY, arriving_worker_reason
from lcm.model.lablet.scheduling.template_choice import lacks_license
from lcm.model.worker.requests import ScaleUpRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.controllers.scheduler.controller import SchedulerCounters
    from lcm.controllers.scheduler.worker_cache import WorkerCache
    from lcm.model.lablet.scheduling.planner import CapacityNeed, WaitingLablet
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

BATCH_WINDOW_SECONDS = 1.0
"""A need waits this long for others: ten lablets created one after the other should get one plan, not ten."""

_MAX_RETRY_SECONDS = 120.0
_MAX_REASON = 1000


@dataclass(slots=True)
class _ScaleUpRejection:
    """A rejected request for a template and region."""

    reason: str
    again_at: float
    times: int


class ScaleUpRequester:
    """The scale-up requests of one leader."""

    def __init__(
        self,
        internal: InternalApi,
        leader: Callable[[], Leader],
        worker_cache: WorkerCache,
        counters: SchedulerCounters,
        cooldown: float,
    ) -> None:
        self._internal = internal
        self._leader = leader
        self._workers = worker_cache
        self._counters = counters
        self._cooldown = cooldown
        self._pause = Backoff(max(cooldown, 1.0), max_delay=max(_MAX_RETRY_SECONDS, cooldown))
        self._needed_since: float | None = None
        self._next_round = 0.0
        self._rejections: dict[tuple[str | None, str], _ScaleUpRejection] = {}

    def forget(self) -> None:
        """Drop all state at the start of a term."""
        self._needed_since = None
        self._next_round = 0.0
        self._rejections.clear()

    async def request(self, needs: Sequence[CapacityNeed]) -> tuple[list[WaitingLablet], float | None]:
        """Request workers for these needs. Returns what their lablets wait for, and when to request again."""
        time = asyncio.get_running_loop().time()
        if not needs:
            self._needed_since = None
            return [], None
        if self._needed_since is None:
            self._needed_since = time
        batch_ends = self._needed_since + BATCH_WINDOW_SECONDS
        if time < batch_ends:
            return [], batch_ends - time  # not reported yet: the reason follows in a moment
        if time < self._next_round:
            return [each for need in needs for each in need.lablets], self._next_round - time
        waiting: list[WaitingLablet] = []
        workers: list[Worker] = []
        for need in needs:
            # A control plane that did not say that it gives no license: the first one shows it.
            useless = need.licensed and any(map(lacks_license, workers))
            worker = None if useless else await self._request_one(need, time)
            if worker is not None:
                workers.append(worker)
            waiting.extend(self._waiting_lablets(need, worker))
        if workers:
            self._next_round = time + self._cooldown
        return waiting, self._until_next(needs, time)

    async def _request_one(self, need: CapacityNeed, time: float) -> Worker | None:
        """The worker that was returned; None if there is none, or if the outcome is unknown."""
        kind = (need.aws_region, need.template)
        previous = self._rejections.get(kind)
        if previous is not None and time < previous.again_at:
            return None
        try:
            worker = await self._internal.scale_up(self._leader(), _scale_up_request(need, clock.earliest_now()))
        except OutcomeUnknownError as error:
            log.warning("the outcome of a scale-up request is unknown; checking again", need=need.key, error=str(error))
            self._workers.invalidate()
            return None
        except ApiError as error:
            self._record_rejection(kind, error, previous, time)
            return None
        self._rejections.pop(kind, None)
        self._workers.put(worker)
        self._counters.scale_up_accepted_count += 1
        log.info("worker requested", worker=worker.name, template=need.template, lablets=len(need.lablets))
        return worker

    def _record_rejection(
        self, kind: tuple[str | None, str], error: ApiError, previous: _ScaleUpRejection | None, time: float
    ) -> None:
        times = 0 if previous is None else previous.times + 1
        if previous is None or previous.reason != error.detail:
            log.warning("no more workers are available", region=kind[0], template=kind[1], reason=error.detail)
        self._rejections[kind] = _ScaleUpRejection(error.detail, time + self._pause.delay_without_jitter(times), times)
        self._counters.scale_up_refused_count += 1

    def _waiting_lablets(self, need: CapacityNeed, worker: Worker | None) -> list[WaitingLablet]:
        if worker is not None:
            if is_arriving(worker, clock.earliest_now()):
                reason = arriving_worker_reason(worker.name)
            else:
                reason = f"{NO_CAPACITY}; worker {worker.name}, which was requested, is {worker.status}"
            return [replace(each, reason=reason, worker_id=worker.id) for each in need.lablets]
        rejection = self._rejections.get((need.aws_region, need.template))
        if rejection is None:
            return list(need.lablets)
        reason = single_line(f"{NO_CAPACITY}, and no more workers are available: {rejection.reason}", _MAX_REASON)
        return [replace(each, reason=reason) for each in need.lablets]

    def _until_next(self, needs: Sequence[CapacityNeed], time: float) -> float | None:
        rejections = [self._rejections.get((need.aws_region, need.template)) for need in needs]
        waits = [rejection.again_at - time for rejection in rejections if rejection is not None]
        return min(waits, default=None)


def _scale_up_request(need: CapacityNeed, now: datetime) -> ScaleUpRequest:
    """The request exactly as it was planned: it resumes the planned worker, or launches one."""
    fields: dict[str, object] = {
        "template": need.template,
        "aws_region": need.aws_region,
        "reason": need.reason,
        "for": need.key,
    }
    if need.resumes is not None:
        fields["worker_id"] = need.resumes
    elif need.avoids_paused:
        fields["resume"] = False
    ends = max((lablet_end(each.lablet, now) for each in need.lablets), default=FOREVER)
    if ends < FOREVER:
        fields["until"] = ends
    return ScaleUpRequest.model_validate(fields)
