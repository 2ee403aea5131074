"""The cookie that holds a session's id.

Scripts cannot read it (HttpOnly) and no other site can make a browser send it (SameSite=Strict). Over TLS its name
begins with `__Host-`: then browsers take it only from this very host, so a neighbouring subdomain cannot plant one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.auth.sessions import Session


def cookie_name(*, secure: bool) -> str:
    """The cookie's name, over TLS (`secure`) or not."""
    return "__Host-lcm_session" if secure else "lcm_session"


def session_cookie(session: Session, *, secure: bool) -> str:
    """The value of a Set-Cookie header that keeps a session."""
    seconds = max(0, int((session.expires_at - clock.now()).total_seconds()))
    return _set(session.id.reveal(), seconds, secure=secure)


def cleared_cookie(*, secure: bool) -> str:
    """The value of a Set-Cookie header that forgets the session."""
    return _set("", 0, secure=secure)


def session_id_in(cookies: Mapping[str, str], *, secure: bool) -> str | None:
    """The session id that a request brought; over TLS a cookie set without it does not count."""
    return cookies.get(cookie_name(secure=secure))


def _set(value: str, seconds: int, *, secure: bool) -> str:
    flags = "; Secure" if secure else ""
    return f"{cookie_name(secure=secure)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{flags}"
