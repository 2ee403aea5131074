"""Sign-in links are valid once, and not for long."""

from __future__ import annotations

import asyncio

import pytest

from lcm.control_plane.auth.roles import Caller, UnauthenticatedError
from lcm.control_plane.auth.sessions import MAX_SIGN_IN_LINKS, MAX_SIGN_IN_LINKS_PER_CALLER, SignInLinks
from lcm.model.access import CallerKind, Role

LOCAL = Caller(name="local", kind=CallerKind.BOOTSTRAP, role=Role.ADMIN)


async def test_a_code_is_valid_once() -> None:
    links = SignInLinks()
    code = links.issue(LOCAL).reveal()
    assert links.redeem(code) is LOCAL
    with pytest.raises(UnauthenticatedError, match="already used or has expired"):
        links.redeem(code)


async def test_a_code_is_valid_for_ten_minutes() -> None:
    links = SignInLinks()
    one, other = links.issue(LOCAL).reveal(), links.issue(LOCAL).reveal()
    await asyncio.sleep(599)
    assert links.redeem(one) is LOCAL
    await asyncio.sleep(1)
    with pytest.raises(UnauthenticatedError):
        links.redeem(other)


@pytest.mark.parametrize("code", ["", "guess", "\ud800"])
async def test_guesses_use_up_nothing(code: str) -> None:
    links = SignInLinks()
    right = links.issue(LOCAL).reveal()
    with pytest.raises(UnauthenticatedError):
        links.redeem(code)
    assert links.redeem(right) is LOCAL


async def test_codes_are_kept_as_hashes_and_their_number_is_bounded() -> None:
    links = SignInLinks()
    codes = [links.issue(LOCAL).reveal() for _ in range(MAX_SIGN_IN_LINKS_PER_CALLER + 1)]
    assert not any(code.encode() in kept for code in codes for kept in links._open)
    with pytest.raises(UnauthenticatedError):
        links.redeem(codes[0])
    assert links.redeem(codes[1]) is LOCAL


async def test_many_links_of_one_user_void_none_of_another() -> None:
    links = SignInLinks()
    code = links.issue(LOCAL).reveal()
    viewer = Caller(name="vera", kind=CallerKind.TOKEN, role=Role.VIEWER)
    for _ in range(MAX_SIGN_IN_LINKS + 1):
        links.issue(viewer)
    assert links.redeem(code) is LOCAL
