"""The OpenAPI document: beside what routes say of themselves, how to sign in, which role is needed, and examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from lcm.control_plane.auth.sessions import cookie_name
from lcm.control_plane.http.deps import CSRF_HEADER, REQUIRED_ROLES, any_caller
from lcm.control_plane.http.examples.workers import worker_examples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fastapi import APIRouter
    from fastapi.dependencies.models import Dependant

    from lcm.model.access import Role

BEARER, SESSION = "bearer", "session"
_JSON = "application/json"
_SCHEMES = {
    BEARER: {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of ours (lcm_…), one from the settings, or a JWT of the identity provider.",
    },
    SESSION: {
        "type": "apiKey",
        "in": "cookie",
        "name": cookie_name(secure=True),
        "description": (
            f"What POST /api/session gives a browser; without TLS its name is {cookie_name(secure=False)}."
            f" Changes carry besides, in {CSRF_HEADER}, what signing in answered with."
        ),
    },
}


class DocumentedApp(FastAPI):
    """An app whose document is completed when it is first asked for."""

    documented: Sequence[APIRouter] = ()

    def openapi(self) -> dict[str, Any]:
        """The document."""
        if self.openapi_schema is None:
            document = super().openapi()
            document.setdefault("components", {})["securitySchemes"] = _SCHEMES
            _add_security(document, self.documented)
            _add_examples(document)
        assert self.openapi_schema is not None
        return self.openapi_schema


def _add_security(document: dict[str, Any], routers: Sequence[APIRouter]) -> None:
    """Who may call is read off the very dependency that checks it, so that the two cannot differ."""
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
                operation["description"] = f"{operation.get('description', '')}\n\nNeeds the role {roles[0].value}."


def _dependency_calls(dependant: Dependant) -> Iterator[Any]:
    for needed in dependant.dependencies:
        yield needed.call
        yield from _dependency_calls(needed)


def _add_examples(document: dict[str, Any]) -> None:
    known = worker_examples()
    for operation in (each for methods in document["paths"].values() for each in methods.values()):
        answers = [answer for status, answer in operation["responses"].items() if status.startswith("2")]
        for part in (operation.get("requestBody", {}), *answers):
            content = part.get("content", {}).get(_JSON)
            name = None if content is None else _model_name(content["schema"])
            if content is not None and name in known:
                content["example"] = known[name]


def _model_name(schema: dict[str, Any]) -> str | None:
    """The model behind a schema; that of the first choice where there are several."""
    chosen = schema["anyOf"][0] if "anyOf" in schema else schema
    name = str(chosen.get("$ref", "")).rpartition("/")[2]
    # A model that is both asked for and answered may have two schemas.
    return name.removesuffix("-Input").removesuffix("-Output") or None
