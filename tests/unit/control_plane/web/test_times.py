"""Times in texts: pages mark each of them, so that scripts show it in the zone of the viewer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.web.rendering import clock_times
from lcm.model.access import Role
from tests.support.web.visitor import signed_in
from tests.unit.control_plane.web.workers.test_actions import licensed

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane

AT = "2026-01-17 10:30 UTC"
_MARKED = re.compile(r'<time class="clock" datetime="[^"]+">[^<]*</time>')
_ZONE_OF_SCRIPTS = re.compile(r'(?:class="zone"|id="time-zone")>UTC<')
_HOVER = re.compile(r'title="[^"]*"|point at one to see it in UTC')


def unmarked(page: str) -> list[str]:
    """Where a page names UTC in a text that scripts cannot translate."""
    for pattern in (_MARKED, _ZONE_OF_SCRIPTS, _HOVER):
        page = pattern.sub("", page)
    return [page[max(0, each.start() - 60) : each.end()] for each in re.finditer("UTC", page)]


async def test_no_page_and_no_dialog_names_utc_in_a_text(plane: TestPlane) -> None:
    text = f"it was rejected at {AT}"
    condition = {"type": "Stuck", "status": "True", "reason": "Late", "message": text, "since": "2026-01-17T10:30:00Z"}
    failed = await plane.report(await plane.create("alpha"), "FAILED", reason=text, conditions=[condition])
    other = await plane.running("beta")
    assert (await plane.ask("POST", "/api/fleet/hold", json={"reason": "exam"})).status_code == 202
    visitor = await signed_in(plane, Role.ADMIN)
    place = f"/workers/{failed['id']}"
    for page in ("/", "/fleet", "/activity", "/system", "/settings", "/templates", "/lablets", place):
        assert unmarked(await visitor.page(page)) == [], page
    for part in (f"{place}/timeline", f"/workers/{other['id']}/confirm/stop", "/fleet/confirm-release"):
        assert unmarked(await visitor.part(part)) == [], part
    assert f">{AT}</time>" in await visitor.page(place)


def test_a_time_in_a_text_is_marked_and_the_text_stays_escaped() -> None:
    marked = clock_times(f"<b> since {AT}, again at 11:00:05 UTC")
    assert marked.startswith('&lt;b&gt; since <time class="clock" datetime="2026-01-17T10:30:00+00:00">')
    assert marked.count("<time") == 2


@pytest.mark.parametrize("operation", ["register", "deregister"])
async def test_the_license_dialog_says_what_the_api_says(plane: TestPlane, operation: str) -> None:
    worker = await licensed(plane, "alpha")
    visitor = await signed_in(plane, Role.OPERATOR)
    dialog = await visitor.part(f"/workers/{worker['id']}/license/{operation}")
    path, texts = f"/api/workers/{worker['id']}/license/preview", []
    for body in ({}, {"token": "another"}) if operation == "register" else ({},):
        preview = await plane.ask("POST", path, role=Role.OPERATOR, json={"operation": operation, **body})
        texts.append(preview.json()["effect"])
    assert len(set(texts)) == len(texts)
    for text in texts:
        assert clock_times(text) in dialog
