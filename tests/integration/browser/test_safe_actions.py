"""Impatient and careless users: double clicks, Enter storms, focus, and typed confirmations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.support.records.lablet_records import TOPOLOGY
from tests.support.web.actions import wait_until_live
from tests.support.web.pages import DESKTOP, PHONE, accessibility_violations

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.servers.scripted_control_plane import ScriptedControlPlane
    from tests.support.web.pages import Scheme, Visits


@pytest.fixture(scope="module", autouse=True)
def definition(plane: ScriptedControlPlane) -> None:
    body = {"name": "ospf", "version": "1", "topology": TOPOLOGY, "requirements": {"license": False}}
    plane.ask("POST", "/api/lablet-definitions", body)


def open_dialog(page: Page, button: str) -> None:
    page.get_by_role("button", name=button, exact=True).first.click()
    expect(page.get_by_role("dialog").locator("form")).to_be_visible()


def test_a_double_click_creates_one_lablet(visits: Visits, plane: ScriptedControlPlane) -> None:
    page, _ = visits.open(plane, "/lablets", role="operator")
    wait_until_live(page)
    before = len(plane.ask("GET", "/api/lablets")["items"])
    open_dialog(page, "Create a lablet")
    page.locator("#do").dblclick(delay=0)
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("#toasts .toast")).to_have_count(1)
    assert len(plane.ask("GET", "/api/lablets")["items"]) == before + 1


def test_the_button_is_off_while_the_form_is_sent_and_enter_sends_nothing_more(
    visits: Visits, plane: ScriptedControlPlane
) -> None:
    page, _ = visits.open(plane, "/fleet", role="operator")
    wait_until_live(page)
    open_dialog(page, "Create a worker")
    held: list[Any] = []
    page.route(re.compile("/workers/new$"), lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks it
    page.get_by_role("dialog").get_by_label("Name", exact=True).fill("impatient")
    for _ in range(5):
        page.keyboard.press("Enter")
    expect(page.locator("#do")).to_be_disabled()
    expect(page.get_by_role("dialog").locator("form")).to_have_attribute("aria-busy", "true")
    while not held:
        page.wait_for_timeout(20)
    held[0].continue_()
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert len(held) == 1
    assert [each["name"] for each in plane.ask("GET", "/api/workers?q=impatient")["items"]] == ["impatient"]


def test_a_form_whose_answer_was_lost_is_sent_again_and_has_an_effect_once(
    visits: Visits, plane: ScriptedControlPlane
) -> None:
    page, watch = visits.open(plane, "/lablets", role="operator")
    wait_until_live(page)
    watch.allow("net::ERR_|Failed to fetch")
    before = len(plane.ask("GET", "/api/lablets")["items"])
    open_dialog(page, "Create a lablet")
    lost: list[int] = []

    def lose_the_answer(route: Any) -> None:
        if lost:
            route.fallback()
            return
        lost.append(route.fetch().status)
        route.abort()

    page.route(re.compile("/lablets/new$"), lose_the_answer)
    page.locator("#do").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("The server could not be reached")
    assert lost == [200], "the server did create it"
    page.locator("#do").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert len(plane.ask("GET", "/api/lablets")["items"]) == before + 1


def test_enter_does_not_terminate_and_the_name_must_be_typed(visits: Visits, plane: ScriptedControlPlane) -> None:
    worker = plane.running("precious")
    page, _ = visits.open(plane, f"/workers/{worker['id']}", role="operator")
    wait_until_live(page)
    page.locator("#act-terminate").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("#do")).to_be_disabled()
    expect(dialog.locator("[data-expected]")).to_be_focused()
    page.keyboard.press("Enter")
    dialog.get_by_label("Reason").fill("oops")
    page.keyboard.press("Enter")
    dialog.get_by_label("to confirm").fill("preciou")
    page.keyboard.press("Enter")
    expect(dialog.locator("#do")).to_be_disabled()
    assert plane.worker(worker)["desired_status"] == "RUNNING"
    dialog.get_by_label("to confirm").press_sequentially("")
    dialog.get_by_label("to confirm").fill("precious")
    expect(dialog.locator("#do")).to_be_enabled()
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    assert plane.worker(worker)["desired_status"] == "TERMINATED"


def test_the_focus_of_a_stop_is_on_cancel(visits: Visits, plane: ScriptedControlPlane) -> None:
    worker = plane.running("steady")
    page, _ = visits.open(plane, f"/workers/{worker['id']}", role="operator")
    wait_until_live(page)
    page.locator("#act-stop").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert plane.worker(worker)["desired_status"] == "RUNNING"


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE)], ids=["light", "dark", "phone"]
)
def test_a_bulk_termination_totals_the_losses_and_asks_for_the_number(
    visits: Visits, plane: ScriptedControlPlane, scheme: Scheme, size: tuple[int, int]
) -> None:
    mark = f"bulk-{scheme}-{size[0]}"
    workers = [plane.running(f"{mark}-{number}", license_token="a-license-token") for number in range(3)]
    plane.measured(workers[0])
    page, _ = visits.open(plane, f"/fleet?q={mark}", role="operator", scheme=scheme, size=size)
    wait_until_live(page)
    for worker in workers:
        page.get_by_label(f"Select {worker['name']}").check()
    page.locator("#bulk").get_by_role("button", name="Terminate").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 instances with all data on their disks")
    expect(dialog).to_contain_text("labs with")
    expect(dialog).to_contain_text("unknown for 2 workers without recent metrics")
    expect(dialog).to_contain_text("0 lablets")
    assert accessibility_violations(page) == []
    dialog.get_by_label("to confirm").fill("2")
    page.keyboard.press("Enter")
    expect(dialog.locator("#do")).to_be_disabled()
    assert plane.worker(workers[0])["desired_status"] == "RUNNING"
    dialog.get_by_label("to confirm").fill("3")
    dialog.locator("#do").click()
    expect(dialog).to_be_hidden()
    assert {plane.worker(each)["desired_status"] for each in workers} == {"TERMINATED"}
