"""The switchboard chooses what the app's own router would, and spares it the walk."""

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
    """A path with at most one parameter of each name; now and then one that takes in the rest."""
    parts = draw(st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=3))
    named = [part.replace("x", f"x{number}") for number, part in enumerate(parts)]
    rest = ["{rest:path}"] if draw(st.integers(0, 4)) == 0 else []
    return "/" + "/".join([*named, *rest])


ROUTES = st.lists(st.tuples(templates(), st.sampled_from(METHODS)), min_size=1, max_size=8)
ASKED = st.tuples(
    st.lists(st.sampled_from(["a", "b", "c", "7", "a.js", ""]), min_size=1, max_size=4), st.sampled_from(METHODS)
)


def routed(routes: list[tuple[str, str]]) -> APIRouter:
    """Routes that answer with their number and what they took from the path."""
    router = APIRouter()
    for number, (path, method) in enumerate(routes):

        async def answer(request: Request, number: int = number) -> PlainTextResponse:
            return PlainTextResponse(f"{number} {dict(request.path_params)} {request.scope['router'] is not None}")

        router.add_route(path, answer, methods=[method])
    return router


async def asked(app: FastAPI, method: str, path: str) -> tuple[int, str, str | None]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
        answer = await client.request(method, f"http://lcm.test{path}")
    return answer.status_code, answer.text, answer.headers.get("Allow")


@given(routes=ROUTES, questions=st.lists(ASKED, min_size=1, max_size=6))
async def test_every_request_is_answered_as_without_it(
    routes: list[tuple[str, str]], questions: list[tuple[list[str], str]]
) -> None:
    plain, quick = FastAPI(redirect_slashes=False), FastAPI(redirect_slashes=False)
    for app in (plain, quick):
        routing.include_routes(app, routed(routes))
    routing.install_route_index(quick)
    for segments, method in questions:
        path = "/" + "/".join(segments)
        assert await asked(quick, method, path) == await asked(plain, method, path), (method, path)


async def test_no_known_path_is_looked_for_by_walking() -> None:
    walked = []

    async def walk(scope: Scope, receive: Receive, send: Send) -> None:
        walked.append((scope["method"], scope["path"]))

    async with serving_plane() as plane:
        router = plane.app.router
        known = [route for route in router.routes if isinstance(route, APIRoute)]
        router.middleware_stack = walk
        router.middleware_stack = RouteIndex(router)
        for route in known:
            path = re.sub(r"\{[^}]*\}", "1", route.path)
            for method in sorted(route.methods or ()):
                if not path.endswith("/stream"):
                    await plane.ask(method, path, role=None)
    assert walked == []
    assert len(known) > 100


async def test_routes_that_come_later_are_found_by_walking() -> None:
    app = FastAPI(redirect_slashes=False)
    routing.include_routes(app, routed([("/a/{x}", "GET")]))
    routing.install_route_index(app)
    app.include_router(routed([("/a/b", "GET"), ("/c", "GET")]))
    assert (await asked(app, "GET", "/a/b"))[1].startswith("0 {'x': 'b'}")
    assert (await asked(app, "GET", "/c"))[1].startswith("1 {}")
