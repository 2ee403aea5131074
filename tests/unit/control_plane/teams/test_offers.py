"""What a page offers to its reader, the reader may do: no button and no link of a page is answered with 403."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

import pytest

from tests.support.web.lablets import LabletWorld
from tests.unit.control_plane.teams.school import School, open_school
from tests.unit.control_plane.teams.test_matrix import NOT_TRIED, WHO, listed_routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OFFERS = re.compile(r'\b(hx-get|hx-post|hx-delete|href|action|data-refresh)="(/[^"?#]*)')
METHODS = {"hx-post": "POST", "action": "POST", "hx-delete": "DELETE"}


@pytest.fixture
async def school() -> AsyncIterator[School]:
    async with open_school() as school:
        for role in ("viewer", "operator", "admin"):
            made = await school.admin("POST", "/api/tokens", name=f"a-{role}", role=role)
            school.tokens[role] = made["token"]
        await run_lab(school)
        yield school


async def run_lab(school: School) -> None:
    """The learner's lablet runs on a worker, so that its page has all it can have."""
    world = await LabletWorld(school.plane).open()
    worker = await world.worker("0badcafe")
    school.ids["worker"] = worker["id"]
    lablet = await world.now({"id": school.ids["alpha-mine"]})
    lablet = await world.report(await world.place(lablet, worker), "INSTANTIATING", lab_id="lab-1")
    await world.report(lablet, "RUNNING")


def allowed(name: str, method: str, path: str) -> bool:
    """Whether the table lets this person use the route of an address, if there is one."""
    found = [
        who
        for (each, template), who in listed_routes().items()
        if each == method and re.fullmatch(re.sub(r"\{\w+(:path)?\}", "[^/]+", template), path)
    ]
    return not found or any(who == "open" or name in WHO[who] for who in found)


def pages_of(school: School, name: str) -> list[str]:
    """The pages and dialogs that the person may open: lists, and a record of each kind that they see."""
    ids = {"lablet_id": school.ids["alpha-mine"], "booking_id": school.bookings["alpha-class"], "number": "1"}
    ids |= {"name": "ospf", "version": "1", "worker_id": school.ids["worker"], "team_id": school.teams["blue"]}
    pages = []
    for (method, path), who in listed_routes().items():
        if method != "GET" or path.startswith("/api/") or path in NOT_TRIED or name not in WHO.get(who, ()):
            continue
        if set(re.findall(r"\{(\w+)", path)) <= ids.keys():
            pages.append(re.sub(r"\{(\w+)\}", lambda found: ids[found[1]], path))
    return sorted(pages)


@pytest.mark.parametrize("name", ["viewer", "operator", "admin", "instructor", "learner"])
async def test_what_a_page_offers_is_allowed(school: School, name: str) -> None:
    offered, opened = set(), 0
    for page in pages_of(school, name):
        response = await school.ask(name, "GET", f"{page}?team=blue", html=True)
        opened += response.status_code == 200
        assert response.status_code != 403, page
        for attribute, path in OFFERS.findall(response.text):
            offered.add((METHODS.get(attribute, "GET"), unescape(path), page))
    assert opened >= 5, "pages are there"
    assert len(offered) > 20
    assert not sorted(offer for offer in offered if not allowed(name, *offer[:2]))
