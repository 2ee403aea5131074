"""Sign-in links are valid once, and not for long, at any control plane."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.auth.roles import Caller, UnauthenticatedError
from lcm.control_plane.auth.sign_in_links import MAX_SIGN_IN_LINKS_PER_CALLER, SignInLinks
from lcm.control_plane.records.kinds import SIGN_IN_LINKS
from lcm.model.access import CallerKind, Role

if TYPE_CHECKING:
    from tests.support.records.gated_store import GatedStore

LOCAL = Caller(name="local", kind=CallerKind.BOOTSTRAP, role=Role.ADMIN, token_id="bootstrap-1")


@pytest.fixture
def links(store: GatedStore) -> SignInLinks:
    return SignInLinks(store)


async def test_a_code_is_valid_once(links: SignInLinks) -> None:
    code = (await links.issue(LOCAL)).reveal()
    assert await links.redeem(code) == LOCAL
    with pytest.raises(UnauthenticatedError, match="already used or has expired"):
        await links.redeem(code)


async def test_any_control_plane_redeems_a_link_and_only_one_does(store: GatedStore, links: SignInLinks) -> None:
    code = (await links.issue(LOCAL)).reveal()
    others = [SignInLinks(store) for _ in range(5)]
    outcomes = await asyncio.gather(*(each.redeem(code) for each in others), return_exceptions=True)
    assert [each for each in outcomes if isinstance(each, Caller)] == [LOCAL]
    assert sum(isinstance(each, UnauthenticatedError) for each in outcomes) == 4


async def test_a_code_is_valid_for_ten_minutes(links: SignInLinks) -> None:
    one, other = (await links.issue(LOCAL)).reveal(), (await links.issue(LOCAL)).reveal()
    await asyncio.sleep(599)
    assert await links.redeem(one) == LOCAL
    await asyncio.sleep(1)
    with pytest.raises(UnauthenticatedError):
        await links.redeem(other)


@pytest.mark.parametrize("code", ["", "guess", "\ud800", "\0"])
async def test_guesses_use_up_nothing(links: SignInLinks, code: str) -> None:
    right = (await links.issue(LOCAL)).reveal()
    with pytest.raises(UnauthenticatedError):
        await links.redeem(code)
    assert await links.redeem(right) == LOCAL


async def test_codes_are_stored_as_hashes_and_their_number_is_bounded(store: GatedStore, links: SignInLinks) -> None:
    codes = []
    for _ in range(MAX_SIGN_IN_LINKS_PER_CALLER + 1):
        codes.append((await links.issue(LOCAL)).reveal())
        await asyncio.sleep(1)
    stored = (await store.find(SIGN_IN_LINKS)).items
    assert len(stored) == MAX_SIGN_IN_LINKS_PER_CALLER
    assert not any(code in f"{each.id} {each.body.decode()}" for code in codes for each in stored)
    with pytest.raises(UnauthenticatedError):
        await links.redeem(codes[0])
    assert await links.redeem(codes[1]) == LOCAL


async def test_many_links_of_one_user_void_none_of_another(links: SignInLinks) -> None:
    code = (await links.issue(LOCAL)).reveal()
    viewer = Caller(name="local", kind=CallerKind.OIDC, role=Role.VIEWER, subject="https://idp#7")
    for _ in range(3 * MAX_SIGN_IN_LINKS_PER_CALLER):
        await links.issue(viewer)
    assert await links.redeem(code) == LOCAL


async def test_expired_links_are_swept(store: GatedStore, links: SignInLinks) -> None:
    await links.issue(LOCAL)
    await asyncio.sleep(300)
    await links.issue(LOCAL)
    await asyncio.sleep(301)
    assert await links.sweep() == 1
    assert len((await store.find(SIGN_IN_LINKS)).items) == 1
