"""Dry runs of changes to the fleet, templates, tokens and secrets: each is tried, then carried out, and compared."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from lcm.cli.commands import fleet as fleet_commands
from lcm.cli.commands import maintenance, templates, tokens
from lcm.cli.commands.worker import edit as worker_edit
from lcm.cli.errors import CommandError
from lcm.cloud.simulated.faults import ExternalAction
from lcm.cml.types import CMLActivityEvent
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.formatting import format_usd
from lcm.model.lablet.record import CreateLabletRequest
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.requests import UpdateWorkerRequest
from lcm.model.worker.status import LostInstancePolicy, WorkerStatus
from tests.platform.test_adoption import OURS, imported
from tests.platform.test_dry_runs import HOLD, SMALL, a_session, costs, tried
from tests.support.virtual.fleet import a_fleet
from tests.support.virtual.full_platform import a_whole
from tests.support.virtual.running_workers import launched_by_hand

if TYPE_CHECKING:
    from pathlib import Path

    from lcm.model.fleet.state import LeadershipTerm


async def test_hold_the_fleet() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        worker = await fleet.running("alpha")
        fleet.cml_of(worker).events = (CMLActivityEvent("start_lab", clock.now(), None),)
        await fleet.change_settings(idle={"worker_auto_pause_snooze_minutes": 0})

        async def due() -> bool:
            return (await fleet.people.fleet.plan_overview()).pauses_total == 1

        await fleet.until(due, "its pause is planned", within=900)
        before = (await fleet.people.fleet.summary()).cost
        hold = await tried(fleet, fleet_commands.hold_fleet, "exam")
        assert hold["fleet"] == "not on hold → on hold"
        assert "No worker will be launched, started, stopped" in hold["then"]
        assert hold["cost"] == f"The cost stays at {before} during the hold: 1 idle worker will not be paused."
        again = await tried(fleet, fleet_commands.hold_fleet, "exam")
        assert (again["fleet"], again["then"]) == ("on hold (no change)", "No change needed.")
        await asyncio.sleep(3 * 3600)
        assert (await fleet.worker(worker.id)).status is WorkerStatus.RUNNING
        assert (await fleet.people.fleet.summary()).cost == before


async def test_a_hold_names_what_will_wait_for_its_release() -> None:
    async with a_whole() as whole:
        fleet = whole.fleet
        worker = await fleet.running("alpha")
        await whole.define("pair", SMALL)
        await fleet.people.fleet.hold(HOLD)
        made = await whole.make("pair", name="one")
        again = await tried(fleet, fleet_commands.hold_fleet, "longer")
        assert again["then"] == "The reason and the end of the hold will be replaced."
        release = await tried(fleet, fleet_commands.release_fleet)
        assert "1 lablet will be placed." in release["then"]
        placed = await whole.until_status(made, LabletStatus.RUNNING)
        assert placed.worker_id == worker.id


async def test_close_the_breaker() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        workers = [await fleet.running(name) for name in ("alpha", "beta", "gamma")]
        await fleet.people.workers.patch(
            workers[2].id, UpdateWorkerRequest(lost_instance_policy=LostInstancePolicy.REPLACE)
        )
        for worker in workers:
            fleet.disturb(ExternalAction.TERMINATE, worker)

        async def withheld() -> bool:
            preview = await fleet.people.fleet.preview_breaker_reset()
            return all(name in preview.effect for name in ("alpha", "beta", "gamma"))

        await fleet.until(withheld, "the breaker opens for all three", within=3600)
        reset = await tried(fleet, maintenance.reset_breaker, yes=True)
        region = workers[0].aws_region
        assert reset["breaker"] == f"open → closed in {region}"
        unless = f"Unless the next complete scan of {region} finds their instances,"
        assert reset["then"] == (
            f"{unless} alpha and beta will be marked as lost and TERMINATED. {unless} gamma will be launched again."
        )
        for worker in workers[:2]:
            await fleet.until_status(worker.id, WorkerStatus.TERMINATED, within=1800)
        replaced = await fleet.until_ready(workers[2].id, within=3600)
        assert replaced.instance_id != workers[2].instance_id


async def test_reset_the_leadership_of_a_leader_that_still_leads() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        worker = await fleet.running("alpha")

        async def leader() -> LeadershipTerm:
            return (await fleet.people.fleet.summary()).leaders[0]

        async def reported() -> bool:
            return "A leader reported" in (await fleet.people.fleet.preview_leadership_reset(name)).effect

        term, name = (await leader()).term, (await leader()).controller
        await fleet.until(reported, "the leader has reported", within=300)
        reset = await tried(fleet, maintenance.reset_leadership, name, yes=True)
        assert reset[name] == f"term {term} → 0"
        assert "Its next change will be rejected, and it must be elected again." in reset["then"]
        await fleet.people.workers.stop(worker.id)

        async def swept() -> bool:
            return (await leader()).term > term and (await leader()).startup_sweep_done

        await fleet.until(swept, "it was elected again and has verified everything", within=900)
        await fleet.until_status(worker.id, WorkerStatus.STOPPED, within=900)


async def test_templates(tmp_path: Path) -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        launched = await fleet.running("alpha")
        waiting = await fleet.create("beta", desired_status="STOPPED")
        small = await fleet.people.templates.get("small")
        file = tmp_path / "templates.yaml"
        bigger = small.model_dump(mode="json") | {"instance_type": "t3.large", "cost_per_hour_usd": 0.0832}
        file.write_text(json.dumps(bigger))
        apply = await tried(fleet, templates.apply_templates, file)
        assert "instance_type: t3.small → t3.large" in apply["small"]
        assert apply["then"] == (
            "New workers will be created with the new values."
            " 1 worker that was not launched yet will be launched with the new values; the other 1 will not change."
        )
        assert "$0.0832 an hour" in apply["cost"]
        await fleet.people.workers.start(waiting.id)
        started = await fleet.until_ready(waiting.id, within=3600)
        assert (started.instance_type, started.cost_per_hour_usd) == ("t3.large", 0.0832)
        same = await fleet.worker(launched.id)
        assert (same.instance_type, same.cost_per_hour_usd) == ("t3.small", small.cost_per_hour_usd)

        disable = await tried(fleet, templates.disable_template, "small", yes=True)
        assert disable["small"] == "enabled → disabled"
        assert disable["then"] == (
            "No new worker will be created from it, by people or by scale-up. 2 existing workers will not change."
        )
        with pytest.raises(Exception, match="disabled"):
            await fleet.create("gamma")
        enable = await tried(fleet, templates.enable_template, "small")
        assert enable["then"].startswith("Workers can be created from it, by people and by scale-up.")
        await fleet.create("gamma", desired_status="STOPPED")


async def test_a_template_that_waiting_lablets_need() -> None:
    async with a_whole() as whole:
        fleet = whole.fleet
        for template in [each async for each in fleet.people.templates.list()]:
            await fleet.people.templates.disable(template.name)
        await whole.define("pair", SMALL)
        await fleet.people.fleet.hold(HOLD)
        await fleet.people.lablets.create(CreateLabletRequest(definition="pair@1", name="one"))
        enable = await tried(fleet, templates.enable_template, "small")
        assert "1 waiting lablet will get a worker of this template." in enable["then"]
        await fleet.people.fleet.release()

        async def launched() -> bool:
            return [each.template_name async for each in fleet.people.workers.list()] == ["small"]

        await whole.until(launched, "a worker of the template is created for it", within=900)


async def test_tokens() -> None:
    async with a_fleet() as fleet:
        create = await tried(fleet, tokens.create_token, "ci", role="viewer", expires="30d")
        assert create["ci"].startswith("role viewer, expires in ")
        assert create["then"].startswith("Requests with the token will be made as ci, who may read everything")
        taken = a_session(fleet, dry_run=True)
        with pytest.raises(CommandError, match="this would be rejected: name: ci is already in use; choose another"):
            await tokens.create_token(taken, "ci", role="admin")
        made = await fleet.people.access.make_token("anna", Role.OPERATOR)
        await fleet.plane.ask("POST", "/api/session", role=None, json={"token": made.token.get_secret_value()})
        revoke = await tried(fleet, tokens.revoke_token, "anna", yes=True)
        assert revoke["then"].startswith("Requests with it will be rejected immediately")
        assert revoke["sessions"] == "1 browser will be signed out"
        refused = await fleet.plane.ask(
            "GET", "/api/whoami", role=None, headers={"Authorization": f"Bearer {made.token.get_secret_value()}"}
        )
        assert refused.status_code == 401
        own = await fleet.people.access.whoami()
        (mine,) = [each async for each in fleet.people.access.tokens() if each.name == own.name]
        assert "the token of this request" in (await fleet.people.access.preview_revocation(mine.id)).effect


async def test_rotate_secrets() -> None:
    async with a_fleet() as fleet:
        await fleet.create("alpha", desired_status="STOPPED", license_token="good-token")
        rotate = await tried(fleet, maintenance.rotate_secrets)
        assert rotate["then"] == "Nothing is left to re-encrypt. 1 secret is already encrypted with it."


async def test_adopt() -> None:
    async with a_whole() as whole:
        fleet = whole.fleet
        worker = await imported(fleet, launched_by_hand(fleet, "found", OURS, instance_type="t3.large"))
        idle = await tried(fleet, worker_edit.adopt_worker, worker.name, schedulable=False)
        assert idle["then"] == "It will take no lablets."
        adopt = await tried(fleet, worker_edit.adopt_worker, worker.name, schedulable=True)
        assert adopt["then"].startswith("Lablets may be placed on it ")
        assert adopt["cost"] == f"It costs {format_usd(costs(await fleet.worker(worker.id)))} an hour."
        await whole.define("pair", SMALL)
        lablet = await whole.running("pair", name="one")
        assert lablet.worker_id == worker.id
