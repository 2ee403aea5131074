"""The Settings page: values with their source, changed by admins, with problems at their fields."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.web.forms import parse_number
from lcm.model.access import Role
from lcm.model.fleet.settings import FleetSettings
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane

HOSTILE = "<script>alert(1)</script>"
TIMEOUT = "worker_idle_timeout_minutes"


def fields(page: str) -> dict[str, str]:
    """Name and value of every field, as a browser would send them."""
    found = {
        name: unescape(value) for name, value in re.findall(r'<input [^>]*?name="([^"]+)"[^>]*?value="([^"]*)"', page)
    }
    for name, options in re.findall(r'<select name="([^"]+)".*?>(.*?)</select>', page, re.DOTALL):
        found[name] = re.findall(r'value="([^"]*)" selected', options)[0]
    return found


def problem(page: str, name: str) -> str:
    found = re.search(rf'id="\w+-{name}-problem">([^<]*)<', page)
    return "" if found is None else unescape(found.group(1))


async def group_form(plane: TestPlane, group: str) -> dict[str, str]:
    page = await (await signed_in(plane, Role.ADMIN)).page("/settings")
    form = re.search(rf'<form class="card" id="group-{group}".*?</form>', page, re.DOTALL)
    assert form is not None
    return fields(form.group(0))


async def current(plane: TestPlane) -> FleetSettings:
    return await plane.services.context.settings()


async def test_every_setting_is_shown_with_its_source(plane: TestPlane) -> None:
    page = await (await signed_in(plane, Role.VIEWER)).page("/settings")
    names = {name for group in FleetSettings() for name in dict(group[1])}
    for name in names:
        assert f"-{name}-hint" in page, name
    assert page.count('class="chip">default') == len(names)
    assert "<select" not in page
    assert "Only an admin can change them" in page
    assert 'hx-post="/settings' not in page


async def test_only_what_was_changed_is_stored(plane: TestPlane) -> None:
    form = await group_form(plane, "idle")
    visitor = await signed_in(plane, Role.ADMIN)
    response = await visitor.send("/settings/idle", {**form, TIMEOUT: "90", "worker_auto_pause_enabled": "off"})
    assert response.status_code == 200, response.text
    assert "Saved: worker_auto_pause_enabled, worker_idle_timeout_minutes." in response.text
    assert response.text.count("stored here") == 2
    now = (await current(plane)).idle
    assert (now.worker_idle_timeout_minutes, now.worker_auto_pause_enabled, now.idle_detection_interval) == (
        90,
        False,
        300,
    )
    stale = {**form, "idle_detection_interval": "60"}  # submitted by a user who saw the old values
    assert (await visitor.send("/settings/idle", stale)).status_code == 200
    now = (await current(plane)).idle
    assert (now.worker_idle_timeout_minutes, now.idle_detection_interval) == (90, 60)
    assert "No changes" in (await visitor.send("/settings/idle", await group_form(plane, "idle"))).text


@pytest.mark.parametrize(
    ("group", "name", "typed", "message"),
    [
        ("idle", TIMEOUT, "soon", "must be a number"),
        ("idle", TIMEOUT, "", "must be a number"),
        ("idle", TIMEOUT, "0", "must be at least 1"),
        ("idle", TIMEOUT, "nan", "must be a finite number"),
        ("idle", "idle_action", "sing", "must be pause or drain"),
        ("idle", "worker_auto_pause_enabled", "perhaps", "must be true or false"),
        ("scaling", "min_workers", "1.5", "must be a whole number"),
        ("scaling", "min_workers", "many", "must be a whole number"),
        ("scaling", "min_workers", "-1", "must be at least 0"),
        ("discovery", "worker_discovery_ami_filter", "x" * 129, "must have at most 128 characters"),
    ],
)
async def test_problems_are_shown_at_their_fields_and_input_is_kept(
    plane: TestPlane, group: str, name: str, typed: str, message: str
) -> None:
    form = {**await group_form(plane, group), name: typed}
    other = next(
        each for each in form if each not in (name,) and form[each].isdecimal() and not each.startswith("was.")
    )
    form[other] = "77"
    visitor = await signed_in(plane, Role.ADMIN)
    before = await current(plane)
    response = await visitor.send(f"/settings/{group}", form)
    assert response.status_code == 422
    assert problem(response.text, name) == message
    assert "Nothing was saved" in response.text
    shown = re.search(rf'<input name="{other}"[^>]*value="77"', response.text)
    assert shown is not None
    if f'<input name="{name}"' in response.text:
        assert re.search(rf'<input name="{name}"[^>]*value="{typed}"[^>]*aria-invalid="true"', response.text)
    assert await current(plane) == before


async def test_a_stored_value_is_reset_and_other_input_is_kept(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.ADMIN)
    await visitor.send("/settings/idle", {**await group_form(plane, "idle"), TIMEOUT: "90"})
    page = await visitor.page("/settings")
    assert f'hx-get="/settings/idle/confirm-reset/{TIMEOUT}"' in page
    dialog = await visitor.part(f"/settings/idle/confirm-reset/{TIMEOUT}")
    assert 'hx-post="/settings/idle/reset/worker_idle_timeout_minutes"' in dialog
    form = {**await group_form(plane, "idle"), "idle_detection_interval": "12"}
    response = await visitor.send(f"/settings/idle/reset/{TIMEOUT}", form)
    assert response.status_code == 200, response.text
    shown = fields(response.text)
    assert (shown[TIMEOUT], shown["idle_detection_interval"], shown["was.idle_detection_interval"]) == (
        "60",
        "12",
        "300",
    )
    assert (await current(plane)).idle == FleetSettings().idle
    assert (await visitor.send("/settings/idle/reset/nonsense", {})).status_code == 404
    assert (await visitor.send("/settings/nonsense", {})).status_code == 422


async def test_an_emptied_text_is_reset_and_text_is_escaped(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.ADMIN)
    form = await group_form(plane, "discovery")
    await visitor.send("/settings/discovery", {**form, "worker_discovery_tag_filter": f"{HOSTILE}=1"})
    page = await visitor.page("/settings")
    assert HOSTILE not in page
    assert "&lt;script&gt;" in page
    assert HOSTILE not in await (await signed_in(plane, Role.VIEWER)).page("/settings")
    form = await group_form(plane, "discovery")
    await visitor.send("/settings/discovery", {**form, "worker_discovery_tag_filter": ""})
    assert (await current(plane)).discovery.worker_discovery_tag_filter is None


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR])
async def test_others_cannot_change_them(plane: TestPlane, role: Role) -> None:
    visitor = await signed_in(plane, role)
    for path in ("/settings/idle", f"/settings/idle/reset/{TIMEOUT}"):
        assert (await visitor.send(path, {TIMEOUT: "90"})).status_code == 403
    admin = await signed_in(plane, Role.ADMIN)
    assert (await admin.send("/settings/idle", {TIMEOUT: "90"}, csrf="00")).status_code == 403
    assert await current(plane) == FleetSettings()


@pytest.mark.parametrize(
    ("text", "number"),
    [("5", 5), (" 5.5 ", 5.5), ("5,5", 5.5), ("1,000,000", "1,000,000"), ("", ""), ("1e400", float("inf"))],
)
def test_numbers_as_people_type_them(text: str, number: object) -> None:
    assert parse_number(text) == number
