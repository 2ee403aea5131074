"""A web user without a browser: the session cookie, the CSRF header and the headers of htmx."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from lcm.model.access import Role
    from tests.support.virtual.control_plane import TestPlane

_CSRF = re.compile(r'"X-LCM-CSRF":"([0-9a-f]+)"')


class WebVisitor:
    """Requests pages and fragments as one user."""

    def __init__(self, plane: TestPlane, cookie: str = "") -> None:
        self._plane = plane
        self.cookie = cookie
        self.csrf = ""

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request with the session cookie."""
        headers = {"Accept": "text/html", **dict(options.pop("headers", {}))}
        if self.cookie:
            headers["Cookie"] = self.cookie
        transport = httpx.ASGITransport(self._plane.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://lcm.test") as client:
            response = await client.request(method, path, headers=headers, **options)
        cookie = response.headers.get("set-cookie")
        if cookie is not None:
            self.cookie = cookie.partition(";")[0]
        return response

    async def page(self, path: str, status: int = 200) -> str:
        """A whole page. Its CSRF token is kept for later changes."""
        response = await self.ask("GET", path)
        assert response.status_code == status, (path, response.status_code, response.text[:500])
        found = _CSRF.search(unescape(response.text))
        self.csrf = found.group(1) if found else self.csrf
        return response.text

    async def part(self, path: str, status: int = 200, *, at: str = "http://lcm.test/") -> str:
        """A fragment, as htmx requests it."""
        response = await self.ask("GET", path, headers={"HX-Request": "true", "HX-Current-URL": at})
        assert response.status_code == status, (path, response.status_code, response.text[:500])
        return response.text

    async def send(self, path: str, fields: dict[str, str] | None = None, *, csrf: str | None = None) -> httpx.Response:
        """Submit a form, as htmx does."""
        token = self.csrf if csrf is None else csrf
        headers = {"HX-Request": "true", "HX-Current-URL": "http://lcm.test/"}
        if token:
            headers["X-LCM-CSRF"] = token
        return await self.ask("POST", path, data=fields or {}, headers=headers)


async def signed_in(plane: TestPlane, role: Role) -> WebVisitor:
    """A signed-in user with a role, on the first page."""
    visitor = WebVisitor(plane)
    response = await visitor.ask("POST", "/sign-in", data={"token": plane.tokens[role]})
    assert response.status_code == 303, response.text
    await visitor.page("/")
    return visitor
