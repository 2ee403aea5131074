"""Getting in and out with a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.web.auth import safe_return_path
from lcm.model.access import Role
from tests.support.web.visitor import WebVisitor, signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane


async def test_whoever_is_not_signed_in_is_led_there_and_back(plane: TestPlane) -> None:
    visitor = WebVisitor(plane)
    answer = await visitor.ask("GET", "/?q=alpha")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?next=%2F%3Fq%3Dalpha"
    page = await visitor.page(answer.headers["location"])
    assert 'value="/?q=alpha"' in page
    fields = {"token": plane.tokens[Role.VIEWER], "next": "/?q=alpha"}
    answer = await visitor.ask("POST", "/sign-in", data=fields)
    assert (answer.status_code, answer.headers["location"]) == (303, "/?q=alpha")
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=Strict" in answer.headers["set-cookie"]


async def test_a_wrong_token_is_said_and_opens_nothing(plane: TestPlane) -> None:
    visitor = WebVisitor(plane)
    answer = await visitor.ask("POST", "/sign-in", data={"token": "wrong", "next": "/system"})
    assert answer.status_code == 401
    assert 'role="alert"' in answer.text
    assert 'value="/system"' in answer.text
    assert "set-cookie" not in answer.headers
    assert "wrong" not in answer.text


async def test_a_controllers_token_signs_no_browser_in(plane: TestPlane) -> None:
    answer = await WebVisitor(plane).ask("POST", "/sign-in", data={"token": plane.tokens[Role.CONTROLLER]})
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


async def test_a_link_signs_in_once(plane: TestPlane) -> None:
    made = (await plane.ask("POST", "/api/session/links", role=Role.OPERATOR)).json()
    path, _, code = made["path"].partition("#")
    assert path == "/sign-in"
    visitor = WebVisitor(plane)
    answer = await visitor.ask("POST", "/sign-in/link", data={"code": code})
    assert answer.status_code == 303
    assert "operator" in await visitor.page("/")
    again = await WebVisitor(plane).ask("POST", "/sign-in/link", data={"code": code})
    assert again.status_code == 401
    assert "used already" in again.text


async def test_another_site_signs_nobody_in(plane: TestPlane) -> None:
    fields = {"token": plane.tokens[Role.ADMIN]}
    for origin in ("http://evil.test", "null"):
        answer = await WebVisitor(plane).ask("POST", "/sign-in", data=fields, headers={"Origin": origin})
        assert answer.status_code == 403, origin
        assert "set-cookie" not in answer.headers
    ours = await WebVisitor(plane).ask("POST", "/sign-in", data=fields, headers={"Origin": "http://lcm.test"})
    assert ours.status_code == 303


async def test_signing_out_ends_the_session(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.VIEWER)
    held = visitor.cookie
    answer = await visitor.send("/sign-out")
    assert answer.headers["hx-redirect"] == "/sign-in"
    visitor.cookie = held
    assert (await visitor.ask("GET", "/")).status_code == 303


async def test_a_script_whose_session_is_over_is_sent_to_the_page_of_the_person(plane: TestPlane) -> None:
    visitor = WebVisitor(plane)
    headers = {"HX-Request": "true", "HX-Current-URL": "http://lcm.test/workers/w-1?hours=6"}
    answer = await visitor.ask("GET", "/fleet/rows?ids=w-1", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["hx-redirect"] == "/sign-in?next=%2Fworkers%2Fw-1%3Fhours%3D6"


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
def test_nobody_is_led_elsewhere(address: str | None) -> None:
    assert safe_return_path(address) == "/"


def test_a_path_of_ours_is_kept() -> None:
    assert safe_return_path("/workers/w-1?hours=6") == "/workers/w-1?hours=6"


async def test_an_error_is_a_page_for_people_and_a_problem_for_programs(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.VIEWER)
    missing = await visitor.ask("GET", "/nowhere")
    assert missing.status_code == 404
    assert "<h1>There is no such page</h1>" in missing.text
    program = await visitor.ask("GET", "/nowhere", headers={"Accept": "application/json"})
    assert program.headers["content-type"] == "application/problem+json"
    api = await visitor.ask("GET", "/api/workers/w-none")
    assert api.headers["content-type"] == "application/problem+json"
