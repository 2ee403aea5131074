"""What all routes need."""

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
    """The world that this application serves."""
    world: World = connection.app.state.world
    return world


def get_account(request: Request) -> CMLAccount:
    """Who asks."""
    account: CMLAccount = request.state.account
    return account


def require_admin(request: Request) -> None:
    """Refuse everybody else."""
    if not get_account(request).admin:
        raise SimulatorApiError(403, "Only for administrators")


async def read_json(request: Request) -> Any:
    """The JSON of a request."""
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
    """Taken, nothing to say."""
    return Response(status_code=NO_CONTENT)
