"""The licensing API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lcm.cml.simulator.http.requests import get_world, no_content, read_json, read_json_object, require_admin
from lcm.cml.simulator.state.faults import SimulatorApiError

if TYPE_CHECKING:
    from starlette.requests import Request

_DEREGISTERED_LOCALLY_STATUS = 202


async def get_license(request: Request) -> Response:
    return JSONResponse(get_world(request).licensing.payload())


async def register(request: Request) -> Response:
    require_admin(request)
    body = await read_json_object(request)
    token = body.get("token")
    if not isinstance(token, str):
        raise SimulatorApiError(400, "A token is required")
    get_world(request).licensing.register(token, reregister=body.get("reregister") is True)
    return no_content()


async def renew(request: Request) -> Response:
    require_admin(request)
    get_world(request).licensing.renew()
    return no_content()


async def deregister(request: Request) -> Response:
    require_admin(request)
    reached = await get_world(request).licensing.deregister()
    return no_content() if reached else Response(status_code=_DEREGISTERED_LOCALLY_STATUS)


async def set_product(request: Request) -> Response:
    require_admin(request)
    get_world(request).licensing.set_product(await read_json(request))
    return no_content()


async def set_transport(request: Request) -> Response:
    require_admin(request)
    get_world(request).licensing.set_transport(await read_json(request))
    return no_content()


async def set_features(request: Request) -> Response:
    require_admin(request)
    get_world(request).licensing.set_features(await read_json(request))
    return no_content()


ROUTES = [
    Route("/licensing", get_license),
    Route("/licensing/registration", register, methods=["POST"]),
    Route("/licensing/registration/renew", renew, methods=["PUT"]),
    Route("/licensing/authorization/renew", renew, methods=["PUT"]),
    Route("/licensing/deregistration", deregister, methods=["DELETE"]),
    Route("/licensing/product_license", set_product, methods=["PUT"]),
    Route("/licensing/transport", set_transport, methods=["PUT"]),
    Route("/licensing/features", set_features, methods=["PATCH"]),
]
