"""The licence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lcm.cml.simulator.http.requests import admin_only, body_of, done, object_of, world_of
from lcm.cml.simulator.state.faults import Refusal

if TYPE_CHECKING:
    from starlette.requests import Request

_LOCAL_ONLY = 202


async def status(request: Request) -> Response:
    return JSONResponse(world_of(request).licensing.told())


async def register(request: Request) -> Response:
    admin_only(request)
    body = await object_of(request)
    token = body.get("token")
    if not isinstance(token, str):
        raise Refusal(400, "A token is needed")
    world_of(request).licensing.register(token, reregister=body.get("reregister") is True)
    return done()


async def renew(request: Request) -> Response:
    admin_only(request)
    world_of(request).licensing.renew()
    return done()


async def deregister(request: Request) -> Response:
    admin_only(request)
    reached = await world_of(request).licensing.deregister()
    return done() if reached else Response(status_code=_LOCAL_ONLY)


async def product(request: Request) -> Response:
    admin_only(request)
    world_of(request).licensing.set_product(await body_of(request))
    return done()


async def transport(request: Request) -> Response:
    admin_only(request)
    world_of(request).licensing.set_transport(await body_of(request))
    return done()


async def features(request: Request) -> Response:
    admin_only(request)
    world_of(request).licensing.set_features(await body_of(request))
    return done()


ROUTES = [
    Route("/licensing", status),
    Route("/licensing/registration", register, methods=["POST"]),
    Route("/licensing/registration/renew", renew, methods=["PUT"]),
    Route("/licensing/authorization/renew", renew, methods=["PUT"]),
    Route("/licensing/deregistration", deregister, methods=["DELETE"]),
    Route("/licensing/product_license", product, methods=["PUT"]),
    Route("/licensing/transport", transport, methods=["PUT"]),
    Route("/licensing/features", features, methods=["PATCH"]),
]
