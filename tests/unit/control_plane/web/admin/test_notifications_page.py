"""The Notifications page: read by all users, changed by admins. No URL is ever shown."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from lcm.control_plane.records.kinds import ALERT, DEAD_LETTERS
from lcm.control_plane.store.port import NewJournalEntry, Put
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.notification.alert import Alert, AlertState, AlertSubject, AlertType, Severity, SubjectKind
from tests.support.records.workers import NOW
from tests.support.web.visitor import signed_in

if TYPE_CHECKING:
    import httpx

    from tests.support.virtual.control_plane import TestPlane

AN_ALERT = Alert(
    id="ev-1",
    type=AlertType.WORKER_FAILED,
    state=AlertState.RAISED,
    severity=Severity.CRITICAL,
    at=NOW,
    subject=AlertSubject(kind=SubjectKind.WORKER, id="w-1"),
    summary="Worker failed",
)
NEW = {"name": "ops", "target": "webhook", "url": "https://hooks.test/s3cret", "severity": "warning"}


async def test_an_admin_creates_tests_and_deletes_a_subscription(plane: TestPlane) -> None:
    receiver = plane.receivers.add("hooks.test")
    admin = await signed_in(plane, Role.ADMIN)
    assert "Nobody is notified" in await admin.page("/notifications")
    created = await admin.send("/notifications/create", {**NEW, "types": "worker_failed"})
    assert "whsec_" in created.text
    [status] = await plane.services.subscriptions.statuses()
    subscription = status.subscription
    assert subscription.filter.types == ("worker_failed",)
    page = await admin.page("/notifications")
    assert "https://hooks.test/…" in page
    assert "s3cret" not in page
    sent = await admin.send(f"/notifications/{subscription.id}/test", {})
    assert "Answer: 200 ok" in sent.text
    assert receiver.alerts[0]["type"] == "test"
    assert "dead letters are deleted" in await admin.part(f"/notifications/{subscription.id}/confirm-delete")
    assert f'hx-post="/notifications/{subscription.id}/disable"' not in await admin.page("/notifications")
    asked = await admin.part(f"/notifications/{subscription.id}/confirm-disable")
    assert "Its alerts will wait until you enable it again" in asked
    disabled = await admin.send(f"/notifications/{subscription.id}/disable", {})
    assert "disabled: alerts wait until it is enabled" in disabled.text
    assert "disabled" in await admin.page("/notifications")
    await admin.send(f"/notifications/{subscription.id}/remove", {})
    assert await plane.services.subscriptions.statuses() == []


async def test_an_invalid_form_is_shown_again_without_the_url(plane: TestPlane) -> None:
    admin = await signed_in(plane, Role.ADMIN)
    response = await admin.send("/notifications/create", {**NEW, "url": "ftp://hooks.test/s3cret"})
    assert response.status_code == 422
    assert 'id="f-url-problem">must be an https URL' in response.text
    assert "s3cret" not in response.text
    response = await admin.send("/notifications/create", {"name": "mail", "target": "email", "severity": "warning"})
    assert 'id="f-recipients-problem">an email target needs recipients' in response.text
    assert await plane.services.subscriptions.statuses() == []


async def test_deliveries_and_dead_letters_are_shown_and_sent_again(plane: TestPlane) -> None:
    receiver = plane.receivers.add("hooks.test", status=400, text=b"<b>no</b>")
    admin = await signed_in(plane, Role.ADMIN)
    await admin.send("/notifications/create", NEW)
    worker = await plane.create("alpha")
    await plane.report(worker, "FAILED")
    while "dead letters of ops" not in (page := await admin.page("/notifications")).lower():
        await asyncio.sleep(0.5)
    assert "Worker failed: alpha" in page
    assert "<b>no</b>" not in page
    [status] = await plane.services.subscriptions.statuses()
    subscription_id = status.subscription.id
    letters = await plane.services.subscriptions.dead_letters(subscription_id, limit=10, cursor=None)
    receiver.status = 200
    await admin.send(f"/notifications/{subscription_id}/letters/{letters.items[0].id}/send", {})
    assert receiver.alerts[0]["subject"]["name"] == "alpha"
    assert "dead letters of ops" not in (await admin.page("/notifications")).lower()


async def test_the_page_which_asks_often_reads_a_hundred_alerts_and_no_alert_of_a_dead_letter(plane: TestPlane) -> None:
    admin = await signed_in(plane, Role.ADMIN)
    await admin.send("/notifications/create", NEW)
    [status] = await plane.services.subscriptions.statuses()
    subscription_id = status.subscription.id
    await admin.send(f"/notifications/{subscription_id}/disable", {})
    entries = [NewJournalEntry(ALERT, "w-1", AN_ALERT.model_dump_json().encode(), clock.now()) for _ in range(150)]
    letter = {"id": "l-1", "notification_id": "digest-1-9", "summary": "1,000 alerts", "answer": "413"}
    known = {"subscription_id": subscription_id, "at": clock.now().isoformat()}
    body = json.dumps({**letter, **known, "alerts": "not read"}).encode()
    await plane.services.context.store.commit([Put(DEAD_LETTERS, "l-1", body, None, known)], entries=entries)
    page = await admin.page("/notifications")
    assert "Waiting: 100 or more. Dead letters: 1." in page
    assert "1,000 alerts" in page
    one = await plane.services.subscriptions.status(subscription_id)
    assert (one.pending, one.more_pending) == (150, False)


async def test_the_form_chooses_what_alerts_are_about_and_loses_nothing(plane: TestPlane) -> None:
    admin = await signed_in(plane, Role.ADMIN)
    team = (await plane.ask("POST", "/api/teams", role=Role.ADMIN, json={"name": "blue"})).json()
    narrow = {
        **NEW,
        "teams": "blue",
        "regions": "eu-west-1, us-east-1",
        "tags": "course=ccna, site=ghent",
        "names": "a",
    }
    refused = await admin.send("/notifications/create", {**narrow, "teams": "blue, green"})
    assert (refused.status_code, 'id="f-teams-problem">there is no team green' in refused.text) == (422, True)
    for kept in ("blue, green", "eu-west-1, us-east-1", "course=ccna, site=ghent"):
        assert f'value="{kept}"' in refused.text
    long = await admin.send("/notifications/create", {**narrow, "regions": "x" * 300})
    assert (long.status_code, 'id="f-regions-problem"' in long.text) == (422, True)
    assert "whsec_" in (await admin.send("/notifications/create", narrow)).text
    [status] = await plane.services.subscriptions.statuses()
    selector = status.subscription.filter.selector
    assert (selector.teams, selector.regions, selector.names) == ((team["id"],), ("eu-west-1", "us-east-1"), ("a",))
    assert selector.tags == {"course": "ccna", "site": "ghent"}


async def test_a_subscription_for_a_team_gets_its_alerts_alone_and_the_page_says_so(plane: TestPlane) -> None:
    receiver = plane.receivers.add("hooks.test")
    admin = await signed_in(plane, Role.ADMIN)
    body = {"name": "blue-team", "target": "webhook", "url": "https://hooks.test/s3cret"}

    async def subscribe(team: str) -> httpx.Response:
        wanted = {**body, "filter": {"severity": "critical", "selector": {"teams": [team]}}}
        return await plane.ask("POST", "/api/subscriptions", role=Role.ADMIN, json=wanted)

    refused = await subscribe("blue")
    assert (refused.status_code, "filter.selector.teams: there is no team blue" in refused.text) == (422, True)
    team = (await plane.ask("POST", "/api/teams", role=Role.ADMIN, json={"name": "blue"})).json()
    created = (await subscribe("blue")).json()["subscription"]
    assert created["filter"]["selector"]["teams"] == [team["id"]]
    await plane.ask("PATCH", f"/api/teams/{team['id']}", role=Role.ADMIN, json={"name": "azure"})
    assert "Sends all critical alerts; only of team azure." in await admin.page("/notifications")
    mine, other = await plane.create("mine"), await plane.create("other")
    await plane.ask("PATCH", f"/api/workers/{mine['id']}", role=Role.ADMIN, json={"team": "azure"})
    for worker in (other, mine):
        latest = (await plane.ask("GET", f"/api/workers/{worker['id']}")).json()
        await plane.report(latest, "FAILED")
    while not receiver.alerts:
        await asyncio.sleep(0.5)
    assert [(each["subject"]["name"], each["subject"]["team"]) for each in receiver.alerts] == [("mine", team["id"])]
    edited = await plane.ask(
        "PATCH",
        f"/api/subscriptions/{created['id']}",
        role=Role.ADMIN,
        json={"filter": {"selector": {"teams": ["azure"]}}},
    )
    assert edited.json()["filter"]["selector"]["teams"] == [team["id"]]


async def test_a_subscription_for_a_team_that_is_gone_can_still_be_changed(plane: TestPlane) -> None:
    """Programs and `lcm subscriptions edit` send the filter back as they read it."""
    plane.receivers.add("hooks.test")
    team = (await plane.ask("POST", "/api/teams", role=Role.ADMIN, json={"name": "blue"})).json()["id"]
    body = {"name": "blue-team", "target": "webhook", "url": "https://hooks.test/s3cret"}
    wanted = {**body, "filter": {"selector": {"teams": ["blue"]}}}
    created = (await plane.ask("POST", "/api/subscriptions", role=Role.ADMIN, json=wanted)).json()["subscription"]
    await plane.ask("DELETE", f"/api/teams/{team}", role=Role.ADMIN)

    async def edit(severity: str, *teams: str) -> httpx.Response:
        changes = {"filter": {"severity": severity, "selector": {"teams": list(teams)}}}
        return await plane.ask("PATCH", f"/api/subscriptions/{created['id']}", role=Role.ADMIN, json=changes)

    edited = (await edit("critical", team)).json()
    assert (edited["filter"]["severity"], edited["filter"]["selector"]["teams"]) == ("critical", [team])
    for teams in (("t-other",), (team, "blue")):
        refused = await edit("warning", *teams)
        assert (refused.status_code, f"there is no team {teams[-1]}" in refused.text) == (422, True)
    assert (await edit("critical")).status_code == 200
    assert (await edit("critical", team)).status_code == 422, "it is not selected any more"


async def test_others_only_read(plane: TestPlane) -> None:
    admin, viewer = await signed_in(plane, Role.ADMIN), await signed_in(plane, Role.VIEWER)
    plane.receivers.add("hooks.test")
    await admin.send("/notifications/create", NEW)
    page = await viewer.page("/notifications")
    assert "ops" in page
    assert "Send a test" not in page
    assert "New subscription" not in page
    assert (await viewer.send("/notifications/create", NEW)).status_code == 403
