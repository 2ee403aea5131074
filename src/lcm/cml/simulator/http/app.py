"""The web application of a simulated server, with the middleware that every request passes first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Mount

from lcm.cml.simulator.http import auth, labs, licensing, system
from lcm.cml.simulator.http import labs as nodes
from lcm.cml.simulator.http import system as ui_events
from lcm.cml.simulator.state.faults import Fault, FaultKind, SimulatorApiError
from lcm.cml.simulator.state.world import BootPhase
from lcm.http.request_limits import RequestLimitsMiddleware

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from lcm.cml.simulator.state.world import World


API_PREFIX = "/api/v0"
PUBLIC_PATHS = {
    f"{API_PREFIX}/{name}"
    for name in ("authenticate", "auth_extended", "system_information", "system/maintenance_mode")
}
HUGE_BYTES = 10 * 1024 * 1024
DRIP_SECONDS = 0.05
_MAX_BODY_BYTES = 4 * 1024 * 1024  # topologies are the largest

_BAD_GATEWAY_PAGE = "<html><head><title>502 Bad Gateway</title></head><body><center>nginx</center></body></html>"


class SimulatorMiddleware:
    """Applies the boot phase, the injected faults and authentication before the application."""

    def __init__(self, app: ASGIApp, world: World) -> None:
        self._app = app
        self._world = world

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._world.time.advance()
        phase = self._world.boot.phase
        if scope["type"] != "http":
            await (self._app if phase in (BootPhase.STARTING, BootPhase.READY) else _reject_websocket)(
                scope, receive, send
            )
            return
        if phase in (BootPhase.OFF, BootPhase.REFUSING):
            await _drop_connection(send)
            return
        if phase is BootPhase.GATEWAY:
            await HTMLResponse(_BAD_GATEWAY_PAGE, status_code=502)(scope, receive, send)
            return
        fault = self._world.faults.take(scope["method"], scope["path"])
        if fault is not None and fault.kind is FaultKind.SLOW:
            await self._world.time.sleep(fault.seconds)
            fault = None
        if fault is None or fault.kind is FaultKind.LOST_REPLY:
            await self._answer(scope, receive, _discard_message if fault else send)
        if fault is not None:
            await _apply_fault(fault, scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["path"] not in PUBLIC_PATHS:
                scope.setdefault("state", {})["account"] = self._world.sessions.check(_bearer_token(scope))
        except SimulatorApiError as error:
            await JSONResponse(error.body(), status_code=error.code)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _bearer_token(scope: Scope) -> str:
    headers: dict[bytes, bytes] = dict(scope["headers"])
    scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return token if scheme.lower() == "bearer" else ""


async def _apply_fault(fault: Fault, scope: Scope, receive: Receive, send: Send) -> None:
    if fault.kind in (FaultKind.DROP, FaultKind.LOST_REPLY):
        await _drop_connection(send)
    elif fault.kind is FaultKind.DRIP:
        await _drip_response(receive, send)
    elif fault.kind is FaultKind.HANG:
        await _wait_for_disconnect(receive)
    else:
        await _faulty_response(fault)(scope, receive, send)


def _faulty_response(fault: Fault) -> Response:
    if fault.kind is FaultKind.HTML:
        return HTMLResponse("<html><body>Please wait</body></html>")
    if fault.kind is FaultKind.HUGE:
        return Response(b'"' + b"x" * HUGE_BYTES + b'"', media_type="application/json")
    if fault.kind is FaultKind.REDIRECT:
        return RedirectResponse("https://elsewhere.invalid/api/v0/system_information", status_code=302)
    if fault.kind is FaultKind.WRONG_TYPE:
        return Response(b'{"version": "2.9.1", "ready": true}', media_type="application/octet-stream")
    if fault.kind is FaultKind.WRONG_SHAPE:
        return JSONResponse({"version": ["2.9.1"], "ready": "yes", "computes": [], "registration": 1})
    if fault.kind is FaultKind.DEEP:
        return Response(b"[" * 20_000 + b"]" * 20_000, media_type="application/json")
    error = SimulatorApiError(fault.status, "Injected fault")
    return JSONResponse(error.body(), status_code=fault.status)


async def _reject_websocket(_scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "websocket.close", "code": 1013})


async def _drop_connection(send: Send) -> None:
    """Announce a response and do not send it: the server then closes the connection."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})
    await send({"type": "http.response.body", "body": b" ", "more_body": True})


async def _drip_response(receive: Receive, send: Send) -> None:
    gone = asyncio.create_task(_wait_for_disconnect(receive))
    try:
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while not gone.done():
            await send({"type": "http.response.body", "body": b" ", "more_body": True})
            await asyncio.wait([gone], timeout=DRIP_SECONDS)
    finally:
        gone.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    message: Message = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()


async def _discard_message(_message: Any) -> None:
    """Discard a message of a response that is lost."""


_API_ROUTES = [*auth.ROUTES, *system.ROUTES, *licensing.ROUTES, *labs.ROUTES, *nodes.NODE_ROUTES]


def make_simulator_app(world: World) -> SimulatorMiddleware:
    """Create the application that CML clients see."""
    app = Starlette(
        routes=[Mount(API_PREFIX, routes=_API_ROUTES), *ui_events.UI_ROUTES], exception_handlers=EXCEPTION_HANDLERS
    )
    app.state.world = world
    return SimulatorMiddleware(RequestLimitsMiddleware(app, _max_body_bytes), world)


def _max_body_bytes(_path: str) -> int:
    return _MAX_BODY_BYTES


async def _api_error_response(_request: Request, error: Exception) -> Response:
    assert isinstance(error, SimulatorApiError)
    return JSONResponse(error.body(), status_code=error.code)


async def _http_error_response(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"code": error.status_code, "description": error.detail}, status_code=error.status_code)


EXCEPTION_HANDLERS = {SimulatorApiError: _api_error_response, HTTPException: _http_error_response}
