"""The cookies of a browser: that of its session, and that of a sign-in which the identity provider must answer."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from lcm.control_plane.auth.roles import CsrfError
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.auth.seats.sessions import SeatSession
    from lcm.control_plane.auth.sessions import OpenSession
    from lcm.control_plane.secrets.encryption import Secret


def check_csrf(session: OpenSession | SeatSession, presented: str | None) -> None:
    """Raises `CsrfError` unless a change with a cookie carries the session's CSRF token."""
    received = (presented or "").encode("utf-8", "surrogatepass")
    if not hmac.compare_digest(received, session.csrf.reveal().encode()):
        raise CsrfError("This change did not come from a page of this session. Reload the page and try again.")


def cookie_name(*, secure: bool) -> str:
    """The name of the session cookie, over TLS (`secure`) or not.

    With the `__Host-` prefix, browsers accept it only from this host, so a neighboring subdomain cannot plant one.
    """
    return "__Host-lcm_session" if secure else "lcm_session"


def session_cookie(session: OpenSession, *, secure: bool) -> str:
    """The value of a Set-Cookie header for a session."""
    seconds = max(0, int((session.expires_at - clock.now()).total_seconds()))
    return _set_cookie(cookie_name(secure=secure), session.id.reveal(), seconds, secure=secure)


def expired_cookie(*, secure: bool) -> str:
    """The value of a Set-Cookie header that deletes the session cookie."""
    return _set_cookie(cookie_name(secure=secure), "", 0, secure=secure)


def session_id_from(cookies: Mapping[str, str], *, secure: bool) -> str | None:
    """The session id in a request's cookies; over TLS, a cookie that was set without TLS is ignored."""
    return cookies.get(cookie_name(secure=secure))


def attempt_cookie(attempt: Secret | None, seconds: float, *, secure: bool) -> str:
    """The value of a Set-Cookie header for a sign-in at the identity provider; None deletes it.

    Lax: the provider's answer is a navigation from another site, which carries no strict cookie.
    """
    value, seconds = ("", 0.0) if attempt is None else (attempt.reveal(), seconds)
    return _set_cookie(_attempt_cookie_name(secure=secure), value, int(seconds), secure=secure, same_site="Lax")


def attempt_from(cookies: Mapping[str, str], *, secure: bool) -> str | None:
    """The sign-in that this browser started."""
    return cookies.get(_attempt_cookie_name(secure=secure))


def seat_cookie(session: SeatSession | None, *, secure: bool) -> str:
    """The value of a Set-Cookie header for the session of a seat link; None deletes it."""
    value = "" if session is None else session.id.reveal()
    seconds = 0 if session is None else max(0, int((session.expires_at - clock.now()).total_seconds()))
    return _set_cookie(_seat_cookie_name(secure=secure), value, seconds, secure=secure)


def seat_session_id_from(cookies: Mapping[str, str], *, secure: bool) -> str | None:
    """The id of the session that a seat link opened in this browser."""
    return cookies.get(_seat_cookie_name(secure=secure))


def _seat_cookie_name(*, secure: bool) -> str:
    return "__Host-lcm_seat" if secure else "lcm_seat"


def _attempt_cookie_name(*, secure: bool) -> str:
    return "__Host-lcm_sign_in" if secure else "lcm_sign_in"


def _set_cookie(name: str, value: str, seconds: int, *, secure: bool, same_site: str = "Strict") -> str:
    flags = "; Secure" if secure else ""
    return f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite={same_site}{flags}"
