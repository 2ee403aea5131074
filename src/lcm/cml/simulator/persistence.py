"""Stores a simulated server: what a real one has on its disk, and the progress of pending operations.

Times are wall-clock times, so an operation that was due while the simulator was not running has completed on time.
Sessions end, as with any restart. The size is bounded: only the latest telemetry and lab events are stored.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from lcm.cml.simulator.state.labs import ACTIVE_STATES, DEFINED, STOPPED, Lab, Node
from lcm.cml.simulator.state.sessions import CMLAccount
from lcm.cml.simulator.state.topology import Interface, LabPlan, LinkPlan, NodePlan
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.cml.simulator.state.world import World

FORMAT_VERSION: Final = 1
LICENSE_KEY: Final = "licence"  # the spelling of format 1
MAX_USER_EVENTS: Final = 200  # idle detection uses them: the server's own events must not displace them
MAX_SYSTEM_EVENTS: Final = 100
MAX_LAB_EVENTS: Final = 50

_NODE_STATES: Final = (*ACTIVE_STATES, STOPPED, DEFINED)
_MAX_TRANSITION_SECONDS: Final = 3_600.0


def snapshot(world: World) -> dict[str, Any]:
    """The state of a server, as JSON values."""
    world.time.advance()
    uptime = world.boot.uptime
    return {
        "format": FORMAT_VERSION,
        "version": world.settings.version,
        "compute_id": world.compute_id,
        "opt_in": world.opt_in,
        "on_since": None if uptime is None else _to_wall_clock(world, -uptime),
        "accounts": [asdict(account) for account in world.sessions.accounts.values()],
        "logins": world.sessions.logins,
        LICENSE_KEY: world.licensing.snapshot(),
        "events": _latest_events(world.telemetry.events),
        "imported": world.labs.imported,
        "labs": [_lab_snapshot(world, lab) for lab in world.labs.all],
    }


def restore(world: World, stored: Mapping[str, Any]) -> None:
    """Bring a new world into the state that `snapshot` returned. After an exception the world is unusable."""
    if stored["format"] != FORMAT_VERSION:
        raise ValueError(f"format {stored['format']!r} is not supported, only {FORMAT_VERSION}")
    if stored["version"] != world.settings.version:
        raise ValueError(f"it was stored by CML {stored['version']!r}, and this is {world.settings.version}")
    world.compute_id, world.opt_in = stored["compute_id"], stored["opt_in"]
    world.sessions.accounts.update({each["username"]: CMLAccount(**each) for each in stored["accounts"]})
    world.sessions.logins = stored["logins"]
    world.licensing.restore(stored[LICENSE_KEY])
    world.telemetry.restore(stored["events"])
    if stored["on_since"] is not None:
        world.boot.power_on(max(0.0, -_to_simulated_seconds(world, stored["on_since"])))
    labs = [_restore_lab(world, each) for each in stored["labs"]]
    world.labs.restore(labs, stored["imported"])
    for lab, each in zip(labs, stored["labs"], strict=True):
        for node in lab.nodes.values():
            if node.pending:
                seconds = _to_simulated_seconds(world, each["nodes"][node.id]["due"])
                world.labs.resume_transition(lab, node, min(seconds, _MAX_TRANSITION_SECONDS))
    snapshot(world)  # a state that cannot be stored again is not valid


def _to_wall_clock(world: World, seconds: float) -> float:
    """The wall-clock time after this many simulated seconds, rounded to be the same for the same moment."""
    return round(clock.now().timestamp() + seconds / world.time.speed, 2)


def _to_simulated_seconds(world: World, moment: float) -> float:
    """The simulated seconds until a wall-clock time."""
    return (moment - clock.now().timestamp()) * world.time.speed


def _latest_events(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The latest events of users, and fewer of the server's own, in their order."""
    remaining = {True: MAX_USER_EVENTS, False: MAX_SYSTEM_EVENTS}
    latest = []
    for event in reversed(events):
        by_user = "user_id" in event["data"]
        if remaining[by_user]:
            remaining[by_user] -= 1
            latest.append(event)
    return latest[::-1]


def _lab_snapshot(world: World, lab: Lab) -> dict[str, Any]:
    now = world.time.now
    return {
        **vars(lab),
        "plan": {
            **vars(lab.plan),
            "nodes": [_node_plan_snapshot(plan) for plan in lab.plan.nodes],
            "links": [{**vars(link), "ends": [end.id for end in link.ends]} for link in lab.plan.links],
        },
        "owner": lab.owner.username,
        "created": lab.created.isoformat(),
        "nodes": {
            node.id: {
                **{name: value for name, value in vars(node).items() if name not in ("plan", "order")},
                "due": _to_wall_clock(world, node.due - now) if node.pending else 0.0,
            }
            for node in lab.nodes.values()
        },
        "events": lab.events[-MAX_LAB_EVENTS:],
    }


def _node_plan_snapshot(plan: NodePlan) -> dict[str, Any]:
    return {**vars(plan), "interfaces": {key: vars(each) for key, each in plan.interfaces.items()}}


def _restore_lab(world: World, stored: Mapping[str, Any]) -> Lab:
    plan = _restore_plan(stored["plan"])
    nodes = {}
    for node_plan in plan.nodes:
        node = Node(node_plan, **stored["nodes"][node_plan.id])
        if node.state not in _NODE_STATES or node.aim not in _NODE_STATES:
            raise ValueError(f"a node cannot be {node.state!r} with the target state {node.aim!r}")
        nodes[node.id] = node
    owner = world.sessions.accounts[stored["owner"]]
    created = datetime.fromisoformat(stored["created"])
    return Lab(**{**stored, "plan": plan, "owner": owner, "created": created, "nodes": nodes})


def _restore_plan(stored: Mapping[str, Any]) -> LabPlan:
    nodes = []
    for each in stored["nodes"]:
        interfaces = {key: Interface(**interface) for key, interface in each["interfaces"].items()}
        nodes.append(NodePlan(**{**each, "interfaces": interfaces}))
    by_id = {interface.id: interface for node in nodes for interface in node.interfaces.values()}
    links = [
        LinkPlan(**{**each, "ends": tuple(by_id[end] for end in each["ends"]), "nodes": tuple(each["nodes"])})
        for each in stored["links"]
    ]
    return LabPlan(**{**stored, "nodes": nodes, "links": links})
