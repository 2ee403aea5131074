"""The labs API: create, start, stop and delete labs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lcm.cml.simulator.http.requests import get_account, get_world, no_content
from lcm.cml.simulator.state.faults import SimulatorApiError
from lcm.cml.simulator.state.labs import BOOTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from lcm.cml.simulator.state.labs import Lab, Labs, Node
    from lcm.cml.simulator.state.sessions import CMLAccount
    from lcm.cml.simulator.state.world import World


def get_visible_lab(request: Request) -> Lab:
    """The lab in the path, if the account may see it."""
    lab = get_world(request).labs.get(request.path_params["lab_id"])
    account = get_account(request)
    if not account.admin and lab.owner.id != account.id:
        raise SimulatorApiError(403, f"No access to lab: {lab.id}")
    return lab


def lab_payload(lab: Lab) -> dict[str, Any]:
    """A lab as shown in lists and details."""
    created = lab.created.isoformat(timespec="seconds")
    return {
        "id": lab.id,
        "created": created,
        "modified": created,
        "lab_title": lab.plan.title,
        "lab_description": lab.plan.description,
        "lab_notes": lab.plan.notes,
        "owner": lab.owner.id,
        "owner_username": lab.owner.username,
        "owner_fullname": lab.owner.username,
        "state": lab.state,
        "node_count": len(lab.nodes),
        "link_count": len(lab.plan.links),
        "effective_permissions": ["lab_admin", "lab_edit", "lab_exec", "lab_view"],
    }


async def list_labs(request: Request) -> Response:
    account = get_account(request)
    all_users = account.admin and request.query_params.get("show_all") == "true"
    return JSONResponse([lab.id for lab in get_world(request).labs.all if all_users or lab.owner.id == account.id])


async def import_lab(request: Request) -> Response:
    try:
        get_topology = (await request.body()).decode()
    except UnicodeDecodeError:
        raise SimulatorApiError(400, "The topology is not UTF-8") from None
    lab = get_world(request).import_lab(get_topology, get_account(request), request.query_params.get("title"))
    return JSONResponse({"id": lab.id, "warnings": lab.plan.warnings})


async def get_or_delete_lab(request: Request) -> Response:
    lab = get_visible_lab(request)
    if request.method == "DELETE":
        get_world(request).labs.remove(lab)
        return no_content()
    return JSONResponse(lab_payload(lab))


async def get_topology(request: Request) -> Response:
    return JSONResponse(topology_payload(get_visible_lab(request), get_world(request).profile.schema))


def topology_payload(lab: Lab, schema: str) -> dict[str, Any]:
    """Everything in a lab except its states. Clients are strict about the keys of nodes: no others are allowed."""
    nodes = [
        {
            "id": node.id,
            "label": node.plan.label,
            "node_definition": node.plan.definition,
            "image_definition": node.plan.details["image_definition"],
            "configuration": node.plan.details["configuration"] or "",
            "x": node.plan.details["x"] or 0,
            "y": node.plan.details["y"] or 0,
            "ram": node.plan.details["ram"],
            "cpus": node.plan.details["cpus"],
            "tags": node.plan.details["tags"] or [],
            "interfaces": [
                {"id": interface.id, "label": interface.label, "type": interface.kind, "slot": interface.slot}
                for interface in node.plan.interfaces.values()
            ],
        }
        for node in lab.nodes.values()
    ]
    links = [
        {
            "id": link.id,
            "label": link.label,
            "interface_a": link.ends[0].id,
            "interface_b": link.ends[1].id,
            "node_a": link.nodes[0],
            "node_b": link.nodes[1],
        }
        for link in lab.plan.links
    ]
    head = {
        "version": schema,
        "title": lab.plan.title,
        "description": lab.plan.description,
        "notes": lab.plan.notes,
        "owner": lab.owner.id,
    }
    return {"lab": head, "nodes": nodes, "links": links, "annotations": [], "smart_annotations": []}


async def download_lab(request: Request) -> Response:
    """The lab as YAML, which can be imported again."""
    lab = get_visible_lab(request)
    return _yaml_response(_importable_topology(lab, get_world(request).profile.schema))


def _importable_topology(lab: Lab, schema: str) -> dict[str, Any]:
    topology = topology_payload(lab, schema)
    del topology["lab"]["owner"]
    topology["links"] = [
        {
            "id": link["id"],
            "label": link["label"],
            "n1": link["node_a"],
            "i1": link["interface_a"],
            "n2": link["node_b"],
            "i2": link["interface_b"],
        }
        for link in topology["links"]
    ]
    return topology


async def get_pyats_testbed(request: Request) -> Response:
    """The lab as a testbed for pyATS: its nodes behind the terminal server."""
    lab = get_visible_lab(request)
    host = request.query_params.get("hostname") or request.url.hostname
    login = {"username": "change_me", "password": "change_me"}
    terminal = {"os": "linux", "type": "linux", "credentials": {"default": login}}
    terminal["connections"] = {"cli": {"protocol": "ssh", "ip": host}}
    devices = {
        node.plan.label: {
            "os": "linux",
            "type": node.plan.definition,
            "credentials": {"default": login},
            "connections": {"defaults": {"class": "unicon.Unicon"}, "a": {"proxy": "terminal_server"}},
        }
        for node in lab.nodes.values()
        if node.plan.definition not in _NODES_WITHOUT_ADDRESS
    }
    return _yaml_response({"testbed": {"name": lab.plan.title}, "devices": {"terminal_server": terminal, **devices}})


def _yaml_response(content: dict[str, Any]) -> Response:
    return Response(yaml.safe_dump(content, sort_keys=False), media_type="text/yaml")


async def get_lab_state(request: Request) -> Response:
    return JSONResponse(get_visible_lab(request).state)


async def get_lab_converged(request: Request) -> Response:
    return JSONResponse(get_visible_lab(request).converged)


async def get_element_states(request: Request) -> Response:
    lab = get_visible_lab(request)
    return JSONResponse(
        {
            "nodes": {node.id: node.state for node in lab.nodes.values()},
            "links": {link.id: lab.link_state(link) for link in lab.plan.links},
            "interfaces": {
                interface.id: node.element_state
                for node in lab.nodes.values()
                for interface in node.plan.interfaces.values()
            },
        }
    )


async def change_lab(request: Request) -> Response:
    lab, labs = get_visible_lab(request), get_world(request).labs
    _lab_operation(labs, request.url.path.rpartition("/")[2])(lab, get_account(request))
    return no_content()


def _lab_operation(labs: Labs, verb: str) -> Callable[[Lab, CMLAccount], None]:
    return {"start": labs.start, "stop": labs.stop, "wipe": labs.wipe}[verb]


async def list_lab_events(request: Request) -> Response:
    return JSONResponse(get_visible_lab(request).events)


async def list_lab_tiles(request: Request) -> Response:
    schema = get_world(request).profile.schema
    return JSONResponse(
        {
            "lab_tiles": {
                lab.id: lab_payload(lab) | {"topology": topology_payload(lab, schema)}
                for lab in get_world(request).labs.all
            }
        }
    )


ROUTES = [
    Route("/labs", list_labs),
    Route("/import", import_lab, methods=["POST"]),
    Route("/populate_lab_tiles", list_lab_tiles),
    Route("/labs/{lab_id}", get_or_delete_lab, methods=["GET", "DELETE"]),
    Route("/labs/{lab_id}/topology", get_topology),
    Route("/labs/{lab_id}/download", download_lab),
    Route("/labs/{lab_id}/pyats_testbed", get_pyats_testbed),
    Route("/labs/{lab_id}/state", get_lab_state),
    Route("/labs/{lab_id}/check_if_converged", get_lab_converged),
    Route("/labs/{lab_id}/lab_element_state", get_element_states),
    Route("/labs/{lab_id}/start", change_lab, methods=["PUT"]),
    Route("/labs/{lab_id}/stop", change_lab, methods=["PUT"]),
    Route("/labs/{lab_id}/wipe", change_lab, methods=["PUT"]),
    Route("/labs/{lab_id}/events", list_lab_events),
]


_NODES_WITHOUT_ADDRESS = ("external_connector", "unmanaged_switch")


def node_payload(world: World, lab: Lab, node: Node) -> dict[str, Any]:
    """A node with its state. Newer versions report in `operational` where it runs."""
    location: dict[str, Any] = {"compute_id": world.compute_id, "vnc_key": None, "serial_consoles": []}
    in_operational = world.profile.reports_features
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
        **({"operational": location} if in_operational else location),
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
    lab, labs = get_visible_lab(request), get_world(request).labs
    node = lab.node(request.path_params["node_id"])
    verbs = {"start": labs.start_node, "stop": labs.stop_node, "wipe_disks": labs.wipe_node}
    verbs[request.url.path.rpartition("/")[2]](lab, node, get_account(request))
    return no_content()


async def extract_configuration(request: Request) -> Response:
    """Keep the configuration of a running node. A simulated node always has the one it was given."""
    node = get_visible_lab(request).node(request.path_params["node_id"])
    if node.plan.definition in _NODES_WITHOUT_ADDRESS:
        raise SimulatorApiError(400, f"Node does not support configuration extraction: {node.id}")
    return JSONResponse(node.plan.details["configuration"] or "")


def _addresses_payload(lab: Lab, node: Node) -> dict[str, Any]:
    """The observed addresses: a booted node uses one address on each of its interfaces."""
    number = list(lab.nodes).index(node.id)
    has_address = node.state == BOOTED and node.plan.definition not in _NODES_WITHOUT_ADDRESS
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
            if has_address
        },
    }


async def list_addresses(request: Request) -> Response:
    lab = get_visible_lab(request)
    payloads = {node.id: _addresses_payload(lab, node) for node in lab.nodes.values()}
    return JSONResponse({node_id: entry for node_id, entry in payloads.items() if entry["interfaces"]})


async def list_node_addresses(request: Request) -> Response:
    lab = get_visible_lab(request)
    return JSONResponse(_addresses_payload(lab, lab.node(request.path_params["node_id"])))


_NODE_PATH = "/labs/{lab_id}/nodes/{node_id}"
NODE_ROUTES = [
    Route("/labs/{lab_id}/nodes", list_nodes),
    Route("/labs/{lab_id}/layer3_addresses", list_addresses),
    Route(_NODE_PATH, get_node),
    Route(f"{_NODE_PATH}/layer3_addresses", list_node_addresses),
    Route(f"{_NODE_PATH}/state", get_node_state),
    Route(f"{_NODE_PATH}/check_if_converged", get_node_converged),
    Route(f"{_NODE_PATH}/state/start", change_node, methods=["PUT"]),
    Route(f"{_NODE_PATH}/state/stop", change_node, methods=["PUT"]),
    Route(f"{_NODE_PATH}/wipe_disks", change_node, methods=["PUT"]),
    Route(f"{_NODE_PATH}/extract_configuration", extract_configuration, methods=["PUT"]),
]
