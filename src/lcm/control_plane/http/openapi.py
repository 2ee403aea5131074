"""The OpenAPI document: what the routes declare, with authentication, roles, the problem schema and examples."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from lcm.control_plane.auth.session_cookies import cookie_name
from lcm.control_plane.http.deps import CSRF_HEADER, REQUIRED_ROLES, REQUIRED_TEAM_ROLES, any_caller
from lcm.control_plane.http.errors import error_responses
from lcm.model.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fastapi import APIRouter
    from fastapi.dependencies.models import Dependant

    from lcm.model.access import Role

BEARER, SESSION = "bearer", "session"
_JSON = "application/json"
_REFERENCE = "#/components/schemas/{model}"
_SCHEMES = {
    BEARER: {
        "type": "http",
        "scheme": "bearer",
        "description": "An LCM token (lcm_…), a token from the settings, or a JWT from the identity provider.",
    },
    SESSION: {
        "type": "apiKey",
        "in": "cookie",
        "name": cookie_name(secure=True),
        "description": (
            f"The session cookie from POST /api/session. Without TLS it is named {cookie_name(secure=False)}."
            f" Requests that change something also send the header {CSRF_HEADER} with the `csrf` value of the sign-in."
        ),
    },
}


class DocumentedApp(FastAPI):
    """An app that completes its OpenAPI document on first use."""

    api_routers: Sequence[APIRouter] = ()

    def openapi(self) -> dict[str, Any]:
        """The completed document."""
        if self.openapi_schema is None:
            document = super().openapi()
            document.setdefault("components", {})["securitySchemes"] = _SCHEMES
            _add_problem_schema(document)
            _add_security(document, self.api_routers)
            _add_body_limits(document)
            _add_examples(document)
        assert self.openapi_schema is not None
        return self.openapi_schema


@cache
def load_examples() -> dict[str, Any]:
    """The examples by the name of their model. In the files, {"$example": name} stands for another example."""
    raw: dict[str, Any] = {}
    for name in ("workers", "lablets", "fleet", "notifications", "schedules", "bookings", "auth"):
        raw |= json.loads((files("lcm.control_plane.http") / "examples" / f"{name}.json").read_bytes())

    def resolve(value: Any) -> Any:
        if isinstance(value, dict):
            if "$example" in value:
                return resolve(raw[value["$example"]])
            return {key: resolve(part) for key, part in value.items()}
        return [resolve(part) for part in value] if isinstance(value, list) else value

    return {name: resolve(value) for name, value in raw.items()}


def _add_problem_schema(document: dict[str, Any]) -> None:
    """Routes refer to Problem by name only, so FastAPI does not add its schemas."""
    schema = Problem.model_json_schema(ref_template=_REFERENCE)
    document["components"].setdefault("schemas", {}).update({**schema.pop("$defs", {}), "Problem": schema})


def _add_security(document: dict[str, Any], routers: Sequence[APIRouter]) -> None:
    """Read the required role from the dependency that checks it, so that the two cannot differ."""
    for route in (route for router in routers for route in router.routes if isinstance(route, APIRoute)):
        calls = list(_dependency_calls(route.dependant))
        roles: list[Role] = [REQUIRED_ROLES[call] for call in calls if call in REQUIRED_ROLES]
        for method in route.methods or ():
            operation = document["paths"][route.path][method.lower()]
            if roles or any_caller in calls:
                operation["security"] = [{BEARER: []}, {SESSION: []}]
            else:
                operation["security"] = []
            if roles:
                operation["x-lcm-role"] = roles[0].value
                in_team = next((REQUIRED_TEAM_ROLES[call] for call in calls if call in REQUIRED_TEAM_ROLES), ())
                needed = f"Requires the role {roles[0].value}{_in_team_text(in_team)}."
                operation["description"] = f"{operation.get('description', '')}\n\n{needed}"
                if in_team:
                    operation["x-lcm-team-roles"] = [role.value for role in in_team]


def _in_team_text(roles: Sequence[Role]) -> str:
    return f", or {' or '.join(roles)} in a team" if roles else ""


def _dependency_calls(dependant: Dependant) -> Iterator[Any]:
    for needed in dependant.dependencies:
        yield needed.call
        yield from _dependency_calls(needed)


def _add_body_limits(document: dict[str, Any]) -> None:
    """Bodies are capped in size and time before they reach a route."""
    limits = {str(status): response for status, response in error_responses(408, 413).items()}
    for operation in (each for methods in document["paths"].values() for each in methods.values()):
        if "requestBody" in operation:
            operation["responses"].update(limits)


def _add_examples(document: dict[str, Any]) -> None:
    examples = load_examples()
    for operation in (each for methods in document["paths"].values() for each in methods.values()):
        responses = [response for status, response in operation["responses"].items() if status.startswith("2")]
        for part in (operation.get("requestBody", {}), *responses):
            content = part.get("content", {}).get(_JSON)
            name = None if content is None else _model_name(content["schema"])
            if content is not None and name in examples:
                content["example"] = examples[name]


def _model_name(schema: dict[str, Any]) -> str | None:
    """The name of the model that a schema refers to; of the first alternative if there are several."""
    chosen = schema["anyOf"][0] if "anyOf" in schema else schema
    name = str(chosen.get("$ref", "")).rpartition("/")[2]
    # A model that is used in requests and in responses may have two schemas.
    return name.removesuffix("-Input").removesuffix("-Output") or None
