"""Nodes of labs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lcm.cml.simulator.http.labs import lab_of
from lcm.cml.simulator.http.requests import account_of, done, world_of
from lcm.cml.simulator.state.labs import BOOTED

if TYPE_CHECKING:
    from starlette.requests import Request

    from lcm.cml.simulator.state.labs import Lab, Node
    from lcm.cml.simulator.state.world import World

_SILENT = ("external_connector", "unmanaged_switch")


def told(world: World, lab: Lab, node: Node) -> dict[str, Any]:
    """A node with its state; where newer versions have moved what tells where it runs, it is moved too."""
    where: dict[str, Any] = {"compute_id": world.compute_id, "vnc_key": None, "serial_consoles": []}
    moved = world.profile.told_features
    return {
        "id": node.id,
        "lab_id": lab.id,
        "label": node.plan.label,
        "node_definition": node.plan.definition,
        "image_definition": node.plan.details["image_definition"],
        "x": node.plan.details["x"] or 0,
        "y": node.plan.details["y"] or 0,
        "tags": node.plan.details["tags"] or [],
        "state": node.state,
        "boot_progress": node.progress,
        **({"operational": where} if moved else where),
    }


async def nodes(request: Request) -> Response:
    lab = lab_of(request)
    if request.query_params.get("data") != "true":
        return JSONResponse(list(lab.nodes))
    return JSONResponse([told(world_of(request), lab, node) for node in lab.nodes.values()])


async def details(request: Request) -> Response:
    lab = lab_of(request)
    return JSONResponse(told(world_of(request), lab, lab.node(request.path_params["node_id"])))


async def state(request: Request) -> Response:
    node = lab_of(request).node(request.path_params["node_id"])
    return JSONResponse({"state": node.state, "progress": node.progress})


async def converged(request: Request) -> Response:
    return JSONResponse(not lab_of(request).node(request.path_params["node_id"]).pending)


async def change(request: Request) -> Response:
    lab, known = lab_of(request), world_of(request).labs
    node = lab.node(request.path_params["node_id"])
    verbs = {"start": known.start_node, "stop": known.stop_node, "wipe_disks": known.wipe_node}
    verbs[request.url.path.rpartition("/")[2]](lab, node, account_of(request))
    return done()


def _seen(lab: Lab, node: Node) -> dict[str, Any]:
    """What was seen on the wire: a booted machine uses one address on each of its cards."""
    number = list(lab.nodes).index(node.id)
    speaks = node.state == BOOTED and node.plan.definition not in _SILENT
    return {
        "name": node.plan.label,
        "interfaces": {
            interface.mac: {
                "id": interface.id,
                "label": interface.label,
                "ip4": [f"192.168.{255 - number % 256}.{position + 10}"],
                "ip6": [],
            }
            for position, interface in enumerate(node.plan.interfaces.values())
            if speaks
        },
    }


async def addresses(request: Request) -> Response:
    lab = lab_of(request)
    seen = {node.id: _seen(lab, node) for node in lab.nodes.values()}
    return JSONResponse({node_id: entry for node_id, entry in seen.items() if entry["interfaces"]})


async def node_addresses(request: Request) -> Response:
    lab = lab_of(request)
    return JSONResponse(_seen(lab, lab.node(request.path_params["node_id"])))


_NODE = "/labs/{lab_id}/nodes/{node_id}"
ROUTES = [
    Route("/labs/{lab_id}/nodes", nodes),
    Route("/labs/{lab_id}/layer3_addresses", addresses),
    Route(_NODE, details),
    Route(f"{_NODE}/layer3_addresses", node_addresses),
    Route(f"{_NODE}/state", state),
    Route(f"{_NODE}/check_if_converged", converged),
    Route(f"{_NODE}/state/start", change, methods=["PUT"]),
    Route(f"{_NODE}/state/stop", change, methods=["PUT"]),
    Route(f"{_NODE}/wipe_disks", change, methods=["PUT"]),
]
