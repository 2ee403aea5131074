"""How scripts and styles are served."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING

from lcm.control_plane.web.assets import ASSETS
from lcm.model.access import Role
from tests.support.web.visitor import WebVisitor, signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane


async def test_the_assets_of_a_page_exist_and_are_cached_by_browsers(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.ADMIN)
    page = await visitor.page("/")
    named = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page))
    assert len(named) >= 5
    for address in sorted(named):
        response = await WebVisitor(plane).ask("GET", address)
        assert response.status_code == 200, address
        assert "immutable" in response.headers["cache-control"]
        assert response.headers["x-content-type-options"] == "nosniff"
    live = ASSETS.find(f"{ASSETS.digest}/live.js")
    assert live is not None
    imported = re.findall(r'(?:from|import) "\./([^"]+)"', live.body.decode())
    assert imported
    assert all(ASSETS.find(f"{ASSETS.digest}/{name}") for name in imported)


async def test_nothing_else_is_served(plane: TestPlane) -> None:
    for path in ("../app.py", "x/app.css", "vendor/htmx.LICENSE", f"{ASSETS.digest}/../templates/base.html", ""):
        assert (await WebVisitor(plane).ask("GET", f"/static/{path}")).status_code == 404


def test_scripts_are_small() -> None:
    scripts = (files("lcm.control_plane.web") / "static").rglob("*.js")  # type: ignore[attr-defined]
    assert sum(len(each.read_bytes()) for each in scripts) <= 150_000


async def test_pages_load_only_our_own_assets(plane: TestPlane) -> None:
    response = await (await signed_in(plane, Role.ADMIN)).ask("GET", "/")
    policy = response.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "<script>" not in response.text
    assert " style=" not in response.text
    assert not re.search(r'(?:src|href)="(?:https?:)?//', response.text)
