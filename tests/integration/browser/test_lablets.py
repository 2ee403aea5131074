"""Lablets in a browser: rows that live, one that is made after a look at where it would go, and its end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from lcm.core import clock
from tests.support.lablet_desk import TOPOLOGY
from tests.support.pages import DESKTOP, PHONE, barriers
from tests.support.watching import confirm, live, not_reloaded

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.support.pages import Scheme, Visits
    from tests.support.quiet_plane import QuietPlane

LOOKS: list[tuple[Scheme, tuple[int, int]]] = [("light", DESKTOP), ("dark", DESKTOP), ("dark", PHONE)]
NEEDS = {"license": False, "cpu_cores": 0.1, "memory_gb": 0.1, "ports": ["SSH_PORT"]}


@pytest.fixture(scope="module")
def worker(plane: QuietPlane) -> dict[str, Any]:
    """A worker that takes lablets, and definitions to make them from."""
    for version in ("1", "2"):
        body = {"name": "ospf", "version": version, "topology": TOPOLOGY, "requirements": NEEDS}
        plane.ask("POST", "/api/lablet-definitions", {**body, "description": f"version {version} of it"})
    return plane.running("alpha", license_token="a-licence-token")


def make(plane: QuietPlane, name: str, **facts: Any) -> dict[str, Any]:
    made: dict[str, Any] = plane.ask("POST", "/api/lablets", {"name": name, "definition": "ospf", **facts})
    return made


def report(plane: QuietPlane, lablet: dict[str, Any], status: str, **facts: Any) -> dict[str, Any]:
    """The lablet controller or the scheduler writes a status."""
    version = plane.ask("GET", f"/api/lablets/{lablet['id']}")["version"]
    told = {"status": status, "version": version, "reason": "seen", **facts}
    written: dict[str, Any] = plane.controller("POST", f"/api/internal/lablets/{lablet['id']}/status", told)
    return written


def place(plane: QuietPlane, lablet: dict[str, Any], worker: dict[str, Any]) -> None:
    """The scheduler has found a worker."""
    rejections = [{"worker_id": "w-9", "worker_name": "bravo", "reason": "it is STOPPED"}]
    placement = {"at": clock.now().isoformat(), "worker_id": worker["id"], "score": 0.5, "reason": "it is the fullest"}
    item = {"lablet_id": lablet["id"], "worker_id": worker["id"], "version": lablet["version"]}
    told = {"items": [{**item, "placement": {**placement, "rejections": rejections, "rejected": 1}}]}
    answer = plane.controller("POST", "/api/internal/lablets/schedule", told)
    assert answer["items"][0]["placed"], answer


def runs(plane: QuietPlane, name: str, worker: dict[str, Any]) -> dict[str, Any]:
    """A lablet that runs."""
    lablet = make(plane, name)
    place(plane, lablet, worker)
    report(plane, lablet, "INSTANTIATING")
    return report(plane, lablet, "RUNNING", endpoints=[{"node": "R1", "addresses": ["10.0.0.5"]}])


def row(page: Page, lablet: dict[str, Any]) -> Locator:
    return page.locator(f"tr[data-lablet='{lablet['id']}']")


def test_a_row_follows_its_lablet_without_a_reload(visits: Visits, plane: QuietPlane, worker: dict[str, Any]) -> None:
    page, _ = visits.open(plane, "/lablets?q=row-", role="viewer")
    expect(page.get_by_role("heading", name="No lablet fits")).to_be_visible()
    live(page)
    lablet = make(plane, "row-one")
    expect(row(page, lablet)).to_contain_text("PENDING SCHEDULING")
    waiting = page.locator("#views [data-view=waiting] .n")
    expect(waiting).to_have_text("1")
    place(plane, lablet, worker)
    expect(row(page, lablet)).to_contain_text("SCHEDULED")
    expect(row(page, lablet).get_by_role("link", name="alpha")).to_be_visible()
    report(plane, lablet, "INSTANTIATING", message="waits until all nodes have booted")
    expect(row(page, lablet)).to_contain_text("waits until all nodes have booted")
    written = report(plane, lablet, "RUNNING", message="")
    expect(row(page, lablet)).to_have_attribute("data-version", str(written["version"]))
    expect(row(page, lablet)).to_contain_text("running")
    expect(page.locator("#views [data-view=running] .n")).to_have_text("1")
    expect(waiting).to_have_text("0")
    not_reloaded(page)


def test_filters_stand_in_the_address(visits: Visits, plane: QuietPlane, worker: dict[str, Any]) -> None:
    for number in range(3):
        make(plane, f"filter-{number}", owner=f"owner-{number}")
    page, _ = visits.open(plane, "/lablets")
    live(page)
    page.get_by_label("Name").press_sequentially("filter-")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_label("Owner").press_sequentially("owner-2")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"q=filter-&owner=owner-2"))
    expect(page.locator("#views [data-view=waiting]")).to_have_attribute("href", re.compile("owner=owner-2"))
    not_reloaded(page)
    page.reload()
    expect(page.get_by_label("Owner")).to_have_value("owner-2")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_one_is_made_after_a_look_at_where_it_would_go(
    visits: Visits, plane: QuietPlane, worker: dict[str, Any]
) -> None:
    page, watch = visits.open(plane, "/lablets?q=made-", role="operator")
    live(page)
    page.get_by_role("button", name="Create a lablet").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Definition")).to_have_value("ospf@2")
    preview = dialog.locator("#new-preview")
    expect(preview.locator("[data-outcome=place]")).to_contain_text("alpha")
    dialog.get_by_label("Region").select_option("ap-southeast-2")
    expect(preview.locator("[data-outcome=launch]")).to_contain_text("an hour more")
    dialog.get_by_label("Name").fill("made of blanks")
    watch.allow("status of 422")
    dialog.get_by_role("button", name="Create the lablet").click()
    expect(dialog.locator("#f-name-problem")).to_be_visible()
    expect(dialog.get_by_label("Name")).to_be_focused()
    expect(dialog.get_by_label("Region")).to_have_value("ap-southeast-2")
    confirm(page, "Create the lablet", **{"Name (optional)": "made-here"})
    (made,) = [each for each in plane.ask("GET", "/api/lablets")["items"] if each["name"] == "made-here"]
    assert (made["definition"], made["aws_region"]) == ("ospf@2", "ap-southeast-2")
    expect(row(page, made)).to_contain_text("PENDING SCHEDULING")
    page.locator("#toasts").get_by_role("link", name="Look at it").click()
    expect(page.get_by_role("heading", name="made-here")).to_be_visible()


def test_its_page_tells_why_follows_it_and_ends_it(visits: Visits, plane: QuietPlane, worker: dict[str, Any]) -> None:
    lablet = runs(plane, "ended-here", worker)
    page, _ = visits.open(plane, f"/lablets/{lablet['id']}", role="operator")
    live(page)
    expect(page.get_by_text("score 0.500")).to_be_visible()
    expect(page.get_by_role("row", name="bravo it is STOPPED")).to_be_visible()
    expect(page.get_by_role("row", name="R1 10.0.0.5")).to_be_visible()
    report(plane, lablet, "RUNNING", message="its CML cannot be asked")
    expect(page.locator("#problem")).to_contain_text("Its CML cannot be asked")
    page.get_by_role("button", name="End it").click()
    expect(page.get_by_role("dialog")).to_contain_text("10.0.0.5")
    confirm(page, "End ended-here", Reason="the course is over")
    expect(page.locator(".chip", has_text="to end")).to_be_visible()
    expect(page.get_by_role("button", name="End it")).to_have_count(0)
    expect(page.locator("#timeline")).to_contain_text("“the course is over”")
    report(plane, lablet, "STOPPING")
    expect(page.locator("#lablet")).to_have_attribute("data-status", "STOPPING")
    not_reloaded(page)


def test_a_version_is_made_and_nothing_typed_is_lost(visits: Visits, plane: QuietPlane, worker: dict[str, Any]) -> None:
    page, watch = visits.open(plane, "/definitions")
    live(page)
    page.get_by_role("button", name="New version like ospf@2").click()
    dialog = page.get_by_role("dialog")
    watch.allow("status of 422")
    dialog.get_by_label("Topology, YAML").fill("nodes: [")
    dialog.get_by_label("Version", exact=True).fill("3")
    dialog.get_by_role("button", name="Make this version").click()
    expect(dialog.locator("#f-topology-problem")).to_contain_text("is not YAML")
    expect(dialog.get_by_label("Topology, YAML")).to_have_value("nodes: [")
    dialog.get_by_label("Topology, YAML").fill(TOPOLOGY)
    dialog.get_by_role("button", name="Make this version").click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("row", name=re.compile("ospf .*3 newest"))).to_be_visible()
    page.get_by_role("button", name="Topology of ospf@3").click()
    expect(dialog.locator("pre")).to_have_text(TOPOLOGY)
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Disable ospf@3").click()
    expect(page.get_by_role("button", name="Enable ospf@3")).to_be_visible()
    not_reloaded(page)


@pytest.mark.parametrize(("scheme", "size"), LOOKS, ids=["light", "dark", "phone"])
def test_everybody_can_use_these_pages(
    visits: Visits, plane: QuietPlane, worker: dict[str, Any], scheme: Scheme, size: tuple[int, int]
) -> None:
    name = f"axe-{scheme}-{size[0]}"
    lablet = runs(plane, name, worker)
    failed = make(plane, f"{name}-failed")
    report(plane, failed, "FAILED", reason="no template can hold it")
    page, watch = visits.open(plane, "/lablets", scheme=scheme, size=size)
    watch.allow("status of 404.*/lablets/l-none")
    found: list[str] = []
    paths = ("/lablets", f"/lablets/{lablet['id']}", f"/lablets/{failed['id']}", "/definitions", "/lablets/l-none")
    for path in (*paths, f"/workers/{worker['id']}"):
        page.goto(path)
        live(page)
        found += [f"{path}: {barrier}" for barrier in barriers(page)]
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            found.append(f"{path}: is wider than the window")
    page.goto("/lablets")
    page.get_by_role("button", name="Create a lablet").click()
    expect(page.locator("#new-preview [data-outcome]")).to_be_visible()
    found += [f"the dialog for a new one: {barrier}" for barrier in barriers(page)]
    page.goto("/definitions")
    page.get_by_role("button", name="New version like ospf@1").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    found += [f"the dialog for a version: {barrier}" for barrier in barriers(page)]
    assert found == [], "\n".join(found)
