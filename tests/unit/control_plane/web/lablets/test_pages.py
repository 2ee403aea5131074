"""The Lablets page and the page of one lablet: order, filters, details, and how lablets are ended."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from starlette.datastructures import QueryParams

from lcm.control_plane.records.backfill import backfill_fields
from lcm.control_plane.records.kinds import LABLETS, lablet_fields
from lcm.control_plane.store.port import Put
from lcm.control_plane.web.lablets.list_page import LabletListQuery
from lcm.control_plane.web.list_query import PAGE_SIZE
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.lablet.record import Lablet
from lcm.model.lablet.urgency import FAILED_SHOWN_FOR
from tests.support.web.lablets import LabletWorld
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    from tests.support.virtual.control_plane import TestPlane

EVIL = "<script>alert(1)</script>"


@pytest.fixture
async def world(plane: TestPlane) -> LabletWorld:
    made = await LabletWorld(plane).open()
    await made.define()
    return made


def names(page: str) -> list[str]:
    return re.findall(r'<a href="/lablets/l-[^"]+">([^<]+)</a>', page)


def counts(page: str) -> dict[str, str]:
    return dict(re.findall(r'data-view="([a-z]*)".*?<span class="n">([0-9,]+)</span>', page))


async def test_problems_come_first_and_say_why(world: LabletWorld) -> None:
    worker = await world.worker()
    await world.runs("aa-fine", worker)
    await world.make("bb-new")
    await world.waits(await world.make("cc-waits"), f"no room for it: {EVIL}")
    await world.report(await world.make("dd-failed"), "FAILED", reason="no template can hold it")
    visitor = await signed_in(world.plane, Role.VIEWER)
    page = await visitor.page("/lablets")
    assert names(page) == ["dd-failed", "cc-waits", "bb-new", "aa-fine"]
    assert "no room for it: &lt;script&gt;" in page
    assert EVIL not in page
    assert "no template can hold it" in page
    assert f'<a href="/workers/{worker["id"]}">alpha</a>' in page
    assert counts(page) == {"": "4", "problems": "2", "waiting": "2", "moving": "1", "running": "1", "ended": "0"}
    assert names(await visitor.page("/lablets?view=problems")) == ["dd-failed", "cc-waits"]
    assert names(await visitor.page("/lablets?view=waiting")) == ["cc-waits", "bb-new"]
    assert names(await visitor.page("/lablets?view=moving")) == ["bb-new"]
    assert names(await visitor.page("/lablets?view=running")) == ["aa-fine"]


async def test_a_held_lablet_is_no_problem_and_its_end_is_due(
    world: LabletWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.define("short", time_to_live_minutes=60)
    placed = await world.place(await world.make("held", "short"), await world.worker())
    held = await world.report(await world.report(placed, "INSTANTIATING"), "RUNNING")
    visitor = await signed_in(world.plane, Role.VIEWER)
    page = await visitor.page("/lablets")
    assert "due</span>" not in page
    assert "Expires <time" in await visitor.page(f"/lablets/{held['id']}")
    await world.report(held, "RUNNING", message="on hold by ada: her disks")
    later = clock.now() + timedelta(minutes=61)
    monkeypatch.setattr(clock, "now", lambda: later)
    visitor = await signed_in(world.plane, Role.VIEWER)
    page = await visitor.page("/lablets")
    assert counts(page)["problems"] == "0"
    assert "on hold by ada: her disks" in page
    assert re.search(r"due</span> <time [^>]*>1 minute ago</time>", page)
    assert "Expired <time" in await visitor.page(f"/lablets/{held['id']}")


async def test_ended_lablets_are_shown_on_request(world: LabletWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = await world.make("gone")
    await world.plane.ask("DELETE", f"/api/lablets/{gone['id']}")
    await world.report(await world.make("failed"), "FAILED")
    visitor = await signed_in(world.plane, Role.VIEWER)
    page = await visitor.page("/lablets")
    assert names(page) == ["failed"]
    assert counts(page)["ended"] == "1"
    assert names(await visitor.page("/lablets?view=ended")) == ["gone"]
    assert names(await visitor.page("/lablets?status=terminated")) == ["gone"]
    later = clock.now() + FAILED_SHOWN_FOR + timedelta(minutes=1)
    monkeypatch.setattr(clock, "now", lambda: later)
    visitor = await signed_in(world.plane, Role.VIEWER)
    page = await visitor.page("/lablets")
    assert names(page) == []
    assert "Ended lablets" in page
    assert names(await visitor.page("/lablets?view=ended")) == ["failed", "gone"]


async def test_filters_are_in_the_address_and_a_wrong_one_is_left_out(world: LabletWorld) -> None:
    await world.define("bgp", "2")
    worker = await world.worker()
    await world.place(await world.make("one", owner="anna"), worker)
    await world.make("two", "bgp", owner="bob")
    visitor = await signed_in(world.plane, Role.VIEWER)
    assert names(await visitor.page("/lablets?q=ON")) == ["one"]
    assert names(await visitor.page("/lablets?owner=bo")) == ["two"]
    assert names(await visitor.page("/lablets?definition=bgp")) == ["two"]
    page = await visitor.page("/lablets?definition=ospf%401")
    assert names(page) == ["one"]
    assert "<option selected>ospf@1</option>" in page
    page = await visitor.page(f"/lablets?worker={worker['id']}")
    assert names(page) == ["one"]
    assert "On worker <a" in page
    assert names(await visitor.page("/lablets?status=scheduled,pending_scheduling&sort=-name")) == ["two", "one"]
    assert len(names(await visitor.page("/lablets?status=no&sort=no&view=no&page=x&after=x"))) == 2
    assert "No matching lablets" in await visitor.page("/lablets?q=no-such-name")


async def test_pages_go_on_where_the_last_one_ended(world: LabletWorld) -> None:
    for number in range(PAGE_SIZE + 2):
        await world.make(f"x{number:03}")
    visitor = await signed_in(world.plane, Role.VIEWER)
    first = await visitor.page("/lablets?q=x")
    following = re.search(r'<a href="([^"]+)" rel="next"', first)
    assert following is not None
    second = await visitor.page(following.group(1).replace("&amp;", "&"))
    assert names(first) + names(second) == [f"x{number:03}" for number in range(PAGE_SIZE + 2)]
    assert "page 2 of 2" in second


async def test_an_empty_list_says_what_to_do(plane: TestPlane) -> None:
    assert "Create a lablet" in await (await signed_in(plane, Role.OPERATOR)).page("/lablets")
    viewers = await (await signed_in(plane, Role.VIEWER)).page("/lablets")
    assert "No lablets now" in viewers
    assert "Create a lablet" not in viewers


async def test_rows_and_the_table_can_be_refreshed(world: LabletWorld) -> None:
    one, two = await world.make("one"), await world.make("two")
    visitor = await signed_in(world.plane, Role.VIEWER)
    part = await visitor.part(f"/lablets/rows?ids={two['id']},{one['id']},l-none")
    assert names(part) == ["two", "one"]
    assert f'hx-target="#lablet-{one["id"]}"' in part
    changed = await world.waits(one, "no room")
    assert f'data-version="{changed["version"]}"' in await visitor.part(f"/lablets/rows?ids={one['id']}")
    table = await visitor.part("/lablets?q=tw")
    assert names(table) == ["two"]
    assert 'hx-target="#views"' in table
    assert "<html" not in table
    assert 'data-refresh="/lablets?q=tw"' in table


async def test_a_page_shows_the_placement_and_the_rejected_workers(world: LabletWorld) -> None:
    worker = await world.worker()
    rejections = [{"worker_id": "w-9", "worker_name": "bravo", "reason": f"it is STOPPED {EVIL}"}]
    lablet = await world.place(await world.make("first"), worker, score=0.25, rejections=rejections, rejected=7)
    lablet = await world.report(lablet, "INSTANTIATING")
    endpoints = [{"node": EVIL, "addresses": ["10.0.0.5", "2001:db8::5"]}, {"node": "R2"}]
    await world.report(lablet, "RUNNING", endpoints=endpoints, lab_id="lab-1")
    visitor = await signed_in(world.plane, Role.VIEWER)
    page = await visitor.page(f"/lablets/{lablet['id']}")
    assert EVIL not in page
    for text in (
        "score 0.250",
        "bravo",
        "it is STOPPED &lt;script&gt;",
        "And 6 more",
        "10.0.0.5, 2001:db8::5",
        "lab-1",
    ):
        assert text in page
    assert f'data-lablet-id="{lablet["id"]}"' in page
    assert 'data-topics="lablet,lablet-history,audit"' in page
    timeline = page.partition('id="timeline"')[2]
    assert timeline.index("INSTANTIATING") < timeline.index("assigned it to a worker") < timeline.index("requested it")
    assert "act-end" not in page
    part = await visitor.part(f"/lablets/{lablet['id']}/now")
    assert "<html" not in part
    assert f'data-version="{(await world.now(lablet))["version"]}"' in part


async def test_a_page_says_how_to_reach_each_node(world: LabletWorld) -> None:
    topology = "nodes: [{id: n0, label: R1, tags: ['serial:${CON}', 'pat:${WEB}:80']}, {id: n1, label: R2}]"
    await world.define("reach", topology=topology, requirements={"license": False, "ports": ["CON", "WEB"]})
    lablet = await world.make("first", "reach")
    visitor = await signed_in(world.plane, Role.VIEWER)
    address = f"/lablets/{lablet['id']}"
    assert "The address is known once the lablet is placed on a worker." in await visitor.page(address)
    lablet = await world.report(await world.place(lablet, await world.worker()), "INSTANTIATING", lab_id="lab-1")
    assert "Ports answer once its nodes have booted." in await visitor.page(address)
    lablet = await world.report(lablet, "RUNNING", endpoints=[{"node": "R2", "addresses": ["10.0.0.5"]}])
    page = await visitor.page(address)
    ports = (await world.now(lablet))["ports"]
    access = page.partition('id="access"')[2].partition("</section>")[0]
    for text in (
        f'data-copy="telnet 192.0.2.7 {ports["CON"]}"',
        f'href="http://192.0.2.7:{ports["WEB"]}"',
        'href="https://192.0.2.7/lab/lab-1"',
        "in CML only: no port is forwarded to it",
        "10.0.0.5",
    ):
        assert text in access, text
    assert page.index('id="access"') < page.index('id="placement"')
    assert '<details class="folded" id="placement">' in page
    response = await world.plane.ask("GET", f"/api{address}/access", role=Role.VIEWER)
    assert response.json()["nodes"][0]["ports"][0]["command"] == f"telnet 192.0.2.7 {ports['CON']}"
    await world.report(lablet, "STOPPING", ending="TERMINATED")
    assert "Its addresses and ports are released." in await visitor.page(address)
    assert (await world.plane.ask("GET", "/api/lablets/l-none/access", role=Role.VIEWER)).status_code == 404


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ("STOPPED", "The lab is stopped with its worker alpha, which has been STOPPED since"),
        ("UNKNOWN", "Whether the lab is running is not known: it is on alpha, which has been UNKNOWN since"),
    ],
)
async def test_no_page_says_that_a_lab_is_running_whose_worker_is_not(
    world: LabletWorld, status: str, text: str
) -> None:
    worker = await world.worker()
    lablet = await world.runs("first", worker)
    visitor = await signed_in(world.plane, Role.VIEWER)
    running = "The lab is running."
    assert running in await visitor.page(f"/lablets/{lablet['id']}")
    current = await world.plane.ask("GET", f"/api/workers/{worker['id']}")
    await world.plane.report(current.json(), status)
    page = await visitor.page(f"/lablets/{lablet['id']}")
    assert running not in page
    assert page.count(f"{text} <time") == 1
    assert "There is no address now." in page.partition('id="access"')[2]
    access = await world.plane.ask("GET", f"/api/lablets/{lablet['id']}/access", role=Role.VIEWER)
    assert access.json()["message"].startswith(text)
    for path in ("/lablets", f"/lablets/rows?ids={lablet['id']}"):
        row = (await visitor.page(path)).partition(f'<tr id="lablet-{lablet["id"]}"')[2].partition("</tr>")[0]
        assert "not reachable" in row
        assert f"{text} <time" in row


async def test_a_waiting_lablet_says_why(world: LabletWorld) -> None:
    coming = await world.plane.create("coming")
    lablet = await world.make("first")
    visitor = await signed_in(world.plane, Role.VIEWER)
    assert "Not evaluated yet" in await visitor.page(f"/lablets/{lablet['id']}")
    await world.waits(lablet, "it waits for worker coming", scale_up_worker_id=coming["id"])
    page = await visitor.page(f"/lablets/{lablet['id']}")
    assert "It waits for worker coming." in page
    assert f'<a href="/workers/{coming["id"]}">coming</a>' in page


async def test_the_timeline_goes_on_on_the_next_page(world: LabletWorld) -> None:
    lablet = await world.make("first")
    for number in range(45):
        lablet = await world.waits(lablet, f"reason-{number:02}.")
    visitor = await signed_in(world.plane, Role.VIEWER)
    first = await visitor.page(f"/lablets/{lablet['id']}")
    older = re.search(r'href="([^"]+)#timeline" rel="next"', first)
    assert older is not None
    second = await visitor.page(older.group(1).replace("&amp;", "&"))
    reasons = [re.findall(r"reason-\d\d", page.partition('id="timeline"')[2]) for page in (first, second)]
    assert reasons[0] + reasons[1] == [f"reason-{number:02}" for number in range(44, -1, -1)]
    assert "requested it" in second
    part = await visitor.part(f"/lablets/{lablet['id']}/timeline")
    assert "reason-44" in part
    assert "Timeline" in await visitor.part(f"/lablets/{lablet['id']}/timeline?before=nonsense")


@pytest.mark.parametrize("lablet_id", ["l-none", "%3Cscript%3Ealert(1)", "a%20b"])
async def test_one_that_does_not_exist_has_a_page_that_says_so(plane: TestPlane, lablet_id: str) -> None:
    visitor = await signed_in(plane, Role.VIEWER)
    page = await visitor.page(f"/lablets/{lablet_id}", 404)
    assert "There is no lablet" in page
    assert "<script>alert" not in page
    assert "alert" in await visitor.part(f"/lablets/{lablet_id}/now", 404)


async def test_the_end_is_moved_by_a_choice_that_is_possible(world: LabletWorld) -> None:
    lablet = await world.place(await world.make("first", time_to_live_minutes=60.0), await world.worker())
    lablet = await world.report(await world.report(lablet, "INSTANTIATING"), "RUNNING")
    visitor = await signed_in(world.plane, Role.OPERATOR)
    address = f"/lablets/{lablet['id']}"
    assert "act-extend" in await visitor.page(address)
    dialog = await visitor.part(f"{address}/confirm-extend")
    assert re.findall(r'name="minutes" value="(\d+)"', dialog) == ["30", "60", "120", "240"]
    assert "It will end in 1 hour 30 minutes" in dialog
    assert "It will end in 5 hours" in await visitor.part(f"{address}/extension?minutes=240")
    assert "minutes: " in await visitor.part(f"{address}/extension?minutes=many", 422)
    version = (await world.now(lablet))["version"]
    body = {"minutes": "120", "version": version, "idempotency_key": "one"}
    assert "the end was moved" in (await visitor.send(f"{address}/extend", body)).text
    assert "the end was moved" in (await visitor.send(f"{address}/extend", body)).text, "sent twice, done once"
    assert (await world.now(lablet))["time_to_live_minutes"] == pytest.approx(180, abs=0.1)
    assert (await visitor.send(f"{address}/extend", {"minutes": "60", "version": version})).status_code == 412
    assert "give either" in (await visitor.send(f"{address}/extend", {})).text
    endless = await world.make("endless")
    assert "act-extend" not in await visitor.page(f"/lablets/{endless['id']}")
    assert "it has no end" in await visitor.part(f"/lablets/{endless['id']}/confirm-extend")


async def test_a_lab_is_reset_after_a_preview_of_the_losses(world: LabletWorld) -> None:
    lablet = await world.runs("first", await world.worker(), lab_id="lab-1")
    visitor = await signed_in(world.plane, Role.OPERATOR)
    address = f"/lablets/{lablet['id']}"
    assert "act-reset" in await visitor.page(address)
    dialog = await visitor.part(f"{address}/confirm-reset")
    assert "The lab on alpha will be stopped, wiped and deleted; then a new one" in dialog
    assert "What is lost" in dialog
    refused = await visitor.send(f"{address}/reset", {"confirm": "second"})
    assert (refused.status_code, (await world.now(lablet))["status"]) == (422, "RUNNING")
    assert "reset requested" in (await visitor.send(f"{address}/reset", {"confirm": "first"})).text
    now = await world.now(lablet)
    assert (now["status"], now["placement_attempt"], now["lab_id"]) == ("INSTANTIATING", 2, None)
    page = await visitor.page(address)
    assert "The lab that it had before is removed first." in page
    assert "requested a new lab" in page.partition('id="timeline"')[2]
    assert "act-reset" not in page
    assert "only a RUNNING lablet can be reset" in await visitor.part(f"{address}/confirm-reset")
    viewer = await signed_in(world.plane, Role.VIEWER)
    for path in ("extend", "reset"):
        assert (await viewer.send(f"{address}/{path}", {"minutes": "30", "confirm": "first"})).status_code == 403


async def test_a_lablet_is_ended_after_a_preview_of_the_losses(world: LabletWorld) -> None:
    worker = await world.worker()
    lablet = await world.runs("first", worker, endpoints=[{"node": "R1", "addresses": ["10.0.0.5"]}])
    visitor = await signed_in(world.plane, Role.OPERATOR)
    page = await visitor.page(f"/lablets/{lablet['id']}")
    assert "act-end" in page
    dialog = await visitor.part(f"/lablets/{lablet['id']}/confirm-end")
    for text in (
        "alpha will be stopped, wiped and deleted",
        "1 node on alpha",
        "10.0.0.5",
        f'value="{lablet["version"]}"',
    ):
        assert text in dialog
    lablet = await world.report(lablet, "RUNNING", message="slow")
    stale = await visitor.send(
        f"/lablets/{lablet['id']}/end", {"version": str(lablet["version"] - 1), "confirm": "first"}
    )
    assert stale.status_code == 412
    assert (await world.now(lablet))["wanted"]
    form = {"version": str(lablet["version"]), "reason": "over", "confirm": "first"}
    response = await visitor.send(f"/lablets/{lablet['id']}/end", form)
    assert response.status_code == 200, response.text
    assert response.headers["HX-Trigger"] == "lcm:done"
    after = await world.now(lablet)
    assert (after["wanted"], after["ending_reason"]) == (False, "over")
    assert "act-end" not in await visitor.page(f"/lablets/{lablet['id']}")
    assert "No change needed" in await visitor.part(f"/lablets/{lablet['id']}/confirm-end")


async def test_the_preview_depends_on_the_status(world: LabletWorld) -> None:
    visitor = await signed_in(world.plane, Role.OPERATOR)
    pending = await world.make("pending")
    assert "TERMINATED immediately" in await visitor.part(f"/lablets/{pending['id']}/confirm-end")
    placed = await world.place(await world.make("placed"), await world.worker())
    assert "reserved capacity on alpha" in await visitor.part(f"/lablets/{placed['id']}/confirm-end")
    await world.report(placed, "INSTANTIATING")
    await world.plane.ask("POST", "/api/fleet/hold", json={"reason": "check"})
    assert "After the release" in await visitor.part(f"/lablets/{placed['id']}/confirm-end")
    await visitor.send(f"/lablets/{pending['id']}/end", {"confirm": "pending"})
    assert (await world.now(pending))["status"] == "TERMINATED"
    assert "It has already ended: TERMINATED" in await visitor.part(f"/lablets/{pending['id']}/confirm-end")


async def test_several_are_ended_each_on_its_own(world: LabletWorld) -> None:
    worker = await world.worker()
    runs, waits = await world.runs("runs", worker), await world.make("waits")
    gone = await world.make("gone")
    await world.plane.ask("DELETE", f"/api/lablets/{gone['id']}")
    visitor = await signed_in(world.plane, Role.OPERATOR)
    page = await visitor.page("/lablets")
    assert 'hx-get="/lablets/confirm-end"' in page
    assert f'id="select-{runs["id"]}"' in page
    ids = ",".join(each["id"] for each in (runs, waits, gone))
    dialog = await visitor.part(f"/lablets/confirm-end?action=end&ids={ids}")
    for text in ("End 2 lablets?", "alpha will be stopped, wiped and deleted", "TERMINATED immediately", "Skipped"):
        assert text in dialog
    assert "It has already ended: TERMINATED" in dialog.partition("Skipped")[2]
    targets = f"{runs['id']}:{runs['version']},{waits['id']}:{waits['version']}"
    assert f'value="{targets}"' in dialog
    changed = await world.report(runs, "RUNNING", message="slow")
    response = await visitor.send("/lablets/end", {"targets": targets, "reason": "over", "confirm": "2"})
    assert "End requested: 1 of 2" in response.text
    assert response.headers["HX-Trigger"] == "lcm:done"
    assert (await world.now(runs))["wanted"], "it changed after the dialog was opened"
    after = await world.now(waits)
    assert (after["status"], after["ending_reason"]) == ("TERMINATED", "over")
    targets = f"{runs['id']}:{changed['version']},<script>:1"
    await visitor.send("/lablets/end", {"targets": targets, "confirm": "2"})
    assert not (await world.now(runs))["wanted"]
    assert "select at least one lablet" in await visitor.part("/lablets/confirm-end", 422)


async def test_a_hold_of_one_worker_is_shown_only_for_its_lablets(world: LabletWorld) -> None:
    held, free = await world.worker("alpha"), await world.worker("bravo")
    one, two = await world.runs("one", held), await world.runs("two", free)
    await world.plane.ask("POST", f"/api/workers/{held['id']}/hold", json={"reason": "check"})
    visitor = await signed_in(world.plane, Role.OPERATOR)
    dialog = await visitor.part(f"/lablets/confirm-end?ids={one['id']},{two['id']}")
    assert "put alpha or the fleet on hold" in dialog
    assert "The lab on bravo will be stopped" in dialog


async def test_lablets_with_the_same_effect_share_one_line(world: LabletWorld) -> None:
    worker = await world.worker()
    await world.define("tiny", requirements={"license": False, "cpu_cores": 0.1, "memory_gb": 0.1})
    made = [await world.make(f"l{number}", "tiny", owner=f"owner-{number}") for number in range(3)]
    for lablet in made[:2]:
        await world.report(await world.place(lablet, worker), "INSTANTIATING")
    visitor = await signed_in(world.plane, Role.OPERATOR)
    dialog = await visitor.part(f"/lablets/confirm-end?ids={','.join(each['id'] for each in made)}")
    assert "<strong>l0, l1</strong> (INSTANTIATING)" in dialog
    assert "<strong>l2</strong> (PENDING SCHEDULING)" in dialog
    assert "2 labs with 2 nodes, and all work of owner-0, owner-1 in them." in dialog
    alone = await visitor.part(f"/lablets/confirm-end?ids={made[2]['id']}")
    assert "What is lost" not in alone


async def test_a_viewer_changes_nothing(world: LabletWorld) -> None:
    lablet = await world.make("first")
    visitor = await signed_in(world.plane, Role.VIEWER)
    for path in (
        "/lablets/new",
        "/lablets/new/preview",
        f"/lablets/{lablet['id']}/confirm-end",
        f"/lablets/confirm-end?ids={lablet['id']}",
        "/definitions/new",
    ):
        assert "alert" in await visitor.part(path, 403)
    page = await visitor.page("/lablets")
    assert 'id="bulk"' not in page
    assert 'id="select-' not in page
    for path in (
        "/lablets/new",
        f"/lablets/{lablet['id']}/end",
        "/lablets/end",
        "/definitions/save",
        "/definitions/ospf/1/disable",
    ):
        assert (await visitor.send(path, {"definition": "ospf"})).status_code == 403
    operator = await signed_in(world.plane, Role.OPERATOR)
    assert (await operator.send("/definitions/ospf/1/disable")).status_code == 403
    assert (await operator.send(f"/lablets/{lablet['id']}/end", csrf="0" * 32)).status_code == 403
    assert (await world.now(lablet))["wanted"]


async def test_the_pages_of_a_worker_and_of_the_fleet_show_its_lablets(world: LabletWorld) -> None:
    worker = await world.worker()
    lablet = await world.runs("first", worker)
    visitor = await signed_in(world.plane, Role.VIEWER)
    page = await visitor.page(f"/workers/{worker['id']}")
    card = page.partition('id="worker-lablets"')[2].partition("</section>")[0]
    assert f'<a href="/lablets/{lablet["id"]}">first</a>' in card
    assert "<span>1 of 2</span>" in card
    assert 'width="50.0"' in card
    fleet = await visitor.page("/fleet")
    assert f'href="/lablets?worker={worker["id"]}" aria-label="1 lablets on alpha">1</a>' in fleet
    other = await world.worker("bravo")
    assert "No lablets assigned" in await visitor.page(f"/workers/{other['id']}")


async def test_the_audit_links_to_its_page(world: LabletWorld) -> None:
    lablet = await world.make("first")
    page = await (await signed_in(world.plane, Role.VIEWER)).page("/activity?subject=first")
    assert f'<a href="/lablets/{lablet["id"]}">first</a>' in page


async def test_the_activity_summary_links_lablets_and_workers(world: LabletWorld) -> None:
    lablet, worker = await world.make("first"), await world.plane.create("alpha")
    night = await (await signed_in(world.plane, Role.VIEWER)).part("/activity/night")
    assert f'lablet created: <a href="/lablets/{lablet["id"]}">first</a></span>' in night
    assert f'created: <a href="/workers/{worker["id"]}">alpha</a></span>' in night


async def test_records_of_an_older_version_get_the_fields_that_are_new(world: LabletWorld) -> None:
    lablet = await world.make("old")
    store = world.plane.services.context.store
    stored = await store.get(LABLETS, lablet["id"])
    assert stored is not None
    fields = {**lablet_fields(Lablet.model_validate_json(stored.body)), "urgency": None, "attention": None}
    fields["search_text"] = None
    await store.commit(
        [Put(LABLETS, stored.id, stored.body, stored.revision, {**fields, "shown_until": None}, {"name": "old"})]
    )
    visitor = await signed_in(world.plane, Role.VIEWER)
    assert names(await visitor.page("/lablets")) == []
    assert await backfill_fields(store) == 1
    assert names(await visitor.page("/lablets")) == ["old"]
    assert await backfill_fields(store) == 0


def test_a_query_and_its_url_are_equivalent() -> None:
    query = LabletListQuery(
        view="problems", q="a b&c", owner="é", status=("RUNNING",), definition="x@1", worker="w-1", sort="-name"
    )
    url = query.url(after="x", page=3)
    assert LabletListQuery.from_query(QueryParams(url.partition("?")[2])).url() == query.url()
    assert LabletListQuery.from_query(QueryParams(url.partition("?")[2])).page == 3
    assert LabletListQuery().url() == "/lablets"
