"""Lablets in a browser: live rows, creation with a placement preview, and how they are ended."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.support.records.lablet_records import TOPOLOGY
from tests.support.servers.scripted_lablets import define, lablet_row, make, now, place, report, runs
from tests.support.web.actions import assert_not_reloaded, confirm_dialog, wait_until_live
from tests.support.web.pages import DESKTOP, PHONE, accessibility_violations

if TYPE_CHECKING:
    from tests.support.servers.scripted_control_plane import ScriptedControlPlane
    from tests.support.web.pages import Scheme, Visits

VIEWPORTS: list[tuple[Scheme, tuple[int, int]]] = [("light", DESKTOP), ("dark", DESKTOP), ("dark", PHONE)]


@pytest.fixture(scope="module")
def worker(plane: ScriptedControlPlane) -> dict[str, Any]:
    """A worker that accepts lablets, and definitions."""
    for version in ("1", "2"):
        define(plane, "ospf", version, description=f"version {version} of it")
    return plane.running("alpha", template_name="large", license_token="a-license-token")


def test_a_row_follows_its_lablet_without_a_reload(
    visits: Visits, plane: ScriptedControlPlane, worker: dict[str, Any]
) -> None:
    page, _ = visits.open(plane, "/lablets?q=row-", role="viewer")
    expect(page.get_by_role("heading", name="No matching lablets")).to_be_visible()
    wait_until_live(page)
    # Other tests have lablets of their own, and nothing happens to them now.
    waiting, running = (page.locator(f"#views [data-view={view}] .n") for view in ("waiting", "running"))
    before = {view: int(view.inner_text()) for view in (waiting, running)}
    lablet = make(plane, "row-one")
    expect(lablet_row(page, lablet)).to_contain_text("PENDING SCHEDULING")
    expect(waiting).to_have_text(str(before[waiting] + 1))
    place(plane, lablet, worker)
    expect(lablet_row(page, lablet)).to_contain_text("SCHEDULED")
    expect(lablet_row(page, lablet).get_by_role("link", name="alpha")).to_be_visible()
    report(plane, lablet, "INSTANTIATING", message="waiting until all nodes have booted")
    expect(lablet_row(page, lablet)).to_contain_text("waiting until all nodes have booted")
    written = report(plane, lablet, "RUNNING", message="")
    expect(lablet_row(page, lablet)).to_have_attribute("data-version", str(written["version"]))
    expect(running).to_have_text(str(before[running] + 1))
    expect(waiting).to_have_text(str(before[waiting]))
    assert_not_reloaded(page)


def test_filters_are_in_the_url(visits: Visits, plane: ScriptedControlPlane, worker: dict[str, Any]) -> None:
    for number in range(3):
        make(plane, f"filter-{number}", owner=f"owner-{number}")
    page, _ = visits.open(plane, "/lablets")
    wait_until_live(page)
    page.get_by_label("Search").press_sequentially("filter-")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_label("Owner").press_sequentially("owner-2")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"q=filter-&owner=owner-2"))
    expect(page.locator("#views [data-view=waiting]")).to_have_attribute("href", re.compile("owner=owner-2"))
    assert_not_reloaded(page)
    page.reload()
    expect(page.get_by_label("Owner")).to_have_value("owner-2")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_a_lablet_is_created_after_a_placement_preview(
    visits: Visits, plane: ScriptedControlPlane, worker: dict[str, Any]
) -> None:
    page, watch = visits.open(plane, "/lablets?q=made-", role="operator")
    wait_until_live(page)
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
    confirm_dialog(page, "Create the lablet", **{"Name (optional)": "made-here"})
    (made,) = [each for each in plane.ask("GET", "/api/lablets")["items"] if each["name"] == "made-here"]
    assert (made["definition"], made["aws_region"]) == ("ospf@2", "ap-southeast-2")
    expect(lablet_row(page, made)).to_contain_text("PENDING SCHEDULING")
    page.locator("#toasts").get_by_role("link", name="View").click()
    expect(page.get_by_role("heading", name="made-here")).to_be_visible()


def test_its_page_shows_its_status_updates_and_ends_it(
    visits: Visits, plane: ScriptedControlPlane, worker: dict[str, Any]
) -> None:
    lablet = runs(plane, "ended-here", worker)
    page, _ = visits.open(plane, f"/lablets/{lablet['id']}", role="operator")
    wait_until_live(page)
    expect(page.get_by_role("row", name="R1 in CML only: no port is forwarded to it 10.0.0.5")).to_be_visible()
    expect(page.get_by_text("score 0.500")).to_be_hidden()
    page.get_by_text("Placement", exact=True).click()
    expect(page.get_by_text("score 0.500")).to_be_visible()
    expect(page.get_by_role("row", name="bravo it is STOPPED")).to_be_visible()
    report(plane, lablet, "RUNNING", message="its CML cannot be queried")
    expect(page.locator("#problem")).to_contain_text("Its CML cannot be queried")
    page.get_by_role("button", name="End lab").click()
    expect(page.get_by_role("dialog")).to_contain_text("10.0.0.5")
    confirm_dialog(page, "End ended-here", Reason="the course is over")
    expect(page.locator(".chip", has_text="ending")).to_be_visible()
    expect(page.get_by_role("button", name="End lab")).to_have_count(0)
    expect(page.locator("#timeline")).to_contain_text("“the course is over”")
    report(plane, lablet, "STOPPING")
    expect(page.locator("#lablet")).to_have_attribute("data-status", "STOPPING")
    assert_not_reloaded(page)


def test_the_commands_that_reach_its_nodes_are_copied(
    visits: Visits, plane: ScriptedControlPlane, worker: dict[str, Any]
) -> None:
    define(plane, "reach", "1", topology="nodes: [{id: n0, label: R1, tags: ['pat:${SSH_PORT}:22']}]")
    lablet = runs(plane, "reached", worker, "reach")
    page, _ = visits.open(plane, f"/lablets/{lablet['id']}", role="viewer")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    host, port = worker["public_ip"], now(plane, lablet)["ports"]["SSH_PORT"]
    page.get_by_role("button", name="Copy TCP 22 (SSH) of R1").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == f"ssh -p {port} {host}"
    expect(page.get_by_role("link", name="Open the lab in CML")).to_have_attribute("href", f"https://{host}/lab/5a3f1c")
    report(plane, lablet, "STOPPING", ending="TERMINATED")
    expect(page.locator("#access")).to_contain_text("Its addresses and ports are released.")
    expect(page.get_by_role("button", name="Copy TCP 22 (SSH) of R1")).to_have_count(0)


def test_several_lablets_are_ended_after_a_preview(
    visits: Visits, plane: ScriptedControlPlane, worker: dict[str, Any]
) -> None:
    one, two, three = (runs(plane, f"bulk-{number}", worker) for number in range(3))
    page, _ = visits.open(plane, "/lablets?q=bulk-", role="operator")
    wait_until_live(page)
    expect(page.locator("#bulk")).to_be_hidden()
    for lablet in (one, two):
        page.get_by_label(f"Select {lablet['name']}").check()
    expect(page.locator("#selected-count")).to_have_text("2 lablets selected")
    # The selection stays while a row changes.
    report(plane, two, "RUNNING", message="its CML cannot be queried")
    expect(lablet_row(page, two)).to_contain_text("its CML cannot be queried")
    expect(page.locator("#selected-count")).to_have_text("2 lablets selected")
    page.locator("#bulk").get_by_role("button", name="End").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The lab on alpha will be stopped, wiped and deleted")
    dialog.get_by_role("button", name="Cancel").click()
    assert now(plane, one)["wanted"]
    page.locator("#bulk").get_by_role("button", name="End").click()
    confirm_dialog(page, "End 2", Reason="the course is over")
    for lablet in (one, two):
        expect(lablet_row(page, lablet).locator(".chip", has_text="ending")).to_be_visible()
        after = now(plane, lablet)
        assert (after["wanted"], after["ending_reason"]) == (False, "the course is over")
    expect(page.locator("#bulk")).to_be_hidden()
    assert now(plane, three)["wanted"]
    assert_not_reloaded(page)


def test_a_viewer_sees_no_actions(visits: Visits, plane: ScriptedControlPlane, worker: dict[str, Any]) -> None:
    lablet = runs(plane, "seen-only", worker)
    page, _ = visits.open(plane, "/lablets", role="viewer")
    for path in ("/lablets", f"/lablets/{lablet['id']}", "/definitions"):
        page.goto(path)
        wait_until_live(page)
        assert page.get_by_role("checkbox").count() == 0
        offered = {text.strip() for text in page.get_by_role("button").all_text_contents()}
        assert offered <= {"Sign out", "◐", "", "Topology…", "Copy"}, offered


def test_missed_changes_appear_when_the_server_is_back(
    visits: Visits, plane: ScriptedControlPlane, worker: dict[str, Any]
) -> None:
    lablet = runs(plane, "missed-me", worker)
    page, watch = visits.open(plane, "/lablets?q=missed-", role="viewer")
    watch.allow("ERR_|Failed to load resource|status of 50")
    wait_until_live(page)
    plane.stop()
    expect(page.locator("#connection")).to_have_attribute("data-state", "lost")
    expect(page.locator("#lost")).to_contain_text("Connection lost")
    plane.start()
    other = make(plane, "missed-too")
    written = report(plane, lablet, "RUNNING", message="its CML cannot be queried")
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    expect(page.locator("#lost")).to_be_hidden()
    expect(lablet_row(page, lablet)).to_have_attribute("data-version", str(written["version"]))
    expect(lablet_row(page, other)).to_be_visible()
    assert_not_reloaded(page)


def test_a_version_is_created_and_input_is_kept(
    visits: Visits, plane: ScriptedControlPlane, worker: dict[str, Any]
) -> None:
    page, watch = visits.open(plane, "/definitions")
    wait_until_live(page)
    page.get_by_role("button", name="New version based on ospf@2").click()
    dialog = page.get_by_role("dialog")
    watch.allow("status of 422")
    dialog.get_by_label("Topology, YAML").fill("nodes: [")
    dialog.get_by_label("Version", exact=True).fill("3")
    dialog.get_by_role("button", name="Create version").click()
    expect(dialog.locator("#f-topology-problem")).to_contain_text("is not YAML")
    expect(dialog.get_by_label("Topology, YAML")).to_have_value("nodes: [")
    dialog.get_by_label("Topology, YAML").fill(TOPOLOGY)
    dialog.get_by_role("button", name="Create version").click()
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("row", name=re.compile("ospf .*3 newest"))).to_be_visible()
    page.get_by_role("button", name="Topology of ospf@3").click()
    expect(dialog.locator("pre")).to_have_text(TOPOLOGY)
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Disable ospf@3").click()
    confirm_dialog(page, "Disable ospf@3")
    expect(page.get_by_role("button", name="Enable ospf@3")).to_be_visible()
    assert_not_reloaded(page)


@pytest.mark.parametrize(("scheme", "size"), VIEWPORTS, ids=["light", "dark", "phone"])
def test_these_pages_are_accessible(
    visits: Visits, plane: ScriptedControlPlane, worker: dict[str, Any], scheme: Scheme, size: tuple[int, int]
) -> None:
    name = f"tidy-{scheme}-{size[0]}"  # sorts after ospf, which a dialog of another test offers first
    define(plane, name, "1", topology="nodes: [{id: n0, label: R1, tags: ['serial:${SSH_PORT}']}]")
    lablet = runs(plane, name, worker, name)
    failed = make(plane, f"{name}-failed")
    report(plane, failed, "FAILED", reason="no template can hold it")
    page, watch = visits.open(plane, "/lablets", scheme=scheme, size=size)
    watch.allow("status of 404.*/lablets/l-none")
    found: list[str] = []
    paths = ("/lablets", f"/lablets/{lablet['id']}", f"/lablets/{failed['id']}", "/definitions", "/lablets/l-none")
    for path in (*paths, f"/workers/{worker['id']}"):
        page.goto(path)
        wait_until_live(page)
        found += [f"{path}: {barrier}" for barrier in accessibility_violations(page)]
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            found.append(f"{path}: is wider than the window")
    page.goto(f"/lablets?q={name}")
    page.get_by_label("Select all on this page").check()
    expect(page.locator("#bulk")).to_be_visible()
    found += [f"with a selection: {barrier}" for barrier in accessibility_violations(page)]
    page.locator("#bulk").get_by_role("button", name="End").click()
    expect(page.get_by_role("dialog")).to_contain_text("Skipped")
    found += [f"the bulk dialog: {barrier}" for barrier in accessibility_violations(page)]
    page.goto("/lablets")
    page.get_by_role("button", name="Create a lablet").click()
    expect(page.locator("#new-preview [data-outcome]")).to_be_visible()
    found += [f"the create dialog: {barrier}" for barrier in accessibility_violations(page)]
    page.goto("/definitions")
    page.get_by_role("button", name="New version based on ospf@1").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    found += [f"the version dialog: {barrier}" for barrier in accessibility_violations(page)]
    assert found == [], "\n".join(found)
