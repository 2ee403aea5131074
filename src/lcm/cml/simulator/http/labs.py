"""Labs: making, running and removing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lcm.cml.simulator.http.requests import get_account, get_world, no_content
from lcm.cml.simulator.state.faults import SimulatorApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from lcm.cml.simulator.state.labs import Lab, Labs
    from lcm.cml.simulator.state.sessions import CMLAccount


def get_visible_lab(request: Request) -> Lab:
    """The lab of the path, if the account may see it."""
    lab = get_world(request).labs.get(request.path_params["lab_id"])
    account = get_account(request)
    if not account.admin and lab.owner.id != account.id:
        raise SimulatorApiError(403, f"Not yours: {lab.id}")
    return lab


def lab_payload(lab: Lab) -> dict[str, Any]:
    """A lab as lists and details show it."""
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
    everybodys = account.admin and request.query_params.get("show_all") == "true"
    return JSONResponse([lab.id for lab in get_world(request).labs.all if everybodys or lab.owner.id == account.id])


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
    """Everything in a lab but its states. Clients are strict about the keys of nodes: no more than these."""
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
    lab, known = get_visible_lab(request), get_world(request).labs
    _lab_operation(known, request.url.path.rpartition("/")[2])(lab, get_account(request))
    return no_content()


def _lab_operation(known: Labs, verb: str) -> Callable[[Lab, CMLAccount], None]:
    return {"start": known.start, "stop": known.stop, "wipe": known.wipe}[verb]


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
    Route("/labs/{lab_id}/state", get_lab_state),
    Route("/labs/{lab_id}/check_if_converged", get_lab_converged),
    Route("/labs/{lab_id}/lab_element_state", get_element_states),
    Route("/labs/{lab_id}/start", change_lab, methods=["PUT"]),
    Route("/labs/{lab_id}/stop", change_lab, methods=["PUT"]),
    Route("/labs/{lab_id}/wipe", change_lab, methods=["PUT"]),
    Route("/labs/{lab_id}/events", list_lab_events),
]
