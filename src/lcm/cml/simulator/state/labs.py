"""Labs and their nodes over time. Requests return at once; states change after their simulated delay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.cml.simulator.state.clock import new_uuid
from lcm.cml.simulator.state.faults import SimulatorApiError
from lcm.cml.simulator.state.topology import find_node_definition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from lcm.cml.simulator.state.clock import SimulatedClock
    from lcm.cml.simulator.state.sessions import CMLAccount
    from lcm.cml.simulator.state.telemetry import Telemetry
    from lcm.cml.simulator.state.topology import LabPlan, LinkPlan, NodePlan
    from lcm.cml.simulator.state.world import VersionProfile

DEFINED, QUEUED, STARTED, BOOTED, STOPPED = "DEFINED_ON_CORE", "QUEUED", "STARTED", "BOOTED", "STOPPED"
ACTIVE_STATES = (QUEUED, STARTED, BOOTED)
RUNNING_STATES = (STARTED, BOOTED)

QUEUE_SECONDS = 1.0
STOP_SECONDS = 2.0
WIPE_SECONDS = 0.5
MAX_LAB_EVENTS_IN_MEMORY = 1_000

_TRANSITION_EVENTS = {BOOTED: "boot_node", STOPPED: "stop_node", DEFINED: "wipe_node"}


@dataclass
class Node:
    """A node of a lab. `order` counts the operations requested of it: callbacks of an older operation do nothing.

    `aim` is the target state of the last operation, reached at the simulated time `due`.
    """

    plan: NodePlan
    state: str = DEFINED
    pending: bool = False
    order: int = 0
    aim: str = DEFINED
    due: float = 0.0

    @property
    def id(self) -> str:
        return self.plan.id

    @property
    def progress(self) -> str:
        """The boot progress, in CML's words."""
        return {STARTED: "Booting", BOOTED: "Booted"}.get(self.state, "Not running")

    @property
    def element_state(self) -> str:
        """The state of its interfaces, which have fewer states."""
        return STARTED if self.state in RUNNING_STATES else (STOPPED if self.state == STOPPED else DEFINED)


@dataclass
class Lab:
    """A lab with its nodes and events."""

    plan: LabPlan
    owner: CMLAccount
    created: datetime
    id: str = field(default_factory=new_uuid)
    nodes: dict[str, Node] = field(default_factory=dict)
    events: list[dict[str, object]] = field(default_factory=list)

    @property
    def state(self) -> str:
        """STARTED while any node is active; otherwise STOPPED while any node is not wiped."""
        states = {node.state for node in self.nodes.values()}
        if states & set(ACTIVE_STATES):
            return STARTED
        return STOPPED if STOPPED in states else DEFINED

    @property
    def converged(self) -> bool:
        """Whether no node is changing its state."""
        return not any(node.pending for node in self.nodes.values())

    def link_state(self, link: LinkPlan) -> str:
        """The state of the less advanced of its two ends."""
        ends = {self.nodes[node].element_state for node in link.nodes}
        return next(state for state in (DEFINED, STOPPED, STARTED) if state in ends)

    def node(self, node_id: str) -> Node:
        """A node by id."""
        if node_id not in self.nodes:
            raise SimulatorApiError(404, f"Node not found: {node_id}")
        return self.nodes[node_id]


class Labs:
    """All labs of a server."""

    def __init__(self, time: SimulatedClock, telemetry: Telemetry, profile: VersionProfile) -> None:
        self._time = time
        self._telemetry = telemetry
        self._profile = profile
        self._labs: dict[str, Lab] = {}
        self.imported = 0

    @property
    def all(self) -> list[Lab]:
        """All labs, in the order of their creation."""
        return list(self._labs.values())

    @property
    def nodes(self) -> list[Node]:
        """The nodes of all labs."""
        return [node for lab in self._labs.values() for node in lab.nodes.values()]

    def get(self, lab_id: str) -> Lab:
        """A lab by id."""
        if lab_id not in self._labs:
            raise SimulatorApiError(404, f"Lab not found: {lab_id}")
        return self._labs[lab_id]

    def add(self, plan: LabPlan, owner: CMLAccount) -> Lab:
        """Create a lab from a plan."""
        lab = Lab(plan, owner, self._time.wall_time())
        lab.nodes = {node.id: Node(node) for node in plan.nodes}
        self._labs[lab.id] = lab
        self.imported += 1
        self._telemetry.record("import_lab", user_id=owner.id, lab_id=lab.id)
        self._telemetry.lab_changed(lab.id, "created", lab.state)
        for node in lab.nodes.values():
            self._record(lab, self._profile.lab_event_names[0], node)
        return lab

    def start(self, lab: Lab, by: CMLAccount) -> None:
        """Start every node that is not active."""
        self._telemetry.record("start_lab", user_id=by.id, lab_id=lab.id)
        for node in lab.nodes.values():
            self.start_node(lab, node, by)

    def start_node(self, lab: Lab, node: Node, by: CMLAccount) -> None:
        """Queue, start and boot a node, each after its delay."""
        if node.state in ACTIVE_STATES:
            return
        who = {"user_id": by.id, "lab_id": lab.id, "node_id": node.id}
        number = self._order(node, BOOTED, QUEUE_SECONDS + find_node_definition(node.plan.definition).boot_seconds)
        self._become(lab, node, QUEUED)
        self._telemetry.record("queue_node", **who)

        def begin() -> None:
            self._become(lab, node, STARTED)
            self._telemetry.record("start_node", **who)
            self._later(node, number, find_node_definition(node.plan.definition).boot_seconds, finish)

        def finish() -> None:
            node.pending = False
            self._become(lab, node, BOOTED)
            self._telemetry.record("boot_node", **who)

        self._later(node, number, QUEUE_SECONDS, begin)

    def stop(self, lab: Lab, by: CMLAccount) -> None:
        """Stop every node that is active."""
        self._telemetry.record("stop_lab", user_id=by.id, lab_id=lab.id)
        for node in lab.nodes.values():
            self.stop_node(lab, node, by)

    def stop_node(self, lab: Lab, node: Node, by: CMLAccount) -> None:
        """Stop a node, also one that is still queued."""
        if node.state not in ACTIVE_STATES:
            return
        number = self._order(node, STOPPED, STOP_SECONDS)

        def finish() -> None:
            node.pending = False
            self._become(lab, node, STOPPED)
            self._telemetry.record("stop_node", user_id=by.id, lab_id=lab.id, node_id=node.id)

        self._later(node, number, STOP_SECONDS, finish)

    def wipe(self, lab: Lab, by: CMLAccount) -> None:
        """Wipe the disks of all nodes. None of them may be active."""
        if any(node.state in ACTIVE_STATES for node in lab.nodes.values()):
            raise SimulatorApiError(400, f"Lab is still running: {lab.id}")
        for node in lab.nodes.values():
            self.wipe_node(lab, node, by)

    def wipe_node(self, lab: Lab, node: Node, by: CMLAccount) -> None:
        """Wipe the disks of a node."""
        if node.state in ACTIVE_STATES:
            raise SimulatorApiError(400, f"Node is still running: {node.id}")
        if node.state == DEFINED:
            return
        number = self._order(node, DEFINED, WIPE_SECONDS)

        def finish() -> None:
            node.pending = False
            self._become(lab, node, DEFINED)
            self._telemetry.record("wipe_node", user_id=by.id, lab_id=lab.id, node_id=node.id)

        self._later(node, number, WIPE_SECONDS, finish)

    def remove(self, lab: Lab) -> None:
        """Delete a lab that is stopped and wiped."""
        if lab.state != DEFINED:
            raise SimulatorApiError(400, f"Lab must be stopped and wiped first: {lab.id}")
        del self._labs[lab.id]
        self._telemetry.lab_changed(lab.id, "deleted", lab.state)

    def lose_power(self) -> None:
        """Stop all nodes at once: they are stopped after the next boot."""
        for lab in self._labs.values():
            for node in lab.nodes.values():
                self._order(node, STOPPED, 0.0)
                node.pending = False
                if node.state in ACTIVE_STATES:
                    self._become(lab, node, STOPPED)

    def restore(self, labs: Iterable[Lab], imported: int) -> None:
        """Restore stored labs. Pending operations continue only after `resume_transition`."""
        self._labs = {lab.id: lab for lab in labs}
        self.imported = imported

    def resume_transition(self, lab: Lab, node: Node, seconds: float) -> None:
        """Complete the pending operation of a node in this many seconds; a negative value is in the past."""
        number = self._order(node, node.aim, seconds)

        def arrive() -> None:
            node.pending = False
            self._become(lab, node, node.aim)
            self._telemetry.record(_TRANSITION_EVENTS[node.aim], user_id=lab.owner.id, lab_id=lab.id, node_id=node.id)

        self._later(node, number, seconds, arrive)

    def _order(self, node: Node, aim: str, seconds: float) -> int:
        node.order += 1
        node.pending = True
        node.aim, node.due = aim, self._time.now + seconds
        return node.order

    def _later(self, node: Node, number: int, seconds: float, action: Callable[[], None]) -> None:
        self._time.call_later(seconds, lambda: action() if node.order == number else None)

    def _become(self, lab: Lab, node: Node, state: str) -> None:
        before = lab.state
        node.state = state
        self._telemetry.node_changed(lab.id, node.id, state)
        self._record(lab, self._profile.lab_event_names[1], node)
        if lab.state != before:
            self._telemetry.lab_changed(lab.id, "state", lab.state)

    def _record(self, lab: Lab, event: str, node: Node) -> None:
        del lab.events[:-MAX_LAB_EVENTS_IN_MEMORY]
        lab.events.append(
            {
                "lab_id": lab.id,
                "event": event,
                "element_type": self._profile.element_name,
                "element_id": node.id,
                "data": {"state": node.state},
                "previous": None,
                "timestamp": self._time.wall_time().timestamp(),
            }
        )
