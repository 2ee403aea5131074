"""A phone opens a seat link: it reaches, extends, resets and ends one lab, and sees nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.integration.browser.test_accessibility import overflows_window
from tests.support.servers.scripted_lablets import define, make, now, place, report
from tests.support.web.pages import DESKTOP, PHONE, accessibility_violations

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.servers.scripted_control_plane import ScriptedControlPlane
    from tests.support.web.pages import Visits

TOPOLOGY = "nodes: [{id: n0, label: R1, tags: ['serial:${CON}', 'pat:${SSH}:22']}, {id: n1, label: R2}]"
NEEDS = {"license": False, "cpu_cores": 0.1, "memory_gb": 0.1, "ports": ["CON", "SSH"]}
SMALL = (360, 740)


def check_page(page: Page) -> None:
    assert accessibility_violations(page) == []
    assert not overflows_window(page)


def test_a_learner_with_a_link(visits: Visits, plane: ScriptedControlPlane) -> None:
    define(plane, "reach", "1", topology=TOPOLOGY, requirements=NEEDS)
    worker = plane.running("alpha", template_name="large")
    lablet = make(plane, "ospf-anna", "reach", owner="anna", time_to_live_minutes=60.0)
    other = make(plane, "someone-elses", "reach", owner="bob")
    place(plane, lablet, worker)
    report(plane, lablet, "INSTANTIATING", lab_id="5a3f1c")
    report(plane, lablet, "RUNNING", endpoints=[{"node": "R2", "addresses": ["10.0.0.5"]}])

    # The instructor makes the link in the dashboard.
    office, _ = visits.open(plane, f"/lablets/{lablet['id']}", role="operator", size=DESKTOP)
    office.get_by_role("button", name="Seat link…").click()
    dialog = office.get_by_role("dialog")
    dialog.get_by_role("button", name="Create a link").click()
    link = dialog.locator(".copyable code").first.text_content() or ""
    assert re.fullmatch(rf"{re.escape(plane.url)}/seat#seat-[a-z0-9]+\.[0-9a-f]{{64}}", link)
    check_page(office)

    # The learner opens it.
    context, watch = visits.context(plane, scheme="dark", size=PHONE)
    page = context.new_page()
    page.goto(link)
    check_page(page)
    page.get_by_role("button", name="Open my lab").click()
    expect(page).to_have_url(f"{plane.url}/my")
    lab = page.locator(".lab")
    expect(lab).to_have_count(1)
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    ports = now(plane, lablet)["ports"]
    expect(lab).to_contain_text(f"telnet 192.0.2.7 {ports['CON']}")
    expect(lab).to_contain_text(f"ssh -p {ports['SSH']} 192.0.2.7")
    expect(lab.get_by_role("link", name="Open in CML")).to_have_attribute("href", "https://192.0.2.7/lab/5a3f1c")
    expect(lab.locator("[data-ends]")).to_contain_text(re.compile(r"5\d:\d\d minutes"))
    check_page(page)

    # More time: the page counts it down at once.
    lab.get_by_role("button", name="Extend").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("2 hours", exact=True).click()
    expect(dialog.locator("#extension")).to_contain_text("It will end in 2 hours")
    check_page(page)
    dialog.get_by_role("button", name=re.compile("^Extend")).click()
    expect(lab.locator("[data-ends]")).to_contain_text("2 hours")

    # A fresh lab: what the controller reports then is seen without a reload.
    lab.get_by_role("button", name="Reset").click()
    expect(dialog).to_contain_text("What is lost")
    check_page(page)
    dialog.get_by_role("button", name="Reset lab").click()
    expect(lab).to_contain_text("Starting")
    assert now(plane, lablet)["placement_attempt"] == 2
    report(plane, lablet, "INSTANTIATING", lab_id="6b4e2d")
    report(plane, lablet, "RUNNING")
    expect(lab.locator(".status")).to_have_text("Running")

    # Nothing else: every page of the dashboard asks for a sign-in, and the API knows nobody.
    assert "someone-elses" not in page.content()
    for path in ("/", "/lablets", f"/lablets/{other['id']}", "/fleet", "/activity", "/system"):
        answer = context.request.get(path)
        assert "/sign-in" in answer.url, path
    for path in ("/api/lablets", "/api/fleet", "/api/audit", "/api/events/stream", f"/api/lablets/{lablet['id']}"):
        assert context.request.get(path).status == 401, path

    # The smallest phone, in light colors.
    page.set_viewport_size({"width": SMALL[0], "height": SMALL[1]})
    page.emulate_media(color_scheme="light")
    check_page(page)

    # The end: the page says so by itself.
    lab.get_by_role("button", name="End", exact=True).click()
    dialog.get_by_role("button", name="End lab").click()
    expect(lab).to_contain_text("Ending")
    watch.allow("status of 401")
    report(plane, lablet, "STOPPING")
    report(plane, lablet, "TERMINATED")
    expect(page.get_by_role("heading", name="This lab has ended.")).to_be_visible()
    check_page(page)
