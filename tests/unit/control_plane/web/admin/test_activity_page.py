"""The Activity page: the summary of a period, filters of the audit, and the notice of new entries."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from starlette.datastructures import QueryParams

from lcm.control_plane.journal.search import MAX_ENTRIES_SCANNED
from lcm.control_plane.store.port import NewJournalEntry
from lcm.control_plane.web.admin.audit_query import PAGE_SIZE, AuditQuery
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.audit import Actor, ActorKind, AuditEntry
from tests.support.web.visitor import WebVisitor, signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane

HOSTILE = "<script>alert(1)</script>"
ACTION_CELL = re.compile(r'data-label="Action"><a [^>]*>([^<]+)</a>')


def actions_shown(page: str) -> list[str]:
    return ACTION_CELL.findall(page)


async def add_audit_entries(
    plane: TestPlane, count: int, action: str = "skipped", who: str = "anna", reason: str = ""
) -> None:
    actor = Actor(kind=ActorKind.PERSON, name=who)
    entries = []
    for _ in range(count):
        line = AuditEntry(at=clock.now(), actor=actor, action=action, subject="fleet", reason=reason)
        entries.append(NewJournalEntry("audit", "fleet", line.model_dump_json().encode(), clock.now()))
    await plane.services.context.store.commit([], entries=entries)


def new_entries_url(page: str) -> str:
    found = re.search(r'id="new-entries"[^>]*data-refresh="([^"]+)"', page)
    assert found is not None
    return unescape(found.group(1))


async def test_entries_show_actor_action_target_and_reason(plane: TestPlane) -> None:
    worker = await plane.running("alpha")
    await plane.ask("POST", f"/api/workers/{worker['id']}/stop", json={"reason": "course is over"})
    page = await (await signed_in(plane, Role.VIEWER)).page("/activity")
    assert actions_shown(page)[0] == "stop requested"
    assert f'<a href="/workers/{worker["id"]}">alpha</a>' in page
    assert "course is over" in page
    assert "worker-controller</a></td>" in page, "its name shows what it is"
    assert page.count('scope="col"') == 5


async def test_filters_are_in_the_address_and_a_wrong_one_is_left_out(plane: TestPlane) -> None:
    worker = await plane.running("alpha")
    await plane.ask("POST", f"/api/workers/{worker['id']}/stop", json={"reason": "over"})
    await plane.ask("POST", "/api/fleet/hold", json={"reason": "wait"})
    visitor = await signed_in(plane, Role.VIEWER)
    assert actions_shown(await visitor.page("/activity?by=person")) == ["fleet held", "stop requested", "created"]
    assert actions_shown(await visitor.page("/activity?subject=alpha&by=person")) == ["stop requested", "created"]
    assert actions_shown(await visitor.page(f"/activity?subject={worker['id']}&action=stop")) == ["stop requested"]
    assert actions_shown(await visitor.page("/activity?q=WAIT")) == ["fleet held"]
    by_action = actions_shown(await visitor.page("/activity?actor=operator&action=created,stop"))
    assert by_action == ["stop requested", "created"]
    assert actions_shown(await visitor.page("/activity?since=2999-01-01T00:00")) == []
    assert len(actions_shown(await visitor.page("/activity?by=robot&since=soon&until=&night=year&after=nonsense"))) > 5
    empty = await visitor.page("/activity?q=nowhere")
    assert "No matching entries" in empty
    assert 'name="q" id="q" value="nowhere"' in empty


async def test_a_script_gets_the_list_alone(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.VIEWER)
    part = await visitor.part("/activity?by=system")
    assert part.lstrip().startswith('<div id="activity-list"')
    assert "<html" not in part


async def test_older_entries_are_on_further_pages(plane: TestPlane) -> None:
    await add_audit_entries(plane, PAGE_SIZE, "later")
    visitor = await signed_in(plane, Role.VIEWER)
    first = await visitor.page("/activity")
    assert actions_shown(first) == ["later"] * PAGE_SIZE
    following = unescape(re.findall(r'<a href="([^"]+)" rel="next">Older', first)[0])
    second = await visitor.page(following)
    assert "later" not in actions_shown(second)
    assert actions_shown(second)
    assert "« Newest" in second
    assert 'id="new-entries"' not in second


async def test_a_search_without_matches_so_far_offers_older_entries(plane: TestPlane) -> None:
    await add_audit_entries(plane, 1, "needle")
    await add_audit_entries(plane, MAX_ENTRIES_SCANNED)
    visitor = await signed_in(plane, Role.VIEWER)
    page = await visitor.page("/activity?action=needle")
    assert actions_shown(page) == []
    further = unescape(re.findall(r'href="([^"]+)">Search older entries', page)[0])
    assert actions_shown(await visitor.page(further)) == ["needle"]


async def test_new_entries_are_announced_if_they_match_the_filter(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.VIEWER)
    address = new_entries_url(await visitor.page("/activity?action=hold"))
    assert "new entr" not in await visitor.part(address)
    await add_audit_entries(plane, 1, "hold")
    await add_audit_entries(plane, 5, "other")
    part = await visitor.part(address)
    assert "1 new entry: show" in part
    assert 'href="/activity?action=hold"' in part
    again = new_entries_url(part)
    assert "1 new entry: show" in await visitor.part(again)
    await add_audit_entries(plane, 2, "hold")
    assert "3 new entries: show" in await visitor.part(again)
    assert "3 new entries: show" in await visitor.part(address)
    await add_audit_entries(plane, 100, "hold")
    assert "100 or more new entries" in await visitor.part(again)
    assert "100 or more new entries" in await visitor.part(new_entries_url(await visitor.part(again)))
    assert "new entr" not in await visitor.part("/activity/news?after=nonsense")


async def test_text_of_users_is_escaped(plane: TestPlane) -> None:
    await add_audit_entries(plane, 1, who=HOSTILE, reason=f'{HOSTILE}" onmouseover="x')
    visitor = await signed_in(plane, Role.VIEWER)
    page = await visitor.page("/activity")
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert '" onmouseover="' not in page
    echoed = await visitor.page(
        f"/activity?q={quote(HOSTILE)}&actor={quote(HOSTILE)}&subject=%00&action={quote(HOSTILE)}"
    )
    assert HOSTILE not in echoed
    summary = await visitor.part("/activity/night")
    assert HOSTILE not in summary


async def test_a_period_is_summarized(plane: TestPlane) -> None:
    visitor = await signed_in(plane, Role.VIEWER)
    empty = await visitor.part("/activity/night")
    assert "No automated actions" in empty
    worker = await plane.running("alpha")
    worker = (await plane.ask("POST", f"/api/workers/{worker['id']}/stop")).json()
    worker = await plane.report(await plane.report(worker, "STOPPING"), "STOPPED")
    await asyncio.sleep(3600 * 10)
    await plane.report(await plane.create("broken"), "FAILED")
    page = await visitor.page("/activity?night=24h")
    address = re.findall(r'hx-get="(/activity/night[^"]*)"', page)[0]
    part = await visitor.part(unescape(address))
    assert "<strong>$0.21</strong> by people" in part
    assert re.search(r'<li class="problem"><span class="times">1.</span> <span>failed: <a href="/workers/', part)
    assert ">alpha</a>, for 10 hours" in part


async def test_the_page_requires_a_sign_in(plane: TestPlane) -> None:
    response = await WebVisitor(plane).ask("GET", "/activity")
    assert (response.status_code, response.headers["location"]) == (303, "/sign-in?next=%2Factivity")


@pytest.mark.parametrize(
    ("query", "address"),
    [
        ("", "/activity"),
        ("q=+a+&by=PERSON", "/activity?q=a&by=person"),
        ("since=2026-01-17T10:30:45%2B02:00", "/activity?since=2026-01-17T08%3A30Z"),
        ("since=0001-01-01T00:00&until=tomorrow", "/activity"),
        ("night=7d&actor=a,b&actor=c", "/activity?actor=a%2Cb%2Cc&night=7d"),
    ],
)
def test_a_url_is_normalized(query: str, address: str) -> None:
    assert AuditQuery.from_query(QueryParams(query)).url() == address


async def test_a_page_that_stays_open_does_not_scan_the_whole_day_again(
    plane: TestPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = await signed_in(plane, Role.VIEWER)
    address = new_entries_url(await visitor.page("/activity?action=hold"))
    await add_audit_entries(plane, 3000, "other")
    address = new_entries_url(await visitor.part(address))
    store, read = plane.services.context.store, 0
    journal = store.read_journal

    async def counted(**query: Any) -> Any:
        nonlocal read
        lines = await journal(**query)
        read += len(lines)
        return lines

    monkeypatch.setattr(store, "read_journal", counted)
    await visitor.part(address)
    assert read <= 2
