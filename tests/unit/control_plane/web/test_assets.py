"""Scripts and styles as they are served."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lcm.control_plane.web.assets import ASSETS
from lcm.model.access import Role
from tests.support.web.visitor import WebVisitor, signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane


async def test_what_a_page_names_is_there_and_is_kept_by_browsers(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.ADMIN)
    page = await visitor.page("/")
    named = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page))
    assert len(named) >= 5
    for address in sorted(named):
        answer = await WebVisitor(plane).ask("GET", address)
        assert answer.status_code == 200, address
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    live = ASSETS.find(f"{ASSETS.digest}/live.js")
    assert live is not None
    imported = re.findall(r'(?:from|import) "\./([^"]+)"', live.body.decode())
    assert imported
    assert all(ASSETS.find(f"{ASSETS.digest}/{name}") for name in imported)


async def test_nothing_else_is_served(plane: TestPlane) -> None:
    for path in ("../app.py", "x/app.css", "vendor/htmx.LICENSE", f"{ASSETS.digest}/../templates/base.html", ""):
        assert (await WebVisitor(plane).ask("GET", f"/static/{path}")).status_code == 404


def test_there_is_little_script() -> None:
    assert ASSETS.script_bytes() <= 150_000


async def test_pages_allow_only_what_is_ours(plane: TestPlane) -> None:
    answer = await (await signed_in(plane, Role.ADMIN)).ask("GET", "/")
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "<script>" not in answer.text
    assert " style=" not in answer.text
    assert not re.search(r'(?:src|href)="(?:https?:)?//', answer.text)
