"""Looking at a lablet's lab, no earlier than needed and no more than decides anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lcm.cml.client.responses import readable
from lcm.cml.errors import CMLError, NotFound
from lcm.controllers.lablet.decide.ending import ending_of
from lcm.controllers.lablet.decide.predicates import lost, marker_of, reachable
from lcm.controllers.lablet.decide.running import look_every
from lcm.controllers.lablet.observation import STARTED, LabSight, Observation, Visibility
from lcm.core import clock
from lcm.core.text import one_line
from lcm.model.lablet.record import NodeEndpoint
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lcm.cml.types import LabState, NodeAddress, NodeState
    from lcm.controllers.lablet.deps import Policy
    from lcm.controllers.lablet.lab_client import LabServers
    from lcm.controllers.lablet.memory import Note
    from lcm.controllers.lablet.observe import Topologies
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

BOOTED: Final = "BOOTED"
_UNSEEN: Final = LabSight(Visibility.NO_LOOK)
_ABSENT: Final = LabSight(Visibility.ABSENT)
_EARLY: Final = 0.5  # a pass that comes a moment before a look is due makes it
_MOST_ADDRESSES: Final = 64
_LONGEST_LABEL: Final = 128
_LONGEST_ADDRESS: Final = 64


class Observing:
    """The eyes of the controller."""

    def __init__(self, servers: LabServers, topologies: Topologies) -> None:
        self._servers = servers
        self._topologies = topologies

    async def observe(self, lablet: Lablet, worker: Worker | None, note: Note, policy: Policy) -> Observation:
        """What a decision about the lablet is made from."""
        now = clock.now()
        unready_since = note.note_worker(worker, now)
        lab, recipe = _UNSEEN, None
        if worker is not None and may_look(lablet, worker, policy, now) and self._due(lablet, note, now):
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
            may_land=note.may_land,
            refusal=note.refusal,
            asked_recently=note.asked_recently,
        )

    @staticmethod
    def _due(lablet: Lablet, note: Note, now: datetime) -> bool:
        """What runs is looked at now and then; anything else each time."""
        if lablet.status is not LabletStatus.RUNNING:
            return True
        return clock.boottime() - note.looked >= look_every(lablet, now) - _EARLY

    async def _look(self, lablet: Lablet, worker: Worker) -> LabSight:
        try:
            if lablet.lab_id is None:
                return await self._by_marker(lablet, worker)
            return await self._by_id(lablet, lablet.lab_id, worker)
        except CMLError as error:
            return LabSight(Visibility.NO_LOOK, trouble=one_line(error.cause, 300))

    async def _by_marker(self, lablet: Lablet, worker: Worker) -> LabSight:
        marker = marker_of(lablet)
        found = oldest_first(lab for lab in await self._servers.labs(worker) if lab.marker == marker)
        if not found:
            return _ABSENT
        return _seen(found[0])  # any other is a copy that somebody made: it is told of when strays are looked for

    async def _by_id(self, lablet: Lablet, lab_id: str, worker: Worker) -> LabSight:
        try:
            lab = await self._servers.lab(worker, lab_id)
        except NotFound:
            # One answer is not enough to give a lab up: the list must not show it either.
            if any(lab.id == lab_id for lab in await self._servers.labs(worker)):
                return LabSight(Visibility.NO_LOOK, trouble="CML lists the lab and does not find it")
            return _ABSENT
        if lablet.status is LabletStatus.INSTANTIATING:
            return await self._how_far(worker, lab)
        if lablet.status is LabletStatus.RUNNING and lab.state == STARTED:
            nodes = await self._servers.nodes(worker, lab.id)
            return await self._with_endpoints(worker, lab, nodes)
        return _seen(lab)

    async def _how_far(self, worker: Worker, lab: LabState) -> LabSight:
        """Whether it is up. Each question is asked only when the answer before it does not settle it."""
        if lab.state != STARTED:
            return _seen(lab)
        converged = await self._servers.converged(worker, lab.id)
        nodes = await self._servers.nodes(worker, lab.id)
        booted = sum(node.state == BOOTED for node in nodes)
        if not converged or booted < len(nodes):
            return LabSight(Visibility.SEEN, lab.id, lab.state, len(nodes), booted, converged)
        return await self._with_endpoints(worker, lab, nodes)

    async def _with_endpoints(self, worker: Worker, lab: LabState, nodes: list[NodeState]) -> LabSight:
        addresses = await self._servers.addresses(worker, lab.id)
        booted = sum(node.state == BOOTED for node in nodes)
        endpoints = endpoints_of(nodes, addresses)
        return LabSight(Visibility.SEEN, lab.id, lab.state, len(nodes), booted, converged=True, endpoints=endpoints)


def may_look(lablet: Lablet, worker: Worker, policy: Policy, now: datetime) -> bool:
    """Whether CML is to be asked: the worker may be dialled, and the answer decides something."""
    if lost(lablet, worker) or not policy.workers_verified:
        return False
    if lablet.status is LabletStatus.STOPPING:
        return reachable(worker)
    if lablet.status not in (LabletStatus.INSTANTIATING, LabletStatus.RUNNING):
        return False
    return worker.ready and ending_of(lablet, now) is None


def oldest_first(labs: Iterable[LabState]) -> list[LabState]:
    """In the order of their making: who carries a marker first is the one that was made with it, not a copy."""
    return sorted(labs, key=lambda lab: (lab.created is None, lab.created.timestamp() if lab.created else 0.0, lab.id))


def endpoints_of(nodes: Iterable[NodeState], addresses: Iterable[NodeAddress]) -> tuple[NodeEndpoint, ...]:
    """Where each node can be reached, in an order that stays; a node without an address is told too."""
    known: dict[str, set[str]] = {}
    for entry in addresses:
        known.setdefault(entry.node_id, set()).update(entry.ipv4, entry.ipv6)
    told = []
    for node in sorted(nodes, key=lambda node: (node.label, node.id)):
        usable = sorted(a for a in known.get(node.id, ()) if a.isprintable() and 0 < len(a) <= _LONGEST_ADDRESS)
        label = one_line(readable(node.label), _LONGEST_LABEL) or node.id[:_LONGEST_LABEL]
        told.append(NodeEndpoint(node=label, addresses=tuple(usable[:_MOST_ADDRESSES])))
    return tuple(told)


def _seen(lab: LabState) -> LabSight:
    return LabSight(Visibility.SEEN, lab.id, lab.state, nodes=lab.node_count)
