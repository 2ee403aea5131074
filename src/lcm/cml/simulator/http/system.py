"""The server as a whole: what it is, how it is, what happened on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lcm.cml.simulator.http.requests import admin_only, done, object_of, world_of
from lcm.cml.simulator.state.boot import Phase
from lcm.cml.simulator.state.faults import Refusal
from lcm.cml.simulator.state.labs import RUNNING
from lcm.cml.simulator.state.topology import definition_of, image_definitions, node_definitions
from lcm.cml.simulator.state.world import GIB

if TYPE_CHECKING:
    from starlette.requests import Request

    from lcm.cml.simulator.state.world import World

_INCLUDED_NODES = 20
_CATEGORIES = (
    "computes",
    "labs",
    "lab_events",
    "node_launch_queue",
    "services",
    "node_definitions",
    "licensing",
    "startup_scheduler",
)
_OPT_IN = {True: "accepted", False: "declined"}


async def information(request: Request) -> Response:
    world = world_of(request)
    answer: dict[str, Any] = {
        "version": world.profile.version,
        "ready": world.boot.phase is Phase.READY,
        "allow_ssh_pubkey_auth": False,
        "oui": "52:54:00:00:00:00",
    }
    if world.profile.told_features:
        answer |= {"timeout": 3600, "features": []}
    return JSONResponse(answer)


async def health(request: Request) -> Response:
    world = world_of(request)
    ready = world.boot.phase is Phase.READY
    compute = {
        "kvm_vmx_enabled": True,
        "enough_cpus": True,
        "lld_connected": ready,
        "lld_synced": ready,
        "libvirt": True,
        "fabric": True,
        "device_mux": True,
        "refplat_images_available": True,
        "docker_shim": True,
        "valid": ready,
        "admission_state": "READY",
        "is_controller": True,
        "hostname": world.settings.hostname,
    }
    return JSONResponse(
        {
            "valid": ready,
            "is_licensed": world.licensing.registered,
            "is_enterprise": world.licensing.product != "CML_Personal",
            "computes": {world.compute_id: compute},
            "controller": {"core_connected": ready, "nodes_loaded": True, "images_loaded": True, "valid": ready},
        }
    )


def stats_of(world: World) -> dict[str, Any]:
    """The load, as `/system_stats` and `/ws/ui` tell it."""
    percent, memory, disk = world.load()
    settings = world.settings
    running = [node for node in world.labs.nodes if node.state in RUNNING]
    cpu = {
        "count": settings.cpus,
        "percent": percent,
        "model": "Simulated CPU",
        "hyperthreading": False,
        "predicted": sum(definition_of(node.plan.definition).cpus for node in running),
        "load": [round(settings.cpus * percent / 100, 2)] * 3,
    }
    memories, disks = _usage(memory, settings.memory_gib), _usage(disk, settings.disk_gib)
    dominfo = {
        "total_nodes": len(world.labs.nodes),
        "total_orphans": 0,
        "running_nodes": len(running),
        "running_orphans": 0,
        "allocated_cpus": cpu["predicted"],
        "allocated_memory": sum(definition_of(node.plan.definition).memory_mib for node in running) * 1024,
    }
    compute = {
        "hostname": settings.hostname,
        "is_controller": True,
        "stats": {"cpu": cpu, "memory": memories, "disk": disks, "dominfo": dominfo},
    }
    return {
        "computes": {world.compute_id: compute},
        "all": {"cpu": cpu, "memory": memories, "disk": disks},
        "controller": {"disk": disks},
    }


def _usage(used: int, total_gib: int) -> dict[str, float]:
    total = float(total_gib * GIB)
    return {"used": float(used), "free": total - used, "total": total}


async def stats(request: Request) -> Response:
    return JSONResponse(stats_of(world_of(request)))


async def telemetry(request: Request) -> Response:
    world = world_of(request)
    if request.method == "PUT":
        admin_only(request)
        wanted = (await object_of(request)).get("opt_in")
        world.opt_in = wanted is True or str(wanted).lower() == "accepted"
        return done()
    opt_in = _OPT_IN[world.opt_in] if world.profile.worded_opt_in else world.opt_in
    return JSONResponse({"opt_in": opt_in, "show_modal": False})


async def events(request: Request) -> Response:
    return JSONResponse(world_of(request).telemetry.events)


async def diagnostics(request: Request) -> Response:
    admin_only(request)
    world = world_of(request)
    category = request.path_params.get("category")
    if world.profile.diagnostics_by_category is (category is None) or category not in (None, *_CATEGORIES):
        raise Refusal(404, f"No such diagnostics in this version: {category or 'all'}")
    everything = {name: _diagnosis(world, name) for name in _CATEGORIES}
    return JSONResponse(everything if category is None else everything[category])


def _diagnosis(world: World, category: str) -> object:
    if category == "licensing":
        started = sum(node.state in RUNNING for node in world.labs.nodes)
        return {"quota": _INCLUDED_NODES + world.licensing.nodes, "started": started}
    if category == "labs":
        return {lab.id: {"state": lab.state, "nodes": len(lab.nodes)} for lab in world.labs.all}
    if category == "startup_scheduler":
        ready = world.boot.phase is Phase.READY
        order = ("licensing_loaded", "core_driver_connected", "node_definitions_loaded", "lld_connected", "lld_synced")
        return {**dict.fromkeys(order, True), "system_ready": ready}
    return {}


async def definitions(_request: Request) -> Response:
    return JSONResponse(node_definitions())


async def images(_request: Request) -> Response:
    return JSONResponse(image_definitions())


async def connectors(_request: Request) -> Response:
    return JSONResponse(
        [
            {
                "id": "58016276-1cd5-4b8e-a9a7-a6a1f4e8a6b1",
                "label": "NAT",
                "device_name": "virbr0",
                "tags": ["NAT"],
                "allowed": True,
                "operational": {"forwarding": "NAT", "label": "NAT", "exists": True, "enabled": True},
            }
        ]
    )


async def compute_hosts(request: Request) -> Response:
    world = world_of(request)
    host = {"id": world.compute_id, "hostname": world.settings.hostname, "is_controller": True, "is_connected": True}
    return JSONResponse([{**host, "is_synced": True, "admission_state": "READY", "server_address": "127.0.0.1"}])


async def maintenance(_request: Request) -> Response:
    return JSONResponse({"maintenance_mode": False, "notice": None, "resolved_notice": None})


ROUTES = [
    Route("/system_information", information),
    Route("/system_health", health),
    Route("/system_stats", stats),
    Route("/telemetry", telemetry, methods=["GET", "PUT"]),
    Route("/telemetry/events", events),
    Route("/diagnostics", diagnostics),
    Route("/diagnostics/{category}", diagnostics),
    Route("/node_definitions", definitions),
    Route("/image_definitions", images),
    Route("/system/external_connectors", connectors),
    Route("/system/compute_hosts", compute_hosts),
    Route("/system/maintenance_mode", maintenance),
]
