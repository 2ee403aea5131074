"""The running scheduler: batches, preconditions, scale-up requests and concurrent schedulers."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lcm.client.base import Leader
from lcm.controllers.scheduler.config import SchedulerConfig
from lcm.core import clock
from lcm.core.controller.config import ReconciliationConfig
from lcm.core.controller.leader_election import StaleTermError
from lcm.model.access import Role
from lcm.model.lablet.record import Lablet, Placement, PlacementBatch, PlacementRequest
from lcm.model.lablet.status import LabletStatus
from lcm.model.worker.requests import HoldRequest
from lcm.model.worker.status import DesiredStatus, LicenseStatus, WorkerStatus
from tests.support.records.placement import CML_READY, a_capacity, a_ready_worker, needs
from tests.support.virtual.control_plane import SYSTEM
from tests.support.virtual.scheduling import SchedulingScene, start_scheduling_scene

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.model.worker.record import Worker

PENDING, SCHEDULED = LabletStatus.PENDING_SCHEDULING, LabletStatus.SCHEDULED


async def only(scene: SchedulingScene) -> Lablet:
    [lablet] = await scene.lablets()
    return lablet


async def test_a_lablet_gets_a_worker_at_once_and_the_placement_is_explained() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.stand([a_ready_worker(1), a_ready_worker(2, status=WorkerStatus.STOPPED)])
        await scene.define(requirements=needs(cpu=2, ports=("SSH", "WEB")))
        await scene.start()
        await asyncio.sleep(10)
        began = asyncio.get_running_loop().time()
        await scene.make()
        while (await only(scene)).status is not SCHEDULED:
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - began < 0.5
        lablet = await only(scene)
        assert lablet.worker_id == "w-0001"
        assert lablet.ports == {"SSH": 20000, "WEB": 20001}
        placement = lablet.placement
        assert placement is not None
        assert placement.score == 0
        assert placement.reason == "worker-1 is the fullest worker with enough capacity (score 0.000)"
        assert [(each.worker_name, each.reason) for each in placement.rejections] == [("worker-2", "it is STOPPED")]
        await scene.check_books()


async def test_many_lablets_are_placed_in_few_cycles() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.stand_ready(10)
        await scene.define(requirements=needs(cpu=1, ports=("A",)))
        await scene.make(75)
        await scene.start()
        await asyncio.sleep(10)
        assert await scene.statuses() == {SCHEDULED: 75}
        assert scene.request_count("/lablets/schedule") == 1
        assert scene.request_count("GET /api/internal/workers") == 1
        await scene.check_books()
        full = Counter(worker.allocation.lablets for worker in await scene.workers())
        assert full == {8: 9, 3: 1}, "one worker is filled before the next one is used"


async def test_new_reservations_count_at_once() -> None:
    """The next cycle runs before the workers are read again, and plans with the remaining capacity."""
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.stand_ready(2)
        await scene.define(requirements=needs(cpu=8))
        scheduler = await scene.start()
        await asyncio.sleep(10)
        await scene.make()
        while scheduler.counters.placed_count < 1:
            await asyncio.sleep(0.01)
        await scene.make()
        scheduler.trigger()
        await asyncio.sleep(0.4)
        assert await scene.statuses() == {SCHEDULED: 2}
        assert scene.request_count("GET /api/internal/workers") == 1
        assert scheduler.counters.reservation_refused_count == 0


async def test_an_idle_cycle_makes_no_further_requests() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.stand_ready(3)
        await scene.start()
        await asyncio.sleep(20)
        sent = len(scene.wires["one"].sent)
        await asyncio.sleep(300)
        loops = ("POST /api/internal/controllers/resource-scheduler/report", "POST /api/internal/bookings/advance")
        made = [line for line in scene.wires["one"].sent[sent:] if line not in loops]
        assert set(made) == {"GET /api/internal/lablets"}
        assert len(made) <= 11


# Preconditions


async def test_placement_waits_until_the_workers_are_verified() -> None:
    async with start_scheduling_scene() as scene:
        await scene.stand_ready(1)
        await scene.define()
        await scene.start()
        await scene.make()
        await asyncio.sleep(60)
        assert (await only(scene)).status is PENDING
        placement = (await only(scene)).placement
        assert placement is not None
        assert placement.reason == "placement waits until the worker controller has verified all workers"
        await scene.verified(done=False)
        await asyncio.sleep(60)
        assert (await only(scene)).status is PENDING
        assert scene.request_count("/lablets/schedule") == scene.request_count("scale-up") == 0
        await scene.verified()
        await asyncio.sleep(6)
        assert (await only(scene)).status is SCHEDULED


async def test_placement_resumes_at_once_and_polls_only_the_precondition() -> None:
    async with start_scheduling_scene() as scene:
        await scene.stand_ready(1)
        await scene.define()
        await scene.make()
        await scene.start()
        await asyncio.sleep(5)
        assert scene.request_count("GET /api/internal/lablets") == 1
        await asyncio.sleep(4)
        assert scene.request_count("GET /api/internal/lablets") == 1
        await scene.verified()
        await asyncio.sleep(0.5)
        assert (await only(scene)).status is SCHEDULED


async def test_a_new_worker_controller_has_to_verify_again() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified(term=5)
        await scene.verified(term=6, done=False)
        await scene.stand_ready(1)
        await scene.define()
        await scene.start()
        await scene.make()
        await asyncio.sleep(30)
        assert (await only(scene)).status is PENDING


async def test_nothing_is_placed_while_the_fleet_is_on_hold() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.stand_ready(1)
        await scene.define()
        await scene.people.fleet.hold(HoldRequest(reason="moving house"))
        await scene.start()
        await scene.make()
        await scene.make(ends_at=clock.after(30))
        await asyncio.sleep(60)
        assert await scene.statuses() == {PENDING: 1, LabletStatus.EXPIRED: 1}
        waiting = next(lablet for lablet in await scene.lablets() if lablet.status is PENDING)
        assert waiting.placement is not None
        assert waiting.placement.reason.startswith("the fleet is on hold by ")
        assert scene.request_count("scale-up") == scene.request_count("schedule") == 0
        await scene.people.fleet.release()
        await asyncio.sleep(10)
        assert await scene.statuses() == {SCHEDULED: 1, LabletStatus.EXPIRED: 1}


async def test_a_lablet_is_placed_when_its_start_comes_near() -> None:
    async with start_scheduling_scene(SchedulerConfig(lead_time=300)) as scene:
        await scene.verified()
        await scene.stand_ready(1)
        await scene.define()
        await scene.start()
        await scene.make(starts_at=clock.after(1000))
        await asyncio.sleep(690)
        assert (await only(scene)).status is PENDING
        await asyncio.sleep(12)
        assert (await only(scene)).status is SCHEDULED


async def test_a_lablet_that_fits_on_no_machine_fails_with_a_reason() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.define(requirements=needs(cpu=100))
        await scene.start()
        await scene.make()
        await asyncio.sleep(10)
        lablet = await only(scene)
        assert lablet.status is LabletStatus.FAILED
        assert lablet.placement is not None
        assert "metal: needs 100 CPU cores, but 48 are available" in lablet.placement.reason
        assert scene.request_count("scale-up") == 0


# Scale-up


async def test_a_need_is_requested_once() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.define(requirements=needs(cpu=0.5, memory=2, license=False))
        await scene.start()
        await scene.make(4)  # a small one holds one, by its memory
        await asyncio.sleep(300)
        workers = await scene.workers()
        assert Counter(worker.template_name for worker in workers) == {"small": 4}
        assert scene.request_count("scale-up") == 4
        names = {worker.name for worker in workers}
        for lablet in await scene.lablets():
            assert lablet.placement is not None
            assert lablet.placement.scale_up_worker_id in {worker.id for worker in workers}
            assert lablet.placement.reason in {f"waiting for worker {name} to become ready" for name in names}
        assert scene.request_count("/status") == 4, "an unchanged reason is not written again"
        await asyncio.sleep(607)  # not near a poll
        assert scene.request_count("/status") == 8, "only once more, when the rejections are refreshed"
        for worker in workers:
            await scene.alter(worker.id, _come_up)
        await asyncio.sleep(7)
        assert await scene.statuses() == {SCHEDULED: 4}
        assert scene.request_count("scale-up") == 4
        await scene.check_books()


async def test_no_worker_is_launched_for_a_license_that_it_would_not_get() -> None:
    """A host is paid by the hour: without SCALE_UP_LICENSE_TOKEN not even one is launched to find that out."""
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.define(requirements=needs(cpu=0.25, memory=0.5))
        await scene.define("free", needs(cpu=0.25, memory=0.5, license=False))
        await scene.start()
        await scene.make()
        await asyncio.sleep(300)
        assert not await scene.workers()
        assert scene.request_count("scale-up") == 0
        for lablet in await scene.lablets():
            assert "a new worker would not be suitable: it would have no license" in _reason(lablet)
            assert "SCALE_UP_LICENSE_TOKEN" in _reason(lablet)
        await scene.make(definition="free")
        await asyncio.sleep(60)
        [worker] = await scene.workers()
        assert not worker.has_license_token
        registered = {"has_license_token": True, "license_status": LicenseStatus.REGISTERED}
        await scene.alter(worker.id, lambda each: _come_up(each.model_copy(update=registered)))
        await asyncio.sleep(60)
        assert await scene.statuses() == {SCHEDULED: 2}, "a license that a person gives to a worker is used"
        assert len(await scene.workers()) == 1


async def test_released_capacity_is_used_at_once() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.stand_ready(1, capacity=a_capacity(cpu=4))
        await scene.define(requirements=needs(cpu=4))
        await scene.plane.ask(
            "PATCH", "/api/settings", role=Role.ADMIN, json={"scaling": {"max_workers_per_region": 0}}
        )
        await scene.start()
        first, second = await scene.make(2)
        await asyncio.sleep(20.7)
        placed = [lablet for lablet in await scene.lablets() if lablet.status is SCHEDULED]
        assert len(placed) == 1
        other = second if placed[0].id == first.id else first
        await scene.people.lablets.terminate(placed[0].id)
        await asyncio.sleep(2)
        assert (await scene.people.lablets.get(other.id)).status is SCHEDULED


async def test_a_requested_worker_counts_at_once() -> None:
    """The next cycle runs before the workers are read again."""
    async with start_scheduling_scene(SchedulerConfig(scale_up_cooldown=0)) as scene:
        await scene.verified()
        await scene.define(requirements=needs(license=False))
        scheduler = await scene.start()
        await scene.make(1)
        while not scene.request_count("/status"):
            await asyncio.sleep(0.01)
        listed = scene.request_count("GET /api/internal/workers")
        scheduler.trigger()
        await asyncio.sleep(0.1)
        assert scene.request_count("GET /api/internal/workers") == listed
        assert scene.request_count("scale-up") == 1


async def test_scale_up_requests_respect_the_cooldown() -> None:
    """Needs after the first request wait for the cooldown and are then requested together."""
    async with start_scheduling_scene(SchedulerConfig(scale_up_cooldown=120)) as scene:
        await scene.verified()
        await scene.define(requirements=needs(cpu=0.5, memory=2, license=False))
        await scene.start()
        await scene.make(1)
        await asyncio.sleep(10)
        assert scene.request_count("scale-up") == 1
        for _ in range(3):
            await scene.make(1)
            await asyncio.sleep(30)
        assert scene.request_count("scale-up") == 1
        waiting = [lablet for lablet in await scene.lablets() if "another worker is requested" in _reason(lablet)]
        assert len(waiting) == 3
        await asyncio.sleep(40)
        assert scene.request_count("scale-up") == 4


async def test_own_writes_trigger_no_cycle() -> None:
    """Otherwise each written reason would trigger another cycle with nothing to do."""
    async with start_scheduling_scene(config=ReconciliationConfig(polling_enabled=False)) as scene:
        await scene.verified()
        await scene.define(requirements=needs(cpu=2))
        scheduler = await scene.start()
        await asyncio.sleep(10)
        before = scheduler.counters.rounds_count
        await scene.make(starts_at=clock.after(5000))
        await asyncio.sleep(100)
        assert scene.request_count("/status") == 1
        assert scheduler.counters.rounds_count == before + 1


async def test_the_worker_limit_causes_no_request_storm() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.define(requirements=needs(cpu=0.5, memory=2, license=False))
        response = await scene.plane.ask(
            "PATCH", "/api/settings", role=Role.ADMIN, json={"scaling": {"max_workers_per_region": 3}}
        )
        assert response.status_code == 200
        await scene.start()
        await scene.make(20)
        await asyncio.sleep(600)
        assert len(await scene.workers()) == 3
        assert scene.request_count("scale-up") <= 3 + 8, "rejected requests are repeated with a growing delay"
        capped = [lablet for lablet in await scene.lablets() if "MAX_WORKERS_PER_REGION is 3" in _reason(lablet)]
        assert len(capped) == 17
        writes = scene.request_count("/status")
        await asyncio.sleep(600)
        assert scene.request_count("/status") == writes
        response = await scene.plane.ask(
            "PATCH", "/api/settings", role=Role.ADMIN, json={"scaling": {"max_workers_per_region": 30}}
        )
        await asyncio.sleep(200)
        assert len(await scene.workers()) == 20


async def test_a_paused_worker_is_resumed() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.stand(
            [
                a_ready_worker(
                    1,
                    status=WorkerStatus.STOPPED,
                    desired_status=DesiredStatus.STOPPED,
                    paused_by_policy=True,
                    template_name="large",
                    conditions=(),
                )
            ]
        )
        await scene.define()
        await scene.start()
        await scene.make()
        await asyncio.sleep(10)
        [worker] = await scene.workers()
        assert worker.desired_status is DesiredStatus.RUNNING
        assert _reason(await only(scene)) == "waiting for worker worker-1 to become ready"


async def test_a_lost_scale_up_worker_is_replaced() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.define(requirements=needs(license=False))
        await scene.start()
        await scene.make()
        await asyncio.sleep(10)
        [first] = await scene.workers()
        await scene.alter(first.id, lambda worker: worker.model_copy(update={"status": WorkerStatus.TERMINATED}))
        await asyncio.sleep(60)
        second = next(worker for worker in await scene.workers() if worker.id != first.id)
        assert (await scene.lablets())[0].placement.scale_up_worker_id == second.id  # type: ignore[union-attr]
        assert scene.request_count("scale-up") == 2


async def test_a_lost_response_yields_no_second_worker() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.define(requirements=needs(license=False))
        await scene.start("one")
        scene.wires["one"].die("after", "POST /api/internal/workers/scale-up")
        await scene.make()
        await asyncio.sleep(30)
        assert scene.wires["one"].dead
        await scene.schedulers["one"].stop()
        await scene.start("two")
        await asyncio.sleep(60)
        [worker] = await scene.workers()
        assert worker.requested_for == f"lablet:{(await only(scene)).id}:0"
        assert _reason(await only(scene)) == f"waiting for worker {worker.name} to become ready"


# Concurrent changes


async def test_concurrent_reservations_never_oversubscribe_a_worker() -> None:
    """Another writer takes the capacity between plan and reservation: rejected, read again, placed elsewhere."""
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.stand_ready(2)
        await scene.define(requirements=needs(cpu=4))
        scheduler = await scene.start()
        await asyncio.sleep(10)

        async def steal() -> None:
            full = a_ready_worker(1).allocation.model_copy(update={"cpu_cores": 6.0})
            await scene.alter("w-0001", lambda worker: worker.model_copy(update={"allocation": full}))

        scene.wires["one"].meanwhile("POST /api/internal/lablets/schedule", steal)
        await scene.make()
        await asyncio.sleep(0.6)
        assert (await only(scene)).worker_id == "w-0002", "repeated at once, with workers read again"
        assert scheduler.counters.reservation_refused_count == 1
        assert scheduler.counters.placed_count == 1


async def test_a_stale_scheduler_is_rejected_and_steps_down() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.stand_ready(1)
        await scene.define()
        scheduler = await scene.start()
        await asyncio.sleep(10)
        newer = Leader("resource-scheduler", scheduler.term + 100)
        await scene.controller.internal.announce_leadership(newer)
        await scene.make()
        await asyncio.sleep(3)
        assert (await only(scene)).status is PENDING
        assert not scheduler.is_leader or scheduler.term > newer.term


async def test_two_schedulers_at_once_never_oversubscribe() -> None:
    """While the newer scheduler reserves, the requests of a stale one are all rejected."""
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.stand_ready(5, capacity=a_capacity(cpu=4, memory=8))
        await scene.define(requirements=needs(cpu=1, memory=1, ports=("A", "B")))
        made = await scene.make(40)
        internal = scene.controller.internal
        old, new = Leader("resource-scheduler", 7), Leader("resource-scheduler", 8)
        for leader in (old, new):
            await internal.announce_leadership(leader)

        async def place(leader: Leader, order: list[Lablet]) -> int:
            """Place all lablets on all workers, one per batch, like a scheduler that ignores all others."""
            done = 0
            for number, lablet in enumerate(order):
                item = PlacementRequest(
                    lablet_id=lablet.id,
                    version=lablet.version,
                    worker_id=f"w-{number % 5 + 1:04}",
                    placement=Placement(at=clock.now(), reason="test"),
                )
                results = await internal.schedule(leader, PlacementBatch(items=(item,)))
                done += sum(result.placed for result in results)
            return done

        tasks = [place(new, made), place(new, made[::-1]), place(new, made[20:] + made[:20]), place(old, made)]
        *placed, refused = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(refused, StaleTermError)
        assert sum(count for count in placed if isinstance(count, int)) == 20
        assert await scene.statuses() == {SCHEDULED: 20, PENDING: 20}
        await scene.check_books()


async def test_two_schedulers_of_which_one_leads() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.stand_ready(5)
        await scene.define()
        await scene.start("one")
        await scene.start("two")
        await asyncio.sleep(10)
        await scene.make(10)
        await asyncio.sleep(5)
        leading = [name for name, each in scene.schedulers.items() if each.is_leader]
        assert len(leading) == 1
        scene.schedulers[leading[0]].resign()
        await asyncio.sleep(2)
        await scene.make(10)
        await asyncio.sleep(10)
        assert await scene.statuses() == {SCHEDULED: 20}
        assert all(scene.request_count("/lablets/schedule", name) for name in scene.schedulers)
        await scene.check_books()


async def test_an_unreachable_control_plane_is_retried() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.stand_ready(1)
        await scene.define()
        await scene.start()
        await asyncio.sleep(10)
        scene.wires["one"].dead = True
        await scene.make()
        await asyncio.sleep(20)
        assert (await only(scene)).status is PENDING
        scene.wires["one"].dead = False
        await asyncio.sleep(61)
        assert (await only(scene)).status is SCHEDULED


async def test_health_counts_lablets() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.stand_ready(1)
        await scene.define(requirements=needs(cpu=5))
        scheduler = await scene.start()
        await scene.make(2)
        await asyncio.sleep(15)
        assert scheduler.health()["lablets_pending"] == 1
        assert scheduler.health()["lablets_placed"] == 1
        registry = scene.registries["one"]
        assert registry.get_sample_value("lcm_resource_scheduler_placed_count") == 1
        assert registry.get_sample_value("lcm_resource_scheduler_pending_lablet_count") == 1


async def test_a_pending_lablet_expires_at_its_end() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.define(requirements=needs(cpu=2))
        await scene.start()
        await scene.make(ends_at=clock.now() + timedelta(seconds=100))
        await asyncio.sleep(99)
        assert (await only(scene)).status is PENDING
        await asyncio.sleep(3)
        assert (await only(scene)).status is LabletStatus.EXPIRED


def _reason(lablet: Lablet) -> str:
    assert lablet.placement is not None, lablet
    return lablet.placement.reason


def _come_up(worker: Worker) -> Worker:
    return worker.model_copy(
        update={
            "status": WorkerStatus.RUNNING,
            "conditions": (CML_READY,),
            "cml_version": "2.9.0",
            "node_definitions": ("alpine",),
        }
    )


async def set_start(scene: SchedulingScene, lablet_id: str, starts_at: datetime | None) -> None:
    """Store a lablet as an older version accepted it."""

    async def save(tx: Transaction) -> None:
        lablet = await tx.lablet(lablet_id)
        tx.save_lablet(lablet.model_copy(update={"starts_at": starts_at, "version": lablet.version + 1}), "changed")

    await scene.plane.services.context.unit_of_work.run(SYSTEM, save)


async def test_one_lablet_that_cannot_be_planned_delays_no_other() -> None:
    """lablets.md#placement: a start in the year 1 is skipped, counted, and its record says why."""
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.define()
        [bad] = await scene.make()
        await set_start(scene, bad.id, datetime(1, 1, 1, tzinfo=UTC))
        await scene.stand_ready(2)
        scheduler = await scene.start()
        await asyncio.sleep(10)
        await scene.make(3)
        await asyncio.sleep(10)
        by_id = {lablet.id: lablet for lablet in await scene.lablets()}
        skipped = by_id.pop(bad.id)
        assert {lablet.status for lablet in by_id.values()} == {SCHEDULED}
        assert skipped.status is PENDING
        assert skipped.placement is not None
        assert "it cannot be planned: OverflowError" in skipped.placement.reason
        assert scheduler.counters.skipped_record_count == 1
        rounds, version = scheduler.counters.rounds_count, skipped.version
        await asyncio.sleep(3600)
        assert scheduler.counters.rounds_count - rounds < 200, "it causes no busy loop"
        assert next(each for each in await scene.lablets() if each.id == bad.id).version == version
        await set_start(scene, bad.id, None)
        await asyncio.sleep(10)
        assert (await scene.statuses()) == {SCHEDULED: 4}
        assert scheduler.counters.skipped_record_count == 0


async def test_a_bad_lablet_is_skipped_while_placement_is_blocked() -> None:
    async with start_scheduling_scene() as scene:
        await scene.verified()
        await scene.define()
        await scene.stand_ready(1)
        bad, good = await scene.make(2)
        await set_start(scene, bad.id, datetime(1, 1, 1, tzinfo=UTC))
        await scene.people.fleet.hold(HoldRequest(reason="audit"))
        await scene.start()
        await asyncio.sleep(30)
        by_id = {lablet.id: lablet for lablet in await scene.lablets()}
        placement = by_id[good.id].placement
        assert placement is not None
        assert "on hold" in placement.reason


async def test_extreme_dates_are_refused_at_the_door() -> None:
    async with start_scheduling_scene() as scene:
        await scene.define()
        for moment in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "3300-01-01T00:00:00Z"):
            for field in ("starts_at", "ends_at"):
                body = {"definition": "lab", field: moment}
                response = await scene.plane.ask("POST", "/api/lablets", json=body)
                assert response.status_code == 422
                assert response.json()["errors"][0]["field"] == field
