"""Signing in and out with a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.web.auth import safe_return_path
from lcm.model.access import Role
from tests.support.web.visitor import WebVisitor, signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane


async def test_a_user_who_is_not_signed_in_is_redirected_and_returns(plane: TestPlane) -> None:
    visitor = WebVisitor(plane)
    response = await visitor.ask("GET", "/?q=alpha")
    assert response.status_code == 303
    assert response.headers["location"] == "/sign-in?next=%2F%3Fq%3Dalpha"
    page = await visitor.page(response.headers["location"])
    assert 'value="/?q=alpha"' in page
    fields = {"token": plane.tokens[Role.VIEWER], "next": "/?q=alpha"}
    response = await visitor.ask("POST", "/sign-in", data=fields)
    assert (response.status_code, response.headers["location"]) == (303, "/?q=alpha")
    assert "HttpOnly" in response.headers["set-cookie"]
    assert "SameSite=Strict" in response.headers["set-cookie"]


async def test_a_wrong_token_is_refused(plane: TestPlane) -> None:
    visitor = WebVisitor(plane)
    response = await visitor.ask("POST", "/sign-in", data={"token": "wrong", "next": "/system"})
    assert response.status_code == 401
    assert 'role="alert"' in response.text
    assert 'value="/system"' in response.text
    assert "set-cookie" not in response.headers
    assert "wrong" not in response.text


async def test_a_controllers_token_signs_no_browser_in(plane: TestPlane) -> None:
    response = await WebVisitor(plane).ask("POST", "/sign-in", data={"token": plane.tokens[Role.CONTROLLER]})
    assert response.status_code == 403
    assert "set-cookie" not in response.headers


async def test_a_link_signs_in_once(plane: TestPlane) -> None:
    made = (await plane.ask("POST", "/api/session/links", role=Role.OPERATOR)).json()
    path, _, code = made["path"].partition("#")
    assert path == "/sign-in"
    visitor = WebVisitor(plane)
    response = await visitor.ask("POST", "/sign-in/link", data={"code": code})
    assert response.status_code == 303
    assert "operator" in await visitor.page("/")
    again = await WebVisitor(plane).ask("POST", "/sign-in/link", data={"code": code})
    assert again.status_code == 401
    assert "already used" in again.text


async def test_another_site_cannot_sign_a_user_in(plane: TestPlane) -> None:
    fields = {"token": plane.tokens[Role.ADMIN]}
    for origin in ("http://evil.test", "null"):
        response = await WebVisitor(plane).ask("POST", "/sign-in", data=fields, headers={"Origin": origin})
        assert response.status_code == 403, origin
        assert "set-cookie" not in response.headers
    ours = await WebVisitor(plane).ask("POST", "/sign-in", data=fields, headers={"Origin": "http://lcm.test"})
    assert ours.status_code == 303


async def test_signing_out_ends_the_session(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.VIEWER)
    held = visitor.cookie
    response = await visitor.send("/sign-out")
    assert response.headers["hx-redirect"] == "/sign-in"
    visitor.cookie = held
    assert (await visitor.ask("GET", "/")).status_code == 303


async def test_a_script_without_a_session_is_told_so_and_leaves_the_page_alone(plane: TestPlane) -> None:
    visitor = WebVisitor(plane)
    headers = {"HX-Request": "true", "HX-Current-URL": "http://lcm.test/workers/w-1?hours=6"}
    response = await visitor.ask("GET", "/fleet/rows?ids=w-1", headers=headers)
    assert response.status_code == 401
    assert "hx-redirect" not in response.headers
    assert (response.headers["hx-trigger"], response.headers["hx-reswap"]) == ("lcm:signed-out", "none")


@pytest.mark.parametrize(
    "address",
    [
        "//evil.test",
        "https://evil.test",
        "/\\evil.test",
        "\\evil",
        "javascript:alert(1)",
        "",
        None,
        "/a\r\nX: x",
    ],
)
def test_redirects_stay_on_our_site(address: str | None) -> None:
    assert safe_return_path(address) == "/"


def test_our_own_paths_are_kept() -> None:
    assert safe_return_path("/workers/w-1?hours=6") == "/workers/w-1?hours=6"


async def test_an_error_is_a_page_for_people_and_a_problem_for_programs(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.VIEWER)
    missing = await visitor.ask("GET", "/nowhere")
    assert missing.status_code == 404
    assert "<h1>Page not found</h1>" in missing.text
    program = await visitor.ask("GET", "/nowhere", headers={"Accept": "application/json"})
    assert program.headers["content-type"] == "application/problem+json"
    api = await visitor.ask("GET", "/api/workers/w-none")
    assert api.headers["content-type"] == "application/problem+json"
