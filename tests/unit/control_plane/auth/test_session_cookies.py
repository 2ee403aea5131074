"""The session cookie."""

from __future__ import annotations

import asyncio
from http.cookies import SimpleCookie

import pytest

from lcm.control_plane.auth.roles import Caller
from lcm.control_plane.auth.session_cookies import (
    attempt_cookie,
    attempt_from,
    cookie_name,
    expired_cookie,
    session_cookie,
    session_id_from,
)
from lcm.control_plane.auth.sessions import OpenSession
from lcm.control_plane.secrets.encryption import Secret
from lcm.core import clock
from lcm.model.access import CallerKind, Role

CALLER = Caller(name="ann", kind=CallerKind.SESSION, role=Role.VIEWER)


@pytest.mark.parametrize("secure", [True, False])
async def test_flags(secure: bool) -> None:
    session = OpenSession(Secret("a" * 64), Secret("b"), CALLER, expires_at=clock.after(3600))
    await asyncio.sleep(600)
    for text, value, seconds in (
        (session_cookie(session, secure=secure), "a" * 64, "3000"),
        (expired_cookie(secure=secure), "", "0"),
    ):
        ((name, cookie),) = SimpleCookie(text).items()
        assert (name, cookie.value, cookie["max-age"]) == (cookie_name(secure=secure), value, seconds)
        assert cookie["httponly"] is True
        assert (cookie["samesite"], cookie["path"], cookie["domain"]) == ("Strict", "/", "")
        assert bool(cookie["secure"]) == secure


def test_over_tls_the_name_binds_the_host_and_a_plain_cookie_is_ignored() -> None:
    assert cookie_name(secure=True).startswith("__Host-")
    planted = {cookie_name(secure=False): "planted"}
    assert session_id_from(planted, secure=True) is None
    assert session_id_from(planted, secure=False) == "planted"
    assert session_id_from({cookie_name(secure=True): "mine"} | planted, secure=True) == "mine"


@pytest.mark.parametrize("secure", [True, False])
async def test_the_cookie_of_a_sign_in_comes_back_from_another_site(secure: bool) -> None:
    ((name, cookie),) = SimpleCookie(attempt_cookie(Secret("sealed"), 600.0, secure=secure)).items()
    assert (cookie.value, cookie["max-age"], cookie["samesite"], cookie["httponly"]) == ("sealed", "600", "Lax", True)
    assert name.startswith("__Host-") is secure
    assert attempt_from({name: "sealed"}, secure=secure) == "sealed"
    assert attempt_from({name: "sealed"}, secure=not secure) is None
    ((_, gone),) = SimpleCookie(attempt_cookie(None, 600.0, secure=secure)).items()
    assert (gone.value, gone["max-age"]) == ("", "0")
