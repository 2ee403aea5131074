"""The overview in a browser: problems, charts with a table, live updates; accessible in light, dark and on a phone."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from lcm.core import clock
from tests.support.web.actions import wait_until_live
from tests.support.web.pages import DESKTOP, PHONE, accessibility_violations

if TYPE_CHECKING:
    from playwright.sync_api import Route

    from tests.support.servers.scripted_control_plane import ScriptedControlPlane
    from tests.support.web.pages import Scheme, Visits

VIEWPORTS: list[tuple[Scheme, tuple[int, int]]] = [("light", DESKTOP), ("dark", DESKTOP), ("dark", PHONE)]


def a_day(gap: int) -> dict[str, Any]:
    """A day of samples, with a gap."""
    now = clock.now().timestamp()
    times = [now - timedelta(hours=24).total_seconds() + 300 * number for number in range(288)]
    names = ("cost", "workers", "ready", "problems", "cpu", "cpu_used", "memory", "memory_used")
    values = {name: [None if number == gap else float(number % 40 + 1) for number in range(288)] for name in names}
    return {"from": times[0], "to": now, "every": 300, "times": times, "values": values}


@pytest.mark.parametrize(("scheme", "size"), VIEWPORTS, ids=["light", "dark", "phone"])
def test_the_overview_is_accessible_and_draws_the_history(
    visits: Visits, plane: ScriptedControlPlane, scheme: Scheme, size: tuple[int, int]
) -> None:
    name = f"over-{scheme}-{size[0]}"
    plane.running(f"{name}-ok", template_name="large")
    page, _ = visits.open(plane, "/", scheme=scheme, size=size, role="viewer")
    wait_until_live(page)

    def history(route: Route) -> None:
        route.fulfill(json=a_day(gap=100))

    page.route("**/overview/history?*", history)
    page.get_by_role("button", name="7 d").click()
    expect(page.locator("[data-chart=cost] canvas")).to_be_visible()
    expect(page.locator(".series[data-name=cost] b")).to_have_text(re.compile(r"\$\d+"))
    page.get_by_text("Show data table").click()
    expect(page.locator("#charts-table tbody tr")).to_have_count(287)
    found = accessibility_violations(page)
    if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
        found.append("it is wider than the window")
    assert found == [], "\n".join(found)
    page.get_by_text("Show data table").click()
    page.evaluate("scrollTo(0, 0)")


def test_problems_appear_without_a_reload(visits: Visits, plane: ScriptedControlPlane) -> None:
    page, _ = visits.open(plane, "/", role="viewer")
    wait_until_live(page)
    worker = plane.ask("POST", "/api/workers", {"name": "over-fails", "template_name": "small"})
    update = {"status": "FAILED", "version": worker["version"], "reason": "no image matches"}
    plane.controller("POST", f"/api/internal/workers/{worker['id']}/status", update)
    expect(page.locator("#overview-problems")).to_contain_text("over-fails")
    expect(page.locator("#overview-problems")).to_contain_text("no image matches")
    page.get_by_role("link", name="over-fails").click()
    expect(page.get_by_role("heading", name="over-fails")).to_be_visible()


def test_the_header_is_one_line_on_a_small_screen(visits: Visits, plane: ScriptedControlPlane) -> None:
    page, _ = visits.open(plane, "/", size=(1024, 768), role="admin")
    tops = page.eval_on_selector_all(
        "header.top > *", "all => all.map(each => each.getBoundingClientRect()).map(at => at.top + at.height / 2)"
    )
    assert max(tops) - min(tops) < 10, tops
