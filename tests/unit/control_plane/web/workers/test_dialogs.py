"""Creating and editing workers: problems at their fields, input is kept, and no secret appears on a page."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

from lcm.control_plane.web.workers.forms import (
    InvalidFormError,
    WorkerForm,
    create_request,
    form_fingerprint,
    patch_request,
)
from lcm.model.access import Role
from lcm.model.worker.template import DEFAULT_TEMPLATES
from tests.support.records.workers import a_worker
from tests.support.web.visitor import WebVisitor, signed_in

if TYPE_CHECKING:
    import httpx

    from tests.support.virtual.control_plane import TestPlane

TOKEN, PASSWORD = "a-license-token", "pass word <1>"
VALID_FORM = {"name": "fresh", "template_name": "metal", "aws_region": "us-east-1", "idle_detection_enabled": "yes"}


@pytest.fixture
async def operator(plane: TestPlane) -> WebVisitor:
    return await signed_in(plane, Role.OPERATOR)


async def send(visitor: WebVisitor, path: str, fields: dict[str, Any]) -> httpx.Response:
    return await visitor.send(path, fields)


async def workers(plane: TestPlane) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await plane.ask("GET", "/api/workers")).json()["items"]
    return found


async def secret(plane: TestPlane, worker: dict[str, Any], name: str) -> httpx.Response:
    return await plane.ask("GET", f"/api/internal/workers/{worker['id']}/{name}", role=Role.CONTROLLER)


def hidden(form: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', form)
    assert found is not None, form
    return unescape(found.group(1))


async def test_the_form_shows_price_and_capacity(plane: TestPlane, operator: WebVisitor) -> None:
    form = await operator.part("/workers/new")
    assert "metal: $3.96 an hour, 48 CPU, 192 GB, 200 nodes" in form
    assert "$0.0104 an hour while it runs, about $7.59 a month" in form  # the cheapest is chosen to begin with
    cost = await operator.part("/workers/new/cost?template_name=metal&desired_status=RUNNING")
    assert "$3.96 an hour while it runs, about $2,893.79 a month" in cost
    assert "nothing until it is started" in await operator.part(
        "/workers/new/cost?template_name=metal&desired_status=STOPPED"
    )
    assert 'value="metal" selected' in await operator.part("/workers/new?template=metal")
    await plane.ask("POST", "/api/worker-templates/metal/disable", role=Role.ADMIN)
    assert "metal" not in await operator.part("/workers/new")


async def test_without_templates_the_form_says_what_to_do(plane: TestPlane, operator: WebVisitor) -> None:
    for template in DEFAULT_TEMPLATES:
        await plane.ask("POST", f"/api/worker-templates/{template.name}/disable", role=Role.ADMIN)
    form = await operator.part("/workers/new")
    assert "No template is enabled" in form
    assert "hx-post" not in form


async def test_a_worker_is_created_as_typed(plane: TestPlane, operator: WebVisitor) -> None:
    fields = VALID_FORM | {
        "desired_status": "STOPPED",
        "tag_key": ["a=b", "", "owner"],
        "tag_value": ["c", "", "ann"],
        "lost_instance_policy": "replace",
        "license_token": TOKEN,
        "cml_username": "root",
        "cml_password": PASSWORD,
    }
    response = await send(operator, "/workers/new", fields)
    assert response.status_code == 200, response.text
    assert response.headers["hx-trigger"] == "lcm:done"
    (made,) = await workers(plane)
    assert f'href="/workers/{made["id"]}"' in response.text
    assert "fresh created" in response.text
    assert (made["name"], made["template_name"], made["aws_region"]) == ("fresh", "metal", "us-east-1")
    assert (made["desired_status"], made["tags"]) == ("STOPPED", {"a=b": "c", "owner": "ann"})
    assert (made["lost_instance_policy"], made["idle_detection_enabled"]) == ("replace", True)
    assert (await secret(plane, made, "license-token")).json()["token"] == TOKEN
    assert (await secret(plane, made, "cml-credentials")).json() == {"username": "root", "password": PASSWORD}


async def test_a_box_that_is_not_ticked_is_off(plane: TestPlane, operator: WebVisitor) -> None:
    fields = {name: value for name, value in VALID_FORM.items() if name != "idle_detection_enabled"}
    await send(operator, "/workers/new", fields)
    assert (await workers(plane))[0]["idle_detection_enabled"] is False


@pytest.mark.parametrize(
    ("fields", "status", "field", "message"),
    [
        ({"name": "bad name"}, 422, "name", "letters, digits, dots"),
        ({"name": ""}, 422, "name", "letters, digits, dots"),
        ({"name": "taken"}, 409, "name", "choose another"),
        ({"template_name": "nope"}, 404, "template_name", "there is no template nope"),
        ({"template_name": ""}, 422, "template_name", "select a template"),
        ({"aws_region": "xx-north-1"}, 422, "aws_region", "is not configured"),
        ({"desired_status": "TERMINATED"}, 422, "desired_status", "RUNNING or STOPPED"),
        ({"tag_key": "aws:x", "tag_value": "1"}, 422, "tags", "reserved"),
        ({"tag_key": "", "tag_value": "lonely"}, 422, "tags", "has no name"),
        ({"tag_key": ["a", "a"], "tag_value": ["1", "2"]}, 422, "tags", "twice"),
        ({"license_token": "bad token"}, 422, "license_token", "letters, digits"),
        ({"cml_username": "root"}, 422, "cml_password", "both"),
        ({"cml_password": PASSWORD}, 422, "cml_username", "both"),
    ],
)
async def test_problems_are_shown_at_their_fields_and_input_is_kept(
    plane: TestPlane, operator: WebVisitor, fields: dict[str, Any], status: int, field: str, message: str
) -> None:
    await plane.create("taken")
    others = {"tag_key": "<i>", "tag_value": "kept", "license_token": TOKEN, "lost_instance_policy": "replace"}
    response = await send(operator, "/workers/new", VALID_FORM | others | fields)
    assert response.status_code == status, response.text
    problem = re.search(rf'id="problem-{field}" role="alert">([^<]+)<', response.text)
    assert problem is not None, response.text
    assert message in unescape(problem.group(1))
    assert 'aria-invalid="true"' in response.text
    typed = VALID_FORM | others | fields
    assert f'name="name" id="new-name" value="{typed["name"]}"' in response.text
    assert '<option value="replace" selected>' in response.text
    if "tag_key" not in fields:
        assert 'value="&lt;i&gt;"' in response.text
        assert 'value="kept"' in response.text
    for hush in (TOKEN, "pass word", "bad token"):
        assert hush not in unescape(response.text)
    assert [worker["name"] for worker in await workers(plane)] == ["taken"]


async def test_only_changed_fields_are_saved(plane: TestPlane, operator: WebVisitor) -> None:
    worker = await plane.running(tags={"a": "1"}, cml_username="root", cml_password="old")
    form = await operator.part(f"/workers/{worker['id']}/edit")
    assert 'value="alpha"' in form
    assert 'name="tag_key" value="a"' in form
    fields = {
        "seen": hidden(form, "seen"),
        "name": "beta",
        "tag_key": ["a", "b"],
        "tag_value": ["1", "2"],
        "lost_instance_policy": "terminate",
        "idle_detection_enabled": "yes",
        "cml_password": PASSWORD,
    }
    response = await send(operator, f"/workers/{worker['id']}/edit", fields)
    assert response.status_code == 200, response.text
    assert "beta: saved" in response.text
    (after,) = await workers(plane)
    assert (after["name"], after["tags"], after["version"]) == ("beta", {"a": "1", "b": "2"}, worker["version"] + 1)
    assert (await secret(plane, after, "cml-credentials")).json() == {"username": "root", "password": PASSWORD}
    audit = (await plane.ask("GET", f"/api/audit?subject={worker['id']}&action=patched")).json()["items"]
    assert audit[0]["details"]["fields"] == ["cml_password", "name", "tags"]


def edited(form: str, **changes: Any) -> dict[str, Any]:
    """The form as it came, with something typed over it."""
    return {
        "seen": hidden(form, "seen"),
        "name": hidden(form, "name") if 'name="name" value' in form else "alpha",
        "lost_instance_policy": "terminate",
        "idle_detection_enabled": "yes",
        **changes,
    }


async def test_a_worker_is_dedicated_to_a_team_and_to_none_again(plane: TestPlane, operator: WebVisitor) -> None:
    worker = await plane.running()
    path = f"/workers/{worker['id']}/edit"
    assert 'name="team"' not in await operator.part(path), "there are no teams"
    made = await plane.ask("POST", "/api/teams", role=Role.ADMIN, json={"name": "blue"})
    team = made.json()["id"]
    form = await operator.part(path)
    assert f'<option value="{team}">blue' in form
    assert "alpha: saved" in (await send(operator, path, edited(form, team=team))).text
    assert (await workers(plane))[0]["team"] == team
    assert "<dt>Dedicated to team</dt><dd>blue</dd>" in await operator.page(path.removesuffix("/edit"))
    seen_before = edited(form, team="", name="beta")
    conflict = await send(operator, path, seen_before)
    assert (conflict.status_code, "team: blue" in conflict.text) == (412, True)
    form = await operator.part(path)
    assert f'<option value="{team}" selected>' in form
    assert (await send(operator, path, edited(form, team=""))).status_code == 200
    assert (await workers(plane))[0]["team"] == ""
    form = await operator.part(path)
    assert (await plane.ask("DELETE", f"/api/teams/{team}", role=Role.ADMIN)).status_code == 204
    gone = await send(operator, path, edited(form, team=team))
    assert (gone.status_code, f"there is no team {team}" in gone.text) == (404, True)


async def test_credentials_can_be_removed(plane: TestPlane, operator: WebVisitor) -> None:
    worker = await plane.running(cml_username="root", cml_password="old")
    form = await operator.part(f"/workers/{worker['id']}/edit")
    response = await send(operator, f"/workers/{worker['id']}/edit", edited(form, forget_cml="yes"))
    assert response.status_code == 200, response.text
    assert (await secret(plane, worker, "cml-credentials")).status_code == 404


async def test_nothing_typed_changes_nothing(plane: TestPlane, operator: WebVisitor) -> None:
    worker = await plane.running()
    form = await operator.part(f"/workers/{worker['id']}/edit")
    response = await send(operator, f"/workers/{worker['id']}/edit", edited(form))
    assert "no changes" in response.text
    assert (await workers(plane))[0]["version"] == worker["version"]


async def test_a_conflicting_change_is_shown_and_input_is_kept(plane: TestPlane, operator: WebVisitor) -> None:
    worker = await plane.running(tags={"a": "1"})
    form = await operator.part(f"/workers/{worker['id']}/edit")
    fields = edited(form, tag_key="mine", tag_value="2", cml_password=PASSWORD)
    await plane.ask("PATCH", f"/api/workers/{worker['id']}", json={"tags": {"theirs": "3"}})
    response = await send(operator, f"/workers/{worker['id']}/edit", fields)
    assert response.status_code == 412
    assert "This worker was changed while you were editing" in response.text
    assert "tags: theirs=3" in response.text
    assert 'value="mine"' in response.text
    assert PASSWORD not in unescape(response.text)
    assert (await workers(plane))[0]["tags"] == {"theirs": "3"}
    again = fields | {"seen": hidden(response.text, "seen")}
    assert (await send(operator, f"/workers/{worker['id']}/edit", again)).status_code == 200
    assert (await workers(plane))[0]["tags"] == {"mine": "2"}


async def test_a_status_change_meanwhile_is_no_conflict(plane: TestPlane, operator: WebVisitor) -> None:
    worker = await plane.running()
    form = await operator.part(f"/workers/{worker['id']}/edit")
    await plane.report(worker, "RUNNING", public_ip="192.0.2.8")
    response = await send(operator, f"/workers/{worker['id']}/edit", edited(form, name="beta"))
    assert response.status_code == 200, response.text
    (after,) = await workers(plane)
    assert (after["name"], after["public_ip"]) == ("beta", "192.0.2.8")


@pytest.mark.parametrize(
    ("changes", "status", "field"),
    [
        ({"name": "other"}, 409, "name"),
        ({"name": "bad name"}, 422, "name"),
        ({"tag_key": "lcm:x", "tag_value": "1"}, 422, "tags"),
        ({"lost_instance_policy": "pray"}, 422, "lost_instance_policy"),
        ({"cml_username": "\x07"}, 422, "cml_username"),
    ],
)
async def test_a_refused_change_is_shown_at_its_field(
    plane: TestPlane, operator: WebVisitor, changes: dict[str, str], status: int, field: str
) -> None:
    await plane.create("other")
    worker = await plane.create("alpha")
    form = await operator.part(f"/workers/{worker['id']}/edit")
    typed = {"tag_key": "kept", "tag_value": "<u>", **changes}
    response = await send(operator, f"/workers/{worker['id']}/edit", edited(form, **typed))
    assert response.status_code == status, response.text
    assert f'id="problem-{field}"' in response.text
    assert f'value="{typed["tag_key"]}"' in response.text
    assert (await plane.ask("GET", f"/api/workers/{worker['id']}")).json()["version"] == worker["version"]


async def test_a_terminated_worker_is_not_changed(plane: TestPlane, operator: WebVisitor) -> None:
    worker = await plane.create()
    terminating = (await plane.ask("POST", f"/api/workers/{worker['id']}/terminate")).json()
    await plane.report(terminating, "TERMINATED")
    form = await operator.part(f"/workers/{worker['id']}/edit")
    response = await send(operator, f"/workers/{worker['id']}/edit", edited(form, name="beta"))
    assert response.status_code == 409
    assert "its record cannot be changed" in response.text


async def test_a_license_token_is_stored_and_never_shown(plane: TestPlane, operator: WebVisitor) -> None:
    worker = await plane.running()
    address = f"/workers/{worker['id']}"
    assert 'type="password" name="token"' in await operator.part(f"{address}/license/register")
    response = await send(operator, f"{address}/license/register", {"token": TOKEN, "reason": "exam"})
    assert response.status_code == 200, response.text
    (after,) = await workers(plane)
    assert (after["has_license_token"], after["pending_license_operation"]["operation"]) == (True, "register")
    assert (await secret(plane, worker, "license-token")).json()["token"] == TOKEN
    page = await operator.page(address)
    assert TOKEN not in page + response.text
    assert "registration, by operator" in page
    assert "requested license registration" in page
    back = await send(operator, f"{address}/license/deregister", {})
    assert back.status_code == 200, back.text
    assert (await workers(plane))[0]["has_license_token"] is False
    assert 'id="license-deregister"' not in await operator.page(address)


async def test_an_invalid_token_is_shown_at_its_field(plane: TestPlane, operator: WebVisitor) -> None:
    worker = await plane.running()
    fields = {"token": "bad token", "reason": "why <not>"}
    response = await send(operator, f"/workers/{worker['id']}/license/register", fields)
    assert response.status_code == 422
    assert 'id="problem-token"' in response.text
    assert 'value="why &lt;not&gt;"' in response.text
    assert "bad token" not in response.text
    missing = await send(operator, f"/workers/{worker['id']}/license/register", {})
    assert missing.status_code == 409
    assert "has no license token" in missing.text
    odd = await send(operator, f"/workers/{worker['id']}/license/steal", {})
    assert odd.status_code == 422


CHANGE_PATHS = (
    "/workers/new",
    "/workers/{id}/edit",
    "/workers/{id}/license/register",
    "/workers/{id}/license/deregister",
)


@pytest.mark.parametrize("path", CHANGE_PATHS)
async def test_a_change_requires_the_csrf_token(plane: TestPlane, path: str) -> None:
    worker = await plane.running(license_token="token")
    admin = await signed_in(plane, Role.ADMIN)
    admin.csrf = ""
    for proof in ("", "0" * 64):
        response = await admin.send(path.format(id=worker["id"]), VALID_FORM | {"token": TOKEN}, csrf=proof)
        assert response.status_code == 403
    (after,) = await workers(plane)
    assert after["version"] == worker["version"]


@pytest.mark.parametrize("path", CHANGE_PATHS)
async def test_a_viewer_cannot_change_anything(plane: TestPlane, path: str) -> None:
    worker = await plane.running(license_token="token")
    viewer = await signed_in(plane, Role.VIEWER)
    assert (await viewer.send(path.format(id=worker["id"]), VALID_FORM)).status_code == 403
    await viewer.part(path.format(id=worker["id"]), 403)
    (after,) = await workers(plane)
    assert after["version"] == worker["version"]


def test_the_form_shows_no_secrets() -> None:
    typed = WorkerForm.from_form({"cml_password": [PASSWORD], "license_token": [TOKEN]})
    assert TOKEN not in repr(typed)
    assert PASSWORD not in repr(typed)
    with pytest.raises(InvalidFormError) as refusal:
        create_request(
            WorkerForm.from_form({"license_token": ["bad token"], "name": ["x"], "template_name": ["small"]})
        )
    assert "bad token" not in str(refusal.value)


def test_an_untouched_form_changes_nothing() -> None:
    worker = a_worker(tags={"a=b": ' "<i>', "": ""} | {"x": "y"})
    tags = {key: value for key, value in worker.tags.items() if key}
    worker = worker.model_copy(update={"tags": tags})
    assert patch_request(WorkerForm.from_worker(worker), worker).model_fields_set == set()
    assert form_fingerprint(worker) == form_fingerprint(
        worker.model_copy(update={"version": 9, "public_ip": "192.0.2.1"})
    )
    assert form_fingerprint(worker) != form_fingerprint(worker.model_copy(update={"tags": {}}))
