"""The route index chooses the same route as the app's own router."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import PlainTextResponse
from fastapi.routing import APIRoute
from hypothesis import given
from hypothesis import strategies as st

from lcm.control_plane.http import routing
from lcm.control_plane.http.routing import RouteIndex
from tests.support.virtual.control_plane import serving_plane

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

SEGMENTS = ["a", "b", "{x}", "{x}.js", "{x:int}"]
METHODS = ["GET", "POST", "DELETE"]


@st.composite
def templates(draw: st.DrawFn) -> str:
    """A path with distinct parameters; sometimes the last one matches the rest of the path."""
    parts = draw(st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=3))
    named = [part.replace("x", f"x{number}") for number, part in enumerate(parts)]
    rest = ["{rest:path}"] if draw(st.integers(0, 4)) == 0 else []
    return "/" + "/".join([*named, *rest])


ROUTES = st.lists(st.tuples(templates(), st.sampled_from(METHODS)), min_size=1, max_size=8)
REQUESTS = st.tuples(
    st.lists(st.sampled_from(["a", "b", "c", "7", "a.js", ""]), min_size=1, max_size=4), st.sampled_from(METHODS)
)


def routed(routes: list[tuple[str, str]]) -> APIRouter:
    """Routes that return their number and path parameters."""
    router = APIRouter()
    for number, (path, method) in enumerate(routes):

        async def endpoint(request: Request, number: int = number) -> PlainTextResponse:
            return PlainTextResponse(f"{number} {dict(request.path_params)} {request.scope['router'] is not None}")

        router.add_route(path, endpoint, methods=[method])
    return router


async def send(app: FastAPI, method: str, path: str) -> tuple[int, str, str | None]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
        response = await client.request(method, f"http://lcm.test{path}")
    return response.status_code, response.text, response.headers.get("Allow")


@given(routes=ROUTES, requests=st.lists(REQUESTS, min_size=1, max_size=6))
async def test_the_index_chooses_the_same_route_as_the_router(
    routes: list[tuple[str, str]], requests: list[tuple[list[str], str]]
) -> None:
    plain, indexed = FastAPI(redirect_slashes=False), FastAPI(redirect_slashes=False)
    for app in (plain, indexed):
        routing.include_routes(app, routed(routes))
    routing.install_route_index(indexed)
    for segments, method in requests:
        path = "/" + "/".join(segments)
        assert await send(indexed, method, path) == await send(plain, method, path), (method, path)


async def test_no_known_path_falls_back_to_the_router() -> None:
    fallbacks = []

    async def fallback(scope: Scope, receive: Receive, send: Send) -> None:
        fallbacks.append((scope["method"], scope["path"]))

    async with serving_plane() as plane:
        router = plane.app.router
        routes = [route for route in router.routes if isinstance(route, APIRoute)]
        router.middleware_stack = fallback
        router.middleware_stack = RouteIndex(router)
        for route in routes:
            path = re.sub(r"\{[^}]*\}", "1", route.path)
            for method in sorted(route.methods or ()):
                if not path.endswith("/stream"):
                    await plane.ask(method, path, role=None)
    assert fallbacks == []
    assert len(routes) > 100


async def test_routes_added_later_are_found_by_the_router() -> None:
    app = FastAPI(redirect_slashes=False)
    routing.include_routes(app, routed([("/a/{x}", "GET")]))
    routing.install_route_index(app)
    app.include_router(routed([("/a/b", "GET"), ("/c", "GET")]))
    assert (await send(app, "GET", "/a/b"))[1].startswith("0 {'x': 'b'}")
    assert (await send(app, "GET", "/c"))[1].startswith("1 {}")
