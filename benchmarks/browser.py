"""The fleet page with 10,000 workers in Chromium: load time, response time, live updates and memory.

`browser 500` takes another size, a multiple of 5. The last line says whether every value reaches its aim.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

from benchmarks.store import WORKERS, waits
from benchmarks.support.control_plane import STATUSES, TOKEN, record, served_plane, worker_id
from benchmarks.support.http import Connection
from benchmarks.support.output import percentile, report
from lcm.model.worker.status import WorkerStatus
from tests.support.network.http_gate import LoopThread
from tests.support.servers.chromium import launch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.sync_api import Browser, BrowserContext, CDPSession, Page

LOADS = 20
FILTERS = 20
CHANGES = 100
BEFORE, AFTER = 1_000, 11_000  # events
CLIENTS = 8
AT_A_TIME = 1_000
PATIENCE = 60_000.0

# Waits until an element contains a text, and returns the time in milliseconds since 1970.
_WHEN = """([selector, text]) => new Promise((done, failed) => {
  setTimeout(() => failed(new Error(`never seen: ${selector} with ${text}`)), 60000);
  const look = () => {
    const found = document.querySelector(selector);
    if (!found || !found.outerHTML.includes(text)) return false;
    // What is in the document is on the screen with the next frame.
    requestAnimationFrame(() => done(performance.timeOrigin + performance.now()));
    return true;
  };
  if (look()) return;
  const watch = new MutationObserver(() => { if (look()) watch.disconnect(); });
  watch.observe(document.documentElement, {subtree: true, childList: true, attributes: true, characterData: true});
})"""
_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_DOCUMENT = "() => performance.getEntriesByType('navigation')[0].decodedBodySize"
_SCRIPTS = """() => performance.getEntriesByType('resource')
  .filter(each => new URL(each.name).pathname.endsWith('.js')).map(each => [each.name, each.decodedBodySize])"""


@dataclass(slots=True)
class Verdict:
    """Which values miss their aims, in a fleet of that size."""

    workers: int
    judged: int = 0
    missed: list[str] = field(default_factory=list)

    def report(self, name: str, value: float, unit: str, aim: float, beside: str = "") -> None:
        """Print a value, and judge it."""
        report(name, value, unit, aim=f"{aim:,.3g}" if aim < 1000 else f"{aim:,.0f}", beside=beside)
        self.judged += 1
        if value > aim:
            self.missed.append(f"{name.removeprefix('browser: ')} {value:,.3g} {unit}, aim {aim:,.4g}")

    def __str__(self) -> str:
        """The verdict on one line."""
        page = f"browser: the page is usable at {self.workers:,} workers"
        if not self.missed:
            return f"{page}: YES, all {self.judged} values reach their aims"
        return f"{page}: NO, {len(self.missed)} of {self.judged} values miss their aims: {'; '.join(self.missed)}"


def signed_in(browser: Browser, port: int) -> BrowserContext:
    """A signed-in browser with an empty cache."""
    context = browser.new_context(base_url=f"http://127.0.0.1:{port}", viewport={"width": 1280, "height": 800})
    context.set_default_timeout(PATIENCE)
    answer = context.request.post("/api/session", data={"token": TOKEN})
    assert answer.status == 201, answer.text()
    return context


def live(context: BrowserContext, path: str = "/fleet") -> Page:
    """A page with a live event stream."""
    page = context.new_page()
    page.goto(path)
    page.locator("#connection[data-state=live]").wait_for()
    return page


def loads(browser: Browser, port: int, verdict: Verdict) -> None:
    """Time to first paint in a browser with an empty cache."""
    paints: list[float] = []
    size, scripts = 0, dict[str, int]()
    for _ in range(1 + LOADS):
        context = signed_in(browser, port)
        page = live(context)
        page.wait_for_function(_PAINT)
        paints.append(page.evaluate(_PAINT))
        size = page.evaluate(_DOCUMENT)
        scripts |= dict(page.evaluate(_SCRIPTS))
        context.close()
    context = signed_in(browser, port)
    page = live(context, f"/workers/{worker_id(0)}")
    scripts |= dict(page.evaluate(_SCRIPTS))
    context.close()
    # The first load finds a server that has not rendered a page yet.
    first, *paints = paints
    name = f"browser: Fleet of {verdict.workers:,}"
    report(f"{name}, first contentful paint, p50 of {LOADS}", percentile(paints, 50), "ms")
    beside = f"the first after the server's start {first:.0f}"
    verdict.report(f"{name}, first contentful paint, longest", max(paints), "ms", 500, beside)
    verdict.report(f"{name}, document", size / 1000, "kB", 200)
    verdict.report("browser: scripts of Fleet and Worker, uncompressed", sum(scripts.values()) / 1000, "kB", 150)


def filters(browser: Browser, port: int, verdict: Verdict) -> None:
    """Time from setting a filter or typing the last letter of a search until its rows are shown."""
    context = signed_in(browser, port)
    page = live(context)
    chosen: list[float] = []
    typed: list[float] = []
    for number in range(FILTERS):
        chosen.append(filtered(page, "#status", "status", STATUSES[number % len(STATUSES)].value))
        running = number * 97 % (verdict.workers // len(STATUSES)) * len(STATUSES)
        typed.append(filtered(page, "#q", "q", f"worker-{running:05}"))
    for what, spans in (("chosen", chosen), ("typed", typed)):
        report(f"browser: a filter {what}, answered, p50 of {FILTERS}", percentile(spans, 50), "ms")
        verdict.report(f"browser: a filter {what}, answered, longest", max(spans), "ms", 300)
    context.close()


def filtered(page: Page, field: str, name: str, value: str) -> float:
    """Time of one filter. It is set within the page, to exclude the round trip from here."""
    page.goto("/fleet")
    page.locator("#connection[data-state=live]").wait_for()
    took: float = page.evaluate(
        f"""async ([field, shown, value]) => {{
            const answered = ({_WHEN})([shown, '']);
            const began = performance.timeOrigin + performance.now();
            const control = document.querySelector(field);
            control.value = value;
            control.dispatchEvent(new Event('input', {{bubbles: true}}));
            control.dispatchEvent(new Event('change', {{bubbles: true}}));
            return await answered - began;
        }}""",
        [field, f"#fleet-table[data-refresh*='{name}={value}'] tbody tr", value],
    )
    return took


class Holder:
    """Changes workers over the API, as another user; in a thread, because Playwright uses this thread's loop."""

    def __init__(self, port: int, loop: LoopThread, workers: int) -> None:
        self._loop = loop
        self._workers = workers
        self._connections = [loop.run(Connection.to(port, TOKEN)) for _ in range(CLIENTS)]
        self.made = 0

    def one(self, chosen: str, reason: str) -> None:
        """Hold one worker; the reason is shown in its row."""
        self._loop.run(self._hold(self._connections[0], chosen, reason))

    def many(self, count: int) -> None:
        """Make that many changes to running workers across the list."""
        for _ in range(0, count, AT_A_TIME):
            self._loop.run(self._some())

    def close(self) -> None:
        """Close the connection."""
        for connection in self._connections:
            self._loop.run(connection.close())

    async def _some(self) -> None:
        first, running = self.made, STATUSES.index(WorkerStatus.RUNNING)
        self.made += AT_A_TIME

        async def change(number: int) -> None:
            connection = self._connections[number * CLIENTS // AT_A_TIME]
            chosen = running + (first + number) * len(STATUSES) % self._workers
            await self._hold(connection, worker_id(chosen), f"change {first + number}")

        await waits(change, CLIENTS, AT_A_TIME // CLIENTS)

    async def _hold(self, connection: Connection, chosen: str, reason: str) -> None:
        await connection.ask("POST", f"/api/workers/{chosen}/hold", json.dumps({"reason": reason}).encode())


def changes(browser: Browser, port: int, holder: Holder, verdict: Verdict) -> None:
    """Time from another user's request until the row shows it."""
    context = signed_in(browser, port)
    page = live(context, "/fleet?view=ready&sort=name")
    shown = page.locator("tbody tr").evaluate_all("rows => rows.map(row => row.dataset.worker)")
    took: list[float] = []
    for number in range(CHANGES):
        chosen, reason = shown[number % len(shown)], f"change {number:06}"
        page.evaluate(
            f"([selector, text]) => {{ window.waited = ({_WHEN})([selector, text]) }}",
            [f"tr[data-worker='{chosen}']", reason],
        )
        began = time.time() * 1000
        holder.one(chosen, reason)
        took.append(page.evaluate("window.waited") - began)
    name = "browser: a change by somebody else, visible"
    report(f"{name}, p50 of {CHANGES}", percentile(took, 50), "ms")
    verdict.report(f"{name}, p99", percentile(took, 99), "ms", 1000)
    context.close()


def heap(session: CDPSession) -> float:
    """Bytes of live script objects after a garbage collection."""
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    usage: dict[str, Any] = session.send("Runtime.getHeapUsage")
    return float(usage["usedSize"])


def memory(browser: Browser, port: int, holder: Holder, verdict: Verdict) -> None:
    """Memory that a page retains after many events."""
    context = signed_in(browser, port)
    page = live(context)
    session = context.new_cdp_session(page)
    session.send("HeapProfiler.enable")
    kept: list[float] = []
    for events in (BEFORE, AFTER):
        holder.many(events - holder.made)
        last = page.locator("tbody tr").first.get_attribute("data-worker")
        assert last is not None
        holder.one(last, f"the last of {events}")
        # When the last one is shown, all earlier ones were processed.
        page.wait_for_function(_WHEN, arg=[f"tr[data-worker='{last}']", f"the last of {events}"])
        kept.append(heap(session))
    name = "browser: script memory of Fleet"
    report(f"{name}, after {BEFORE:,} events", kept[0] / 1e6, "MB")
    verdict.report(f"{name}, after {AFTER:,} events", kept[1] / 1e6, "MB", 1.1 * kept[0] / 1e6)
    context.close()


def main(sizes: Sequence[int] = (WORKERS,)) -> None:
    for workers in sizes:
        print(_measure(Verdict(workers)), flush=True)


def _measure(verdict: Verdict) -> Verdict:
    with served_plane(record, verdict.workers) as served, LoopThread() as loop, sync_playwright() as playwright:
        browser = launch(playwright)
        loads(browser, served.port, verdict)
        filters(browser, served.port, verdict)
        for measure in (changes, memory):
            # Connections of its own: the server closes idle ones.
            holder = Holder(served.port, loop, verdict.workers)
            measure(browser, served.port, holder, verdict)
            holder.close()
        browser.close()
    return verdict
