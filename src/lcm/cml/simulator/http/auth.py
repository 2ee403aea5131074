"""Logging in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lcm.cml.simulator.http.requests import account_of, object_of, world_of
from lcm.cml.simulator.state.faults import Refusal

if TYPE_CHECKING:
    from starlette.requests import Request


async def authenticate(request: Request) -> Response:
    world, body = world_of(request), await object_of(request)
    await world.time.pause(world.login_seconds)
    _, token = world.sessions.log_in(body.get("username"), body.get("password"))
    return JSONResponse(token)


async def auth_extended(request: Request) -> Response:
    world, body = world_of(request), await object_of(request)
    await world.time.pause(world.login_seconds)
    account, token = world.sessions.log_in(body.get("username"), body.get("password"))
    return JSONResponse(
        {"username": account.username, "id": account.id, "token": token, "admin": account.admin, "error": None}
    )


async def session_check(request: Request) -> Response:
    name = request.url.path.rpartition("/")[2]
    if name != world_of(request).profile.session_check:
        raise Refusal(404, f"No such route in this version: {name}")
    if name == "authok":
        return JSONResponse("OK")
    account = account_of(request)
    return JSONResponse({"id": account.id, "username": account.username, "admin": account.admin})


async def log_out(request: Request) -> Response:
    if request.query_params.get("clear_all_sessions") == "true":
        world_of(request).sessions.expire_all()
    return JSONResponse(content=True)


async def users(request: Request) -> Response:
    return JSONResponse(
        [
            {
                "id": account.id,
                "username": account.username,
                "fullname": account.username,
                "description": "",
                "email": "",
                "admin": account.admin,
                "groups": [],
                "labs": [lab.id for lab in world_of(request).labs.all if lab.owner.id == account.id],
            }
            for account in world_of(request).sessions.accounts.values()
        ]
    )


ROUTES = [
    Route("/authenticate", authenticate, methods=["POST"]),
    Route("/auth_extended", auth_extended, methods=["POST"]),
    Route("/authok", session_check),
    Route("/authentication", session_check),
    Route("/logout", log_out, methods=["DELETE"]),
    Route("/users", users),
]
