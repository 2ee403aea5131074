"""Somebody with a browser, without the browser: a cookie, the CSRF header and htmx's headers."""

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
    """Pages and fragments as one person gets them."""

    def __init__(self, plane: TestPlane, cookie: str = "") -> None:
        self._plane = plane
        self.cookie = cookie
        self.csrf = ""

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request, with the cookie that is held."""
        headers = {"Accept": "text/html", **dict(options.pop("headers", {}))}
        if self.cookie:
            headers["Cookie"] = self.cookie
        transport = httpx.ASGITransport(self._plane.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://lcm.test") as client:
            answer = await client.request(method, path, headers=headers, **options)
        given = answer.headers.get("set-cookie")
        if given is not None:
            self.cookie = given.partition(";")[0]
        return answer

    async def page(self, path: str, status: int = 200) -> str:
        """A whole page; what changes must carry is taken from it as scripts do."""
        answer = await self.ask("GET", path)
        assert answer.status_code == status, (path, answer.status_code, answer.text[:500])
        found = _CSRF.search(unescape(answer.text))
        self.csrf = found.group(1) if found else self.csrf
        return answer.text

    async def part(self, path: str, status: int = 200, *, at: str = "http://lcm.test/") -> str:
        """A part of a page, as htmx asks for it."""
        answer = await self.ask("GET", path, headers={"HX-Request": "true", "HX-Current-URL": at})
        assert answer.status_code == status, (path, answer.status_code, answer.text[:500])
        return answer.text

    async def send(self, path: str, fields: dict[str, str] | None = None, *, csrf: str | None = None) -> httpx.Response:
        """A form, as htmx sends it."""
        proof = self.csrf if csrf is None else csrf
        headers = {"HX-Request": "true", "HX-Current-URL": "http://lcm.test/"}
        if proof:
            headers["X-LCM-CSRF"] = proof
        return await self.ask("POST", path, data=fields or {}, headers=headers)


async def signed_in(plane: TestPlane, role: Role) -> WebVisitor:
    """Somebody in a role, on the first page."""
    visitor = WebVisitor(plane)
    answer = await visitor.ask("POST", "/sign-in", data={"token": plane.tokens[role]})
    assert answer.status_code == 303, answer.text
    await visitor.page("/")
    return visitor
