"""The Templates page: listed for all users, created and changed by admins."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

import pytest

from lcm.control_plane.fleet.templates import read_template
from lcm.model.access import Role
from tests.support.web.visitor import signed_in
from tests.unit.control_plane.web.admin.test_settings_page import fields

if TYPE_CHECKING:
    from lcm.model.worker.template import WorkerTemplate
    from tests.support.virtual.control_plane import TestPlane

HOSTILE = "<script>alert(1)</script>"
NEW_TEMPLATE = {
    "name": "huge",
    "description": "for exams",
    "instance_type": "m5.4xlarge",
    "cpu_cores": "16",
    "memory_gb": "64",
    "storage_gb": "500.5",
    "max_nodes": "100",
    "cost_per_hour_usd": "0.768",
    "ami_name_pattern": "",
    "enabled": "on",
}


async def stored(plane: TestPlane, name: str) -> WorkerTemplate:
    return await read_template(plane.services.context.store, name)


def problem(page: str, name: str) -> str:
    found = re.search(rf'id="f-{name}-problem">([^<]*)<', page)
    return "" if found is None else unescape(found.group(1))


def _row(page: str, name: str) -> str:
    return page.partition(f'<tr id="t-{name}"')[2].partition("</tr>")[0]


async def test_all_templates_are_listed_with_the_number_of_their_workers(plane: TestPlane) -> None:
    await plane.create("one")
    await plane.create("two")
    page = await (await signed_in(plane, Role.VIEWER)).page("/templates")
    assert re.findall(r'<tr id="t-([\w-]+)"', page) == [
        "large",
        "medium",
        "metal",
        "micro",
        "nested-large",
        "nested-medium",
        "small",
    ]
    nested, metal, small = (_row(page, name) for name in ("nested-medium", "metal", "small"))
    assert "nested virtualization" in nested
    assert "requires KVM" in nested
    assert "nested virtualization" not in metal
    assert "requires KVM" in metal
    assert "KVM" not in small
    assert 'aria-label="2 workers created from small"' in page
    assert "m5zn.metal" in page
    assert "$3.96" in page


async def test_only_admins_see_the_buttons(plane: TestPlane) -> None:
    for role, sees in ((Role.VIEWER, False), (Role.OPERATOR, False), (Role.ADMIN, True)):
        page = await (await signed_in(plane, role)).page("/templates")
        assert ("/templates/new" in page) is sees
        assert ("/templates/edit/" in page) is sees
        assert ("/templates/small/confirm-disable" in page) is sees


async def test_a_template_is_created_and_changed(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.ADMIN)
    assert 'id="dialog-title"' in await visitor.part("/templates/new")
    response = await visitor.send("/templates/save", NEW_TEMPLATE)
    assert (response.status_code, response.headers["HX-Trigger"], response.headers["HX-Reswap"]) == (
        200,
        "lcm:done",
        "none",
    )
    made = await stored(plane, "huge")
    assert (made.capacity.cpu_cores, made.capacity.storage_gb, made.ami_name_pattern, made.enabled) == (
        16,
        500.5,
        None,
        True,
    )
    form = fields(await visitor.part("/templates/edit/huge"))
    assert (form["old"], form["storage_gb"], form["cost_per_hour_usd"]) == ("huge", "500.5", "0.768")
    del form["enabled"]
    response = await visitor.send("/templates/save", {**form, "description": "", "name": "renamed"})
    assert response.status_code == 200, response.text
    changed = await stored(plane, "huge")
    assert (changed.description, changed.enabled, changed.name) == ("", False, "huge")
    assert 'class="row-off"' in await visitor.part("/templates")


async def test_a_copy_has_all_values_but_the_name(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.ADMIN)
    form = fields(await visitor.part("/templates/new?like=metal"))
    assert (form["name"], form["instance_type"], form["mark"]) == ("", "m5zn.metal", "")
    await visitor.part("/templates/new?like=nonsense", 404)


@pytest.mark.parametrize(
    ("name", "typed", "expected_text"),
    [
        ("name", "", "must not be empty"),
        ("name", "a b", "must be 1 to 63 letters, digits, dots, dashes and underscores"),
        ("instance_type", "big", "must be an instance type such as t3.medium"),
        ("cpu_cores", "two", "must be a whole number"),
        ("cpu_cores", "", "must not be empty"),
        ("cpu_cores", "0", "must be at least 1"),
        ("memory_gb", "lots", "must be a number"),
        ("storage_gb", "0", "must be greater than 0"),
        ("cost_per_hour_usd", "-1", "must be at least 0"),
        ("description", "x" * 501, "must have at most 500 characters"),
        ("name", "small", "template small already exists"),
    ],
)
async def test_problems_are_shown_at_their_fields_and_input_is_kept(
    plane: TestPlane, name: str, typed: str, expected_text: str
) -> None:
    visitor = await signed_in(plane, Role.ADMIN)
    response = await visitor.send(
        "/templates/save", {**NEW_TEMPLATE, "description": "kept & typed", name: typed, "mark": "", "old": ""}
    )
    assert response.status_code in (409, 422)
    assert problem(response.text, name).startswith(expected_text)
    expected = {**NEW_TEMPLATE, "description": "kept & typed", name: typed}
    shown = fields(response.text)
    assert {each: shown[each] for each in expected} == expected
    assert re.search(rf'id="f-{name}"[^>]*aria-invalid="true" aria-describedby="f-{name}-problem"', response.text)
    assert (await stored(plane, "small")).instance_type == "t3.small"


async def test_an_older_form_does_not_overwrite_a_newer_template(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.ADMIN)
    mine = fields(await visitor.part("/templates/edit/small"))
    theirs = fields(await visitor.part("/templates/edit/small"))
    assert (await visitor.send("/templates/save", {**theirs, "description": "theirs"})).status_code == 200
    response = await visitor.send("/templates/save", {**mine, "description": "mine"})
    assert response.status_code == 409
    assert "Another user changed this template meanwhile" in response.text
    assert 'value="mine"' in response.text
    assert (await stored(plane, "small")).description == "theirs"


async def test_only_admins_enable_and_disable_templates(plane: TestPlane) -> None:
    admin = await signed_in(plane, Role.ADMIN)
    assert "Template small disabled" in (await admin.send("/templates/small/disable")).text
    assert not (await stored(plane, "small")).enabled
    assert (await admin.send("/templates/small/enable")).status_code == 200
    assert (await stored(plane, "small")).enabled
    assert (await admin.send("/templates/nonsense/enable")).status_code == 404
    operator = await signed_in(plane, Role.OPERATOR)
    for path in ("/templates/small/disable", "/templates/save"):
        assert (await operator.send(path, NEW_TEMPLATE)).status_code == 403
    for path in ("/templates/new", "/templates/edit/small"):
        await operator.part(path, 403)
    assert (await admin.send("/templates/save", NEW_TEMPLATE, csrf="00")).status_code == 403
    assert (await stored(plane, "small")).enabled


async def test_descriptions_are_escaped(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.ADMIN)
    hostile = {**NEW_TEMPLATE, "description": HOSTILE, "ami_name_pattern": f'"{HOSTILE}'}
    assert (await visitor.send("/templates/save", hostile)).status_code == 200
    for text in (await visitor.page("/templates"), await visitor.part("/templates/edit/huge")):
        assert HOSTILE not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


async def test_an_empty_list_says_so(plane: TestPlane) -> None:
    store = plane.services.context.store
    from lcm.control_plane.records.kinds import TEMPLATES
    from lcm.control_plane.store.port import Delete

    for each in (await store.find(TEMPLATES)).items:
        await store.commit([Delete(TEMPLATES, each.id, each.revision)])
    page = await (await signed_in(plane, Role.VIEWER)).page("/templates")
    assert "No templates" in page


async def test_kvm_is_required_by_default_where_it_is_offered_and_a_person_may_choose(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.ADMIN)
    nested = {**NEW_TEMPLATE, "instance_type": "m8i.4xlarge", "nested_virtualization": "on"}
    for name, choice, expected in (("by-default", "", True), ("never", "no", False), ("always", "yes", True)):
        response = await visitor.send("/templates/save", {**nested, "name": name, "requires_kvm": choice})
        assert response.status_code == 200, response.text
        made = await stored(plane, name)
        assert (made.nested_virtualization, made.requires_kvm) == (True, expected)
        form = await visitor.part(f"/templates/edit/{name}")
        assert f'<option value="{"yes" if expected else "no"}" selected>' in form
    await visitor.send("/templates/save", {**NEW_TEMPLATE, "name": "plain"})
    assert not (await stored(plane, "plain")).requires_kvm


async def test_a_problem_of_a_choice_or_a_box_is_shown_there(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.ADMIN)
    wrong = {
        **NEW_TEMPLATE,
        "instance_type": "m8i.metal-48xl",
        "nested_virtualization": "on",
        "requires_kvm": "perhaps",
    }
    response = await visitor.send("/templates/save", {**wrong, "requires_kvm": "perhaps"})
    assert response.status_code == 422
    assert problem(response.text, "nested_virtualization") == "must be false for a metal type, which has KVM without it"
    assert problem(response.text, "requires_kvm") == "must be true or false"
