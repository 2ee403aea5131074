"""The page of a worker with a running `lcm up`: its content, and each action until it is carried out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.support.servers.lcm_up import ready
from tests.support.web.actions import assert_not_reloaded, confirm_dialog, type_confirmation, wait_until_live

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.servers.lcm_up import LcmUpProcess
    from tests.support.web.pages import Visits

NAMES = ("alpha", "bravo", "charlie", "delta", "echo")
SLOW = 180_000.0  # milliseconds that a step of the simulated cloud may take on a busy machine

EXACT_TIME = re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d \S+\n20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
"""In the viewer's zone, which is named, and in UTC."""


@pytest.fixture(scope="module")
def workers(up: LcmUpProcess) -> dict[str, dict[str, Any]]:
    for name in NAMES:
        up.ask("POST", "/api/workers", {"name": name, "template_name": "small", "tags": {"course": "routing-101"}})
    return up.until(ready(*NAMES), "all are ready")


def at(page: Page, status: str) -> None:
    """Wait until the page shows this status."""
    expect(page.locator("#worker")).to_have_attribute("data-status", status, timeout=SLOW)


def offered(page: Page) -> set[str]:
    return {(text or "").removesuffix("…") for text in page.locator("[id^='act-']").all_text_contents()}


def act(page: Page, action: str, **fields: str) -> str:
    """Select an action and confirm it; returns the preview."""
    page.locator(f"#act-{action}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("#do")).to_be_visible()
    preview = dialog.inner_text()
    for name, value in fields.items():
        dialog.locator(f"[name={name}]").fill(value)
    type_confirmation(page)
    dialog.locator("#do").click()
    expect(dialog).to_be_hidden()
    return preview


def test_it_shows_status_reason_and_since_when(
    visits: Visits, up: LcmUpProcess, workers: dict[str, dict[str, Any]]
) -> None:
    worker = workers["alpha"]
    page, _ = visits.open(up, "/fleet")
    page.get_by_role("link", name="alpha", exact=True).click()
    expect(page.get_by_role("heading", name="alpha", level=1)).to_be_visible()
    wait_until_live(page)
    status = page.get_by_role("region", name="Status details")
    expect(status).to_contain_text("RUNNING")
    expect(status).to_contain_text("Next:")
    expect(status.locator("summary")).to_contain_text(re.compile(r"Last decision: [a-z_.]+"))
    conditions = page.locator("table.conditions")
    for name in ("Instance ready", "CML ready"):
        row = conditions.get_by_role("row").filter(has_text=name)
        expect(row).to_contain_text("True")
        expect(row.locator("time")).to_have_attribute("title", EXACT_TIME)
    details = page.get_by_role("complementary", name="Details")
    for text in (worker["instance_id"], worker["aws_region"], "routing-101", "$0.0263"):
        expect(details).to_contain_text(text)
    timeline = page.locator("#timeline li")
    expect(timeline.filter(has_text="RUNNING").first).to_be_visible()
    kinds = set(page.locator("#timeline .kind").all_inner_texts())
    assert {"person", "controller"} <= {kind.strip() for kind in kinds}, kinds


def test_plots_are_drawn(visits: Visits, up: LcmUpProcess, workers: dict[str, dict[str, Any]]) -> None:
    page, _ = visits.open(up, f"/workers/{workers['alpha']['id']}")
    canvas = page.locator("#plot-used canvas")
    expect(canvas).to_be_visible(timeout=SLOW)
    expect(page.locator("#plot-labs canvas")).to_be_visible()
    painted = """() => {
        const canvas = document.querySelector('#plot-used canvas');
        const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return data.some((value, place) => place % 4 === 3 && value > 0);
    }"""
    page.wait_for_function(painted)
    page.locator("#plots-table summary").click()
    expect(page.locator("#plots-table tr[data-name=cpu] td").first).to_have_text(re.compile(r"\d"))


def test_out_of_service(visits: Visits, up: LcmUpProcess, workers: dict[str, dict[str, Any]]) -> None:
    """Stop, drain, cancel the drain, and terminate: requested one after the other, awaited together."""
    stops, drains, ends = (
        visits.open(up, f"/workers/{workers[name]['id']}", role="operator")[0] for name in ("bravo", "charlie", "echo")
    )
    for page in (stops, drains, ends):
        wait_until_live(page)
    # During a hold the worker stays DRAINING, long enough to cancel the drain.
    up.ask("POST", "/api/fleet/hold", {"reason": "to check a drain"})
    expect(drains.get_by_text("The fleet is on hold.")).to_be_visible()
    act(drains, "drain")
    at(drains, "DRAINING")
    act(drains, "cancel-drain")
    at(drains, "RUNNING")
    assert up.workers()["charlie"]["desired_status"] == "RUNNING"
    act(drains, "drain")
    up.ask("POST", "/api/fleet/release")
    expect(drains.get_by_text("The fleet is on hold.")).to_be_hidden()

    preview = act(stops, "stop", reason="the course is over")
    assert "What happens:" in preview
    assert "save $0.0208 an hour" in preview
    preview = act(ends, "terminate", reason="no longer needed")
    assert "What is lost" in preview
    for page, name, status in (
        (stops, "bravo", "STOPPED"),
        (drains, "charlie", "STOPPED"),
        (ends, "echo", "TERMINATED"),
    ):
        at(page, status)
        assert up.workers()[name]["status"] == status
        assert_not_reloaded(page)
    expect(stops.locator("#timeline")).to_contain_text("the course is over")
    assert {"Start", "Hold", "Terminate"} <= offered(stops)
    assert not {"Stop", "Drain"} & offered(stops)
    assert offered(ends) == set()


def test_into_service(visits: Visits, up: LcmUpProcess, workers: dict[str, dict[str, Any]]) -> None:
    """Start, retry and create: requested one after the other, awaited together."""
    template = up.ask("GET", "/api/worker-templates/small") | {"name": "doomed", "ami_name_pattern": "no-such-image-*"}
    up.ask("PUT", "/api/worker-templates/doomed", template)
    failed = up.ask("POST", "/api/workers", {"name": "hotel", "template_name": "doomed"})
    resting = up.ask("POST", "/api/workers", {"name": "golf", "template_name": "small", "desired_status": "STOPPED"})
    retried, starts = (visits.open(up, f"/workers/{each['id']}", role="operator")[0] for each in (failed, resting))
    wait_until_live(retried)
    wait_until_live(starts)
    preview = act(starts, "start")
    assert "cost $0.0263 an hour" in preview
    at(retried, "FAILED")
    expect(retried.locator("#problem")).to_be_visible()
    assert {"Retry", "Terminate"} <= offered(retried)
    assert not {"Start", "Stop", "Drain"} & offered(retried)
    up.ask("PUT", "/api/worker-templates/doomed", template | {"ami_name_pattern": None})
    act(retried, "retry")
    made = create(visits, up, "india")
    for page in (starts, retried, made):
        at(page, "RUNNING")
        expect(page.locator(".worker-head .yes")).to_be_visible(timeout=SLOW)
        assert_not_reloaded(page)
    assert ready("golf", "hotel", "india")(up.workers())


def create(visits: Visits, up: LcmUpProcess, name: str) -> Page:
    """Create a worker with the dialog, first with a name that is in use; returns its page."""
    page, watch = visits.open(up, "/fleet", role="operator")
    wait_until_live(page)
    page.get_by_role("button", name="Create a worker").first.click()
    dialog = page.get_by_role("dialog")
    dialog.locator("#new-name").fill("alpha")
    dialog.get_by_label("Template").select_option("large")
    expect(dialog.locator("#new-cost")).to_contain_text("$0.0832 an hour")
    watch.allow("status of 409")
    dialog.locator("#do").click()
    expect(dialog.get_by_role("alert")).to_contain_text("alpha")
    expect(dialog.get_by_label("Template")).to_have_value("large")
    dialog.locator("#new-name").fill(name)
    dialog.get_by_label("Template").select_option("small")
    confirm_dialog(page, "Create the worker")
    page.get_by_role("link", name=name, exact=True).first.click()
    wait_until_live(page)
    return page


def test_edit(visits: Visits, up: LcmUpProcess, workers: dict[str, dict[str, Any]]) -> None:
    page, _ = visits.open(up, f"/workers/{workers['alpha']['id']}", role="operator")
    wait_until_live(page)
    page.locator("#act-edit").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name of tag 2").fill("room")
    dialog.get_by_label("Value of tag 2").fill("B 12")
    confirm_dialog(page, "Save")
    expect(page.get_by_role("region", name="Tags")).to_contain_text("B 12")
    assert up.workers()["alpha"]["tags"] == {"course": "routing-101", "room": "B 12"}
    assert_not_reloaded(page)


def test_hold_and_release(visits: Visits, up: LcmUpProcess, workers: dict[str, dict[str, Any]]) -> None:
    page, _ = visits.open(up, f"/workers/{workers['delta']['id']}", role="operator")
    wait_until_live(page)
    act(page, "hold", reason="an operator inspects it")
    expect(page.locator("#held")).to_contain_text("an operator inspects it")
    assert up.workers()["delta"]["hold"]["reason"] == "an operator inspects it"
    assert "Hold" not in offered(page) or "Release" in offered(page)
    act(page, "release")
    expect(page.locator("#held")).to_have_count(0)
    assert up.workers()["delta"]["hold"] is None
    assert_not_reloaded(page)


def test_a_license_is_registered_and_deregistered(
    visits: Visits, up: LcmUpProcess, workers: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(up, f"/workers/{workers['delta']['id']}", role="operator")
    wait_until_live(page)
    license_card = page.get_by_role("region", name="License")
    page.locator("#license-register").click()
    page.get_by_role("dialog").get_by_label("License token").fill("a-token-for-this-test")
    confirm_dialog(page, "Register")
    expect(license_card.locator(".chip")).to_have_text("registered", timeout=SLOW)
    assert "a-token-for-this-test" not in page.content()
    page.locator("#license-deregister").click()
    confirm_dialog(page, "Deregister")
    expect(license_card.locator(".chip")).to_have_text("deregistered", timeout=SLOW)
    assert up.workers()["delta"]["license_status"] == "deregistered"
    assert_not_reloaded(page)


def test_a_conflicting_change_is_refused_with_a_message(
    visits: Visits, up: LcmUpProcess, workers: dict[str, dict[str, Any]]
) -> None:
    page, watch = visits.open(up, f"/workers/{workers['delta']['id']}", role="operator")
    wait_until_live(page)
    page.locator("#act-terminate").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("#do")).to_be_visible()
    up.ask("PATCH", f"/api/workers/{workers['delta']['id']}", {"tags": {"changed": "meanwhile"}})
    watch.allow("status of 4(09|12)")
    type_confirmation(page)
    dialog.locator("#do").click()
    expect(dialog.get_by_role("alert")).not_to_be_empty()
    assert up.workers()["delta"]["desired_status"] == "RUNNING"


def test_a_viewer_sees_everything_but_no_actions(
    visits: Visits, up: LcmUpProcess, workers: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(up, f"/workers/{workers['alpha']['id']}", role="viewer")
    wait_until_live(page)
    expect(page.get_by_role("region", name="Status details")).to_be_visible()
    assert offered(page) == set()
    buttons = {text.strip() for text in page.get_by_role("button").all_text_contents()}
    assert all(re.fullmatch(r"Sign out|◐|\d+ h|", word) for word in buttons), buttons


def test_a_worker_that_does_not_exist(visits: Visits, up: LcmUpProcess) -> None:
    page, watch = visits.open(up, "/fleet")
    watch.allow("status of 404")
    page.goto("/workers/w-missing")
    expect(page.get_by_text("There is no worker w-missing")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="All workers").click()
    expect(page.get_by_role("heading", name="Fleet", level=1)).to_be_visible()
