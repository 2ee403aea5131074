"""A page that is cut off says so and catches up; and whatever comes late, it never goes back to an older state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.support.network.http_gate import LoopThread
from tests.support.network.tcp_proxy import Mode, TcpProxy
from tests.support.web.actions import live, not_reloaded, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import APIResponse, Page, Route

    from tests.support.servers.scripted_control_plane import QuietPlane
    from tests.support.web.pages import Visits

CONNECTION_ERRORS = r"net::ERR_|status of 50\d|htmx:error: Failed to fetch"


class Cable:
    """Between browser and server; it can be pulled."""

    def __init__(self, loop: LoopThread, plane: QuietPlane) -> None:
        self._loop = loop
        self._proxy = TcpProxy(f"127.0.0.1:{plane.plane_port}")
        self._loop.run(self._proxy.__aenter__())
        self.url = f"http://{self._proxy.endpoint}"

    def pull(self) -> None:
        self._set(Mode.REFUSE)

    def deaden(self) -> None:
        """Connections stay open, and nothing comes through them any more."""
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
def cable(plane: QuietPlane) -> Iterator[Cable]:
    with LoopThread() as loop:
        made = Cable(loop, plane)
        yield made
        made.close()


@pytest.fixture(scope="module")
def workers(plane: QuietPlane) -> dict[str, dict[str, Any]]:
    return {name: plane.running(name) for name in ("alpha", "bravo", "charlie", "delta")}


def test_a_pulled_cable_is_shown_and_what_was_missed_is_there_on_return(
    visits: Visits, plane: QuietPlane, cable: Cable, workers: dict[str, dict[str, Any]]
) -> None:
    page, watch = visits.open(plane, "/", url=cable.url)
    live(page)
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
    expect(row(page, workers["bravo"]).locator("[data-label=Wanted]")).to_have_text("stopped")
    not_reloaded(page)


def test_a_connection_that_died_without_a_word_is_noticed(
    visits: Visits, plane: QuietPlane, cable: Cable, workers: dict[str, dict[str, Any]]
) -> None:
    page, watch = visits.open(plane, "/", url=cable.url)
    page.clock.install()
    page.goto("/")
    live(page)
    watch.allow(f"{CONNECTION_ERRORS}|signal is aborted")  # what is under way when the minute passes runs out of time
    cable.deaden()
    missed = plane.command(workers["delta"], "hold", {"reason": "nobody hears it"})
    page.clock.fast_forward("01:00")
    expect(page.locator("#lost")).to_be_visible()
    cable.plug()
    expect(page.locator("#lost")).to_be_hidden()
    expect(row(page, workers["delta"])).to_have_attribute("data-version", str(missed["version"]))
    plane.command(workers["delta"], "release")


def test_a_server_that_was_stopped_and_started_again(
    visits: Visits, plane: QuietPlane, workers: dict[str, dict[str, Any]]
) -> None:
    page, watch = visits.open(plane, f"/workers/{workers['charlie']['id']}")
    live(page)
    watch.allow(CONNECTION_ERRORS)
    plane.stop()
    expect(page.locator("#lost")).to_be_visible()
    plane.start()
    plane.command(workers["charlie"], "hold", {"reason": "after the restart"})
    expect(page.locator("#lost")).to_be_hidden()
    expect(page.get_by_text("after the restart").first).to_be_visible()
    not_reloaded(page)


class DelayedResponse:
    """Keeps the next answer to a script on its way, as the server gave it, until the test lets it go."""

    def __init__(self, page: Page, path: str) -> None:
        self._page = page
        self._path = path
        self._kept: list[tuple[Route, APIResponse]] = []
        page.route(lambda address: urlsplit(address).path == path, self._keep)

    def wait(self) -> str:
        """Wait until there is one; says what it holds."""
        while not self._kept:
            self._page.wait_for_timeout(20)
        return self._kept[0][1].text()

    def let_go(self) -> None:
        """It arrives now."""
        route, answer = self._kept[0]
        with self._page.expect_response(lambda response: urlsplit(response.url).path == self._path):
            route.fulfill(response=answer)

    def _keep(self, route: Route) -> None:
        if self._kept or route.request.resource_type == "document":
            route.fallback()
        else:
            self._kept.append((route, route.fetch()))


def record_versions(page: Page, worker: dict[str, Any]) -> None:
    """Write down every version that the row shows, however short: also one that is mended at once."""
    page.evaluate(
        """id => {
            window.versions = [];
            const look = () => {
                const row = document.querySelector(`tr[data-worker="${id}"]`);
                if (row) window.versions.push(Number(row.dataset.version));
            };
            look();
            const all = {subtree: true, childList: true, attributes: true, characterData: true};
            new MutationObserver(look).observe(document.body, all);
        }""",
        worker["id"],
    )


def wait_until_settled(page: Page, plane: QuietPlane, worker: dict[str, Any]) -> None:
    """Whatever arrived has been dealt with: a later change of another worker is on the screen."""
    changed = plane.command(worker, "hold", {"reason": "afterwards"})
    expect(row(page, worker)).to_have_attribute("data-version", str(changed["version"]))
    plane.command(worker, "release")


@pytest.mark.parametrize("path", ["/fleet/rows", "/"])
def test_an_answer_that_was_overtaken_changes_nothing(
    visits: Visits, plane: QuietPlane, workers: dict[str, dict[str, Any]], path: str
) -> None:
    """Rows come one by one and with the whole list. Of two changes, the answer that has only the first comes last."""
    page, _ = visits.open(plane, "/")
    live(page)
    record_versions(page, workers["delta"])
    late = DelayedResponse(page, path)
    older = plane.command(workers["delta"], "hold", {"reason": "the older state"})
    assert f'data-version="{older["version"]}"' in late.wait()
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
    not_reloaded(page)


def test_an_answer_to_an_earlier_question_changes_nothing(
    visits: Visits, plane: QuietPlane, workers: dict[str, dict[str, Any]]
) -> None:
    """The list is being read again when somebody filters it; the answer without the filter comes last."""
    page, _ = visits.open(plane, "/")
    live(page)
    late = DelayedResponse(page, "/")
    plane.command(workers["charlie"], "drain")
    late.wait()
    page.get_by_label("Name").fill("delta")
    expect(page.locator("tbody tr")).to_have_count(1)
    late.let_go()
    wait_until_settled(page, plane, workers["delta"])
    expect(page.locator("tbody tr")).to_have_count(1)
    not_reloaded(page)
