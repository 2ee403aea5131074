"""Roles x teams x every route: who gets in, and what nobody learns of other teams (teams.md#roles-in-a-team)."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.routing import Route

from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.auth.teams import put_team
from lcm.core import clock
from lcm.model.access import CallerKind, Grant, Role
from lcm.model.team import Team
from tests.support.virtual.control_plane import LEADER, serving_plane
from tests.unit.control_plane.teams.access_table import ROUTES
from tests.unit.control_plane.teams.school import School, open_school

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from fastapi import FastAPI

    from tests.support.virtual.control_plane import TestPlane

FLEET = ("viewer", "operator", "admin")
WHO: dict[str, Sequence[str]] = {
    "signed in": (*FLEET, "controller", "instructor", "learner", "viewer and instructor", "nobody's"),
    "people": (*FLEET, "instructor", "learner", "viewer and instructor", "nobody's"),
    "viewers": (*FLEET, "viewer and instructor"),
    "operators": ("operator", "admin"),
    "admins": ("admin",),
    "controllers": ("controller",),
    "viewers and members": (*FLEET, "viewer and instructor", "instructor", "learner"),
    "operators and members": ("operator", "admin", "viewer and instructor", "instructor", "learner"),
    "viewers and instructors": (*FLEET, "viewer and instructor", "instructor"),
    "operators and instructors": ("operator", "admin", "viewer and instructor", "instructor"),
    "admins and instructors": ("admin", "viewer and instructor", "instructor"),
}
TEAM = "team-a"
CALLERS = {
    "viewer": (Role.VIEWER, ()),
    "operator": (Role.OPERATOR, ()),
    "admin": (Role.ADMIN, ()),
    "controller": (Role.CONTROLLER, ()),
    "instructor": (None, (Grant(team=TEAM, role=Role.INSTRUCTOR),)),
    "learner": (None, (Grant(team=TEAM, role=Role.LEARNER),)),
    "viewer and instructor": (Role.VIEWER, (Grant(team=TEAM, role=Role.INSTRUCTOR),)),
    "nobody's": (None, ()),
}
IDS = {"path": "app.css", "switch": "disable", "operation": "register", "group": "idle", "action": "stop"}
"""What the path of a request must have so that its route takes it."""


NOT_TRIED = ("/api/session", "/my/events")
"""The first would sign the caller out, the second is a stream that does not end, of those who may open /my."""


def all_routes(app: FastAPI) -> list[tuple[str, str]]:
    """Method and path of each route of the app, however it came there."""
    routes = [route for route in app.routes if isinstance(route, Route)]
    assert len(routes) == len(app.routes), "a route of another kind"
    return sorted({(method, route.path) for route in routes for method in (route.methods or set()) - {"HEAD"}})


def listed_routes() -> dict[tuple[str, str], str]:
    """The table, by route."""
    lines = [(line.split(), who) for who, text in ROUTES.items() for line in text.strip().splitlines()]
    listed = {(method, path): who for (method, path), who in lines}
    assert len(listed) == len(lines), "a route is listed twice"
    return listed


async def test_every_route_has_an_entry_in_the_table() -> None:
    async with serving_plane() as plane:
        assert sorted(listed_routes()) == all_routes(plane.app)


def address(path: str, number: int) -> str:
    """An address that the route takes, of nothing that exists."""
    return re.sub(r"\{(\w+)(:path)?\}", lambda found: IDS.get(found[1], f"none-{number}"), path)


async def test_each_route_lets_in_whom_the_table_names_and_nobody_else() -> None:
    async with serving_plane() as plane:
        services, wrong, cells = plane.services, [], 0
        await add_team(plane)
        transport = httpx.ASGITransport(plane.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://lcm.test") as client:
            for name, (role, grants) in CALLERS.items():
                caller = Caller(name, CallerKind.TOKEN, role, token_id=None, grants=grants)
                signed_in, csrf = {}, {}
                if role is not Role.CONTROLLER:
                    session = await services.authenticator.sessions.begin(caller)
                    signed_in = {"Cookie": f"lcm_session={session.id.reveal()}"}
                    csrf = {"X-LCM-CSRF": session.csrf.reveal()}
                else:
                    signed_in = {"Authorization": f"Bearer {plane.tokens[role]}", **LEADER}
                for number, ((method, path), who) in enumerate(sorted(listed_routes().items())):
                    if who == "open" or path in NOT_TRIED:
                        continue
                    headers = {"Accept": "text/html", **signed_in, **({} if method == "GET" else csrf)}
                    url = address(path, number) + ("?topic=%00" if path.endswith("/stream") else "")
                    response = await client.request(method, url, headers=headers)
                    cells += 1
                    html = not path.startswith("/api/")
                    refused = response.status_code in (
                        (401, 403, 303) if html and role is Role.CONTROLLER else (401, 403)
                    )
                    refused = refused or leads_to_labs(response, path)
                    if refused != (name not in WHO[who]):
                        wrong.append((name, method, path, who, response.status_code, response.text[:100]))
        assert not wrong, wrong[:10]
        assert cells == len(CALLERS) * sum(
            who != "open" and path not in NOT_TRIED for (_, path), who in listed_routes().items()
        )
        print(f"{cells} cells, 0 surprises")


def leads_to_labs(response: httpx.Response, path: str) -> bool:
    """A page of the whole fleet leads people with roles in teams only to their labs."""
    return path != "/" and response.headers.get("location") == "/my"


async def add_team(plane: TestPlane) -> None:
    """The team that the callers have a role in."""
    team = Team(id=TEAM, name="a", created_at=clock.now(), updated_at=clock.now())
    await plane.services.context.store.commit([put_team(team, None)])


async def test_without_a_credential_only_open_routes_answer() -> None:
    async with serving_plane() as plane:
        wrong = []
        transport = httpx.ASGITransport(plane.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://lcm.test") as client:
            for number, ((method, path), who) in enumerate(sorted(listed_routes().items())):
                if who == "open":
                    continue
                response = await client.request(method, address(path, number))
                at_the_door = response.status_code == 401 or "/sign-in" in response.headers.get("location", "")
                if not at_the_door:
                    wrong.append((method, path, response.status_code))
        assert not wrong


# What a caller may not see looks as if it did not exist


@pytest.fixture
async def school() -> AsyncIterator[School]:
    async with open_school() as school:
        yield school


def about(path: str, lablet: str, definition: str, team: str, booking: str) -> str | None:
    """The address of a route with these ids; None for a route that names none of them."""
    if "{lablet_id}" in path:
        return path.replace("{lablet_id}", lablet).replace("{link_id}", "none")
    if "{version}" in path or path == "/api/lablet-definitions/{name}":
        return path.replace("{name}", definition).replace("{version}", "1").replace("{switch}", "disable")
    if "{booking_id}" in path:
        return path.replace("{booking_id}", booking).replace("{number}", "1")
    return path.replace("{team}", team) if "{team}" in path else None


READS = ("get", "get_many", "get_unique", "find", "count_by", "read_journal", "read_samples")


@pytest.fixture
def reads(school: School, monkeypatch: pytest.MonkeyPatch) -> ContextVar[Counter[str] | None]:
    """What a request reads from the store: with a counter set, each read of this request counts."""
    counter: ContextVar[Counter[str] | None] = ContextVar("reads", default=None)
    store = type(school.plane.services.context.store)
    for name in READS:
        original = getattr(store, name)

        async def counted(
            self: Any, kind: Any = "", *args: Any, _name: str = name, _do: Any = original, **more: Any
        ) -> Any:
            if (found := counter.get()) is not None:
                found[f"{_name} {getattr(kind, 'name', '')}"] += 1
            return await (_do(self, kind, *args, **more) if kind else _do(self, **more))

        monkeypatch.setattr(store, name, counted)
    return counter


async def test_foreign_ids_are_answered_as_unknown_ones(school: School, reads: ContextVar[Counter[str] | None]) -> None:
    """For learner and instructor, on each route that they may use: 404 with the same text, after the same reads."""
    tried, read, wrong = 0, 0, []
    for name, ((method, path), who) in itertools.product(("instructor", "learner"), sorted(listed_routes().items())):
        if name not in WHO.get(who, ()):
            continue
        known, unknown = school.foreign, ("l-unknown", "unknown", "unknown", "bk-unknown")
        urls = [url for ids in (known, unknown) if (url := about(path, *ids)) is not None]
        if not urls:
            continue
        html, answers, work = not path.startswith("/api/"), [], []
        await school.ask(name, method, urls[1], html=html)  # from here on, roles and teams are cached
        for url in urls:
            reads.set(Counter())
            answers.append(await school.ask(name, method, url, html=html))
            work.append(dict(reads.get() or {}))
            reads.set(None)
        texts = [shape(answer, ids) for answer, ids in zip(answers, (known, unknown), strict=True)]
        tried += 1
        if answers[0].status_code != 404 or texts[0] != texts[1] or work[0] != work[1]:
            wrong.append((name, method, path, answers[0].status_code, texts, work))
        read += sum(work[0].values())
    assert not wrong, wrong[:5]
    assert tried >= 40, tried
    assert read >= tried, "what is counted is what requests read"


def shape(answer: httpx.Response, ids: tuple[str, ...]) -> str:
    """The text without the id that was asked for."""
    text = answer.text
    for each in sorted(ids, key=len, reverse=True):
        text = text.replace(each, "ID")
    return re.sub(r"[0-9a-f]{64}", "CSRF", text)


@pytest.mark.parametrize("html", [False, True])
@pytest.mark.parametrize("name", ["instructor", "learner"])
async def test_lists_counts_and_searches_have_what_is_theirs_alone(school: School, name: str, html: bool) -> None:
    """Whatever page or list they may open, with any filter: not a word of another team's."""
    pages = [path for (method, path), who in listed_routes().items() if method == "GET" and name in WHO.get(who, ())]
    pages = [
        path
        for path in pages
        if "{" not in path and "stream" not in path and path not in NOT_TRIED and path.startswith("/api/") != html
    ]
    queries = ("", "?q=ecret", f"?team={school.foreign[2]}", "?owner=ecret", "?ids=" + school.foreign[0])
    for path, query in itertools.product(pages, queries):
        response = await school.ask(name, "GET", path + query, html=html)
        assert response.status_code < 500, (path, response.text)
        assert "secret" not in response.text, (path, query)
        assert name == "instructor" or "alpha-other" not in response.text, (path, query)
        assert school.foreign[0] not in response.text.replace("ids=" + school.foreign[0], ""), (path, query)
    page = (await school.ask(name, "GET", "/api/lablets")).json()["items"]
    assert sorted(each["name"] for each in page) == school.visible_to[name]
    classes = await school.ask(name, "GET", "/api/bookings")
    if name == "learner":
        assert classes.status_code == 403
    else:
        assert [each["name"] for each in classes.json()["items"]] == ["alpha-class"]


@pytest.mark.parametrize("name", ["instructor", "learner"])
async def test_streams_have_what_is_theirs_alone_also_what_is_replayed(school: School, name: str) -> None:
    live = await school.stream(name, after=None)
    replayed = await school.stream(name, after=school.before)
    for text in (live, replayed):
        assert "secret" not in text
        assert "audit" not in text
    assert all(each in replayed for each in school.visible_to[name])
    assert ("alpha-other" in replayed) == (name == "instructor")
