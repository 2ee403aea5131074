"""Text of users stays text: whatever is in tags, reasons and responses of CML, no page turns it into markup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from tests.support.auth.issuer import AUDIENCE, ISSUER, entry, private_key, signed
from tests.support.network.http_gate import LoopThread
from tests.support.servers.jwks_server import JwksServer
from tests.support.servers.scripted_control_plane import ScriptedControlPlane
from tests.support.servers.scripted_lablets import furnish_lablets
from tests.support.web.actions import PATHS, wait_until_live
from tests.support.web.sample_fleet import create_sample_fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page

    from tests.support.web.pages import Visits

# Leaves an attribute, leaves an element, starts a script, and contains what our own scripts would act on.
EVIL = (
    'x"\'><img data-evil src=x onerror="window.evil=1"></td></script><script data-evil>window.evil=1</script>'
    '<b data-evil hx-get="/system" hx-trigger="load">{{7*7}}</b>'
)
PLANTED = "[data-evil], img:not([src^='/static/'])"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedControlPlane]:
    """A control plane that takes user names from an identity provider, where users may choose any name."""
    keys = JwksServer()
    keys.publish(entry(private_key("first"), "first"))
    with LoopThread() as loop:
        loop.run(keys.start())
        oidc = {"OIDC_ISSUER": ISSUER, "OIDC_AUDIENCE": AUDIENCE, "OIDC_JWKS_URL": keys.url, "OIDC_ROLE_CLAIM": "roles"}
        made = ScriptedControlPlane(tmp_path_factory.mktemp("plane"), **oidc).start()
        yield made
        made.close()
        loop.run(keys.stop())


@pytest.fixture(scope="module")
def fleet(plane: ScriptedControlPlane) -> dict[str, dict[str, Any]]:
    return create_sample_fleet(plane, EVIL)


def test_the_evil_text_is_evil(visits: Visits, plane: ScriptedControlPlane) -> None:
    """The text is found when it is inserted as markup. So a page on which it is not found has escaped it."""
    page, watch = visits.open(plane, "/fleet")
    watch.allow("Content Security Policy|Failed to load resource")
    page.evaluate("text => { document.body.insertAdjacentHTML('beforeend', `<p title=\"${text}\">`) }", EVIL)
    assert page.locator(PLANTED).count() == 3


@pytest.mark.parametrize("path", PATHS)
def test_pages(visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]], path: str) -> None:
    page, _ = visits.open(plane, path)
    expect(page.get_by_text('<img data-evil src=x onerror="window.evil=1">').first).to_be_attached()
    wait_until_live(page)
    clean(page)
    assert page.get_by_text("49", exact=True).count() == 0


@pytest.mark.parametrize("name", ["ready", "silent", "draining", "held", "failed", "ended"])
def test_workers(visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]], name: str) -> None:
    page, _ = visits.open(plane, f"/workers/{fleet[name]['id']}")
    expect(page.get_by_text('<img data-evil src=x onerror="window.evil=1">').first).to_be_attached()
    wait_until_live(page)
    clean(page)


@pytest.fixture(scope="module")
def lablets(plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return furnish_lablets(plane, plane.running("takes-lablets"), EVIL)


@pytest.mark.parametrize("name", ["waits", "fails", "runs", "stuck", "ends"])
def test_lablets(visits: Visits, plane: ScriptedControlPlane, lablets: dict[str, dict[str, Any]], name: str) -> None:
    page, _ = visits.open(plane, f"/lablets/{lablets[name]['id']}")
    for part in ("#lablet", "#timeline"):
        expect(page.locator(part).get_by_text("<img data-evil").first).to_be_attached()
    wait_until_live(page)
    clean(page)


def test_lists_of_lablets_their_dialogs_and_topologies(
    visits: Visits, plane: ScriptedControlPlane, lablets: dict[str, dict[str, Any]]
) -> None:
    page, _ = visits.open(plane, "/lablets")
    for name in ("waits", "fails", "runs", "stuck"):
        row = page.locator(f"tr[data-lablet='{lablets[name]['id']}']")
        expect(row.locator(".why")).to_contain_text("<img data-evil")
        expect(row.locator("[data-label=Owner]")).to_contain_text("<img data-evil")
    wait_until_live(page)
    clean(page)
    page.get_by_label("Select all on this page").check()
    page.locator("#bulk").get_by_role("button", name="End").click()
    expect(page.get_by_role("dialog")).to_contain_text("Skipped")
    clean(page)
    page.goto(f"/lablets/{lablets['runs']['id']}")
    page.get_by_role("button", name="End lab").click()
    expect(page.get_by_role("dialog")).to_contain_text("<img data-evil")
    clean(page)
    page.goto("/definitions")
    expect(page.locator("#definition-table")).to_contain_text("<img data-evil")
    page.get_by_role("button", name="Topology of told@1").click()
    expect(page.get_by_role("dialog").locator("pre")).to_contain_text("<img data-evil")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_role("button", name="New version based on told@1").click()
    expect(page.get_by_role("dialog").get_by_label("Description")).to_have_value(EVIL)
    clean(page)
    page.goto(f"/lablets?{urlencode({'q': EVIL, 'owner': EVIL, 'definition': EVIL, 'worker': EVIL})}")
    expect(page.get_by_label("Owner")).to_have_value(EVIL[:100])
    wait_until_live(page)
    clean(page)


def test_an_evil_name_of_a_lablet_or_a_definition_is_refused_and_shown_as_text(
    visits: Visits, plane: ScriptedControlPlane, lablets: dict[str, dict[str, Any]]
) -> None:
    page, watch = visits.open(plane, "/lablets", role="operator")
    watch.allow("status of 422")
    wait_until_live(page)
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Create a lablet").click()
    dialog.get_by_label("Name").fill(EVIL)
    dialog.get_by_label("Owner").fill(EVIL)
    dialog.get_by_role("button", name="Create the lablet").click()
    expect(dialog.locator("#f-name-problem")).to_be_visible()
    expect(dialog.get_by_label("Name")).to_have_value(EVIL)
    clean(page)
    page.goto("/definitions")
    page.get_by_role("button", name="New definition").click()
    for label in ("Name", "Version", "Node definitions", "Ports", "CML version"):
        dialog.get_by_label(label).first.fill(EVIL)
    dialog.get_by_label("Topology, YAML").fill(EVIL)
    dialog.get_by_role("button", name="Create version").click()
    expect(dialog.locator("#f-name-problem")).to_be_visible()
    clean(page)


def clean(page: Page) -> None:
    """Assert that no injected text became markup or ran."""
    assert page.locator(PLANTED).count() == 0
    assert page.evaluate("window.evil") is None


def test_a_user_with_an_evil_name(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    token = signed(private_key("first"), "first", preferred_username=EVIL[:60])
    worker = fleet["stopped"]
    plane.ask("POST", f"/api/workers/{worker['id']}/hold", {"reason": "by me"}, token=token)
    plane.ask("POST", "/api/fleet/hold", {"reason": "by me, too"}, token=token)
    context, _ = visits.context(plane)
    response = context.request.post("/api/session", data={"token": token})
    assert response.status == 201, response.text()
    page = context.new_page()
    for path in ("/", "/fleet", "/fleet?view=held", "/activity", "/system", "/settings", f"/workers/{worker['id']}"):
        page.goto(path)
        wait_until_live(page)
        expect(page.locator(".user")).to_contain_text("<img data-evil")
        expect(page.locator("#summary")).to_contain_text("<img data-evil")
        assert page.locator(PLANTED).count() == 0
    plane.ask("POST", "/api/fleet/release")


def test_fragments_that_arrive_later(
    visits: Visits, plane: ScriptedControlPlane, fleet: dict[str, dict[str, Any]]
) -> None:
    """Rows and the summary that are refreshed after the page was loaded."""
    page, _ = visits.open(plane, "/fleet")
    wait_until_live(page)
    held = plane.command(fleet["idle"], "hold", {"reason": EVIL})
    expect(page.locator(f"tr[data-worker='{held['id']}']")).to_have_attribute("data-version", str(held["version"]))
    plane.ask("POST", "/api/fleet/hold", {"reason": EVIL})
    expect(page.get_by_text("The fleet is on hold")).to_be_visible()
    expect(page.locator("#summary")).to_contain_text("<img data-evil")
    clean(page)
    plane.ask("POST", "/api/fleet/release")
