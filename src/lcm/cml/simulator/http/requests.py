"""Helpers that all routes use."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from lcm.cml.simulator.state.faults import SimulatorApiError

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection, Request

    from lcm.cml.simulator.state.sessions import CMLAccount
    from lcm.cml.simulator.state.world import World

NO_CONTENT = 204


def get_world(connection: HTTPConnection) -> World:
    """The state that this application serves."""
    world: World = connection.app.state.world
    return world


def get_account(request: Request) -> CMLAccount:
    """The account that sent the request."""
    account: CMLAccount = request.state.account
    return account


def require_admin(request: Request) -> None:
    """Reject all accounts that are not administrators."""
    if not get_account(request).admin:
        raise SimulatorApiError(403, "Only for administrators")


async def read_json(request: Request) -> Any:
    """The JSON content of a request."""
    try:
        return json.loads(await request.body())
    except ValueError:
        raise SimulatorApiError(400, "The request is not JSON") from None


async def read_json_object(request: Request) -> dict[str, Any]:
    """The JSON object of a request."""
    body = await read_json(request)
    if not isinstance(body, dict):
        raise SimulatorApiError(400, "The request must be an object")
    return body


def no_content() -> Response:
    """An empty response."""
    return Response(status_code=NO_CONTENT)
