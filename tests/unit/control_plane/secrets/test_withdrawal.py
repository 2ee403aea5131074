"""The secrets of a worker that has ended cannot be read, and are deleted (api.md#secrets)."""

from __future__ import annotations

from structlog.testing import capture_logs

from lcm.control_plane.records.kinds import WORKER_SECRETS
from lcm.control_plane.secrets.worker_secrets import store_secrets, withdraw_ended
from lcm.model.access import Role
from tests.support.virtual.control_plane import SYSTEM, serving_plane

SECRETS = {"license_token": "canary-token-0123456789", "cml_username": "admin", "cml_password": "canary"}


async def test_the_secrets_of_a_terminated_worker_are_withdrawn() -> None:
    async with serving_plane() as plane:
        worker = await plane.running("alpha", **SECRETS)
        path = f"/api/internal/workers/{worker['id']}"
        with capture_logs() as logged:
            for name in ("license-token", "cml-credentials"):
                assert (await plane.ask("GET", f"{path}/{name}", role=Role.CONTROLLER)).status_code == 200
        assert [entry["secret"] for entry in logged if entry["event"] == "secret read"] == [
            "license_token",
            "cml_password",
        ]
        assert "canary" not in str(logged)
        await plane.ask("POST", f"/api/workers/{worker['id']}/terminate")
        current = (await plane.ask("GET", f"/api/workers/{worker['id']}")).json()
        current = await plane.report(current, "TERMINATING")
        current = await plane.report(current, "TERMINATED", terminated_by="lcm", terminated_reason="requested")
        for name in ("license-token", "cml-credentials"):
            assert (await plane.ask("GET", f"{path}/{name}", role=Role.CONTROLLER)).status_code == 404
        assert await plane.services.context.store.get(WORKER_SECRETS, worker["id"]) is None


async def test_secrets_of_workers_that_ended_before_an_upgrade_are_withdrawn() -> None:
    async with serving_plane() as plane:
        ended, running = await plane.running("alpha", **SECRETS), await plane.running("beta", **SECRETS)
        await plane.ask("POST", f"/api/workers/{ended['id']}/terminate")
        current = (await plane.ask("GET", f"/api/workers/{ended['id']}")).json()
        current = await plane.report(current, "TERMINATING")
        await plane.report(current, "TERMINATED", terminated_by="lcm", terminated_reason="requested")
        context = plane.services.context
        await context.unit_of_work.run(
            SYSTEM, lambda tx: store_secrets(tx, context.secret_box, ended["id"], {"cml_password": "old"})
        )
        read = await plane.ask("GET", f"/api/internal/workers/{ended['id']}/cml-credentials", role=Role.CONTROLLER)
        assert read.status_code == 404, "also before they are deleted"
        assert await withdraw_ended(context.unit_of_work) == 1
        assert await withdraw_ended(context.unit_of_work) == 0
        assert await context.store.get(WORKER_SECRETS, ended["id"]) is None
        assert await context.store.get(WORKER_SECRETS, running["id"]) is not None
