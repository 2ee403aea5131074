"""The system API: information, health, statistics, telemetry and diagnostics."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocketDisconnect

from lcm.cml.simulator.http.requests import get_world, no_content, read_json_object, require_admin
from lcm.cml.simulator.state.faults import SimulatorApiError
from lcm.cml.simulator.state.labs import RUNNING_STATES
from lcm.cml.simulator.state.topology import find_node_definition, image_definitions_payload, node_definitions_payload
from lcm.cml.simulator.state.world import GIB, BootPhase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request
    from starlette.websockets import WebSocket

    from lcm.cml.simulator.state.world import World


_BASE_NODE_QUOTA = 20
_DIAGNOSTIC_CATEGORIES = (
    "computes",
    "labs",
    "lab_events",
    "node_launch_queue",
    "services",
    "node_definitions",
    "licensing",
    "startup_scheduler",
)
_OPT_IN_WORDS = {True: "accepted", False: "declined"}


async def get_information(request: Request) -> Response:
    world = get_world(request)
    content: dict[str, Any] = {
        "version": world.profile.version,
        "ready": world.boot.phase is BootPhase.READY,
        "allow_ssh_pubkey_auth": False,
        "oui": "52:54:00:00:00:00",
    }
    if world.profile.reports_features:
        content |= {"timeout": 3600, "features": []}
    return JSONResponse(content)


async def get_health(request: Request) -> Response:
    world = get_world(request)
    ready = world.boot.phase is BootPhase.READY
    compute = {
        "kvm_vmx_enabled": world.kvm,
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


def stats_payload(world: World) -> dict[str, Any]:
    """The load, as reported by `/system_stats` and `/ws/ui`."""
    percent, memory, disk = world.load()
    settings = world.settings
    running = [node for node in world.labs.nodes if node.state in RUNNING_STATES]
    cpu = {
        "count": settings.cpus,
        "percent": percent,
        "model": "Simulated CPU",
        "hyperthreading": False,
        "predicted": sum(find_node_definition(node.plan.definition).cpus for node in running),
        "load": [round(settings.cpus * percent / 100, 2)] * 3,
    }
    memories, disks = _usage_payload(memory, settings.memory_gib), _usage_payload(disk, settings.disk_gib)
    dominfo = {
        "total_nodes": len(world.labs.nodes),
        "total_orphans": 0,
        "running_nodes": len(running),
        "running_orphans": 0,
        "allocated_cpus": cpu["predicted"],
        "allocated_memory": sum(find_node_definition(node.plan.definition).memory_mib for node in running) * 1024,
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


def _usage_payload(used: int, total_gib: int) -> dict[str, float]:
    total = float(total_gib * GIB)
    return {"used": float(used), "free": total - used, "total": total}


async def get_stats(request: Request) -> Response:
    return JSONResponse(stats_payload(get_world(request)))


async def get_or_set_telemetry(request: Request) -> Response:
    world = get_world(request)
    if request.method == "PUT":
        require_admin(request)
        opt_in_value = (await read_json_object(request)).get("opt_in")
        world.opt_in = opt_in_value is True or str(opt_in_value).lower() == "accepted"
        return no_content()
    opt_in = _OPT_IN_WORDS[world.opt_in] if world.profile.opt_in_as_word else world.opt_in
    return JSONResponse({"opt_in": opt_in, "show_modal": False})


async def list_telemetry_events(request: Request) -> Response:
    return StreamingResponse(_paced(get_world(request).telemetry.stream()), media_type="application/json")


async def _paced(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    # Starlette would iterate over a plain iterator in a thread.
    for chunk in chunks:
        yield chunk


async def get_diagnostics(request: Request) -> Response:
    require_admin(request)
    world = get_world(request)
    category = request.path_params.get("category")
    if world.profile.diagnostics_by_category is (category is None) or category not in (None, *_DIAGNOSTIC_CATEGORIES):
        raise SimulatorApiError(404, f"No such diagnostics in this version: {category or 'all'}")
    everything = {name: _diagnostics_payload(world, name) for name in _DIAGNOSTIC_CATEGORIES}
    return JSONResponse(everything if category is None else everything[category])


def _diagnostics_payload(world: World, category: str) -> object:
    if category == "licensing":
        started = sum(node.state in RUNNING_STATES for node in world.labs.nodes)
        return {"quota": _BASE_NODE_QUOTA + world.licensing.nodes, "started": started}
    if category == "labs":
        return {lab.id: {"state": lab.state, "nodes": len(lab.nodes)} for lab in world.labs.all}
    if category == "startup_scheduler":
        ready = world.boot.phase is BootPhase.READY
        order = ("licensing_loaded", "core_driver_connected", "node_definitions_loaded", "lld_connected", "lld_synced")
        return {**dict.fromkeys(order, True), "system_ready": ready}
    return {}


async def list_node_definitions(_request: Request) -> Response:
    return JSONResponse(node_definitions_payload())


async def list_image_definitions(_request: Request) -> Response:
    return JSONResponse(image_definitions_payload())


async def list_external_connectors(_request: Request) -> Response:
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


async def list_compute_hosts(request: Request) -> Response:
    world = get_world(request)
    host = {"id": world.compute_id, "hostname": world.settings.hostname, "is_controller": True, "is_connected": True}
    return JSONResponse([{**host, "is_synced": True, "admission_state": "READY", "server_address": "127.0.0.1"}])


async def get_maintenance_mode(_request: Request) -> Response:
    return JSONResponse({"maintenance_mode": False, "notice": None, "resolved_notice": None})


ROUTES = [
    Route("/system_information", get_information),
    Route("/system_health", get_health),
    Route("/system_stats", get_stats),
    Route("/telemetry", get_or_set_telemetry, methods=["GET", "PUT"]),
    Route("/telemetry/events", list_telemetry_events),
    Route("/diagnostics", get_diagnostics),
    Route("/diagnostics/{category}", get_diagnostics),
    Route("/node_definitions", list_node_definitions),
    Route("/image_definitions", list_image_definitions),
    Route("/system/external_connectors", list_external_connectors),
    Route("/system/compute_hosts", list_compute_hosts),
    Route("/system/maintenance_mode", get_maintenance_mode),
]


UNAUTHORIZED_CLOSE_CODE = 3000
STATS_SECONDS = 3.0
_POLL_SECONDS = 0.05


async def ui_websocket(socket: WebSocket) -> None:
    """Accept every connection, but close it unless the first message contains a valid token."""
    world = get_world(socket)
    await socket.accept()
    try:
        async with asyncio.timeout(world.listener_seconds):
            first = json.loads(await socket.receive_text())
        world.sessions.check(first["token"])
    except (TimeoutError, ValueError, KeyError, TypeError, AttributeError, SimulatorApiError):
        await socket.close(UNAUTHORIZED_CLOSE_CODE)
        return
    except WebSocketDisconnect:
        return
    await _stream_events(socket, world)


async def _stream_events(socket: WebSocket, world: World) -> None:
    queue = world.telemetry.listen()
    disconnected = asyncio.create_task(_wait_for_disconnect(socket))
    stats_due = world.time.now
    try:
        while not disconnected.done():
            world.time.advance()
            if world.time.now >= stats_due:
                stats_due = world.time.now + STATS_SECONDS
                queue.append({"event_type": "system_stats", "data": stats_payload(world)})
            while queue:
                await socket.send_json(queue.popleft())
            await asyncio.wait([disconnected], timeout=_POLL_SECONDS)
    except (WebSocketDisconnect, RuntimeError):
        return  # the listener disconnected during a send
    finally:
        world.telemetry.leave(queue)
        disconnected.cancel()


async def _wait_for_disconnect(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


UI_ROUTES = [WebSocketRoute("/ws/ui", ui_websocket)]
