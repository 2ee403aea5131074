"""A dry run says what the command then does: each command is tried, then carried out, and the two are compared."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from lcm.cli.commands import definitions, lablets, settings
from lcm.cli.commands import fleet as fleet_commands
from lcm.cli.commands.lablet import changes, seat_links
from lcm.cli.commands.worker import actions as worker_actions
from lcm.cli.commands.worker import edit as worker_edit
from lcm.cli.errors import CommandError
from lcm.cli.runtime.client_factory import DryRunStopError, ReadOnlyTransport
from lcm.cli.runtime.options import OutputFormat
from lcm.cli.runtime.session import Session
from lcm.cli.runtime.target import Target
from lcm.client import Client
from lcm.cml.types import CMLActivityEvent
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.change_preview import PreviewWorkerRequest, WorkerAction
from lcm.model.formatting import format_instant
from lcm.model.lablet.record import CreateLabletRequest, LabletRequirements
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.cost import current_cost
from lcm.model.worker.requests import HoldRequest
from lcm.model.worker.status import LicenseStatus, WorkerStatus
from tests.platform.test_license_release import stopped_and_licensed, until_license
from tests.support.network.httpx_transport import HttpxTransport
from tests.support.virtual.fleet import Fleet, a_fleet
from tests.support.virtual.full_platform import a_whole

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from lcm.model.worker.record import Worker

HOLD = HoldRequest(reason="exam")
SMALL = LabletRequirements(cpu_cores=1, memory_gb=1, storage_gb=10, nodes=2, license=False)


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a dry run shows, and the request that it did not send."""

    lines: list[tuple[str, str]]
    request: tuple[str, str]

    def __getitem__(self, label: str) -> str:
        return " ".join(text for each, text in self.lines if each == label)


def a_session(fleet: Fleet, *, dry_run: bool, output: OutputFormat = OutputFormat.JSON) -> Session:
    wire = HttpxTransport(httpx.ASGITransport(fleet.plane.app, raise_app_exceptions=False))
    client = Client(
        "http://lcm.test",
        fleet.plane.tokens[Role.ADMIN],
        wire=ReadOnlyTransport(wire) if dry_run else wire,
        registry=CollectorRegistry(),
    )
    fleet.clients.append(client)
    session = Session(Target("http://lcm.test", None, "test"), output, dry_run=dry_run)
    session.__dict__["client"] = client
    return session


async def tried(fleet: Fleet, command: Callable[..., Awaitable[None]], *arguments: Any, **options: Any) -> DryRun:
    """The dry run of a command; then the command itself, which sends the same request."""
    session = a_session(fleet, dry_run=True)
    with pytest.raises(DryRunStopError) as stop:
        await command(session, *arguments, **options)
    await command(a_session(fleet, dry_run=False), *arguments, **options)
    return DryRun(session.forecast, (stop.value.method, stop.value.path))


async def cost_change(fleet: Fleet, worker: Worker, action: WorkerAction) -> float:
    return (await fleet.people.workers.preview(worker.id, PreviewWorkerRequest(action=action))).cost_change_usd


def costs(worker: Worker) -> float:
    cost = current_cost(worker)
    assert cost is not None
    return cost


async def test_stop_and_start() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        running = await fleet.running("alpha")
        expected = await cost_change(fleet, running, WorkerAction.STOP)
        stop = await tried(fleet, worker_actions.stop_worker, "alpha")
        assert stop["alpha"] == "RUNNING, desired RUNNING → RUNNING, desired STOPPED"
        assert stop["then"] == f"Instance {running.instance_id} will be stopped."
        assert "15 minutes at most" in stop["takes"]
        stopped = await fleet.until_status(running.id, WorkerStatus.STOPPED, within=900)
        assert costs(stopped) - costs(running) == pytest.approx(expected)
        expected = await cost_change(fleet, stopped, WorkerAction.START)
        start = await tried(fleet, worker_actions.start_worker, "alpha")
        assert start["then"] == f"Instance {running.instance_id} will be started."
        assert "45 minutes at most" in start["takes"]
        again = await fleet.until_ready(running.id, within=45 * 60)
        assert costs(again) - costs(stopped) == pytest.approx(expected)
        assert (fleet.calls("StopInstances"), fleet.calls("StartInstances")) == (1, 1)


async def test_a_drain_without_anything_to_wait_for() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        worker = await fleet.running("alpha")
        drain = await tried(fleet, worker_actions.drain_worker, "alpha")
        assert drain["alpha"] == "RUNNING, desired RUNNING → DRAINING, desired STOPPED"
        assert "10 minutes at most" in drain["takes"]
        await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=900)


async def test_under_a_hold_of_the_fleet_nothing_is_promised_for_now() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        worker = await fleet.running("alpha")
        await fleet.people.fleet.hold(HOLD)
        stop = await tried(fleet, worker_actions.stop_worker, "alpha")
        assert stop["then"].startswith("The fleet is on hold. After its release, instance ")

        async def decided() -> bool:
            return bool([item.actions async for item in fleet.people.fleet.plan() if item.actions])

        await fleet.until(decided, "its stop waits for the release", within=300)
        assert (await fleet.worker(worker.id)).status is WorkerStatus.RUNNING
        release = await tried(fleet, fleet_commands.release_fleet)
        assert release["then"] == f"alpha: Instance {worker.instance_id} will be stopped."
        await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=900)


async def test_the_result_of_a_command_names_the_hold_that_delays_it(capsys: pytest.CaptureFixture[str]) -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        worker = await fleet.running("alpha")
        for hold, release in (
            (fleet.people.fleet.hold(HOLD), "lcm fleet release"),
            (fleet.people.workers.hold(worker.id, HOLD), "lcm workers release alpha"),
        ):
            await hold
            capsys.readouterr()
            await worker_actions.stop_worker(a_session(fleet, dry_run=False, output=OutputFormat.TABLE), "alpha")
            expected = (
                f"Next: after the release of the hold ({release}), instance {worker.instance_id} will be stopped."
            )
            assert expected in " ".join(capsys.readouterr().out.split())
            await fleet.people.workers.start(worker.id)


async def test_without_a_leader_the_dry_run_says_that_it_waits() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        await fleet.running("alpha")
        await fleet.controllers.pop("one").stop()
        stop = a_session(fleet, dry_run=True)

        async def silent() -> bool:
            with pytest.raises(DryRunStopError):
                await worker_actions.stop_worker(stop, "alpha")
            return "This waits: no worker controller has led since" in dict(stop.forecast)["then"]

        await fleet.until(silent, "the dry run names the missing leader", within=900)


@pytest.mark.parametrize("leak", [False, True])
async def test_terminate_a_stopped_licensed_worker(leak: bool) -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        worker = await stopped_and_licensed(fleet)
        expected = await cost_change(fleet, worker, WorkerAction.TERMINATE)
        options = {"yes": True, "leak_license": leak}
        terminate = await tried(fleet, worker_actions.terminate_worker, "alpha", **options)
        assert terminate["alpha"] == "STOPPED, desired STOPPED → STOPPED, desired TERMINATED"
        ended = await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=62 * 60)
        assert costs(ended) - costs(worker) == pytest.approx(expected)
        if leak:
            assert "Cisco will still count it (leaked)" in terminate["license"]
            assert "will not be deregistered; it will be reported as leaked" in terminate["then"]
            assert (fleet.calls("StartInstances"), fleet.cml.licensed()) == (0, [worker.instance_id])
        else:
            assert "the stopped instance is started once more to deregister it" in terminate["license"]
            assert "it will be started once more before that" in terminate["then"]
            assert "its license is deregistered first" in terminate["takes"]
            assert (fleet.calls("StartInstances"), fleet.cml.licensed()) == (1, [])


async def test_terminate_a_running_licensed_worker() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        worker = await fleet.running("alpha", license_token="good-token")
        await until_license(fleet, worker, LicenseStatus.REGISTERED)
        terminate = await tried(fleet, worker_actions.terminate_worker, "alpha", yes=True)
        assert "it is deregistered first" in terminate["license"]
        assert str(worker.instance_id) in terminate["instance"]
        await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=17 * 60)
        assert (fleet.calls("StartInstances"), fleet.cml.licensed()) == (0, [])


async def test_a_command_that_is_rejected_is_rejected_by_the_dry_run_in_the_same_words() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        await fleet.create("alpha", desired_status="STOPPED")
        await fleet.create("beta", desired_status="STOPPED")
        refused: list[tuple[Callable[..., Awaitable[None]], tuple[str, ...], dict[str, Any]]] = [
            (worker_actions.drain_worker, ("alpha",), {}),
            (worker_edit.edit_worker, ("alpha",), {"new_name": "beta"}),
            (worker_edit.create_worker, ("beta",), {"template": "small"}),
            (worker_edit.create_worker, ("gamma",), {"template": "small", "region": "eu-north-1"}),
            (worker_edit.license_worker, ("alpha", "register"), {}),
        ]
        for command, arguments, options in refused:
            texts = []
            for dry_run in (True, False):
                with pytest.raises(Exception) as refusal:
                    await command(a_session(fleet, dry_run=dry_run), *arguments, **options)
                texts.append(str(getattr(refusal.value, "detail", refusal.value)))
            assert texts[0] == f"this would be rejected: {texts[1]}"


async def test_edit_and_create() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        alpha = await fleet.running("alpha")
        edit = await tried(
            fleet, worker_edit.edit_worker, "alpha", new_name="omega", tag=["team=red"], idle_detection=False
        )
        assert edit["alpha"] == "name: alpha → omega; tags: none → team=red; idle_detection_enabled: yes → no"
        assert edit["then"] == "It will keep running when idle."
        after = await fleet.worker(alpha.id)
        assert (after.name, after.tags, after.idle_detection_enabled) == ("omega", {"team": "red"}, False)
        create = await tried(fleet, worker_edit.create_worker, "beta", "small")
        assert create["then"] == "An instance will be launched for it in eu-west-1."
        (beta,) = [each async for each in fleet.people.workers.list(q="beta")]
        launched = await fleet.until_ready(beta.id, within=3600)
        assert create["cost"] == f"It will cost ${costs(launched):.4f} an hour with its disks."


async def test_a_new_token_waits_until_its_registration_is_requested() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        worker = await fleet.running("alpha", license_token="good-token")
        await until_license(fleet, worker, LicenseStatus.REGISTERED)
        before = fleet.cml_of(worker).calls["register"]
        changes = {"license_token": "better-token"}
        body = PreviewWorkerRequest.model_validate({"action": "edit", "changes": changes})
        preview = await fleet.people.workers.preview(worker.id, body)
        assert preview.change == "license_token: replaced"
        assert preview.effect.startswith("Its present license stays until the new token is registered: ")
        response = await fleet.plane.ask("PATCH", f"/api/workers/{worker.id}", json=changes)
        assert response.status_code == 200
        server = fleet.cml_of(worker)
        await asyncio.sleep(600)
        assert (server.calls["register"], server.calls["deregister"]) == (before, 0)
        register = await tried(fleet, worker_edit.license_worker, "alpha", "register")
        assert register["then"] == (
            "CML will deregister its present license and then register with its stored token as soon as it responds."
        )
        await fleet.until(lambda: server.calls["register"] == before + 1, "registered anew", within=600)
        assert server.calls["deregister"] == 1


async def test_license_operations(tmp_path: Path) -> None:
    """Registered with a token, again with the same, then deregistered, while it runs and while it is stopped."""
    file = tmp_path / "token"
    file.write_text("good-token")
    async with a_fleet() as fleet:
        await fleet.start()
        worker = await fleet.running("alpha")
        server = fleet.cml_of(worker)
        register = await tried(fleet, worker_edit.license_worker, "alpha", "register", license_token_file=str(file))
        assert register["alpha"] == "license unregistered → registration requested"
        assert register["then"] == "CML will register with this token as soon as it responds."
        assert "reported as stuck" in register["takes"]
        await until_license(fleet, worker, LicenseStatus.REGISTERED)
        calls = dict(server.calls)
        again = await tried(fleet, worker_edit.license_worker, "alpha", "register", license_token_file=str(file))
        assert again["then"] == "CML is already registered with this token."
        await asyncio.sleep(600)
        assert (server.calls["register"], server.calls["deregister"]) == (calls["register"], 0)

        await fleet.people.fleet.hold(HOLD)
        release = await tried(fleet, worker_edit.license_worker, "alpha", "deregister")
        assert release["then"] == (
            "Its license token will be deleted at once. After the release of the hold, CML will deregister as soon as"
            " it responds; Cisco then no longer counts the license."
        )
        assert not (await fleet.worker(worker.id)).has_license_token
        await asyncio.sleep(600)
        assert server.calls["deregister"] == 0
        await fleet.people.fleet.release()
        await until_license(fleet, worker, LicenseStatus.DEREGISTERED)
        assert server.calls["deregister"] == 1
        none = await tried(fleet, worker_edit.license_worker, "alpha", "deregister")
        assert none["then"] == "CML has no license to deregister."

        await fleet.people.workers.stop(worker.id)
        await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=900)
        later = await tried(fleet, worker_edit.license_worker, "alpha", "register", license_token_file=str(file))
        assert later["then"] == "CML will register with this token once the worker is running."
        await asyncio.sleep(600)
        assert server.calls["register"] == calls["register"]
        await fleet.people.workers.start(worker.id)
        await until_license(fleet, worker, LicenseStatus.REGISTERED)


async def test_settings() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        for name in ("alpha", "beta"):
            fleet.cml_of(await fleet.running(name)).events = (CMLActivityEvent("start_lab", clock.now(), None),)
        await fleet.change_settings(idle={"worker_auto_pause_snooze_minutes": 0})

        async def checked() -> bool:
            return all([each.last_activity_at async for each in fleet.people.workers.list()])

        await fleet.until(checked, "their activity was read", within=900)
        change = await tried(fleet, settings.set_setting, "worker_idle_timeout_minutes", "1", yes=True)
        assert change["worker_idle_timeout_minutes"] == "60 → 1"
        assert change["then"].startswith("2 workers will be stopped within 5 minutes unless used: alpha, beta.")

        async def paused() -> bool:
            return all([each.desired_status == "STOPPED" async for each in fleet.people.workers.list()])

        await fleet.until(paused, "both are paused", within=360)


async def test_lablets_and_definitions() -> None:
    async with a_whole() as whole:
        fleet = whole.fleet
        worker = await fleet.running("alpha")
        await whole.define("pair", SMALL)
        create = await tried(fleet, lablets.create_lablet, "pair", name="one", ttl="4h")
        assert create["then"].startswith("It would be placed on alpha ")
        assert create["cost"] == "No additional cost."
        (lablet,) = await whole.lablets()
        lablet = await whole.until_status(lablet, LabletStatus.RUNNING)
        assert lablet.worker_id == worker.id
        with pytest.raises(Exception, match="name: one is already used by lablet"):
            await lablets.create_lablet(a_session(fleet, dry_run=True), "pair", name="one")

        disable = await tried(fleet, definitions.disable_definition, "pair@1", yes=True)
        assert disable["pair@1"] == "enabled → disabled"
        assert disable["then"] == (
            "No new lablet will be created from this version; 1 existing lablet is unaffected."
            " No version of pair will be enabled: no lablet can be created from it."
        )
        with pytest.raises(Exception, match="disabled"):
            await fleet.people.lablets.create(CreateLabletRequest(definition="pair@1", name="two"))
        assert (await whole.lablet(lablet.id)).status is LabletStatus.RUNNING

        enable = await tried(fleet, definitions.enable_definition, "pair@1")
        assert enable["pair@1"] == "disabled → enabled"
        assert enable["then"] == (
            "Lablets can be created from it. It will be used for new lablets of pair that name no version."
        )
        assert (await fleet.people.lablets.preview(CreateLabletRequest(definition="pair"))).definition == "pair@1"

        reset = await tried(fleet, changes.reset_lablet, "one", yes=True)
        assert reset["one"] == "RUNNING → INSTANTIATING"
        assert reset["then"] == (
            "The lab on alpha will be stopped, wiped and deleted; then a new one will be made from pair@1 on alpha, and"
            " started. Its host, ports and end stay."
        )
        assert reset["lab"].startswith("2 nodes on alpha, with all work of ")
        again = await whole.until_status(lablet, LabletStatus.RUNNING)
        assert again.lab_id not in (None, lablet.lab_id)
        assert [lab.id for lab in whole.servers.labs()] == [again.lab_id]
        for name in ("worker_id", "ports", "expires_at"):
            assert getattr(again, name) == getattr(lablet, name), name

        assert again.expires_at is not None
        extend = await tried(fleet, changes.extend_lablet, "one", by="30m")
        end = again.expires_at + timedelta(minutes=30)
        assert extend["one"] == f"ends {format_instant(again.expires_at)} → {format_instant(end)}"
        assert extend["then"].startswith("It will end in 4 hours 2")
        assert (await whole.lablet(lablet.id)).expires_at == end
        with pytest.raises(Exception, match="168 hours after it began") as refusal:
            await changes.extend_lablet(a_session(fleet, dry_run=True), "one", by="200h")
        assert str(refusal.value).startswith("this would be rejected: minutes: its end may be at most ")

        given = await tried(fleet, seat_links.seat_link, "one", expires="4h")
        assert given["one"] == "anyone with the link will be able to use, extend, reset and end this lablet"
        (link,) = [each async for each in fleet.people.seat_links.list(lablet.id)]
        assert (link.expires_at - link.created_at, link.revoked_at) == (timedelta(hours=4), None)
        with pytest.raises(CommandError, match=f"one has no open link with this id; it has: {link.id}"):
            await seat_links.seat_link(a_session(fleet, dry_run=False), "one", revoke="seat-none")
        revoked = await tried(fleet, seat_links.seat_link, "one", revoke="all")
        assert revoked[link.id] == "will be revoked; what it has opened will end"
        (link,) = [each async for each in fleet.people.seat_links.list(lablet.id)]
        assert link.revoked_at is not None

        ending = await tried(fleet, lablets.terminate_lablet, "one", yes=True)
        assert ending["then"].startswith("The lab on alpha will be stopped, wiped and deleted;")
        assert ending["lab"].startswith("2 nodes on alpha, with all work of ")
        await whole.until_status(lablet, LabletStatus.TERMINATED)
        assert whole.servers.labs() == []


async def test_terminate_a_worker_with_labs() -> None:
    async with a_whole() as whole:
        fleet = whole.fleet
        worker = await fleet.running("alpha")
        await whole.define("pair", SMALL)
        lablet = await whole.running("pair", name="one")

        async def measured() -> bool:
            samples = await fleet.people.workers.metrics(worker.id)
            return bool(samples) and samples[-1].labs_count == 1

        await whole.until(measured, "the lab was counted", within=600)
        terminate = await tried(fleet, worker_actions.terminate_worker, "alpha", yes=True)
        assert terminate["lablets"] == "1 lablet on it"
        assert terminate["running now"] == "2 of 2 nodes, in 1 lab"
        await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=17 * 60)

        async def left() -> bool:
            return (await whole.lablet(lablet.id)).worker_id != worker.id

        await whole.until(left, "the lablet is no longer on it", within=1800)


async def test_a_question_without_a_terminal_names_the_remedy() -> None:
    async with a_fleet() as fleet:
        with pytest.raises(CommandError, match="pass --yes"):
            await settings.set_setting(a_session(fleet, dry_run=False), "min_workers", "2")
        unchanged = await fleet.people.fleet.settings()
        assert unchanged.scaling.min_workers == 0


async def test_a_new_version_of_a_definition(tmp_path: Path) -> None:
    """It is used where no version is named, and one that is disabled makes room for the one before it."""
    file = tmp_path / "pair.yaml"
    async with a_whole() as whole:
        fleet = whole.fleet
        await fleet.running("alpha")
        await whole.define("pair", SMALL)
        await whole.running("pair", name="one")
        content = {"name": "pair", "version": "2", "topology": "nodes:\n- id: n0\n", "requirements": SMALL.model_dump()}
        file.write_text(json.dumps(content))
        create = await tried(fleet, definitions.create_definition, file)
        assert create["pair@2"] == "is created"
        assert create["then"] == (
            "Lablets can be created from it. It will be used for new lablets of pair that name no version instead of"
            " pair@1. 1 existing lablet is unaffected."
        )
        chosen = CreateLabletRequest(definition="pair")
        assert (await fleet.people.lablets.preview(chosen)).definition == "pair@2"
        same = await tried(fleet, definitions.create_definition, file)
        assert (same["pair@2"], same["then"]) == ("exists with the same content (no change)", "No change needed.")
        file.write_text(json.dumps(content | {"description": "another"}))
        texts = []
        for dry_run in (True, False):
            with pytest.raises(Exception) as refusal:
                await definitions.create_definition(a_session(fleet, dry_run=dry_run), file)
            texts.append(str(getattr(refusal.value, "detail", refusal.value)))
        assert texts[0] == f"this would be rejected: {texts[1]}"
        disable = await tried(fleet, definitions.disable_definition, "pair@2", yes=True)
        assert disable["then"] == (
            "No new lablet will be created from this version; no current lablet uses it."
            " New lablets of pair that name no version will use pair@1."
        )
        assert (await fleet.people.lablets.preview(chosen)).definition == "pair@1"
