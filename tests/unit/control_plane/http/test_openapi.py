"""The OpenAPI document says how to sign in, what each part means, and shows what works."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

import lcm.model
from lcm.control_plane.http import pagination
from lcm.control_plane.http.api import auth
from lcm.control_plane.http.api import auth as session
from lcm.control_plane.http.examples.workers import worker_examples
from tests.support.virtual.control_plane import serving_plane
from tests.unit.control_plane.http.test_api import NEEDED

if TYPE_CHECKING:
    from collections.abc import Iterator

OPEN = {("POST", "/api/session")}
WITHOUT_JSON = {("GET", "/api/events/stream"), ("DELETE", "/api/session")}


@pytest.fixture
async def document() -> dict[str, Any]:
    async with serving_plane() as plane:
        return plane.app.openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def models() -> dict[str, type[BaseModel]]:
    found = pkgutil.walk_packages(lcm.model.__path__, "lcm.model.")
    rooms = [importlib.import_module(module.name) for module in found]
    return {
        name: kind
        for room in (*rooms, auth, pagination, session)
        for name, kind in vars(room).items()
        if isinstance(kind, type) and issubclass(kind, BaseModel)
    }


async def test_every_route_but_the_open_ones_asks_for_a_token_or_a_session(document: dict[str, Any]) -> None:
    schemes = document["components"]["securitySchemes"]
    assert (schemes["bearer"]["type"], schemes["bearer"]["scheme"]) == ("http", "bearer")
    assert (schemes["session"]["type"], schemes["session"]["in"]) == ("apiKey", "cookie")
    for method, path, operation in operations(document):
        expected: list[dict[str, list[str]]] = [] if (method, path) in OPEN else [{"bearer": []}, {"session": []}]
        assert operation["security"] == expected, (method, path)


async def test_the_role_it_names_is_the_one_that_is_checked(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        needed = NEEDED[method, path]
        assert operation.get("x-lcm-role") == (None if needed is None else needed.value), (method, path)
        if needed is not None:
            assert operation["description"].endswith(f"Needs the role {needed.value}.")


async def test_everything_is_described(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        assert operation["description"], (method, path)
        for parameter in operation.get("parameters", []):
            assert parameter.get("description"), (method, path, parameter["name"])


async def test_every_body_and_every_answer_has_an_example(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        if "requestBody" in operation:
            assert "example" in operation["requestBody"]["content"]["application/json"], (method, path)
        told = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
        for answer in told:
            content = answer.get("content", {}).get("application/json")
            assert (method, path) in WITHOUT_JSON or (content and "example" in content), (method, path)


@pytest.mark.parametrize("name", sorted(worker_examples()))
def test_every_example_is_one(name: str) -> None:
    """It fits its model, which passes over nothing that the example has."""
    kind, shown = models()[name], worker_examples()[name]
    read = kind.model_validate(shown)
    again = read.model_dump(mode="json", by_alias=True)
    assert set(shown) <= set(again)


async def test_open_routes_of_the_process_stay_open() -> None:
    from lcm.http.server import process_routes  # what the wiring adds beside the API

    async with serving_plane() as plane:
        plane.app.include_router(process_routes([], {"service": "control-plane"}))
        paths = plane.app.openapi()["paths"]
        assert all("security" not in paths[path]["get"] for path in ("/health", "/ready", "/info", "/metrics"))
