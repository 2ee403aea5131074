"""The application of a simulated server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount

from lcm.cml.simulator.http import auth, labs, licensing, nodes, system, ui_events
from lcm.cml.simulator.http.app import API, Gate
from lcm.cml.simulator.state.faults import Refusal

if TYPE_CHECKING:
    from starlette.requests import Request

    from lcm.cml.simulator.state.world import World

_API_ROUTES = [*auth.ROUTES, *system.ROUTES, *licensing.ROUTES, *labs.ROUTES, *nodes.ROUTES]


def make_app(world: World) -> Gate:
    """What CML serves to its clients, over this world."""
    app = Starlette(routes=[Mount(API, routes=_API_ROUTES), *ui_events.ROUTES], exception_handlers=REFUSALS)
    app.state.world = world
    return Gate(app, world)


async def _refuse(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return JSONResponse(error.body(), status_code=error.code)


async def _no_route(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"code": error.status_code, "description": error.detail}, status_code=error.status_code)


REFUSALS = {Refusal: _refuse, HTTPException: _no_route}
