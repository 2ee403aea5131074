"""A simulated server on disk: what a real one has there, and how far it was with what it did.

Moments are wall-clock times, so that what fell due while nobody ran it has happened at its time. Sessions end, as with
any restart. The size is bounded: of telemetry and of a lab's events only the last are kept.
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
MAX_USER_EVENTS: Final = 200  # idle detection goes by them: the server's own must not push them out
MAX_SYSTEM_EVENTS: Final = 100
MAX_LAB_EVENTS: Final = 50

_NODE_STATES: Final = (*ACTIVE_STATES, STOPPED, DEFINED)
_MAX_TRANSITION_SECONDS: Final = 3_600.0


def snapshot(world: World) -> dict[str, Any]:
    """The state of a server, to be stored as JSON."""
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
        "licence": world.licensing.kept(),
        "events": _latest_events(world.telemetry.events),
        "imported": world.labs.imported,
        "labs": [_lab_snapshot(world, lab) for lab in world.labs.all],
    }


def restore(world: World, stored: Mapping[str, Any]) -> None:
    """Make a fresh world what `snapshot` described. After any exception the world is of no use; begin with another."""
    if stored["format"] != FORMAT_VERSION:
        raise ValueError(f"format {stored['format']!r} cannot be read, only {FORMAT_VERSION}")
    if stored["version"] != world.settings.version:
        raise ValueError(f"it was CML {stored['version']!r}, and is {world.settings.version} now")
    world.compute_id, world.opt_in = stored["compute_id"], stored["opt_in"]
    world.sessions.accounts.update({each["username"]: CMLAccount(**each) for each in stored["accounts"]})
    world.sessions.logins = stored["logins"]
    world.licensing.put_back(stored["licence"])
    world.telemetry.put_back(stored["events"])
    if stored["on_since"] is not None:
        world.boot.power_on(max(0.0, -_to_simulated_seconds(world, stored["on_since"])))
    labs = [_restore_lab(world, each) for each in stored["labs"]]
    world.labs.put_back(labs, stored["imported"])
    for lab, each in zip(labs, stored["labs"], strict=True):
        for node in lab.nodes.values():
            if node.pending:
                seconds = _to_simulated_seconds(world, each["nodes"][node.id]["due"])
                world.labs.go_on(lab, node, min(seconds, _MAX_TRANSITION_SECONDS))
    snapshot(world)  # what cannot be kept again was not what it seemed


def _to_wall_clock(world: World, seconds: float) -> float:
    """The wall-clock time in so many simulated seconds. Rounded: of the same moment it must always be the same."""
    return round(clock.now().timestamp() + seconds / world.time.speed, 2)


def _to_simulated_seconds(world: World, moment: float) -> float:
    """How many simulated seconds away a wall-clock time is."""
    return (moment - clock.now().timestamp()) * world.time.speed


def _latest_events(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last events of people, and fewer of those that a server writes by itself, in their order."""
    room = {True: MAX_USER_EVENTS, False: MAX_SYSTEM_EVENTS}
    kept = []
    for event in reversed(events):
        by_somebody = "user_id" in event["data"]
        if room[by_somebody]:
            room[by_somebody] -= 1
            kept.append(event)
    return kept[::-1]


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
                **{name: value for name, value in vars(node).items() if name not in ("plan", "errand")},
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
            raise ValueError(f"no node can be {node.state!r} on its way to {node.aim!r}")
        nodes[node.id] = node
    owner = world.sessions.accounts[stored["owner"]]
    created = datetime.fromisoformat(stored["created"])
    return Lab(**{**stored, "plan": plan, "owner": owner, "created": created, "nodes": nodes})


def _restore_plan(stored: Mapping[str, Any]) -> LabPlan:
    nodes = []
    for each in stored["nodes"]:
        cards = {key: Interface(**card) for key, card in each["interfaces"].items()}
        nodes.append(NodePlan(**{**each, "interfaces": cards}))
    by_id = {card.id: card for node in nodes for card in node.interfaces.values()}
    links = [
        LinkPlan(**{**each, "ends": tuple(by_id[end] for end in each["ends"]), "nodes": tuple(each["nodes"])})
        for each in stored["links"]
    ]
    return LabPlan(**{**stored, "nodes": nodes, "links": links})
