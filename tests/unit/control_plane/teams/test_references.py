"""What a request names beside its path: in the body, in the query, and in several teams (teams.md#roles-in-a-team)."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.auth.roles import Caller
from lcm.model.access import CallerKind, Grant, Role
from tests.unit.control_plane.teams.school import TOPOLOGY, School, booking_request, open_school
from tests.unit.control_plane.teams.test_matrix import reads, shape

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextvars import ContextVar

    import httpx

__all__ = ["reads"]
KEY = re.compile(r'(?<=name="idempotency_key" value=")[^"]+')


@pytest.fixture
async def school() -> AsyncIterator[School]:
    async with open_school() as school:
        yield school


def requests_about(
    school: School, lablet: str, definition: str, team: str, link: str
) -> list[tuple[str, str, dict[str, Any]]]:
    """Requests of an instructor that name a definition, a team or a seat link in a body, a query or below the own."""
    own = school.ids["alpha-mine"]
    new = {"name": "new", "version": "1", "topology": TOPOLOGY, "team": team}
    return [
        *(
            ("POST", f"/api/lablets{end}", {"json": body})
            for end in ("", "/preview")
            for body in (
                {"definition": definition},
                {"definition": f"{definition}@1"},
                {"definition": "x", "team": team},
            )
        ),
        *(
            ("POST", f"/api/bookings{end}", {"json": booking_request("c", *what)})
            for end in ("", "/preview")
            for what in ((definition, None), ("ospf", team))
        ),
        *(("POST", f"/api/lablet-definitions{end}", {"json": new}) for end in ("", "/preview")),
        *(("GET", f"/api/lablet-definitions{name}?team={team}", {}) for name in ("", "/ospf", "/ospf/1")),
        ("DELETE", f"/api/lablets/{own}/seat-links/{link}", {}),
        ("POST", f"/lablets/{own}/seat-links/{link}/revoke", {"html": True, "data": {}}),
        *(
            ("GET", f"/definitions/new?like={each}@1", {"html": True})
            for each in (
                definition,
                f"{team}:{definition}",
                "secret-open" if definition.startswith("secret") else "unheard-of",
            )
        ),
        ("GET", f"/lablets/new/preview?definition={definition}", {"html": True}),
        ("GET", f"/lablets/new?definition={definition}@1&team={team}", {"html": True}),
        *(
            ("GET", f"/api/lablets/{lablet}/history{query}", {})
            for query in ("", "?limit=1", f"?cursor={school.before}", f"?cursor={school.before}&limit=1")
        ),
        ("GET", f"/lablets/confirm-end?ids={lablet}", {"html": True}),
        ("POST", "/lablets/end", {"html": True, "data": {"targets": f"{lablet}:1", "typed": "1"}}),
        ("GET", f"/lablets/rows?ids={lablet}", {"html": True}),
        ("GET", f"/lablets?team={team}&definition={definition}", {"html": True}),
        (
            "GET",
            f"/bookings/preview?name=c&definition={definition}&seats=1&start=2998-01-01T09:00&zone=UTC",
            {"html": True},
        ),
    ]


async def test_what_a_body_or_a_query_names_of_others_is_answered_as_unknown(
    school: School, reads: ContextVar[Counter[str] | None]
) -> None:
    """With the same text, after the same reads."""
    made = await school.ask("secret-person", "POST", f"/api/lablets/{school.ids['secret-b']}/seat-links")
    known = (school.ids["secret-b"], "secret-bgp", school.teams["secret-team"], made.json()["link"]["id"])
    unknown = ("l-unknown", "unknown", "team-unknown", "seat-unknown")
    wrong = []
    for first, second in zip(requests_about(school, *known), requests_about(school, *unknown), strict=True):
        answers: list[httpx.Response] = []
        work = []
        await school.ask("instructor", second[0], second[1], **second[2])  # from here on, roles and teams are cached
        for method, path, options in (first, second):
            reads.set(Counter())
            answers.append(await school.ask("instructor", method, path, **options))
            work.append(dict(reads.get() or {}))
            reads.set(None)
        ids = (*known, "secret-open"), (*unknown, "unheard-of")
        texts = [KEY.sub("KEY", shape(answer, each)) for answer, each in zip(answers, ids, strict=True)]
        if answers[0].status_code != answers[1].status_code or texts[0] != texts[1] or work[0] != work[1]:
            wrong.append((first, [each.status_code for each in answers], texts, work))
    assert not wrong, wrong[:3]


async def in_both_teams(school: School) -> dict[str, dict[str, str]]:
    """The headers of a browser of somebody who is an instructor of two teams."""
    grants = tuple(Grant(team=each, role=Role.INSTRUCTOR) for each in school.teams.values())
    person = Caller("both", CallerKind.TOKEN, None, token_id=None, grants=grants)
    session = await school.plane.services.authenticator.sessions.begin(person)
    return {"headers": {"Cookie": f"lcm_session={session.id.reveal()}", "X-LCM-CSRF": session.csrf.reveal()}}


async def test_of_two_teams_with_one_definition_none_is_guessed(school: School) -> None:
    """A person of both must name the team, as a person of the whole fleet must: the wrong one would be disabled."""
    me, path = await in_both_teams(school), "/api/lablet-definitions/ospf/1"
    for way in ("/disable", "/preview"):
        asked = await school.plane.ask("POST", path + way, role=None, json={"action": "disable"}, **me)
        assert (asked.status_code, "ospf@1 is a definition of 2 teams; name the team" in asked.text) == (409, True), way
    assert (await school.plane.ask("GET", path, role=None, **me)).status_code == 409
    for name, team in school.teams.items():
        found = await school.plane.ask("GET", f"{path}?team={name}", role=None, **me)
        assert (found.json()["team"], found.json()["enabled"]) == (team, True)
    only = await school.plane.ask("GET", "/api/lablet-definitions/secret-bgp/1", role=None, **me)
    assert only.json()["team"] == school.teams["secret-team"]
