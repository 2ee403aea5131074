"""Making workers of instances that were found: asking them for CML without credentials, and recording them once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import structlog
from pydantic import ValidationError

from lcm.client.errors import NameTaken, Refused, StaleLeader
from lcm.cloud.types import InstanceState
from lcm.cml.errors import CMLError
from lcm.controllers.worker.discovery.importer import IMPORTED_AS, candidates, import_of
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lcm.client.base import Leader
    from lcm.client.resources.client_internal import Internal
    from lcm.cloud.types import Instance, Sweep
    from lcm.cml.types import SystemInformation
    from lcm.controllers.worker.discovery.importer import Criteria
    from lcm.model.worker.record import Worker
    from lcm.model.worker.requests import ImportWorker

log = structlog.get_logger(__name__)

PROBE_SECONDS: Final = 5.0
PROBES_AT_ONCE: Final = 10
_ALL_BUT_TERMINATED: Final = tuple(status for status in WorkerStatus if status is not WorkerStatus.TERMINATED)


class Probe(Protocol):
    """What a server is asked before anything is known of it."""

    async def get_system_information(self, address: str) -> SystemInformation:
        """Version and readiness; needs no account and sends none."""


@dataclass(slots=True)
class Imports:
    """What became of the candidates of a scan, by instance id."""

    imported: dict[str, Worker] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)  # on their way to a state in which they can be judged
    declined: dict[str, Worker] = field(default_factory=dict)  # with the worker that should have ended with it


@dataclass(frozen=True, slots=True)
class _Past:
    """Whose an instance was: a worker that is TERMINATED, and whether that was wanted."""

    worker: Worker | None
    importable: bool


class Importer:
    """Imports of one region."""

    def __init__(
        self,
        region: str,
        internal: Internal,
        probe: Probe,
        *,
        leader: Callable[[], Leader],
        installation: str,
        private_addresses: bool = False,
    ) -> None:
        self._region = region
        self._internal = internal
        self._probe = probe
        self._leader = leader
        self._installation = installation
        self._private_addresses = private_addresses
        self._at_once = asyncio.Semaphore(PROBES_AT_ONCE)
        # A TERMINATED worker never changes: whose an instance was need be asked once, as long as nobody has it.
        self._past: dict[str, _Past] = {}

    async def take_in(self, sweep: Sweep, workers: Sequence[Worker], criteria: Criteria) -> Imports:
        """Import what can be imported now."""
        found = candidates(sweep.instances.values(), workers, criteria, self._installation)
        await self._recall(found)
        outcome = Imports()
        ready: list[Instance] = []
        for instance in found:
            past = self._past[instance.id]
            if not past.importable:
                if past.worker is not None:
                    outcome.declined[instance.id] = past.worker
            elif instance.state in IMPORTED_AS:
                ready.append(instance)
            else:
                outcome.waiting.add(instance.id)
        requests = await asyncio.gather(*(self._examine(instance, sweep.account_id) for instance in ready))
        for request in requests:
            if request is not None and (worker := await self._import(request)) is not None:
                outcome.imported[request.instance_id] = worker
        return outcome

    async def _recall(self, found: Sequence[Instance]) -> None:
        """Find out whose they were. The TERMINATED workers of all times are read only when an instance is new here."""
        known = {instance.id: self._past[instance.id] for instance in found if instance.id in self._past}
        new = {instance.id: instance for instance in found if instance.id not in known}
        last: dict[str, Worker] = {}
        if new:
            listing = self._internal.workers(aws_region=[self._region], exclude_statuses=_ALL_BUT_TERMINATED)
            async for worker in listing:
                if worker.instance_id in new:
                    before = last.get(worker.instance_id)
                    if before is None or before.updated_at <= worker.updated_at:
                        last[worker.instance_id] = worker
        self._past = known | {instance_id: _past_of(new[instance_id], last.get(instance_id)) for instance_id in new}

    async def _examine(self, instance: Instance, account_id: str) -> ImportWorker | None:
        """What to record of it; None: not this time."""
        version: str | None = None
        if instance.state is InstanceState.RUNNING:
            information = await self._ask_for_cml(instance)
            if information is None or not information.ready:
                return None
            version = information.version
        past = self._past[instance.id].worker
        previous = None if past is None else past.id
        try:
            return import_of(instance, self._region, account_id, cml_version=version, previous_worker_id=previous)
        except ValidationError as error:
            log.warning("instance cannot be recorded", instance_id=instance.id, error=str(error))
            return None

    async def _ask_for_cml(self, instance: Instance) -> SystemInformation | None:
        public = None if self._private_addresses else instance.public_ip
        address = public or instance.private_ip
        if address is None:
            return None
        async with self._at_once:
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    return await self._probe.get_system_information(address)
            except (CMLError, TimeoutError) as error:
                log.info("no CML found", instance_id=instance.id, address=address, error=str(error) or "no answer")
                return None

    async def _import(self, request: ImportWorker) -> Worker | None:
        try:
            try:
                worker = await self._internal.import_worker(self._leader(), request)
            except NameTaken:
                nameless = request.model_copy(update={"name": None})
                worker = await self._internal.import_worker(self._leader(), nameless)
        except StaleLeader:
            raise
        except Refused as error:
            log.warning("instance was not imported", instance_id=request.instance_id, error=str(error))
            return None
        log.info("imported", worker=worker.id, instance_id=request.instance_id, region=self._region)
        return worker


def _past_of(instance: Instance, worker: Worker | None) -> _Past:
    """One that was launched for a worker is imported only if a worker lost it; else it is a leak, or on its way."""
    if worker is None:
        return _Past(None, importable=instance.worker_id is None)
    return _Past(worker, importable=worker.desired_status is not DesiredStatus.TERMINATED)
