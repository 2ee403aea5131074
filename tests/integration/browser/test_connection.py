"""A page that loses its connection says so and catches up. Late responses never bring back an older state."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.support.network.http_gate import LoopThread
from tests.support.network.tcp_proxy import Mode, TcpProxy
from tests.support.web.actions import assert_not_reloaded, row, wait_until_live
from tests.support.web.pages import accessibility_violations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import APIResponse, Page, Route

    from tests.support.servers.scripted_control_plane import ScriptedControlPlane
    from tests.support.web.pages import Visits

CONNECTION_ERRORS = r"net::ERR_|status of 50\d|htmx:error: Failed to fetch"


class Cable:
    """A connection between browser and server that can be cut."""

    def __init__(self, loop: LoopThread, plane: ScriptedControlPlane) -> None:
        self._loop = loop
        self._proxy = TcpProxy(f"127.0.0.1:{plane.plane_port}")
        self._loop.run(self._proxy.__aenter__())
        self.url = f"http://{self._proxy.endpoint}"

    def pull(self) -> None:
        self._set(Mode.REFUSE)

    def deaden(self) -> None:
        """Connections stay open, but no data passes."""
        self._set(Mode.BLACK_HOLE)

    def plug(self) -> None:
        self._set(Mode.FORWARD)

    def close(self) -> None:
        self._loop.run(self._proxy.__aexit__(None, None, None))

    def _set(self, mode: Mode) -> None:
        async def switch() -> None:
            self._proxy.set_mode(mode)
            if mode is not Mode.BLACK_HOLE:
                self._proxy.cut()

        self._loop.run(switch())


@pytest.fixture
def cable(plane: ScriptedControlPlane) -> Iterator[Cable]:
    with LoopThread() as loop:
        made = Cable(loop, plane)
        yield made
        made.close()


@pytest.fixture(scope="module")
def workers(plane: ScriptedControlPlane) -> dict[str, dict[str, Any]]:
    return {name: plane.running(name) for name in ("alpha", "bravo", "charlie", "delta")}


def test_a_lost_connection_is_shown_and_missed_changes_appear_on_return(
    visits: Visits, plane: ScriptedControlPlane, cable: Cable, workers: dict[str, dict[str, Any]]
) -> None:
    page, watch = visits.open(plane, "/fleet", url=cable.url)
    wait_until_live(page)
    expect(page.locator("#lost")).to_be_hidden()
    watch.allow(CONNECTION_ERRORS)
    cable.pull()
    expect(page.locator("#lost")).to_be_visible()
    expect(page.locator("#connection")).not_to_have_attribute("data-state", "live")
    missed = plane.command(workers["alpha"], "stop")
    fresh = plane.create("born-in-between")
    expect(row(page, workers["alpha"])).not_to_have_attribute("data-version", str(missed["version"]))
    cable.plug()
    expect(page.locator("#lost")).to_be_hidden()
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    expect(row(page, workers["alpha"])).to_have_attribute("data-version", str(missed["version"]))
    expect(row(page, fresh)).to_be_visible()
    plane.command(workers["bravo"], "stop")
    expect(row(page, workers["bravo"]).locator("[data-label=Desired]")).to_have_text("stopped")
    assert_not_reloaded(page)


def test_a_silently_dead_connection_is_noticed(
    visits: Visits, plane: ScriptedControlPlane, cable: Cable, workers: dict[str, dict[str, Any]]
) -> None:
    page, watch = visits.open(plane, "/fleet", url=cable.url)
    page.clock.install()
    page.goto("/fleet")
    wait_until_live(page)
    watch.allow(f"{CONNECTION_ERRORS}|signal is aborted")  # requests in progress time out when the minute passes
    cable.deaden()
    missed = plane.command(workers["delta"], "hold", {"reason": "not delivered"})
    page.clock.fast_forward("01:00")
    expect(page.locator("#lost")).to_be_visible()
    cable.plug()
    expect(page.locator("#lost")).to_be_hidden()
    expect(row(page, workers["delta"])).to_have_attribute("data-version", str(missed["version"]))
    plane.command(workers["delta"], "release")


def test_a_server_that_was_stopped_and_started_again(
    visits: Visits, plane: ScriptedControlPlane, workers: dict[str, dict[str, Any]]
) -> None:
    page, watch = visits.open(plane, f"/workers/{workers['charlie']['id']}")
    wait_until_live(page)
    watch.allow(CONNECTION_ERRORS)
    plane.stop()
    expect(page.locator("#lost")).to_be_visible()
    plane.start()
    plane.command(workers["charlie"], "hold", {"reason": "after the restart"})
    expect(page.locator("#lost")).to_be_hidden()
    expect(page.get_by_text("after the restart").first).to_be_visible()
    assert_not_reloaded(page)


class DelayedResponse:
    """Delays the next response to a script, with this text, until the test releases it."""

    def __init__(self, page: Page, path: str, text: str = "") -> None:
        self._page = page
        self._path = path
        self._text = text
        self._kept: list[tuple[Route, APIResponse]] = []
        page.route(lambda address: urlsplit(address).path == path, self._keep)

    def wait(self) -> str:
        """Wait for the response; returns its text."""
        while not self._kept:
            self._page.wait_for_timeout(20)
        return self._kept[0][1].text()

    def let_go(self) -> None:
        """Deliver the response."""
        route, answer = self._kept[0]
        with self._page.expect_response(lambda response: urlsplit(response.url).path == self._path):
            route.fulfill(response=answer)

    def _keep(self, route: Route) -> None:
        if self._kept or route.request.resource_type == "document":
            route.fallback()
            return
        answer = route.fetch()
        if self._text in answer.text():
            self._kept.append((route, answer))
        else:  # a refresh that was under way before
            route.fulfill(response=answer)


def record_versions(page: Page, worker: dict[str, Any]) -> None:
    """Record every version that the row shows, also one that is replaced immediately."""
    page.evaluate(
        """id => {
            window.versions = [];
            const record = () => {
                const row = document.querySelector(`tr[data-worker="${id}"]`);
                if (row) window.versions.push(Number(row.dataset.version));
            };
            record();
            const all = {subtree: true, childList: true, attributes: true, characterData: true};
            new MutationObserver(record).observe(document.body, all);
        }""",
        worker["id"],
    )


def wait_until_settled(page: Page, plane: ScriptedControlPlane, worker: dict[str, Any]) -> None:
    """Wait until everything received was processed: a later change of another worker is shown."""
    changed = plane.command(worker, "hold", {"reason": "afterwards"})
    expect(row(page, worker)).to_have_attribute("data-version", str(changed["version"]))
    plane.command(worker, "release")


@pytest.mark.parametrize("path", ["/fleet/rows", "/fleet"])
def test_an_outdated_response_changes_nothing(
    visits: Visits, plane: ScriptedControlPlane, workers: dict[str, dict[str, Any]], path: str
) -> None:
    """Rows are refreshed alone and with the list. The response with only the first of two changes comes last."""
    page, _ = visits.open(plane, "/fleet")
    wait_until_live(page)
    record_versions(page, workers["delta"])
    version = plane.worker(workers["delta"])["version"] + 1
    late = DelayedResponse(page, path, f'data-worker="{workers["delta"]["id"]}" data-version="{version}"')
    older = plane.command(workers["delta"], "hold", {"reason": "the older state"})
    assert older["version"] == version
    late.wait()
    newer = plane.command(workers["delta"], "release")
    delta = row(page, workers["delta"])
    expect(delta).to_have_attribute("data-version", str(newer["version"]))
    late.let_go()
    wait_until_settled(page, plane, workers["bravo"])
    expect(delta).to_have_attribute("data-version", str(newer["version"]))
    expect(delta.locator(".chip.held")).to_have_count(0)
    shown = page.evaluate("window.versions")
    assert shown[-1] == newer["version"]
    assert shown == sorted(shown), "an older state was shown after a newer one"
    assert_not_reloaded(page)


def test_a_response_to_an_earlier_query_changes_nothing(
    visits: Visits, plane: ScriptedControlPlane, workers: dict[str, dict[str, Any]]
) -> None:
    """The list is being refreshed when a user filters it; the response without the filter comes last."""
    page, _ = visits.open(plane, "/fleet")
    wait_until_live(page)
    late = DelayedResponse(page, "/fleet")
    plane.command(workers["charlie"], "drain")
    late.wait()
    page.get_by_label("Search").fill("delta")
    expect(page.locator("tbody tr")).to_have_count(1)
    late.let_go()
    wait_until_settled(page, plane, workers["delta"])
    expect(page.locator("tbody tr")).to_have_count(1)
    assert_not_reloaded(page)


def test_buttons_are_off_without_a_connection_and_a_filter_is_applied_afterwards(
    visits: Visits, plane: ScriptedControlPlane, cable: Cable, workers: dict[str, dict[str, Any]]
) -> None:
    page, watch = visits.open(plane, "/fleet", url=cable.url)
    wait_until_live(page)
    create = page.get_by_role("button", name="Create a worker", exact=True).first
    expect(create).to_be_enabled()
    watch.allow(CONNECTION_ERRORS)
    cable.pull()
    expect(page.locator("#lost")).to_contain_text("Buttons are off")
    expect(create).to_be_disabled()
    expect(create).to_have_attribute("title", "There is no connection to the server. Try again when it is back.")
    page.locator("#q").fill("delta")
    expect(page.get_by_text("The filter is applied when it is back.")).to_be_visible()
    assert accessibility_violations(page) == []
    cable.plug()
    expect(page.locator("#lost")).to_be_hidden()
    expect(create).to_be_enabled()
    expect(create).not_to_have_attribute("title", re.compile("."))
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_text("The filter is applied when it is back.")).to_have_count(0)
    assert_not_reloaded(page)


def test_a_page_is_not_live_before_it_has_caught_up(
    visits: Visits, plane: ScriptedControlPlane, cable: Cable, workers: dict[str, dict[str, Any]]
) -> None:
    page, watch = visits.open(plane, "/fleet", url=cable.url)
    wait_until_live(page)
    watch.allow(CONNECTION_ERRORS)
    cable.pull()
    expect(page.locator("#lost")).to_be_visible()
    missed = plane.command(workers["bravo"], "hold", {"reason": "missed"})
    late = DelayedResponse(page, "/fleet")
    cable.plug()
    late.wait()
    expect(page.locator("#connection")).to_contain_text("Catching up")
    late.let_go()
    expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    expect(row(page, workers["bravo"])).to_have_attribute("data-version", str(missed["version"]))
    plane.command(workers["bravo"], "release")


def test_an_action_that_the_server_refuses_shows_its_problem_next_to_the_button(
    visits: Visits, plane: ScriptedControlPlane
) -> None:
    page, watch = visits.open(plane, "/templates")
    wait_until_live(page)
    watch.allow("status of 503")
    button = page.get_by_role("button", name="Disable micro")
    toast = '<div class="toast bad"><span>the disk is full</span></div>'
    body = f'<hx-partial hx-target="#toasts" hx-swap="beforeend">{toast}</hx-partial>'
    page.route("**/templates/micro/confirm-disable", lambda route: route.fulfill(status=503, body=body))
    button.click()
    problem = page.locator("#t-micro").get_by_role("alert")
    expect(problem).to_have_text("the disk is full")
    page.unroute("**/templates/micro/confirm-disable")
    button.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.locator("#t-micro").get_by_text("the disk is full")).to_have_count(0)
