"""Routes that are called by a plan respond as the framework would."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from unittest.mock import patch

import httpx
import pytest
from fastapi import Body, Cookie, Depends, FastAPI, Header, Query, Request, Response
from fastapi._compat import ModelField
from fastapi.dependencies.models import Dependant
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel

from lcm.control_plane.app import make_app
from lcm.control_plane.http import routing
from lcm.control_plane.http.direct_routes import plan_route
from tests.support.auth.scripted_provider import ScriptedProvider
from tests.support.virtual.control_plane import VERSION, TestPlane, serving_plane
from tests.support.web.nasty_requests import Answer, open_target

if TYPE_CHECKING:
    from collections.abc import Callable

FRAMEWORK_ROUTES = 6
"""Routes with parameters of other kinds, which none of the requests that come often has."""


def framework_app(plane: TestPlane) -> FastAPI:
    """The same routes without plans."""
    with patch.object(routing, "plan_route", return_value=None):
        return make_app(plane.services, VERSION)


@pytest.mark.parametrize("seed", [3, 4, 5])
async def test_valid_and_hostile_requests_get_the_response_of_the_framework(seed: int) -> None:
    compared: Counter[int] = Counter()
    async with serving_plane(make_sign_in=ScriptedProvider().sign_in) as plane:
        target, framework = await open_target(plane), framework_app(plane)
        for request in target.requests(450, seed):
            answer = await target.exchange(plane.app, request)
            if request.method != "GET" and answer.status < 400:
                continue  # it has changed something
            if answer.status == 401 or request.path.startswith(b"/api/session"):
                continue  # each failed sign-in counts for the next
            expected = await target.exchange(framework, request)
            if not request.path.startswith(b"/api/"):
                expected = Answer(expected.status, answer.headers, answer.body)  # pages have random keys in their forms
            assert answer == expected, request
            compared[answer.status] += 1
    assert all(compared[status] > 10 for status in (200, 404, 422)), compared


async def test_most_routes_have_a_plan() -> None:
    async with serving_plane() as plane:
        routes = [route for route in plane.app.routes if isinstance(route, APIRoute)]
    assert len([route for route in routes if plan_route(route) is None]) == FRAMEWORK_ROUTES


class Wish(BaseModel):
    """A body."""

    name: str
    count: int = 1


CALLS: list[str] = []


async def counted(x_mark: Annotated[str | None, Header(max_length=3)] = None) -> str:
    CALLS.append("counted")
    return x_mark or "-"


async def raw_body(request: Request, mark: Annotated[str, Depends(counted)]) -> bytes:
    return mark.encode() + (await request.body())


Mark = Annotated[str, Depends(counted)]
Raw = Annotated[bytes, Depends(raw_body)]


async def everything(
    request: Request,
    number: int,
    wish: Wish,
    mark: Mark,
    raw: Raw,
    tags: Annotated[list[str] | None, Query()] = None,
    limit: Annotated[int, Query(ge=1)] = 10,
) -> dict[str, Any]:
    return {"all": [number, wish.model_dump(), mark, raw.decode(), tags, limit, request.method]}


async def optional(wish: Wish | None = None, *, raw: Raw, keep: bool = True) -> Wish:
    return wish or Wish(name=f"{raw.decode()} {keep}")


async def wrong() -> Wish:
    return "not a wish"  # type: ignore[return-value]


def app_of(*, planned: bool) -> FastAPI:
    app = FastAPI()
    app.post("/everything/{number}", status_code=201)(everything)
    app.post("/optional")(optional)
    app.get("/wrong")(wrong)
    if planned:
        routing.install_route_index(app)
        assert all(plan_route(route) for route in app.routes if isinstance(route, APIRoute))
    return app


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("path", "content", "headers"),
    [
        ("/everything/7", b'{"name": "a"}', JSON),
        ("/everything/7?tags=a&tags=b&limit=3", b'{"name": "a"}', JSON | {"X-Mark": "m"}),
        ("/everything/7?tags=a", b'{"name": "a"}', JSON),
        ("/everything/7?limit=0", b'{"name": "a"}', JSON),
        ("/everything/x?limit=0", b'{"count": "b"}', JSON | {"X-Mark": "long"}),
        ("/everything/7", b'{"name": "a"', JSON),
        ("/everything/7", b"[" * 100_000, JSON),
        ("/everything/7", b"\xff", JSON),
        ("/everything/7", b"null", JSON),
        ("/everything/7", b"", JSON),
        ("/everything/7", b'{"name": "a"}', {}),
        ("/everything/7", b'{"name": "a"}', {"Content-Type": "text/plain"}),
        ("/everything/7", b'{"name": "a"}', {"Content-Type": "application/json; charset=utf-8"}),
        ("/everything/7", b'{"name": "a"}', {"Content-Type": "application/problem+json"}),
        ("/optional", b"", {}),
        ("/optional", b"null", JSON),
        ("/optional?keep=no", b'{"name": "a", "count": "2"}', JSON),
        ("/optional?keep=perhaps", b'{"name": "a"}', JSON),
        ("/optional?keep=perhaps", b"", {}),
    ],
)
async def test_each_kind_of_parameter(path: str, content: bytes, headers: dict[str, str]) -> None:
    answers, calls = [], []
    for planned in (True, False):
        CALLS.clear()
        transport = httpx.ASGITransport(app_of(planned=planned))
        async with httpx.AsyncClient(transport=transport, base_url="http://lcm.test") as client:
            response = await client.post(path, content=content, headers=headers)
        answers.append((response.status_code, response.headers.raw, response.content))
        calls.append(len(CALLS))
    assert answers[0] == answers[1]
    if answers[0][0] < 300:
        assert calls == [1, 1], "a dependency is called once for a request"


async def test_a_result_that_is_not_what_the_route_promises_is_an_error() -> None:
    for planned in (True, False):
        transport = httpx.ASGITransport(app_of(planned=planned), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://lcm.test") as client:
            assert (await client.get("/wrong")).status_code == 500


async def _cookie(jar: Annotated[str | None, Cookie()] = None) -> Wish:
    return Wish(name=jar or "")


async def _two_bodies(first: Annotated[Wish, Body()], second: Annotated[Wish, Body()]) -> Wish:
    return first if first.count else second


async def _own_response(response: Response) -> Wish:
    return Wish(name=str(response.status_code))


async def _model_of_query(wish: Annotated[Wish, Query()]) -> Wish:
    return wish


def _in_thread() -> Wish:
    return Wish(name="thread")


async def _thread_dependency(wish: Annotated[Wish, Depends(_in_thread)]) -> Wish:
    return wish


async def _called_each_time(first: Mark, second: Annotated[str, Depends(counted, use_cache=False)]) -> Wish:
    return Wish(name=first + second)


async def _untyped():  # type: ignore[no-untyped-def]  # noqa: ANN202
    return {"name": "a"}


@pytest.mark.parametrize(
    "function",
    [
        _cookie,
        _two_bodies,
        _own_response,
        _model_of_query,
        _in_thread,
        _thread_dependency,
        _called_each_time,
        _untyped,
    ],
)
def test_routes_of_other_kinds_are_left_to_the_framework(function: Callable[..., Any]) -> None:
    app = FastAPI()
    app.post("/a")(function)
    app.post("/b", response_class=JSONResponse)(optional)
    assert [plan_route(route) for route in app.routes if isinstance(route, APIRoute)] == [None, None]


def _without_scopes(self: Dependant, name: str) -> Any:
    if name == "own_oauth_scopes":
        raise AttributeError(name)
    return object.__getattribute__(self, name)


@dataclass(slots=True)
class _NewerDependant(Dependant):
    session_param_name: str | None = None


def _older_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dependant, "__getattribute__", _without_scopes)


def _framework_without_serializer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ModelField, "serialize_json")


def _newer_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastapi.dependencies.utils.Dependant", _NewerDependant)


@pytest.mark.parametrize("change", [_older_framework, _framework_without_serializer, _newer_framework])
def test_all_routes_of_a_framework_with_other_internals_are_left_to_it(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch], None]
) -> None:
    change(monkeypatch)
    app = app_of(planned=False)
    routing.install_route_index(app)
    assert [plan_route(route) for route in app.routes if isinstance(route, APIRoute)] == [None] * 3
