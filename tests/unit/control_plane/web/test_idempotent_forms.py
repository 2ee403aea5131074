"""A form that is sent twice has an effect once and gets the same answer, whatever it is about."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.records.kinds import IDEMPOTENT_RESPONSES
from lcm.control_plane.web import assets
from lcm.model.access import Role
from tests.support.records.lablet_records import TOPOLOGY
from tests.support.web.lablets import LabletWorld
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane

_KEY = re.compile(r'name="idempotency_key" value="([^"]+)"')


def key_in(dialog: str) -> str:
    found = _KEY.search(dialog)
    assert found, "every form has a key"
    return found.group(1)


async def test_a_worker_is_created_once(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.OPERATOR)
    form = {"name": "alpha", "template_name": "small", "idempotency_key": key_in(await visitor.part("/workers/new"))}
    first, second = await asyncio.gather(visitor.send("/workers/new", form), visitor.send("/workers/new", form))
    again = await visitor.send("/workers/new", form)
    assert [each.status_code for each in (first, second, again)] == [200, 200, 200]
    assert first.text == second.text == again.text
    assert first.headers["hx-trigger"] == again.headers["hx-trigger"] == "lcm:done"
    assert len((await plane.ask("GET", "/api/workers")).json()["items"]) == 1


async def test_an_unnamed_lablet_is_created_once(plane: TestPlane) -> None:
    """Without a name nothing but the key shows that the second request is a repetition."""
    world = await LabletWorld(plane).open()
    await world.define()
    visitor = await signed_in(plane, Role.OPERATOR)
    form = {"definition": "ospf@1", "owner": "ann", "idempotency_key": key_in(await visitor.part("/lablets/new"))}
    first, second = await visitor.send("/lablets/new", form), await visitor.send("/lablets/new", form)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.text == second.text
    assert len((await plane.ask("GET", "/api/lablets")).json()["items"]) == 1
    other = {**form, "idempotency_key": key_in(await visitor.part("/lablets/new"))}
    assert (await visitor.send("/lablets/new", other)).status_code == 200
    assert len((await plane.ask("GET", "/api/lablets")).json()["items"]) == 2, "a new form is a new request"


async def test_a_form_that_failed_can_be_sent_again_after_a_correction(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.OPERATOR)
    form = {"name": "", "template_name": "small", "idempotency_key": key_in(await visitor.part("/workers/new"))}
    assert (await visitor.send("/workers/new", form)).status_code == 422
    assert (await visitor.send("/workers/new", {**form, "name": "alpha"})).status_code == 200


async def test_a_form_changed_after_it_was_saved_is_refused_with_the_reason(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.OPERATOR)
    form = {"name": "alpha", "template_name": "small", "idempotency_key": "form-1"}
    assert (await visitor.send("/workers/new", form)).status_code == 200
    response = await visitor.send("/workers/new", {**form, "name": "bravo"})
    assert response.status_code == 409
    assert "This form was already sent with other values" in response.text
    assert len((await plane.ask("GET", "/api/workers")).json()["items"]) == 1


async def test_an_edit_that_is_repeated_is_no_conflict_with_itself(plane: TestPlane) -> None:
    worker = await plane.running()
    visitor = await signed_in(plane, Role.OPERATOR)
    path = f"/workers/{worker['id']}/edit"
    dialog = await visitor.part(path)
    seen = re.search(r'name="seen" value="([^"]+)"', dialog)
    assert seen
    form = {"name": "renamed", "seen": seen.group(1), "idempotency_key": key_in(dialog)}
    first, second = await visitor.send(path, form), await visitor.send(path, form)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.text == second.text
    after = (await plane.ask("GET", f"/api/workers/{worker['id']}")).json()
    assert (after["name"], after["version"]) == ("renamed", worker["version"] + 1)


async def test_a_repeated_stop_does_not_undo_a_later_start(plane: TestPlane) -> None:
    worker = await plane.running()
    visitor = await signed_in(plane, Role.OPERATOR)
    form = {"idempotency_key": key_in(await visitor.part(f"/workers/{worker['id']}/confirm/stop"))}
    first = await visitor.send(f"/workers/{worker['id']}/do/stop", form)
    await plane.ask("POST", f"/api/workers/{worker['id']}/start")
    second = await visitor.send(f"/workers/{worker['id']}/do/stop", form)
    assert first.text == second.text
    assert (await plane.ask("GET", f"/api/workers/{worker['id']}")).json()["desired_status"] == "RUNNING"


async def test_a_repeated_bulk_action_counts_the_same(plane: TestPlane) -> None:
    one, two = await plane.running("one"), await plane.running("two")
    visitor = await signed_in(plane, Role.OPERATOR)
    key = key_in(await visitor.part(f"/fleet/confirm?action=stop&ids={one['id']},{two['id']}"))
    targets = f"{one['id']}:{one['version']},{two['id']}:{two['version']}"
    form = {"targets": targets, "confirm": "2", "idempotency_key": key}
    first, second = await visitor.send("/fleet/do/stop", form), await visitor.send("/fleet/do/stop", form)
    assert "Stop requested: 2 of 2" in first.text
    assert first.text == second.text


async def test_a_repeated_hold_does_not_hold_a_released_fleet(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.OPERATOR)
    form = {"reason": "storm", "idempotency_key": key_in(await visitor.part("/fleet/confirm-hold"))}
    assert (await visitor.send("/fleet/do-hold", form)).status_code == 200
    await visitor.send("/fleet/do-release")
    assert (await visitor.send("/fleet/do-hold", form)).status_code == 200
    assert (await plane.ask("GET", "/api/fleet")).json()["hold"] is None


async def test_templates_and_definitions_are_saved_once(plane: TestPlane) -> None:
    admin = await signed_in(plane, Role.ADMIN)
    dialog = await admin.part("/templates/new?like=small")
    template = {
        "name": "copy",
        "instance_type": "t3.small",
        "cpu_cores": "2",
        "memory_gb": "2",
        "storage_gb": "50",
        "max_nodes": "5",
        "cost_per_hour_usd": "0.02",
        "enabled": "on",
        "idempotency_key": key_in(dialog),
    }
    saved = [await admin.send("/templates/save", template) for _ in range(2)]
    assert [each.status_code for each in saved] == [200, 200], saved[1].text
    assert "Template copy created" in saved[0].text
    assert saved[0].text == saved[1].text
    definition = {
        "name": "ospf",
        "version": "1",
        "topology": TOPOLOGY,
        "cpu_cores": "1",
        "memory_gb": "1",
        "storage_gb": "1",
        "nodes": "1",
        "idempotency_key": key_in(await admin.part("/definitions/new")),
    }
    made = [await admin.send("/definitions/save", definition) for _ in range(2)]
    assert [each.status_code for each in made] == [200, 200], made[0].text
    assert "ospf@1 created" in made[0].text
    assert made[0].text == made[1].text


@pytest.mark.parametrize("path", ["/fleet/confirm-hold", "/fleet/confirm-release", "/workers/new", "/templates/new"])
async def test_each_rendered_form_has_a_key_of_its_own(plane: TestPlane, path: str) -> None:
    admin = await signed_in(plane, Role.ADMIN)
    assert key_in(await admin.part(path)) != key_in(await admin.part(path))


async def test_a_termination_requires_the_name(plane: TestPlane) -> None:
    worker = await plane.running()
    visitor = await signed_in(plane, Role.OPERATOR)
    dialog = await visitor.part(f"/workers/{worker['id']}/confirm/terminate")
    assert 'data-expected="alpha"' in dialog
    for typed in ("", "Alpha", "alph"):
        response = await visitor.send(f"/workers/{worker['id']}/do/terminate", {"confirm": typed})
        assert response.status_code == 422
        assert "confirm: type alpha, the name of the worker, to confirm" in response.text
    assert (await plane.ask("GET", f"/api/workers/{worker['id']}")).json()["desired_status"] == "RUNNING"
    assert (await visitor.send(f"/workers/{worker['id']}/do/terminate", {"confirm": "alpha"})).status_code == 200
    assert (await plane.ask("GET", f"/api/workers/{worker['id']}")).json()["desired_status"] == "TERMINATED"


_TEMPLATES = Path(assets.__file__).parent / "templates"
_DELETES = {
    f"{folder}/{name}.html"
    for folder, name in (("admin", "_confirm_delete_subscription"), ("teams", "_confirm_delete"))
}
"""Sent again, these find nothing to delete: what was deleted never comes back under its id."""


def test_every_form_that_changes_something_has_a_key() -> None:
    templates = {str(path.relative_to(_TEMPLATES)): path.read_text() for path in _TEMPLATES.rglob("*.html")}
    without = {name for name, text in templates.items() if "<form hx-post" in text and "form_key() }}" not in text}
    assert without == _DELETES


async def test_a_seat_link_whose_answer_was_lost_is_replaced_by_the_next(plane: TestPlane) -> None:
    """Codes are not stored, so the first link cannot be shown again. Nobody has it, and it opens nothing any more."""
    world = await LabletWorld(plane).open()
    await world.define()
    lablet = await world.make("one")
    visitor = await signed_in(plane, Role.OPERATOR)
    path = f"/lablets/{lablet['id']}/seat-links"
    form = {"hours": "24", "idempotency_key": key_in(await visitor.part(path))}
    lost = await visitor.send(path, form)
    shown = await visitor.send(path, {**form, "hours": "4"})
    assert [each.status_code for each in (lost, shown)] == [200, 200]
    links = (await plane.services.seat_links.page(lablet["id"])).items
    assert sorted(link.revoked_at is None for link in links) == [False, True]
    (valid,) = (link.id for link in links if link.revoked_at is None)
    assert f"/seat#{valid}." in shown.text
    assert key_in(shown.text) != form["idempotency_key"]
    another = await visitor.send(path, {**form, "idempotency_key": key_in(shown.text)})
    assert another.status_code == 200
    links = (await plane.services.seat_links.page(lablet["id"])).items
    assert sorted(link.revoked_at is None for link in links) == [False, True, True], "a new form is a new request"


async def test_revoking_a_seat_link_takes_two_steps_and_keeps_what_is_shown_once(plane: TestPlane) -> None:
    world = await LabletWorld(plane).open()
    await world.define()
    lablet = await world.make("one")
    visitor = await signed_in(plane, Role.OPERATOR)
    path = f"/lablets/{lablet['id']}/seat-links"
    dialog = (await visitor.send(path, {"hours": "24", "idempotency_key": "form-1"})).text
    folded = re.search(r"<details[^>]*>(.*?)</details>", dialog, re.DOTALL)
    assert folded is not None
    assert "It will open nothing any more" in folded[1]
    assert "/revoke" in folded[1]
    assert "/revoke" not in dialog.replace(folded[0], "")


async def test_a_subscription_is_created_once_and_its_secret_is_not_lost(plane: TestPlane) -> None:
    plane.receivers.add("hooks.test")
    admin = await signed_in(plane, Role.ADMIN)
    form = {
        "name": "ops",
        "target": "webhook",
        "url": "https://hooks.test/s3cret",
        "severity": "warning",
        "idempotency_key": key_in(await admin.part("/notifications/new")),
    }
    first, second = await admin.send("/notifications/create", form), await admin.send("/notifications/create", form)
    assert (first.status_code, second.status_code) == (200, 200)
    assert "whsec_" in first.text
    assert first.text == second.text
    assert len(await plane.services.subscriptions.statuses()) == 1
    for stored in (await plane.services.context.store.find(IDEMPOTENT_RESPONSES)).items:
        assert b"whsec_" not in stored.body
        assert b"s3cret" not in stored.body
