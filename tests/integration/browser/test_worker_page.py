"""The Worker page against a running `lcm up`: what it says, and each action until the world is as it was asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.support.servers.lcm_up import ready
from tests.support.web.actions import confirm, live, not_reloaded

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.servers.lcm_up import Up
    from tests.support.web.pages import Visits

NAMES = ("alpha", "bravo", "charlie", "delta", "echo")
SLOW = 90_000.0  # milliseconds that a step of the simulated cloud may take on a busy machine


@pytest.fixture(scope="module")
def workers(up: Up) -> dict[str, dict[str, Any]]:
    for name in NAMES:
        up.ask("POST", "/api/workers", {"name": name, "template_name": "small", "tags": {"course": "routing-101"}})
    return up.until(ready(*NAMES), "all are ready")


def at(page: Page, status: str) -> None:
    """Wait until the page shows that the worker is there."""
    expect(page.locator("#worker")).to_have_attribute("data-status", status, timeout=SLOW)


def offered(page: Page) -> set[str]:
    return {(text or "").removesuffix("…") for text in page.locator("[id^='act-']").all_text_contents()}


def act(page: Page, action: str, **fields: str) -> str:
    """Choose an action, read its plan, say yes; returns the plan."""
    page.locator(f"#act-{action}").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("#do")).to_be_visible()
    told = dialog.inner_text()
    for name, value in fields.items():
        dialog.locator(f"[name={name}]").fill(value)
    dialog.locator("#do").click()
    expect(dialog).to_be_hidden()
    return told


def test_it_says_what_why_and_since_when(visits: Visits, up: Up, workers: dict[str, dict[str, Any]]) -> None:
    worker = workers["alpha"]
    page, _ = visits.open(up, "/")
    page.get_by_role("link", name="alpha", exact=True).click()
    expect(page.get_by_role("heading", name="alpha", level=1)).to_be_visible()
    live(page)
    why = page.get_by_role("region", name="Why it is so")
    expect(why).to_contain_text("RUNNING")
    expect(why).to_contain_text("Next:")
    expect(why.locator("summary")).to_contain_text(re.compile(r"Last decision: [a-z_.]+"))
    conditions = page.locator("table.conditions")
    for name in ("Instance ready", "CML ready"):
        row = conditions.get_by_role("row").filter(has_text=name)
        expect(row).to_contain_text("True")
        expect(row.locator("time")).to_have_attribute("title", re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC$"))
    facts = page.get_by_role("complementary", name="Facts")
    for text in (worker["instance_id"], worker["aws_region"], "routing-101", "$0.0208"):
        expect(facts).to_contain_text(text)
    timeline = page.locator("#timeline li")
    expect(timeline.filter(has_text="RUNNING").first).to_be_visible()
    kinds = set(page.locator("#timeline .kind").all_inner_texts())
    assert {"person", "controller"} <= {kind.strip() for kind in kinds}, kinds


def test_plots_are_drawn(visits: Visits, up: Up, workers: dict[str, dict[str, Any]]) -> None:
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


def test_out_of_service(visits: Visits, up: Up, workers: dict[str, dict[str, Any]]) -> None:
    """Stop, drain, its cancellation, and terminate: asked for one after the other, waited for together."""
    stops, drains, ends = (
        visits.open(up, f"/workers/{workers[name]['id']}", role="operator")[0] for name in ("bravo", "charlie", "echo")
    )
    for page in (stops, drains, ends):
        live(page)
    # While nothing may be changed it stays DRAINING, long enough to think better of it.
    up.ask("POST", "/api/fleet/hold", {"reason": "to look at a drain"})
    expect(drains.get_by_text("The fleet is on hold.")).to_be_visible()
    act(drains, "drain")
    at(drains, "DRAINING")
    act(drains, "cancel-drain")
    at(drains, "RUNNING")
    assert up.workers()["charlie"]["desired_status"] == "RUNNING"
    act(drains, "drain")
    up.ask("POST", "/api/fleet/release")
    expect(drains.get_by_text("The fleet is on hold.")).to_be_hidden()

    told = act(stops, "stop", reason="the course is over")
    assert "What happens:" in told
    assert "save $0.0208 an hour" in told
    told = act(ends, "terminate", reason="no longer needed")
    assert "What is lost" in told
    for page, name, status in (
        (stops, "bravo", "STOPPED"),
        (drains, "charlie", "STOPPED"),
        (ends, "echo", "TERMINATED"),
    ):
        at(page, status)
        assert up.workers()[name]["status"] == status
        not_reloaded(page)
    expect(stops.locator("#timeline")).to_contain_text("the course is over")
    assert {"Start", "Hold", "Terminate"} <= offered(stops)
    assert not {"Stop", "Drain"} & offered(stops)
    assert offered(ends) == set()


def test_into_service(visits: Visits, up: Up) -> None:
    """Start, retry and create: asked for one after the other, waited for together."""
    template = up.ask("GET", "/api/worker-templates/small") | {"name": "doomed", "ami_name_pattern": "no-such-image-*"}
    up.ask("PUT", "/api/worker-templates/doomed", template)
    failed = up.ask("POST", "/api/workers", {"name": "hotel", "template_name": "doomed"})
    resting = up.ask("POST", "/api/workers", {"name": "golf", "template_name": "small", "desired_status": "STOPPED"})
    tries, starts = (visits.open(up, f"/workers/{each['id']}", role="operator")[0] for each in (failed, resting))
    live(tries)
    live(starts)
    told = act(starts, "start")
    assert "cost $0.0208 an hour" in told
    at(tries, "FAILED")
    expect(tries.locator("#problem")).to_be_visible()
    assert {"Retry", "Terminate"} <= offered(tries)
    assert not {"Start", "Stop", "Drain"} & offered(tries)
    up.ask("PUT", "/api/worker-templates/doomed", template | {"ami_name_pattern": None})
    act(tries, "retry")
    made = create(visits, up, "india")
    for page in (starts, tries, made):
        at(page, "RUNNING")
        expect(page.locator(".worker-head .yes")).to_be_visible(timeout=SLOW)
        not_reloaded(page)
    assert ready("golf", "hotel", "india")(up.workers())


def create(visits: Visits, up: Up, name: str) -> Page:
    """A new worker by the dialog, first with a name that is taken; returns its page."""
    page, watch = visits.open(up, "/", role="operator")
    live(page)
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
    confirm(page, "Create the worker")
    page.get_by_role("link", name=name, exact=True).first.click()
    live(page)
    return page


def test_edit(visits: Visits, up: Up, workers: dict[str, dict[str, Any]]) -> None:
    page, _ = visits.open(up, f"/workers/{workers['alpha']['id']}", role="operator")
    live(page)
    page.locator("#act-edit").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name of tag 2").fill("room")
    dialog.get_by_label("Value of tag 2").fill("B 12")
    confirm(page, "Save")
    expect(page.get_by_role("region", name="Tags")).to_contain_text("B 12")
    assert up.workers()["alpha"]["tags"] == {"course": "routing-101", "room": "B 12"}
    not_reloaded(page)


def test_hold_and_release(visits: Visits, up: Up, workers: dict[str, dict[str, Any]]) -> None:
    page, _ = visits.open(up, f"/workers/{workers['delta']['id']}", role="operator")
    live(page)
    act(page, "hold", reason="somebody examines it")
    expect(page.locator("#held")).to_contain_text("somebody examines it")
    assert up.workers()["delta"]["hold"]["reason"] == "somebody examines it"
    assert "Hold" not in offered(page) or "Release" in offered(page)
    act(page, "release")
    expect(page.locator("#held")).to_have_count(0)
    assert up.workers()["delta"]["hold"] is None
    not_reloaded(page)


def test_a_licence_is_registered_and_given_back(visits: Visits, up: Up, workers: dict[str, dict[str, Any]]) -> None:
    page, _ = visits.open(up, f"/workers/{workers['delta']['id']}", role="operator")
    live(page)
    licence = page.get_by_role("region", name="Licence")
    page.locator("#licence-register").click()
    page.get_by_role("dialog").get_by_label("Licence token").fill("a-token-for-this-test")
    confirm(page, "Register")
    expect(licence.locator(".chip")).to_have_text("registered", timeout=SLOW)
    assert "a-token-for-this-test" not in page.content()
    page.locator("#licence-deregister").click()
    confirm(page, "Give it back")
    expect(licence.locator(".chip")).to_have_text("deregistered", timeout=SLOW)
    assert up.workers()["delta"]["license_status"] == "deregistered"
    not_reloaded(page)


def test_a_change_of_something_that_was_changed_meanwhile_is_refused_in_words(
    visits: Visits, up: Up, workers: dict[str, dict[str, Any]]
) -> None:
    page, watch = visits.open(up, f"/workers/{workers['alpha']['id']}", role="operator")
    live(page)
    page.locator("#act-terminate").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("#do")).to_be_visible()
    up.ask("PATCH", f"/api/workers/{workers['alpha']['id']}", {"tags": {"changed": "meanwhile"}})
    watch.allow("status of 4(09|12)")
    dialog.locator("#do").click()
    expect(dialog.get_by_role("alert")).not_to_be_empty()
    assert up.workers()["alpha"]["desired_status"] == "RUNNING"


def test_a_viewer_sees_everything_and_is_offered_nothing(
    visits: Visits, up: Up, workers: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(up, f"/workers/{workers['alpha']['id']}", role="viewer")
    live(page)
    expect(page.get_by_role("region", name="Why it is so")).to_be_visible()
    assert offered(page) == set()
    words = {text.strip() for text in page.get_by_role("button").all_text_contents()}
    assert all(re.fullmatch(r"Sign out|◐|\d+ h|", word) for word in words), words


def test_a_worker_that_never_was(visits: Visits, up: Up) -> None:
    page, watch = visits.open(up, "/")
    watch.allow("status of 404")
    page.goto("/workers/w-nobody")
    expect(page.get_by_text("There is no worker w-nobody")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="To all workers").click()
    expect(page.get_by_role("heading", name="Fleet", level=1)).to_be_visible()
