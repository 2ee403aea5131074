"""The topology of a lablet: its definition's, with the numbers of its ports in it."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from lcm.client.errors import NotFoundError
from lcm.cml.client.responses import printable_text
from lcm.cml.errors import CMLError, CMLNotFoundError
from lcm.controllers.lablet.decide.ending import find_ending
from lcm.controllers.lablet.decide.predicates import is_reachable, lab_marker, worker_lost_reason
from lcm.controllers.lablet.decide.running import check_interval
from lcm.controllers.lablet.observation import LAB_STARTED, LabObservation, Observation, ResolvedTopology, Visibility
from lcm.core import clock
from lcm.core.text import single_line
from lcm.model.lablet.record import NodeEndpoint
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from lcm.cml.types import LabState, NodeAddress, NodeState
    from lcm.controllers.lablet.deps import LabletPolicy
    from lcm.controllers.lablet.lab_client import WorkerLabClient
    from lcm.controllers.lablet.memory import LabletMemory
    from lcm.model.lablet.record import Lablet, LabletDefinition
    from lcm.model.worker.record import Worker


MAX_CACHED_TOPOLOGIES: Final = 16
_PORT_PLACEHOLDER = re.compile(r"\$\{([A-Z][A-Z0-9_]{0,63})\}")


class DefinitionSource(Protocol):
    """Where definitions are kept: the control plane."""

    async def definition(self, definition_id: str) -> LabletDefinition:
        """One version of a definition; `NotFoundError` where there is none."""


def substitute_ports(topology: str, ports: Mapping[str, int]) -> str:
    """`${NAME}` stands for the number of a port. Any other `${…}` is the topology's own and stays."""

    def number(place: re.Match[str]) -> str:
        given = ports.get(place.group(1))
        return place.group(0) if given is None else str(given)

    return _PORT_PLACEHOLDER.sub(number, topology)


class TopologyCache:
    """Topologies of definitions. A version never changes, so the last few are kept."""

    def __init__(self, source: DefinitionSource) -> None:
        self._source = source
        self._kept: OrderedDict[str, str] = OrderedDict()

    async def recipe(self, lablet: Lablet) -> ResolvedTopology:
        """What its lab is made of. Raises what the control plane's client raises, unless there is none."""
        topology = self._kept.get(lablet.definition)
        if topology is None:
            try:
                topology = (await self._source.definition(lablet.definition)).topology
            except NotFoundError:
                return ResolvedTopology(trouble=f"there is no definition {lablet.definition}", lasting=True)
            self._kept[lablet.definition] = topology
            if len(self._kept) > MAX_CACHED_TOPOLOGIES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(lablet.definition)
        return ResolvedTopology(substitute_ports(topology, lablet.ports))


NODE_BOOTED: Final = "BOOTED"
_NOT_OBSERVED: Final = LabObservation(Visibility.NO_LOOK)
_ABSENT: Final = LabObservation(Visibility.ABSENT)
_EARLY_TOLERANCE: Final = 0.5  # a pass that comes a moment before a look is due makes it
_MAX_ADDRESSES: Final = 64
_MAX_LABEL_LENGTH: Final = 128
_MAX_ADDRESS_LENGTH: Final = 64


class LabObserver:
    """The eyes of the controller."""

    def __init__(self, servers: WorkerLabClient, topologies: TopologyCache) -> None:
        self._servers = servers
        self._topologies = topologies

    async def observe(
        self, lablet: Lablet, worker: Worker | None, note: LabletMemory, policy: LabletPolicy
    ) -> Observation:
        """What a decision about the lablet is made from."""
        now = clock.now()
        unready_since = note.update_unready_since(worker, now)
        lab, recipe = _NOT_OBSERVED, None
        if worker is not None and may_observe(lablet, worker, policy, now) and self._due(lablet, note, now):
            note.looked = clock.boottime()
            lab = await self._look(lablet, worker)
            if (
                lablet.status is LabletStatus.INSTANTIATING
                and lab.visibility is Visibility.ABSENT
                and lablet.lab_id is None
            ):
                recipe = await self._topologies.recipe(lablet)
        return Observation(
            worker=worker,
            lab=lab,
            recipe=recipe,
            unready_since=unready_since,
            import_may_complete=note.import_may_complete,
            refusal=note.refusal,
            recent_operations=note.recent_operations,
        )

    @staticmethod
    def _due(lablet: Lablet, note: LabletMemory, now: datetime) -> bool:
        """What runs is looked at now and then; anything else each time."""
        if lablet.status is not LabletStatus.RUNNING:
            return True
        return clock.boottime() - note.looked >= check_interval(lablet, now) - _EARLY_TOLERANCE

    async def _look(self, lablet: Lablet, worker: Worker) -> LabObservation:
        try:
            if lablet.lab_id is None:
                return await self._by_marker(lablet, worker)
            return await self._by_id(lablet, lablet.lab_id, worker)
        except CMLError as error:
            return LabObservation(Visibility.NO_LOOK, trouble=single_line(error.cause, 300))

    async def _by_marker(self, lablet: Lablet, worker: Worker) -> LabObservation:
        marker = lab_marker(lablet)
        found = oldest_first(lab for lab in await self._servers.labs(worker) if lab.marker == marker)
        if not found:
            return _ABSENT
        return _observed(found[0])  # any other is a copy that somebody made: it is told of when strays are looked for

    async def _by_id(self, lablet: Lablet, lab_id: str, worker: Worker) -> LabObservation:
        try:
            lab = await self._servers.lab(worker, lab_id)
        except CMLNotFoundError:
            # One answer is not enough to give a lab up: the list must not show it either.
            if any(lab.id == lab_id for lab in await self._servers.labs(worker)):
                return LabObservation(Visibility.NO_LOOK, trouble="CML lists the lab and does not find it")
            return _ABSENT
        if lablet.status is LabletStatus.INSTANTIATING:
            return await self._how_far(worker, lab)
        if lablet.status is LabletStatus.RUNNING and lab.state == LAB_STARTED:
            nodes = await self._servers.nodes(worker, lab.id)
            return await self._with_endpoints(worker, lab, nodes)
        return _observed(lab)

    async def _how_far(self, worker: Worker, lab: LabState) -> LabObservation:
        """Whether it is up. Each question is asked only when the answer before it does not settle it."""
        if lab.state != LAB_STARTED:
            return _observed(lab)
        converged = await self._servers.converged(worker, lab.id)
        nodes = await self._servers.nodes(worker, lab.id)
        booted = sum(node.state == NODE_BOOTED for node in nodes)
        if not converged or booted < len(nodes):
            return LabObservation(Visibility.SEEN, lab.id, lab.state, len(nodes), booted, converged)
        return await self._with_endpoints(worker, lab, nodes)

    async def _with_endpoints(self, worker: Worker, lab: LabState, nodes: list[NodeState]) -> LabObservation:
        addresses = await self._servers.addresses(worker, lab.id)
        booted = sum(node.state == NODE_BOOTED for node in nodes)
        endpoints = node_endpoints(nodes, addresses)
        return LabObservation(
            Visibility.SEEN, lab.id, lab.state, len(nodes), booted, converged=True, endpoints=endpoints
        )


def may_observe(lablet: Lablet, worker: Worker, policy: LabletPolicy, now: datetime) -> bool:
    """Whether CML is to be asked: the worker may be dialled, and the answer decides something."""
    if worker_lost_reason(lablet, worker) or not policy.workers_verified:
        return False
    if lablet.status is LabletStatus.STOPPING:
        return is_reachable(worker)
    if lablet.status not in (LabletStatus.INSTANTIATING, LabletStatus.RUNNING):
        return False
    return worker.ready and find_ending(lablet, now) is None


def oldest_first(labs: Iterable[LabState]) -> list[LabState]:
    """In the order of their making: who carries a marker first is the one that was made with it, not a copy."""
    return sorted(labs, key=lambda lab: (lab.created is None, lab.created.timestamp() if lab.created else 0.0, lab.id))


def node_endpoints(nodes: Iterable[NodeState], addresses: Iterable[NodeAddress]) -> tuple[NodeEndpoint, ...]:
    """Where each node can be reached, in an order that stays; a node without an address is told too."""
    known: dict[str, set[str]] = {}
    for entry in addresses:
        known.setdefault(entry.node_id, set()).update(entry.ipv4, entry.ipv6)
    told = []
    for node in sorted(nodes, key=lambda node: (node.label, node.id)):
        usable = sorted(a for a in known.get(node.id, ()) if a.isprintable() and 0 < len(a) <= _MAX_ADDRESS_LENGTH)
        label = single_line(printable_text(node.label), _MAX_LABEL_LENGTH) or node.id[:_MAX_LABEL_LENGTH]
        told.append(NodeEndpoint(node=label, addresses=tuple(usable[:_MAX_ADDRESSES])))
    return tuple(told)


def _observed(lab: LabState) -> LabObservation:
    return LabObservation(Visibility.SEEN, lab.id, lab.state, nodes=lab.node_count)
