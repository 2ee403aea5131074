"""A simulated server on disk: what a real one has there, and how far it was with what it did.

Moments are wall-clock times, so that what fell due while nobody ran it has happened at its time. Sessions end, as with
any restart. The size is bounded: of telemetry and of a lab's events only the last are kept.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from lcm.cml.simulator.state.labs import ACTIVE, NEW, STOPPED, Lab, Node
from lcm.cml.simulator.state.sessions import Account
from lcm.cml.simulator.state.simulator_topology import Interface, LabPlan, LinkPlan, NodePlan
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.cml.simulator.state.world import World

FORMAT: Final = 1
PEOPLES_EVENTS: Final = 200  # idle detection goes by them: the server's own must not push them out
OTHER_EVENTS: Final = 100
LAB_EVENTS: Final = 50

_STATES: Final = (*ACTIVE, STOPPED, NEW)
_LONGEST_WAY: Final = 3_600.0


def keep(world: World) -> dict[str, Any]:
    """The state of a server, to be stored as JSON."""
    world.time.advance()
    up_for = world.boot.up_for
    return {
        "format": FORMAT,
        "version": world.settings.version,
        "compute_id": world.compute_id,
        "opt_in": world.opt_in,
        "on_since": None if up_for is None else _moment(world, -up_for),
        "accounts": [asdict(account) for account in world.sessions.accounts.values()],
        "logins": world.sessions.logins,
        "licence": world.licensing.kept(),
        "events": _last(world.telemetry.events),
        "imported": world.labs.imported,
        "labs": [_lab(world, lab) for lab in world.labs.all],
    }


def restore(world: World, stored: Mapping[str, Any]) -> None:
    """Make a fresh world what `keep` described. After any exception the world is of no use; begin with another."""
    if stored["format"] != FORMAT:
        raise ValueError(f"format {stored['format']!r} cannot be read, only {FORMAT}")
    if stored["version"] != world.settings.version:
        raise ValueError(f"it was CML {stored['version']!r}, and is {world.settings.version} now")
    world.compute_id, world.opt_in = stored["compute_id"], stored["opt_in"]
    world.sessions.accounts.update({each["username"]: Account(**each) for each in stored["accounts"]})
    world.sessions.logins = stored["logins"]
    world.licensing.put_back(stored["licence"])
    world.telemetry.put_back(stored["events"])
    if stored["on_since"] is not None:
        world.boot.power_on(max(0.0, -_seconds(world, stored["on_since"])))
    labs = [_restored_lab(world, each) for each in stored["labs"]]
    world.labs.put_back(labs, stored["imported"])
    for lab, each in zip(labs, stored["labs"], strict=True):
        for node in lab.nodes.values():
            if node.pending:
                seconds = _seconds(world, each["nodes"][node.id]["due"])
                world.labs.go_on(lab, node, min(seconds, _LONGEST_WAY))
    keep(world)  # what cannot be kept again was not what it seemed


def _moment(world: World, seconds: float) -> float:
    """The wall-clock time in so many simulated seconds. Rounded: of the same moment it must always be the same."""
    return round(clock.now().timestamp() + seconds / world.time.speed, 2)


def _seconds(world: World, moment: float) -> float:
    """How many simulated seconds away a wall-clock time is."""
    return (moment - clock.now().timestamp()) * world.time.speed


def _last(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last events of people, and fewer of those that a server writes by itself, in their order."""
    room = {True: PEOPLES_EVENTS, False: OTHER_EVENTS}
    kept = []
    for event in reversed(events):
        by_somebody = "user_id" in event["data"]
        if room[by_somebody]:
            room[by_somebody] -= 1
            kept.append(event)
    return kept[::-1]


def _lab(world: World, lab: Lab) -> dict[str, Any]:
    now = world.time.now
    return {
        **vars(lab),
        "plan": {
            **vars(lab.plan),
            "nodes": [_node_plan(plan) for plan in lab.plan.nodes],
            "links": [{**vars(link), "ends": [end.id for end in link.ends]} for link in lab.plan.links],
        },
        "owner": lab.owner.username,
        "created": lab.created.isoformat(),
        "nodes": {
            node.id: {
                **{name: value for name, value in vars(node).items() if name not in ("plan", "errand")},
                "due": _moment(world, node.due - now) if node.pending else 0.0,
            }
            for node in lab.nodes.values()
        },
        "events": lab.events[-LAB_EVENTS:],
    }


def _node_plan(plan: NodePlan) -> dict[str, Any]:
    return {**vars(plan), "interfaces": {key: vars(each) for key, each in plan.interfaces.items()}}


def _restored_lab(world: World, stored: Mapping[str, Any]) -> Lab:
    plan = _restored_plan(stored["plan"])
    nodes = {}
    for node_plan in plan.nodes:
        node = Node(node_plan, **stored["nodes"][node_plan.id])
        if node.state not in _STATES or node.aim not in _STATES:
            raise ValueError(f"no node can be {node.state!r} on its way to {node.aim!r}")
        nodes[node.id] = node
    owner = world.sessions.accounts[stored["owner"]]
    created = datetime.fromisoformat(stored["created"])
    return Lab(**{**stored, "plan": plan, "owner": owner, "created": created, "nodes": nodes})


def _restored_plan(stored: Mapping[str, Any]) -> LabPlan:
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
