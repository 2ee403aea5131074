"""Imports instances as workers: selects them from a sweep, probes them for CML without credentials, records them once.

Instances of another installation are never touched.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import structlog
from pydantic import TypeAdapter, ValidationError

from lcm.client.errors import ApiError, NameTakenError
from lcm.cloud.types import INSTALLATION_TAG, WORKER_TAG, InstanceSelection, InstanceState
from lcm.cml.errors import CMLError
from lcm.controllers.worker.discovery.instance_types import describe_types, is_incomplete
from lcm.model.base import ResourceName, SingleLineText
from lcm.model.worker.record import MAX_TAGS, Tags
from lcm.model.worker.requests import ImportWorkerRequest
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lcm.client.base import Leader
    from lcm.client.resources.internal import InternalApi
    from lcm.cloud.types import Instance, InstanceTypeInfo, Sweep
    from lcm.cml.types import SystemInformation
    from lcm.controllers.worker.discovery.instance_types import DescribeInstanceTypes
    from lcm.model.fleet.settings import DiscoverySettings
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

PROBE_TIMEOUT: Final = 5.0
MAX_CONCURRENT_PROBES: Final = 10
DEFAULT_TAG: Final = "cml-managed=true"
STATUS_BY_IMPORT_STATE: Final = {
    InstanceState.RUNNING: WorkerStatus.RUNNING,
    InstanceState.STOPPED: WorkerStatus.STOPPED,
}
_ALL_BUT_TERMINATED: Final = tuple(status for status in WorkerStatus if status is not WorkerStatus.TERMINATED)
_TRANSITIONAL_STATES: Final = (InstanceState.PENDING, InstanceState.STOPPING)
_NAME_TAG: Final = "Name"
_PRIORITY_TAGS: Final = ("cml-environment", "cml-region")
_MAX_VERSION_LENGTH: Final = 64
_ACCOUNT_DIGITS: Final = 12

_name_adapter: TypeAdapter[str] = TypeAdapter(ResourceName)
_text_adapter: TypeAdapter[str] = TypeAdapter(SingleLineText)
_tags_adapter: TypeAdapter[dict[str, str]] = TypeAdapter(Tags)


@dataclass(frozen=True, slots=True)
class DiscoveryCriteria:
    """How instances to import are found: by a tag, with a certain value or any, or by an image."""

    tag_key: str
    tag_value: str | None = None
    image_ids: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: DiscoverySettings | None, image_ids: Iterable[str] = ()) -> DiscoveryCriteria:
        """The criteria of the settings, or the defaults."""
        tag_filter = (settings.worker_discovery_tag_filter or "").strip() if settings is not None else ""
        key, has_value, value = (tag_filter or DEFAULT_TAG).partition("=")
        return cls(key.strip(), value.strip() if has_value else None, frozenset(image_ids))

    @property
    def selection(self) -> InstanceSelection:
        """What a sweep must select to contain these instances and all of our own."""
        keys = (WORKER_TAG,) if not self.tag_key else (WORKER_TAG, self.tag_key)
        return InstanceSelection(tuple(dict.fromkeys(keys)), tuple(sorted(self.image_ids)))

    def match(self, instance: Instance) -> bool:
        """Whether the instance meets the criteria."""
        if instance.image_id in self.image_ids:
            return True
        value = instance.tags.get(self.tag_key)
        return value is not None and self.tag_value in (None, value)


def is_own_instance(instance: Instance, installation: str) -> bool:
    """Whether this installation launched the instance."""
    return instance.tags.get(INSTALLATION_TAG) == installation


def find_candidates(
    instances: Iterable[Instance], workers: Sequence[Worker], criteria: DiscoveryCriteria, installation: str
) -> list[Instance]:
    """Matching instances that no worker has, ordered by id; `workers` are all that are not TERMINATED."""
    taken = {worker.instance_id for worker in workers}
    existing = {worker.id for worker in workers}
    candidates = []
    for instance in instances:
        if instance.id in taken or not criteria.match(instance):
            continue
        if instance.state not in STATUS_BY_IMPORT_STATE and instance.state not in _TRANSITIONAL_STATES:
            continue
        launched_by_lcm = WORKER_TAG in instance.tags or INSTALLATION_TAG in instance.tags
        # If its own worker exists, that worker adopts it, or it is a leak: a second worker must not share it.
        if launched_by_lcm and (not is_own_instance(instance, installation) or instance.worker_id in existing):
            continue
        candidates.append(instance)
    return sorted(candidates, key=lambda instance: instance.id)


def import_request(
    instance: Instance,
    region: str,
    account_id: str,
    *,
    cml_version: str | None,
    previous_worker_id: str | None,
    offered: InstanceTypeInfo | None = None,
) -> ImportWorkerRequest:
    """The request that records an instance as a worker."""
    return ImportWorkerRequest(
        cpu_cores=None if offered is None else offered.cpu_cores,
        memory_gb=None if offered is None else offered.memory_gb,
        instance_id=instance.id,
        aws_region=region,
        aws_account_id=account_id if account_id.isdecimal() and len(account_id) == _ACCOUNT_DIGITS else None,
        name=valid_name(instance.tags.get(_NAME_TAG)),
        instance_type=instance.instance_type,
        ami_id=instance.image_id,
        status=STATUS_BY_IMPORT_STATE[instance.state],
        public_ip=instance.public_ip,
        private_ip=instance.private_ip,
        tags=importable_tags(instance.tags),
        cml_version=_valid_version(cml_version),
        previous_worker_id=previous_worker_id,
    )


def valid_name(name: str | None) -> str | None:
    """The name, if it is valid for a worker."""
    try:
        return None if name is None else _name_adapter.validate_python(name)
    except ValidationError:
        return None


def importable_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags that are valid for a worker; if there are too many, the priority tags stay."""
    in_order = sorted(tags, key=lambda key: (key not in _PRIORITY_TAGS, key))
    valid = {key: tags[key] for key in in_order if _is_valid_tag(key, tags[key])}
    return dict(list(valid.items())[:MAX_TAGS])


def _is_valid_tag(key: str, value: str) -> bool:
    try:
        _tags_adapter.validate_python({key: value})
    except ValidationError:
        return False
    return True


def _valid_version(version: str | None) -> str | None:
    """The version that a server reports; it is not trusted to be short or printable."""
    try:
        return None if version is None else _text_adapter.validate_python(version)[:_MAX_VERSION_LENGTH]
    except ValidationError:
        return None


class CmlProbe(Protocol):
    """Queries an unknown server."""

    async def get_system_information(self, address: str) -> SystemInformation:
        """Version and readiness; needs no account and sends none."""


@dataclass(slots=True)
class ImportResult:
    """What happened to the candidates of a scan, by instance id."""

    imported: dict[str, Worker] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)  # in a transitional state; a later scan decides
    declined: dict[str, Worker] = field(default_factory=dict)  # with the worker that was terminated on request


@dataclass(frozen=True, slots=True)
class _PreviousOwner:
    """The TERMINATED worker that had an instance, and whether the instance may be imported again."""

    worker: Worker | None
    importable: bool


class Importer:
    """Imports the instances of one region."""

    def __init__(
        self,
        region: str,
        internal: InternalApi,
        probe: CmlProbe,
        *,
        leader: Callable[[], Leader],
        installation: str,
        private_addresses: bool = False,
        instance_types: DescribeInstanceTypes | None = None,
    ) -> None:
        self._region = region
        self._internal = internal
        self._probe = probe
        self._leader = leader
        self._installation = installation
        self._private_addresses = private_addresses
        self._instance_types = instance_types
        self._probe_slots = asyncio.Semaphore(MAX_CONCURRENT_PROBES)
        # A TERMINATED worker never changes: the previous owner is read once, as long as no worker has the instance.
        self._previous_owners: dict[str, _PreviousOwner] = {}

    async def import_from(self, sweep: Sweep, workers: Sequence[Worker], criteria: DiscoveryCriteria) -> ImportResult:
        """Import the candidates of a sweep that are ready."""
        candidates = find_candidates(sweep.instances.values(), workers, criteria, self._installation)
        await self._load_previous_owners(candidates)
        result = ImportResult()
        ready: list[Instance] = []
        for instance in candidates:
            owner = self._previous_owners[instance.id]
            if not owner.importable:
                if owner.worker is not None:
                    result.declined[instance.id] = owner.worker
            elif instance.state in STATUS_BY_IMPORT_STATE:
                ready.append(instance)
            else:
                result.waiting.add(instance.id)
        incomplete = [worker for worker in workers if is_incomplete(worker)]
        names = {*(each.instance_type for each in ready), *(each.instance_type or "" for each in incomplete)}
        offered = await describe_types(self._instance_types, self._region, names)
        requests = await asyncio.gather(
            *(self._build_request(each, sweep.account_id, offered.get(each.instance_type)) for each in ready)
        )
        for request in requests:
            if request is not None and (worker := await self._import(request)) is not None:
                result.imported[request.instance_id] = worker
        for worker in incomplete:
            await self._complete(worker, offered.get(worker.instance_type or ""))
        return result

    async def _complete(self, worker: Worker, offered: InstanceTypeInfo | None) -> None:
        """Record what the instance type of an imported worker offers, which was not known at its import."""
        if offered is None or worker.instance_id is None:
            return
        request = ImportWorkerRequest(
            instance_id=worker.instance_id,
            aws_region=self._region,
            status=worker.status,
            cpu_cores=offered.cpu_cores,
            memory_gb=offered.memory_gb,
        )
        try:
            await self._internal.import_worker(self._leader(), request)
        except ApiError as error:
            log.info("import left incomplete until the next scan", worker=worker.id, error=str(error))

    async def _load_previous_owners(self, candidates: Sequence[Instance]) -> None:
        """Find the previous owners. All TERMINATED workers are read only if there is a new candidate."""
        owners = self._previous_owners
        cached = {instance.id: owners[instance.id] for instance in candidates if instance.id in owners}
        new = {instance.id: instance for instance in candidates if instance.id not in cached}
        last: dict[str, Worker] = {}
        if new:
            listing = self._internal.workers(aws_region=[self._region], exclude_statuses=_ALL_BUT_TERMINATED)
            async for worker in listing:
                if worker.instance_id in new:
                    before = last.get(worker.instance_id)
                    if before is None or before.updated_at <= worker.updated_at:
                        last[worker.instance_id] = worker
        self._previous_owners = cached | {
            instance_id: _previous_owner(new[instance_id], last.get(instance_id)) for instance_id in new
        }

    async def _build_request(
        self, instance: Instance, account_id: str, offered: InstanceTypeInfo | None
    ) -> ImportWorkerRequest | None:
        """The request for an instance; None if it cannot be imported now."""
        version: str | None = None
        if instance.state is InstanceState.RUNNING:
            information = await self._probe_cml(instance)
            if information is None or not information.ready:
                return None
            version = information.version
        owner = self._previous_owners[instance.id].worker
        previous = None if owner is None else owner.id
        try:
            return import_request(
                instance,
                self._region,
                account_id,
                cml_version=version,
                previous_worker_id=previous,
                offered=offered,
            )
        except ValidationError as error:
            log.warning("instance cannot be recorded", instance_id=instance.id, error=str(error))
            return None

    async def _probe_cml(self, instance: Instance) -> SystemInformation | None:
        public = None if self._private_addresses else instance.public_ip
        address = public or instance.private_ip
        if address is None:
            return None
        async with self._probe_slots:
            try:
                async with asyncio.timeout(PROBE_TIMEOUT):
                    return await self._probe.get_system_information(address)
            except (CMLError, TimeoutError) as error:
                log.info("no CML found", instance_id=instance.id, address=address, error=str(error) or "no response")
                return None

    async def _import(self, request: ImportWorkerRequest) -> Worker | None:
        try:
            try:
                worker = await self._internal.import_worker(self._leader(), request)
            except NameTakenError:
                without_name = request.model_copy(update={"name": None})
                worker = await self._internal.import_worker(self._leader(), without_name)
        except ApiError as error:
            log.warning("instance was not imported", instance_id=request.instance_id, error=str(error))
            return None
        log.info("imported", worker=worker.id, instance_id=request.instance_id, region=self._region)
        return worker


def _previous_owner(instance: Instance, worker: Worker | None) -> _PreviousOwner:
    """An instance that was launched for a worker is imported only if a worker lost it; otherwise it is a leak."""
    if worker is None:
        return _PreviousOwner(None, importable=instance.worker_id is None)
    return _PreviousOwner(worker, importable=worker.desired_status is not DesiredStatus.TERMINATED)
