"""Labs: making, running and removing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lcm.cml.simulator.http.requests import account_of, done, world_of
from lcm.cml.simulator.state.faults import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from lcm.cml.simulator.state.labs import Lab, Labs
    from lcm.cml.simulator.state.sessions import Account


def lab_of(request: Request) -> Lab:
    """The lab of the path, if the account may see it."""
    lab = world_of(request).labs.get(request.path_params["lab_id"])
    account = account_of(request)
    if not account.admin and lab.owner.id != account.id:
        raise Refusal(403, f"Not yours: {lab.id}")
    return lab


def told(lab: Lab) -> dict[str, Any]:
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


async def labs(request: Request) -> Response:
    account = account_of(request)
    everybodys = account.admin and request.query_params.get("show_all") == "true"
    return JSONResponse([lab.id for lab in world_of(request).labs.all if everybodys or lab.owner.id == account.id])


async def import_lab(request: Request) -> Response:
    try:
        topology = (await request.body()).decode()
    except UnicodeDecodeError:
        raise Refusal(400, "The topology is not UTF-8") from None
    lab = world_of(request).import_lab(topology, account_of(request), request.query_params.get("title"))
    return JSONResponse({"id": lab.id, "warnings": lab.plan.warnings})


async def lab_details(request: Request) -> Response:
    lab = lab_of(request)
    if request.method == "DELETE":
        world_of(request).labs.remove(lab)
        return done()
    return JSONResponse(told(lab))


async def topology(request: Request) -> Response:
    return JSONResponse(topology_of(lab_of(request), world_of(request).profile.schema))


def topology_of(lab: Lab, schema: str) -> dict[str, Any]:
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


async def state(request: Request) -> Response:
    return JSONResponse(lab_of(request).state)


async def converged(request: Request) -> Response:
    return JSONResponse(lab_of(request).converged)


async def element_states(request: Request) -> Response:
    lab = lab_of(request)
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


async def change(request: Request) -> Response:
    lab, known = lab_of(request), world_of(request).labs
    _change(known, request.url.path.rpartition("/")[2])(lab, account_of(request))
    return done()


def _change(known: Labs, verb: str) -> Callable[[Lab, Account], None]:
    return {"start": known.start, "stop": known.stop, "wipe": known.wipe}[verb]


async def events(request: Request) -> Response:
    return JSONResponse(lab_of(request).events)


async def tiles(request: Request) -> Response:
    schema = world_of(request).profile.schema
    return JSONResponse(
        {
            "lab_tiles": {
                lab.id: told(lab) | {"topology": topology_of(lab, schema)} for lab in world_of(request).labs.all
            }
        }
    )


ROUTES = [
    Route("/labs", labs),
    Route("/import", import_lab, methods=["POST"]),
    Route("/populate_lab_tiles", tiles),
    Route("/labs/{lab_id}", lab_details, methods=["GET", "DELETE"]),
    Route("/labs/{lab_id}/topology", topology),
    Route("/labs/{lab_id}/state", state),
    Route("/labs/{lab_id}/check_if_converged", converged),
    Route("/labs/{lab_id}/lab_element_state", element_states),
    Route("/labs/{lab_id}/start", change, methods=["PUT"]),
    Route("/labs/{lab_id}/stop", change, methods=["PUT"]),
    Route("/labs/{lab_id}/wipe", change, methods=["PUT"]),
    Route("/labs/{lab_id}/events", events),
]
