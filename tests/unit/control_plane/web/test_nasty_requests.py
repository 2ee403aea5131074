"""Hostile requests to every route of the API and the web pages: each is answered, none with a 5xx."""

from __future__ import annotations

import re

import pytest

from tests.support.auth.scripted_provider import ScriptedProvider
from tests.support.virtual.control_plane import serving_plane
from tests.support.web.nasty_requests import find_failures, open_target


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_request_is_answered_with_a_5xx(seed: int) -> None:
    statuses, failures = await find_failures(350, seed)
    assert not failures, "\n".join(failures[:10])
    assert statuses[200] > 50, "many of them reach their routes"


async def test_every_route_can_be_asked_for_a_record_that_is_there() -> None:
    """Behind an id that nobody has, only the answer 404 is tried."""
    async with serving_plane(make_sign_in=ScriptedProvider().sign_in) as plane:
        target = await open_target(plane)
        named = {name for route in target.routes for name in re.findall(r"{(\w+)", route.path)}
        assert sorted(named - set(target.ids)) == []
