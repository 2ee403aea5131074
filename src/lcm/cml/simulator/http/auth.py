"""Login, logout and users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lcm.cml.simulator.http.requests import get_account, get_world, read_json_object
from lcm.cml.simulator.state.faults import SimulatorApiError

if TYPE_CHECKING:
    from starlette.requests import Request


async def authenticate(request: Request) -> Response:
    world, body = get_world(request), await read_json_object(request)
    await world.time.sleep(world.login_seconds)
    _, token = world.sessions.log_in(body.get("username"), body.get("password"))
    return JSONResponse(token)


async def auth_extended(request: Request) -> Response:
    world, body = get_world(request), await read_json_object(request)
    await world.time.sleep(world.login_seconds)
    account, token = world.sessions.log_in(body.get("username"), body.get("password"))
    return JSONResponse(
        {"username": account.username, "id": account.id, "token": token, "admin": account.admin, "error": None}
    )


async def session_check(request: Request) -> Response:
    name = request.url.path.rpartition("/")[2]
    if name != get_world(request).profile.session_check:
        raise SimulatorApiError(404, f"No such route in this version: {name}")
    if name == "authok":
        return JSONResponse("OK")
    account = get_account(request)
    return JSONResponse({"id": account.id, "username": account.username, "admin": account.admin})


async def log_out(request: Request) -> Response:
    if request.query_params.get("clear_all_sessions") == "true":
        get_world(request).sessions.expire_all()
    return JSONResponse(content=True)


async def list_users(request: Request) -> Response:
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
                "labs": [lab.id for lab in get_world(request).labs.all if lab.owner.id == account.id],
            }
            for account in get_world(request).sessions.accounts.values()
        ]
    )


async def list_groups(_request: Request) -> Response:
    """The simulator has no groups."""
    return JSONResponse([])


ROUTES = [
    Route("/authenticate", authenticate, methods=["POST"]),
    Route("/auth_extended", auth_extended, methods=["POST"]),
    Route("/authok", session_check),
    Route("/authentication", session_check),
    Route("/logout", log_out, methods=["DELETE"]),
    Route("/users", list_users),
    Route("/groups", list_groups),
]
