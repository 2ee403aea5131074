"""Nodes of labs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lcm.cml.simulator.http.labs import get_visible_lab
from lcm.cml.simulator.http.requests import get_account, get_world, no_content
from lcm.cml.simulator.state.labs import BOOTED

if TYPE_CHECKING:
    from starlette.requests import Request

    from lcm.cml.simulator.state.labs import Lab, Node
    from lcm.cml.simulator.state.world import World

_NODES_WITHOUT_ADDRESS = ("external_connector", "unmanaged_switch")


def node_payload(world: World, lab: Lab, node: Node) -> dict[str, Any]:
    """A node with its state; where newer versions have moved what tells where it runs, it is moved too."""
    where: dict[str, Any] = {"compute_id": world.compute_id, "vnc_key": None, "serial_consoles": []}
    moved = world.profile.reports_features
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


async def list_nodes(request: Request) -> Response:
    lab = get_visible_lab(request)
    if request.query_params.get("data") != "true":
        return JSONResponse(list(lab.nodes))
    return JSONResponse([node_payload(get_world(request), lab, node) for node in lab.nodes.values()])


async def get_node(request: Request) -> Response:
    lab = get_visible_lab(request)
    return JSONResponse(node_payload(get_world(request), lab, lab.node(request.path_params["node_id"])))


async def get_node_state(request: Request) -> Response:
    node = get_visible_lab(request).node(request.path_params["node_id"])
    return JSONResponse({"state": node.state, "progress": node.progress})


async def get_node_converged(request: Request) -> Response:
    return JSONResponse(not get_visible_lab(request).node(request.path_params["node_id"]).pending)


async def change_node(request: Request) -> Response:
    lab, known = get_visible_lab(request), get_world(request).labs
    node = lab.node(request.path_params["node_id"])
    verbs = {"start": known.start_node, "stop": known.stop_node, "wipe_disks": known.wipe_node}
    verbs[request.url.path.rpartition("/")[2]](lab, node, get_account(request))
    return no_content()


def _addresses_payload(lab: Lab, node: Node) -> dict[str, Any]:
    """What was seen on the wire: a booted machine uses one address on each of its cards."""
    number = list(lab.nodes).index(node.id)
    speaks = node.state == BOOTED and node.plan.definition not in _NODES_WITHOUT_ADDRESS
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


async def list_addresses(request: Request) -> Response:
    lab = get_visible_lab(request)
    seen = {node.id: _addresses_payload(lab, node) for node in lab.nodes.values()}
    return JSONResponse({node_id: entry for node_id, entry in seen.items() if entry["interfaces"]})


async def list_node_addresses(request: Request) -> Response:
    lab = get_visible_lab(request)
    return JSONResponse(_addresses_payload(lab, lab.node(request.path_params["node_id"])))


_NODE_PATH = "/labs/{lab_id}/nodes/{node_id}"
ROUTES = [
    Route("/labs/{lab_id}/nodes", list_nodes),
    Route("/labs/{lab_id}/layer3_addresses", list_addresses),
    Route(_NODE_PATH, get_node),
    Route(f"{_NODE_PATH}/layer3_addresses", list_node_addresses),
    Route(f"{_NODE_PATH}/state", get_node_state),
    Route(f"{_NODE_PATH}/check_if_converged", get_node_converged),
    Route(f"{_NODE_PATH}/state/start", change_node, methods=["PUT"]),
    Route(f"{_NODE_PATH}/state/stop", change_node, methods=["PUT"]),
    Route(f"{_NODE_PATH}/wipe_disks", change_node, methods=["PUT"]),
]
