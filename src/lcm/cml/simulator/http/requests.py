"""What all routes need."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from lcm.cml.simulator.state.faults import Refusal

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection, Request

    from lcm.cml.simulator.state.sessions import Account
    from lcm.cml.simulator.state.world import World

NOTHING = 204


def world_of(connection: HTTPConnection) -> World:
    """The world that this application serves."""
    world: World = connection.app.state.world
    return world


def account_of(request: Request) -> Account:
    """Who asks."""
    account: Account = request.state.account
    return account


def admin_only(request: Request) -> None:
    """Refuse everybody else."""
    if not account_of(request).admin:
        raise Refusal(403, "Only for administrators")


async def body_of(request: Request) -> Any:
    """The JSON of a request."""
    try:
        return json.loads(await request.body())
    except ValueError:
        raise Refusal(400, "The request is not JSON") from None


async def object_of(request: Request) -> dict[str, Any]:
    """The JSON object of a request."""
    body = await body_of(request)
    if not isinstance(body, dict):
        raise Refusal(400, "The request must be an object")
    return body


def done() -> Response:
    """Taken, nothing to say."""
    return Response(status_code=NOTHING)
