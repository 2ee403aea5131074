"""The OpenAPI document: authentication, roles, descriptions, references and examples."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any, cast

import pytest
from pydantic import BaseModel

import lcm.model
from lcm.control_plane.app import make_app
from lcm.control_plane.http import pagination
from lcm.control_plane.http.api import auth
from lcm.control_plane.http.openapi import load_examples
from tests.support.virtual.control_plane import api_document
from tests.unit.control_plane.http.test_api import NEEDED

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND_LINE = "/api/session/command-line"
OPEN = {("POST", path) for path in ("/api/session", COMMAND_LINE, f"{COMMAND_LINE}/poll", f"{COMMAND_LINE}/redeem")}
WITHOUT_JSON = {("GET", "/api/events/stream"), ("DELETE", "/api/session"), ("DELETE", "/api/teams/{team}")}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return api_document()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def models() -> dict[str, type[BaseModel]]:
    found = pkgutil.walk_packages(lcm.model.__path__, "lcm.model.")
    modules = [importlib.import_module(module.name) for module in found]
    return {
        name: value
        for module in (*modules, auth, pagination)
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, BaseModel)
    }


async def test_every_route_but_the_open_ones_requires_a_token_or_a_session(document: dict[str, Any]) -> None:
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
            in_team = operation.get("x-lcm-team-roles", [])
            more = f", or {' or '.join(in_team)} in a team" if in_team else ""
            assert operation["description"].endswith(f"Requires the role {needed.value}{more}.")


async def test_what_takes_an_idempotency_key_may_conflict(document: dict[str, Any]) -> None:
    """A key that was used for another request is a 409."""
    for method, path, operation in operations(document):
        takes_key = any(each["name"].lower() == "idempotency-key" for each in operation.get("parameters", ()))
        assert not takes_key or "409" in operation["responses"], (method, path)


async def test_everything_is_described(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        assert operation["description"], (method, path)
        for parameter in operation.get("parameters", []):
            assert parameter.get("description"), (method, path, parameter["name"])


async def test_every_request_and_response_body_has_an_example(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        if "requestBody" in operation:
            assert "example" in operation["requestBody"]["content"]["application/json"], (method, path)
        responses = [response for status, response in operation["responses"].items() if status.startswith("2")]
        for response in responses:
            content = response.get("content", {}).get("application/json")
            assert (method, path) in WITHOUT_JSON or (content and "example" in content), (method, path)


@pytest.mark.parametrize("name", sorted(load_examples()))
def test_every_example_is_valid(name: str) -> None:
    """It fits its model, and the model ignores none of its fields."""
    example = load_examples()[name]
    parsed = models()[name].model_validate(example)
    assert set(example) <= set(parsed.model_dump(mode="json", by_alias=True))


async def test_every_example_is_used(document: dict[str, Any]) -> None:
    shown = set()
    for _, _, operation in operations(document):
        for part in (operation.get("requestBody", {}), *operation["responses"].values()):
            for content in part.get("content", {}).values():
                alternatives = content["schema"].get("anyOf", [content["schema"]]) if "schema" in content else []
                shown |= {str(each.get("$ref", "")).rpartition("/")[2] for each in alternatives}
    names = {name.removesuffix("-Input").removesuffix("-Output") for name in shown}
    assert set(load_examples()) <= names


async def test_every_reference_resolves(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]

    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for part in value.values():
                yield from references(part)
        elif isinstance(value, list):
            for part in value:
                yield from references(part)

    found = set(references(document))
    assert found >= {"#/components/schemas/Problem", "#/components/schemas/ProblemCode"}
    assert found <= {f"#/components/schemas/{name}" for name in schemas}


async def test_schemas_are_named_by_nouns(document: dict[str, Any]) -> None:
    names = set(document["components"]["schemas"])
    assert {"WorkerPage", "HistoryPage", "LabletPage", "AuditPage"} <= names
    assert not [name for name in names if "_" in name]


async def test_open_routes_of_the_process_stay_open() -> None:
    from lcm.http.server import process_routes  # what the wiring adds beside the API

    app = make_app(cast("Any", None), "-")
    app.include_router(process_routes([], {"service": "control-plane"}))
    paths = app.openapi()["paths"]
    assert all("security" not in paths[path]["get"] for path in ("/health", "/ready", "/info", "/metrics"))
