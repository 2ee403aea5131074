"""Hostile requests to every route of the API and the web pages: each is answered, none with a 5xx."""

from __future__ import annotations

import pytest

from tests.support.web.nasty_requests import find_failures


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_request_is_answered_with_a_5xx(seed: int) -> None:
    statuses, failures = await find_failures(350, seed)
    assert not failures, "\n".join(failures[:10])
    assert statuses[200] > 50, "many of them reach their routes"
