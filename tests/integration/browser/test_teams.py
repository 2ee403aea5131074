"""Teams by keyboard: a form with a mistake keeps what was typed, and a lablet is assigned to a team."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.support.web.actions import wait_until_live
from tests.support.web.pages import DESKTOP, PHONE, accessibility_violations

if TYPE_CHECKING:
    from tests.support.servers.scripted_control_plane import ScriptedControlPlane
    from tests.support.web.pages import Scheme, Visits

TOPOLOGY = "lab: {version: 0.2.2}\nnodes:\n- {id: n0, label: R1}\n"


@pytest.mark.parametrize(("scheme", "size"), [("light", DESKTOP), ("dark", PHONE)], ids=["light", "phone"])
def test_a_team_is_made_by_keyboard_and_gets_a_lablet(
    visits: Visits, plane: ScriptedControlPlane, scheme: Scheme, size: tuple[int, int]
) -> None:
    name = f"networks-{scheme}"
    page, watch = visits.open(plane, "/teams", scheme=scheme, size=size)
    wait_until_live(page)
    page.get_by_role("button", name="New team").first.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.type(name)
    dialog.get_by_label("Learners by e-mail address").fill("bob@example.org\nnobody")
    dialog.get_by_label("Lablets at once").fill("30")
    watch.allow("status of 422")
    dialog.locator("#do").press("Enter")
    expect(dialog.locator("#f-learners-problem")).to_contain_text("line 2:")
    expect(dialog.get_by_label("Lablets at once")).to_have_value("30")
    assert accessibility_violations(page) == []
    dialog.get_by_label("Learners by e-mail address").fill("bob@example.org\ncarol@example.org")
    dialog.locator("#do").press("Enter")
    expect(dialog).to_be_hidden()
    row = page.get_by_role("row", name=name)
    expect(row).to_contain_text("carol@example.org")
    assert accessibility_violations(page) == []
    definition = {"name": f"ospf-{scheme}", "version": "1", "topology": TOPOLOGY, "requirements": {"license": False}}
    plane.ask("POST", "/api/lablet-definitions", definition)
    lablet = plane.ask("POST", "/api/lablets", {"name": f"lab-{scheme}", "definition": f"ospf-{scheme}"})
    page.goto(f"/lablets/{lablet['id']}")
    wait_until_live(page)
    page.get_by_role("button", name="Assign to team").press("Enter")
    dialog.get_by_label("Team").select_option(name)
    dialog.get_by_label("Owner").fill("bob@example.org")
    assert accessibility_violations(page) == []
    dialog.locator("#do").press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.locator("#details-title + dl")).to_contain_text(name)
    page.goto("/teams")
    page.get_by_role("button", name=f"Delete {name}").press("Enter")
    expect(dialog).to_contain_text("It still has 1 lablet.")
    assert accessibility_violations(page) == []
