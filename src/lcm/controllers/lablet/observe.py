"""Observes a lablet's lab: queries CML only when needed, and only for what the decision depends on."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from lcm.client.errors import NotFoundError
from lcm.cml.client.responses import printable_text
from lcm.cml.errors import CMLError, CMLNotFoundError
from lcm.controllers.lablet.decide.ending import find_ending
from lcm.controllers.lablet.decide.predicates import (
    is_reachable,
    lab_marker,
    removable_leftovers,
    worker_lost_reason,
)
from lcm.controllers.lablet.decide.running import check_interval
from lcm.controllers.lablet.observation import LAB_STARTED, LabObservation, Observation, ResolvedTopology, Visibility
from lcm.core import clock
from lcm.core.text import single_line
from lcm.model.lablet.ports import substitute_ports
from lcm.model.lablet.record import NodeEndpoint
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lcm.cml.types import LabState, NodeAddress, NodeState
    from lcm.controllers.lablet.deps import LabletPolicy
    from lcm.controllers.lablet.lab_client import WorkerLabClient
    from lcm.controllers.lablet.memory import LabletMemory
    from lcm.model.lablet.record import Lablet, LabletDefinition
    from lcm.model.worker.record import Worker


MAX_CACHED_TOPOLOGIES: Final = 16


class DefinitionSource(Protocol):
    """The source of definitions: the control plane."""

    async def definition(self, definition_id: str) -> LabletDefinition:
        """One version of a definition; `NotFoundError` if it does not exist."""


class TopologyCache:
    """Caches the latest topologies. A version of a definition never changes."""

    def __init__(self, source: DefinitionSource) -> None:
        self._source = source
        self._cached: OrderedDict[str, str] = OrderedDict()

    async def resolve(self, lablet: Lablet) -> ResolvedTopology:
        """The topology of a lablet, with its port numbers. Raises client errors, except for a missing definition."""
        topology = self._cached.get(lablet.topology_id)
        if topology is None:
            try:
                topology = (await self._source.definition(lablet.topology_id)).topology
            except NotFoundError:
                return ResolvedTopology(error=f"there is no definition {lablet.definition}", is_permanent=True)
            self._cached[lablet.topology_id] = topology
            if len(self._cached) > MAX_CACHED_TOPOLOGIES:
                self._cached.popitem(last=False)
        self._cached.move_to_end(lablet.topology_id)
        return ResolvedTopology(substitute_ports(topology, lablet.ports))


NODE_BOOTED: Final = "BOOTED"
_NOT_OBSERVED: Final = LabObservation(Visibility.NOT_OBSERVED)
_ABSENT: Final = LabObservation(Visibility.ABSENT)
_EARLY_TOLERANCE: Final = 0.5  # a pass slightly before the due time counts as due
_MAX_ADDRESSES: Final = 64
_MAX_LABEL_LENGTH: Final = 128
_MAX_ADDRESS_LENGTH: Final = 64


class LabObserver:
    """Queries the worker's CML for the lab of a lablet."""

    def __init__(self, labs: WorkerLabClient, topologies: TopologyCache) -> None:
        self._labs = labs
        self._topologies = topologies

    async def observe(
        self, lablet: Lablet, worker: Worker | None, memory: LabletMemory, policy: LabletPolicy
    ) -> Observation:
        """Everything that the decision about a lablet needs."""
        now = clock.earliest_now()
        unready_since = memory.update_unready_since(worker, clock.now())
        lab, leftover, topology = _NOT_OBSERVED, None, None
        if worker is not None and may_observe(lablet, worker, policy, now) and self._due(lablet, memory, now):
            memory.last_observed = clock.boottime()
            lab, leftover = await self._query(lablet, worker)
            if (
                lablet.status is LabletStatus.INSTANTIATING
                and leftover is None
                and lab.visibility is Visibility.ABSENT
                and lablet.lab_id is None
            ):
                topology = await self._topologies.resolve(lablet)
        return Observation(
            worker=worker,
            lab=lab,
            leftover=leftover,
            topology=topology,
            unready_since=unready_since,
            unknown_since=memory.update_unknown_since(worker, clock.now()),
            import_may_complete=memory.import_may_complete,
            last_error=memory.last_error,
            recent_operations=memory.recent_operations,
        )

    @staticmethod
    def _due(lablet: Lablet, memory: LabletMemory, now: datetime) -> bool:
        """A running lab is queried at intervals; any other in every pass."""
        if lablet.status is not LabletStatus.RUNNING:
            return True
        return clock.boottime() - memory.last_observed >= check_interval(lablet, now) - _EARLY_TOLERANCE

    async def _query(self, lablet: Lablet, worker: Worker) -> tuple[LabObservation, LabObservation | None]:
        """The lab, and one on this worker that the lablet has left behind."""
        try:
            if lablet.lab_id is None:
                return await self._by_marker(lablet, worker)
            return await self._by_id(lablet, lablet.lab_id, worker), None
        except CMLError as error:
            return LabObservation(Visibility.NOT_OBSERVED, error=single_line(error.cause, 300)), None

    async def _by_marker(self, lablet: Lablet, worker: Worker) -> tuple[LabObservation, LabObservation | None]:
        marker, labs = lab_marker(lablet), await self._labs.labs(worker)
        left = {(each.marker, each.lab_id) for each in removable_leftovers(lablet, worker)}
        leftover = next((_observed(lab) for lab in labs if (lab.marker, lab.id) in left), None)
        found = oldest_first(lab for lab in labs if lab.marker == marker)
        if not found:
            return _ABSENT, leftover
        # Any other with its marker is a copy made by a user: the sweep for stray labs reports it.
        return _observed(found[0]), leftover

    async def _by_id(self, lablet: Lablet, lab_id: str, worker: Worker) -> LabObservation:
        try:
            lab = await self._labs.lab(worker, lab_id)
        except CMLNotFoundError:
            # One 404 is not enough to release a lab: it must be missing in the list, too.
            if any(lab.id == lab_id for lab in await self._labs.labs(worker)):
                return LabObservation(Visibility.NOT_OBSERVED, error="CML lists the lab but does not find it")
            return _ABSENT
        if lablet.status is LabletStatus.INSTANTIATING:
            return await self._read_progress(worker, lab)
        if lablet.status is LabletStatus.RUNNING and lab.state == LAB_STARTED:
            nodes = await self._labs.nodes(worker, lab.id)
            return await self._with_endpoints(worker, lab, nodes)
        return _observed(lab)

    async def _read_progress(self, worker: Worker, lab: LabState) -> LabObservation:
        """Whether the lab is up. Each query is made only if the previous one does not decide it."""
        if lab.state != LAB_STARTED:
            return _observed(lab)
        converged = await self._labs.converged(worker, lab.id)
        nodes = await self._labs.nodes(worker, lab.id)
        booted = sum(node.state == NODE_BOOTED for node in nodes)
        if not converged or booted < len(nodes):
            return LabObservation(Visibility.SEEN, lab.id, lab.state, len(nodes), booted, converged)
        return await self._with_endpoints(worker, lab, nodes)

    async def _with_endpoints(self, worker: Worker, lab: LabState, nodes: list[NodeState]) -> LabObservation:
        addresses = await self._labs.addresses(worker, lab.id)
        booted = sum(node.state == NODE_BOOTED for node in nodes)
        endpoints = node_endpoints(nodes, addresses)
        return LabObservation(
            Visibility.SEEN, lab.id, lab.state, len(nodes), booted, converged=True, endpoints=endpoints
        )


def may_observe(lablet: Lablet, worker: Worker, policy: LabletPolicy, now: datetime) -> bool:
    """Whether to query CML: the worker is reachable, and the result matters for the decision."""
    if worker.unknown_words or worker_lost_reason(lablet, worker) or not policy.workers_verified:
        return False
    if lablet.status is LabletStatus.STOPPING:
        return is_reachable(worker)
    if lablet.status not in (LabletStatus.INSTANTIATING, LabletStatus.RUNNING):
        return False
    return worker.ready and find_ending(lablet, now) is None


def oldest_first(labs: Iterable[LabState]) -> list[LabState]:
    """In the order of creation: the first lab with a marker is the original, the others are copies."""
    return sorted(labs, key=lambda lab: (lab.created is None, lab.created.timestamp() if lab.created else 0.0, lab.id))


def node_endpoints(nodes: Iterable[NodeState], addresses: Iterable[NodeAddress]) -> tuple[NodeEndpoint, ...]:
    """The addresses of each node, in a stable order; nodes without an address are included."""
    addresses_by_node: dict[str, set[str]] = {}
    for entry in addresses:
        addresses_by_node.setdefault(entry.node_id, set()).update(entry.ipv4, entry.ipv6)
    endpoints = []
    for node in sorted(nodes, key=lambda node: (node.label, node.id)):
        usable = sorted(
            a for a in addresses_by_node.get(node.id, ()) if a.isprintable() and 0 < len(a) <= _MAX_ADDRESS_LENGTH
        )
        label = single_line(printable_text(node.label), _MAX_LABEL_LENGTH) or node.id[:_MAX_LABEL_LENGTH]
        endpoints.append(NodeEndpoint(node=label, addresses=tuple(usable[:_MAX_ADDRESSES])))
    return tuple(endpoints)


def _observed(lab: LabState) -> LabObservation:
    return LabObservation(Visibility.SEEN, lab.id, lab.state, nodes=lab.node_count)
