"""Roles x every route of every controller: who gets in. Roles in teams get nowhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
from prometheus_client import CollectorRegistry
from starlette.routing import Route

from lcm.client.errors import UnauthenticatedError
from lcm.controllers.common.admin_api import AdminInfo, make_admin_app
from lcm.controllers.common.admin_auth import AdminAuthenticator
from lcm.controllers.worker.admin_api import make_worker_admin_app
from lcm.model.access import CallerIdentity, CallerKind
from lcm.model.problems import ProblemCode
from tests.unit.control_plane.teams.access_table import CONTROLLER_ROUTES
from tests.unit.control_plane.teams.test_matrix import CALLERS, WHO

if TYPE_CHECKING:
    from fastapi import FastAPI

STANDBY = SimpleNamespace(is_leader=False, known_leader="", term=0, election=SimpleNamespace(instance_id="two"))
"""A controller that answers everybody who gets in with 409: somebody else leads."""


async def whoami(token: str) -> CallerIdentity:
    """As the control plane answers. The token of each caller is their name."""
    found = CALLERS.get(token.replace("-", " ").replace("nobody s", "nobody's"))
    if found is None:
        raise UnauthenticatedError(401, ProblemCode.UNAUTHENTICATED, "not valid")
    role, grants = found
    return CallerIdentity(name=token, role=role, grants=grants, kind=CallerKind.TOKEN)


def controller_apps() -> dict[str, FastAPI]:
    """The three controllers, as their processes build their apps."""

    async def find(_: str) -> object:
        return None

    standby: Any = STANDBY
    apps = {}
    for title, noun in (("lablet controller", "lablet"), ("resource scheduler", "lablet")):
        info = AdminInfo(title, noun, dict, find)
        apps[title] = make_admin_app(
            standby, AdminAuthenticator(whoami), [], {"version": "1"}, info, CollectorRegistry()
        )
    reader: Any = SimpleNamespace()
    apps["worker controller"] = make_worker_admin_app(
        standby, AdminAuthenticator(whoami), [], {"version": "1"}, CollectorRegistry(), reader=reader
    )
    return apps


def routes_of(app: FastAPI) -> set[tuple[str, str]]:
    """Method and path of each route: those of the app, and those of the routers that it includes."""
    found: set[tuple[str, str]] = set()
    for each in app.routes:
        routes: list[Any] = each.original_router.routes if hasattr(each, "original_router") else [each]
        assert all(isinstance(route, Route) for route in routes), "a route of another kind"
        found |= {(method, route.path) for route in routes for method in route.methods if method != "HEAD"}
    return found


def listed() -> dict[tuple[str, str], str]:
    """The table, by route."""
    lines = [(line.split(), who) for who, text in CONTROLLER_ROUTES.items() for line in text.strip().splitlines()]
    return {(method, path): who for (method, path), who in lines}


def test_every_route_of_a_controller_has_an_entry_in_the_table() -> None:
    apps = controller_apps()
    assert set().union(*(routes_of(app) for app in apps.values())) == set(listed())
    for title in ("lablet controller", "resource scheduler"):
        assert routes_of(apps["worker controller"]) - routes_of(apps[title]) == {("POST", "/readers/read")}


async def test_each_route_of_a_controller_lets_in_whom_the_table_names_and_nobody_else() -> None:
    wrong, cells = [], 0
    callers: dict[str | None, str] = {None: "", **{name: name.replace(" ", "-").replace("'", "-") for name in CALLERS}}
    for title, app in controller_apps().items():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://controller") as client:
            for name, token in callers.items():
                for method, path in sorted(routes_of(app)):
                    headers = {"Authorization": f"Bearer {token}"} if token else {}
                    response = await client.request(method, path, headers=headers)
                    who = listed()[method, path]
                    allowed = who == "open" or name in WHO[who]
                    cells += 1
                    if (response.status_code in (401, 403)) == allowed:
                        wrong.append((title, name, method, path, response.status_code, response.text[:100]))
    assert not wrong, wrong[:10]
    assert cells == 9 * (8 + 8 + 9), cells
    print(f"{cells} cells, 0 surprises")
