"""The certificate of a worker's CML: pinned when it is ready, kept with the record, replaced by a person only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lcm.cloud.simulated.faults import ExternalAction
from lcm.model.worker.conditions import ConditionStatus, ConditionType, find_condition
from lcm.model.worker.urgency import worker_problem
from tests.support.virtual.fleet import a_fleet

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker
    from tests.support.virtual.fleet import Fleet

OTHER = "d0" * 32


async def is_refused(fleet: Fleet, worker: Worker) -> bool:
    ready = find_condition((await fleet.worker(worker.id)).conditions, ConditionType.CML_READY)
    return ready is not None and (ready.status, ready.reason) == (ConditionStatus.FALSE, "CertificateChanged")


async def test_a_changed_certificate_is_refused_until_a_person_trusts_it() -> None:
    """cloud-and-cml.md#certificates: it was refused until controllers were restarted, and then anything was trusted."""
    async with a_fleet() as fleet:
        first = await fleet.start("one")
        worker = await fleet.running()
        server = fleet.cml_of(worker)
        assert (await fleet.worker(worker.id)).cml_certificate == server.certificate
        server.certificate = OTHER
        await first.stop()
        fleet.cml.pins.clear()  # a new process knows only the record
        await fleet.start("two")
        await fleet.until(lambda: is_refused(fleet, worker), "another certificate is refused")
        assert f"lcm workers trust {worker.name}" in (worker_problem(await fleet.worker(worker.id)) or "")
        signed_in = server.calls["stats"]
        await asyncio.sleep(300)
        assert server.calls["stats"] == signed_in, "no password is sent to it"
        await fleet.people.workers.trust(worker.id, "it was reinstalled")
        trusted = await fleet.until_ready(worker.id, within=120)
        assert (trusted.cml_certificate, trusted.cml_certificate_presented) == (OTHER, None)
        assert "trust" in await fleet.audits(worker.id)


async def test_the_certificate_of_a_replaced_instance_is_forgotten() -> None:
    async with a_fleet() as fleet:
        await fleet.start()
        worker = await fleet.running(lost_instance_policy="replace")
        fleet.disturb(ExternalAction.TERMINATE, worker)
        await fleet.until(lambda: _has_another_instance(fleet, worker), "it is replaced")
        fresh = await fleet.until_ready(worker.id)
        assert fresh.cml_certificate == fleet.cml_of(fresh).certificate


async def _has_another_instance(fleet: Fleet, worker: Worker) -> bool:
    now = await fleet.worker(worker.id)
    return now.instance_id not in (None, worker.instance_id)
