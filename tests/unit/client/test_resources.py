"""Every route of the control plane has a client method that decodes its response."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from lcm.client import Client, Leader
from lcm.client.errors import BookingRefusedError, NotFoundError, NotPossibleNowError, UnauthenticatedError
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.audit import ActorKind, DecisionReport
from lcm.model.booking.record import BookingStatus
from lcm.model.booking.requests import (
    BookingPreview,
    CreateBookingRequest,
    ExtendBookingRequest,
    MoveOccurrenceRequest,
)
from lcm.model.calendar.schedule import WorkerSelector
from lcm.model.calendar.schedule_requests import CreateScheduleRequest, EditScheduleRequest, PreviewScheduleRequest
from lcm.model.change_preview import (
    DefinitionAction,
    PreviewDefinitionRequest,
    PreviewTemplateRequest,
    PreviewWorkerRequest,
    TemplateAction,
    WorkerAction,
)
from lcm.model.fleet.settings import FleetSettingsPatch
from lcm.model.lablet.record import (
    AssignDefinitionRequest,
    AssignLabletRequest,
    CreateDefinitionRequest,
    CreateLabletRequest,
    LabletRequirements,
    LabletStatusUpdate,
    Placement,
    PlacementBatch,
    PlacementRequest,
    ReleaseLabletRequest,
)
from lcm.model.lablet.requests import ExtendLabletRequest, LabletAction, PreviewLabletRequest
from lcm.model.lablet.status import LabletStatus
from lcm.model.notification.alert import AlertChange, AlertState, AlertSubject, AlertType, Finding, SubjectKind
from lcm.model.notification.subscription import CreateSubscriptionRequest, EditSubscriptionRequest, TargetKind
from lcm.model.system import ControllerReport
from lcm.model.team import CreateTeamRequest, RequestedLimits, RequestedMember, UpdateTeamRequest
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.idle import ActivityEvent
from lcm.model.worker.metrics import MetricsSample
from lcm.model.worker.requests import (
    AdoptWorkerRequest,
    BreakerReport,
    CreateWorkerRequest,
    DecisionBatch,
    HoldRequest,
    IdleDetectionRequest,
    ImportWorkerRequest,
    LaunchIntentRequest,
    LicenseRequest,
    LicenseStatusUpdate,
    MaintenanceRequest,
    MetricsBatch,
    ScaleUpRequest,
    ScheduleStepRequest,
    UpdateWorkerRequest,
    WorkerDecision,
    WorkerStatusUpdate,
)
from lcm.model.worker.status import DesiredStatus, LicenseOperation, LicenseStatus, WorkerOrigin, WorkerStatus
from tests.support.virtual.control_plane import SYSTEM
from tests.unit.client.fakes import FakeResponse, FaultyNetwork, ScriptedServer, json_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.worker.record import Worker
    from tests.support.virtual.control_plane import TestPlane

LEADER = Leader("worker-controller", 5)
SCHEDULER = Leader("resource-scheduler", 2)
BY_HAND = {("POST", "/api/session"), ("GET", "/api/events/stream")}
"""Cookies are for browsers; the stream has tests of its own."""


class Tour:
    """Calls every route once, as an admin and as a controller, and records which were reached."""

    def __init__(self, plane: TestPlane, connect: Callable[..., Client]) -> None:
        self._templates = sorted(
            (method.upper(), path) for path, methods in plane.app.openapi()["paths"].items() for method in methods
        )
        self._plane = plane
        self._networks = [FaultyNetwork(plane.app), FaultyNetwork(plane.app)]
        self.admin = connect(self._networks[0], plane.tokens[Role.ADMIN])
        self.controller = connect(self._networks[1], plane.tokens[Role.CONTROLLER]).internal

    @property
    def expected(self) -> set[tuple[str, str]]:
        """The routes of the API; probes are not part of it."""
        return {route for route in self._templates if route[1].startswith("/api/")} - BY_HAND

    @property
    def reached(self) -> set[tuple[str, str]]:
        """The routes that were called."""
        requests = [request for network in self._networks for request in network.requests]
        return {self._template(request.method, request.url.path) for request in requests}

    def _template(self, method: str, path: str) -> tuple[str, str]:
        fitting = [
            (known, template)
            for known, template in self._templates
            if known == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path)
        ]
        return min(fitting, key=lambda route: route[1].count("{"))

    async def bring_up(self, name: str) -> Worker:
        """A worker, from its creation until it runs."""
        body = CreateWorkerRequest(
            name=name,
            template_name="small",
            license_token=SecretStr("tok-1"),
            cml_username="u",
            cml_password=SecretStr("p w"),
        )
        assert (await self.admin.workers.preview_create(body)).refusal == ""
        made = await self.admin.workers.create(body)
        preview = await self.admin.workers.preview(made.id, PreviewWorkerRequest(action=WorkerAction.STOP))
        assert preview.change == "PENDING, desired RUNNING → PENDING, desired STOPPED"
        license_preview = await self.admin.workers.preview_license(
            made.id, LicenseRequest(operation=LicenseOperation.REGISTER)
        )
        assert license_preview.change == "license unregistered → registration requested"
        launch = LaunchIntentRequest(version=made.version, attempt=1, parameters={"ImageId": "ami-1"})
        worker = await self.controller.write_launch(LEADER, made.id, launch)
        for status in (
            {"status": "PROVISIONING", "instance_id": f"i-{name}"},
            {"status": "STARTING"},
            {"status": "RUNNING", "public_ip": "192.0.2.7"},
        ):
            write = WorkerStatusUpdate.model_validate({**status, "version": worker.version, "reason": "seen"})
            worker = await self.controller.write_status(LEADER, worker.id, write)
        return worker

    async def commands(self, worker: Worker) -> None:
        """The commands of users for a worker."""
        workers, name = self.admin.workers, worker.id
        assert (await workers.get(name)).public_ip == "192.0.2.7"
        assert (await workers.patch(name, UpdateWorkerRequest(tags={"a": "b"}), version=worker.version)).tags == {
            "a": "b"
        }
        assert (await workers.drain(name, "make room")).status is WorkerStatus.DRAINING
        assert (await workers.cancel_drain(name)).status is WorkerStatus.RUNNING
        with pytest.raises(NotPossibleNowError):
            await workers.trust(name)
        assert (await workers.stop(name, "over")).desired_status is DesiredStatus.STOPPED
        assert (await workers.start(name)).desired_status is DesiredStatus.RUNNING
        held = await workers.hold(name, HoldRequest(reason="check first"))
        assert held.hold is not None
        assert (await workers.release(name)).hold is None
        deregister = LicenseRequest(operation=LicenseOperation.DEREGISTER)
        assert (await workers.license(name, deregister)).pending_license_operation is not None
        assert [entry.to_status async for entry in workers.history(name)][:2] == ["PENDING", "PROVISIONING"]
        assert (await workers.metrics(name, since=clock.now() - timedelta(hours=1))) == ()
        explained = await workers.explain(name)
        assert (explained.worker_id, explained.status) == (name, WorkerStatus.RUNNING)
        assert explained.summary.startswith("beta has been RUNNING")
        assert explained.last_transition is not None
        assert (await workers.terminate(name)).desired_status is DesiredStatus.TERMINATED
        assert (await workers.delete(name)).desired_status is DesiredStatus.TERMINATED

    async def reports(self, worker: Worker) -> None:
        """What a controller reads and reports."""
        inside = self.controller
        assert (await inside.worker(worker.id)).id == worker.id
        assert [found.id async for found in inside.workers(exclude_statuses=[WorkerStatus.PENDING])] == [worker.id]
        assert (await inside.license_token(worker.id)).get_secret_value() == "tok-1"
        credentials = await inside.cml_credentials(worker.id)
        assert (credentials.username, credentials.password.get_secret_value()) == ("u", "p w")
        update = LicenseStatusUpdate(status=LicenseStatus.REGISTERED)
        assert (await inside.write_license_status(LEADER, worker.id, update)).license_status is LicenseStatus.REGISTERED
        assert await inside.cml_accounts() == {worker.id}
        sample = MetricsSample(
            worker_id=worker.id, instance_id=worker.instance_id or "", collected_at=clock.now(), cpu_utilization=3
        )
        assert (await inside.write_metrics(LEADER, MetricsBatch(items=(sample,)))).kept == 1
        decided = DecisionReport(rule="running.steady", reason="all is well", decided_at=clock.now())
        batch = DecisionBatch(items=(WorkerDecision(worker_id=worker.id, decision=decided),))
        assert (await inside.write_decisions(LEADER, batch)).kept == 1
        event = ActivityEvent(category="start_lab", at=clock.now())
        found = await inside.detect_idle(
            LEADER, worker.id, IdleDetectionRequest(events=(event,), observed_at=clock.now())
        )
        assert found.telemetry_fetched
        await self.admin.fleet.change_settings(
            FleetSettingsPatch.model_validate({"maintenance": {"maintenance_policy": "plan"}})
        )
        for step, desired in (("stop", DesiredStatus.STOPPED), ("start", DesiredStatus.RUNNING)):
            version = (await inside.worker(worker.id)).version
            request = MaintenanceRequest.model_validate({"step": step, "version": version, "reason": "a retirement"})
            assert (await inside.write_maintenance(LEADER, worker.id, request)).desired_status is desired
        assert (await inside.drain(LEADER, worker.id, "idle")).status is WorkerStatus.DRAINING

    async def growth(self) -> None:
        """Scale-up, and what else a controller reports."""
        inside = self.controller
        assert (await inside.announce_leadership(LEADER)).term == 5
        found = ImportWorkerRequest(instance_id="i-found", aws_region="eu-west-1", status=WorkerStatus.STOPPED)
        imported = await inside.import_worker(LEADER, found)
        assert imported.origin is WorkerOrigin.IMPORTED
        preview = await self.admin.workers.preview_adoption(imported.id, AdoptWorkerRequest(schedulable=False))
        assert preview.effect == "It will take no lablets."
        assert (await self.admin.workers.adopt(imported.id, AdoptWorkerRequest(schedulable=False))).is_adopted
        need = ScaleUpRequest.model_validate({"template": "small", "reason": "full", "for": "lablet-1"})
        assert (await inside.scale_up(LEADER, need)).requested_for == "lablet-1"
        await inside.audit(LEADER, "skipped_not_idle", "w-1", "busy")
        report = BreakerReport(region="eu-west-1", open=True, reason="ten are missing", affected=("w-1",))
        assert (await inside.report_breaker(LEADER, report)).breakers["eu-west-1"].open
        assert (await inside.fleet()).breakers["eu-west-1"].open
        await inside.report_controller(LEADER, ControllerReport(instance_id="one", queue_depth=3))
        assert (await inside.template("small")).name == "small"
        assert "small" in [template.name async for template in inside.templates()]
        assert (await inside.settings()).scaling.min_workers == 0
        assert (await inside.installation()).installation_id.startswith("lcm-")

    async def lablets(self, worker: Worker) -> None:
        """The lifecycle of a lablet, by a user and both controllers."""
        admin, inside = self.admin, self.controller
        request = CreateDefinitionRequest(
            name="ospf", version="1", topology="nodes:\n- id: n0\n", requirements=LabletRequirements(license=False)
        )
        assert (await admin.definitions.preview_create(request)).change == "is created"
        definition = await admin.definitions.create(request)
        assert await admin.definitions.create(request) == definition
        assert [each.id async for each in admin.definitions.list(q="osp")] == ["ospf@1"]
        assert [each.version async for each in admin.definitions.versions("ospf")] == ["1"]
        assert await admin.definitions.get("ospf", "1") == await inside.definition("ospf@1") == definition
        disable = PreviewDefinitionRequest(action=DefinitionAction.DISABLE)
        assert (await admin.definitions.preview("ospf", "1", disable)).change == "enabled → disabled"
        assert not (await admin.definitions.disable("ospf", "1")).enabled
        assert (await admin.definitions.enable("ospf", "1")).enabled
        preview = await admin.lablets.preview(CreateLabletRequest(definition="ospf"))
        assert [each.worker_id for each in preview.candidates] == [worker.id]
        made = await admin.lablets.create(CreateLabletRequest(definition="ospf", name="first"))
        assert [each.id async for each in admin.lablets.list(owner=["admin"], q="irs", sort="-name")] == [made.id]
        assert await inside.lablet(made.id) == await admin.lablets.get(made.id) == made
        placement = Placement(at=clock.now(), worker_id=worker.id, score=0.0, reason="the only one")
        item = PlacementRequest(lablet_id=made.id, version=made.version, worker_id=worker.id, placement=placement)
        (placed,) = await inside.schedule(SCHEDULER, PlacementBatch(items=(item,)))
        assert placed.placed, placed.detail
        assert [each.id async for each in inside.lablets(exclude_statuses=[LabletStatus.FAILED])] == [made.id]
        assert [each.id async for each in inside.lablets(worker=[worker.id])] == [made.id]
        begun = LabletStatusUpdate(status=LabletStatus.INSTANTIATING, version=made.version + 1, reason="go")
        lablet = await inside.lablet_status(SCHEDULER, made.id, begun)
        assert (await admin.lablets.access(made.id)).worker_id == worker.id
        running = LabletStatusUpdate(
            status=LabletStatus.RUNNING, version=lablet.version, reason="up", lab_id="lab-1", lab_started_at=clock.now()
        )
        await inside.lablet_status(SCHEDULER, made.id, running)
        with pytest.raises(NotPossibleNowError, match="it has no end"):
            await admin.lablets.extend(made.id, ExtendLabletRequest(minutes=30))
        asked = PreviewLabletRequest(action=LabletAction.RESET)
        assert (await admin.lablets.preview_action(made.id, asked)).change == "RUNNING → INSTANTIATING"
        lablet = await admin.lablets.reset(made.id, "wrong turn")
        assert (lablet.status, lablet.placement_attempt) == (LabletStatus.INSTANTIATING, 2)
        given_back = ReleaseLabletRequest(status=LabletStatus.PENDING_SCHEDULING, version=lablet.version, reason="lost")
        assert (await inside.release_lablet(SCHEDULER, made.id, given_back)).worker_id is None
        created = await admin.seat_links.create(made.id, expires_at=clock.now() + timedelta(hours=4))
        assert created.path.get_secret_value().startswith(f"/seat#{created.link.id}.")
        assert [each async for each in admin.seat_links.list(made.id)] == [created.link]
        assert (await admin.seat_links.revoke(made.id, created.link.id)).revoked_by == "admin"
        assert "TERMINATED immediately" in (await admin.lablets.preview_termination(made.id)).effect
        assert (await admin.lablets.terminate(made.id, "enough")).status is LabletStatus.TERMINATED
        assert (await admin.lablets.delete(made.id)).status is LabletStatus.TERMINATED
        steps = [step.to_status async for step in admin.lablets.history(made.id)]
        assert steps == [
            "PENDING_SCHEDULING", "SCHEDULED", "INSTANTIATING", "RUNNING", "INSTANTIATING", "PENDING_SCHEDULING",
            "TERMINATED",
        ]  # fmt: skip

    async def rest(self) -> None:
        """The fleet, templates and tokens."""
        admin, fleet = self.admin, self.admin.fleet
        assert (await fleet.preview_hold(HoldRequest(reason="wait"))).change == "not on hold → on hold"
        assert (await fleet.hold(HoldRequest(reason="wait"))).hold is not None
        assert (await fleet.preview_release()).change == "on hold → released"
        assert (await fleet.release()).hold is None
        assert (await fleet.preview_breaker_reset("eu-west-1")).change == "open → closed in eu-west-1"
        assert not any(breaker.open for breaker in (await fleet.reset_breakers("eu-west-1")).breakers.values())
        assert (await fleet.summary()).workers == 4
        assert (await fleet.history("7d")).interval_seconds == 3600
        assert {"alpha", "beta"} <= {planned.name async for planned in fleet.plan()}
        assert "skipped_not_idle" in [line.action async for line in fleet.audit(newest_first=False)]
        found = [line.action async for line in fleet.audit(actor=["admin"], actor_kind=[ActorKind.PERSON], q="wait")]
        assert found == ["fleet_held"]
        assert "imported" in [done.what for done in (await fleet.overnight()).automation]
        assert [each.report.queue_depth for each in (await fleet.system()).controllers if each.report] == [3]
        asked = FleetSettingsPatch(scaling={"min_workers": 1})
        assert [each.name for each in (await fleet.preview_settings(asked)).changes] == ["min_workers"]
        changed = await fleet.change_settings(asked)
        assert changed == await fleet.settings()
        assert (await fleet.preview_leadership_reset("worker-controller")).change == "term 5 → 0"
        assert await fleet.reset_leadership("worker-controller") == "worker-controller"
        small = await admin.templates.get("small")
        assert await admin.templates.put(small.model_copy(update={"name": "tiny"})) in [
            template async for template in admin.templates.list()
        ]
        wish = PreviewTemplateRequest(action=TemplateAction.DISABLE)
        assert (await admin.templates.preview("tiny", wish)).change == "enabled → disabled"
        assert not (await admin.templates.disable("tiny")).enabled
        assert (await admin.templates.enable("tiny")).enabled
        assert (await admin.access.whoami()).role == "admin"
        assert (await admin.access.sign_in_link()).path.get_secret_value().startswith("/sign-in#")
        handle, verifier = SecretStr("h"), SecretStr("v" * 43)
        for sign_in in (
            admin.access.start_sign_in(),
            admin.access.poll_sign_in(handle),
            admin.access.redeem_sign_in(handle, verifier),
        ):
            with pytest.raises(NotFoundError, match="no identity provider is configured here"):
                await sign_in
        await admin.access.sign_out()  # a token has no session, so this changes nothing
        assert not (await admin.access.preview_rotation()).changes
        rotated = await admin.access.rotate_secrets()
        assert (rotated.rotated, rotated.unreadable) == (0, ())
        assert (await admin.access.preview_token("ci", Role.VIEWER)).change == "role viewer, expires never"
        made = await admin.access.make_token("ci", Role.VIEWER, expires_at=clock.after(60))
        assert made.info.id in [token.id async for token in admin.access.tokens()]
        await self._plane.ask("POST", "/api/session", role=None, json={"token": self._plane.tokens[Role.OPERATOR]})
        [session] = [session async for session in admin.access.sessions()]
        assert await admin.access.end_session(session.id) == session
        assert (await admin.access.preview_revocation(made.info.id)).change.endswith("→ revoked")
        assert (await admin.access.revoke_token(made.info.id)).revoked_at is not None
        await self.subscriptions()
        await self.bookings()
        await self.teams()
        assert [worker.name async for worker in admin.workers.list(q="alp", sort="-name")] == ["alpha"]

    async def bookings(self) -> None:
        """A class is booked, extended, moved and cancelled."""
        bookings, start = self.admin.bookings, clock.after(5 * 86_400).replace(second=0, microsecond=0, tzinfo=None)
        asked = CreateBookingRequest(
            name="class", definition="ospf", seats=1, start=start, zone="UTC", duration_minutes=60, repeat_weeks=2
        )
        assert (await bookings.preview(asked)).confirmed
        made = await bookings.create(asked)
        with pytest.raises(BookingRefusedError) as refused:
            await bookings.create(asked.model_copy(update={"name": "large", "seats": 1000}))
        assert BookingPreview.model_validate(refused.value.current).shortages
        assert await bookings.get(made.id) == made
        assert (await self.controller.advance_bookings(SCHEDULER)).skipped == 0
        assert [each.seats for each in (await self.controller.booked_capacity()).booked] == [1, 1]
        assert [each async for each in bookings.list(begin=clock.now(), end=clock.after(30 * 86_400))] == [made]
        assert (await bookings.preview_extension(made.id, ExtendBookingRequest(minutes=15))).confirmed
        longer = await bookings.extend(made.id, ExtendBookingRequest(minutes=15), version=made.version)
        assert longer.occurrences[0].ends_at - made.occurrences[0].ends_at == timedelta(minutes=15)
        later = MoveOccurrenceRequest(start=start + timedelta(days=2))
        assert (await bookings.preview_move(made.id, 2, later)).confirmed
        assert (await bookings.move(made.id, 2, later)).occurrences[1].start.at == later.start
        with pytest.raises(NotPossibleNowError, match="class 1 has no labs yet"):
            await bookings.create_seat_links(made.id, 1)
        assert (await bookings.revoke_seat_links(made.id, 1)).revoked == 0
        assert (await bookings.cancel(made.id, "ill", number=2)).status is BookingStatus.CONFIRMED
        assert (await bookings.delete(made.id)).status is BookingStatus.CANCELLED

    async def teams(self) -> None:
        teams = self.admin.teams
        made = await teams.create(
            CreateTeamRequest(name="blue", members=(RequestedMember(role=Role.LEARNER, email="b@x.org"),))
        )
        assert [each.name async for each in teams.list()] == ["blue"]
        assert (await teams.get("blue")).members == made.members
        limits = UpdateTeamRequest(limits=RequestedLimits(max_lablets=3))
        assert (await teams.edit("blue", limits, version=made.version)).limits.max_lablets == 3
        assert [each async for each in teams.worker_readiness()]
        token = await self.admin.access.make_token("grader", Role.INSTRUCTOR, team="blue")
        assert token.info.team == made.id
        [lablet, *_] = [each async for each in self.admin.lablets.list()]
        owner = AssignLabletRequest(team="blue", owner="b@x.org")
        assert (await self.admin.lablets.assign(lablet.id, owner)).owner == "email:b@x.org"
        name, _, version = lablet.definition.partition("@")
        given = await self.admin.definitions.assign(name, version, AssignDefinitionRequest(team="blue"))
        assert given.team == made.id
        assert (await self.admin.definitions.assign(name, version, AssignDefinitionRequest(), team="blue")).team == ""
        empty = await teams.create(CreateTeamRequest(name="empty"))
        await teams.delete(empty.id)

    async def subscriptions(self) -> None:
        subscriptions, receiver = self.admin.subscriptions, self._plane.receivers.add("hooks.test")
        made = await subscriptions.create(
            CreateSubscriptionRequest(name="ops", target=TargetKind.WEBHOOK, url=SecretStr("https://hooks.test/a"))
        )
        assert made.signing_secret is not None
        subscription_id = made.subscription.id
        assert (await subscriptions.send_test(subscription_id)).delivered
        receiver.status = 400
        await self._plane.services.context.unit_of_work.run(SYSTEM, _raise_an_alert)
        while not (letters := [each async for each in subscriptions.dead_letters(subscription_id)]):
            await asyncio.sleep(0.1)
        receiver.status = 200
        assert (await subscriptions.send_dead_letter(subscription_id, letters[0].id)).delivered
        rotated = await subscriptions.rotate_secret(subscription_id)
        assert rotated.signing_secret != made.signing_secret
        renamed = await subscriptions.edit(subscription_id, EditSubscriptionRequest(name="on-call"))
        assert [each async for each in subscriptions.list()] == [renamed]
        assert (await subscriptions.get(subscription_id)).subscription == renamed
        assert await subscriptions.delete(subscription_id) == renamed

    async def schedules(self) -> None:
        schedules, selector = self.admin.schedules, WorkerSelector(names=("alpha",))
        body = PreviewScheduleRequest(name="office", selector=selector, zone="UTC", windows=("sat 08:00-18:00",))
        made = await schedules.create(CreateScheduleRequest(**body.model_dump(exclude={"schedule_id"})))
        renamed = await schedules.edit(made.id, EditScheduleRequest(name="saturdays"))
        assert (renamed.name, renamed.version) == ("saturdays", 2)
        (status,) = await schedules.list()
        assert status == await schedules.get(made.id)
        assert (status.schedule, status.state) == (renamed, "open")
        preview = await schedules.preview(body)
        assert [each.name for each in preview.workers] == ["alpha"]
        assert (await schedules.preview_saved(made.id, remove=True)).workers_total == 1
        assert await self.controller.schedules() == (renamed,)
        (alpha,) = [worker async for worker in self.admin.workers.list(q="alpha")]
        step = ScheduleStepRequest(step="stop", version=alpha.version, reason="closed")
        with pytest.raises(NotPossibleNowError, match="no longer stop it"):
            await self.controller.write_schedule_step(LEADER, alpha.id, step)
        assert await schedules.delete(made.id) == renamed


async def _raise_an_alert(tx: Transaction) -> None:
    subject = AlertSubject(kind=SubjectKind.INSTANCE, id="i-1")
    tx.alert([AlertChange(AlertType.INSTANCE_LEAKED, AlertState.RAISED, Finding(subject, "no worker has it"))])


async def test_every_route_is_called_and_its_response_decoded(plane: TestPlane, connect: Callable[..., Client]) -> None:
    tour = Tour(plane, connect)
    alpha = await tour.bring_up("alpha")
    ready = Condition(type=ConditionType.CML_READY, status=ConditionStatus.TRUE, reason="Seen", since=clock.now())
    write = WorkerStatusUpdate(status=alpha.status, version=alpha.version, reason="seen", conditions=(ready,))
    alpha = await tour.controller.write_status(LEADER, alpha.id, write)
    assert (await tour.controller.worker_context(alpha.id)).worker == await tour.controller.worker(alpha.id)
    await tour.controller.announce_leadership(LEADER, startup_sweep_done=True)
    assert [each.startup_sweep_done for each in await tour.controller.leaders()] == [True]
    await tour.lablets(alpha)
    await tour.reports(alpha)
    await tour.commands(await tour.bring_up("beta"))
    await tour.growth()
    await tour.schedules()
    await tour.rest()
    with pytest.raises(NotFoundError):
        await tour.admin.workers.retry("w-none")
    assert tour.reached == tour.expected


async def test_fields_not_given_are_not_sent_and_null_clears(plane: TestPlane, connect: Callable[..., Client]) -> None:
    tour = Tour(plane, connect)
    worker = await tour.bring_up("alpha")
    silent = WorkerStatusUpdate(status=WorkerStatus.RUNNING, version=worker.version, reason="again")
    worker = await tour.controller.write_status(LEADER, worker.id, silent)
    assert worker.public_ip == "192.0.2.7"
    clearing = WorkerStatusUpdate(status=WorkerStatus.RUNNING, version=worker.version, reason="again", public_ip=None)
    assert (await tour.controller.write_status(LEADER, worker.id, clearing)).public_ip is None


async def test_an_id_cannot_change_the_path(connect: Callable[..., Client]) -> None:
    server = ScriptedServer(FakeResponse(404, b""))
    client = connect(FaultyNetwork(server))
    for wrong in ("", ".", ".."):
        with pytest.raises(ValueError, match="cannot be"):
            await client.workers.get(wrong)
    assert server.requests == []


async def test_probes_need_no_token_and_not_ready_is_a_result(connect: Callable[..., Client]) -> None:
    not_ready = json_response({"ready": False, "reasons": ["store: unreachable"]}, 503)
    server = ScriptedServer(
        json_response({"status": "healthy"}), not_ready, json_response({"version": "1"}), FakeResponse(200, b"up 1\n")
    )
    probes = connect(FaultyNetwork(server)).probes
    assert await probes.health() == {"status": "healthy"}
    assert (await probes.ready()).reasons == ("store: unreachable",)
    assert await probes.info() == {"version": "1"}
    assert await probes.metrics() == "up 1\n"
    assert [path for _, path, _, _ in server.requests] == ["/health", "/ready", "/info", "/metrics"]
    assert not any("authorization" in headers for _, _, headers, _ in server.requests)


async def test_without_a_token_the_server_says_what_to_do(plane: TestPlane, connect: Callable[..., Client]) -> None:
    with pytest.raises(UnauthenticatedError, match="Sign in"):
        await connect(FaultyNetwork(plane.app)).access.whoami()
