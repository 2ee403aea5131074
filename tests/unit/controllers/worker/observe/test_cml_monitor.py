"""What is known of workers' CML: asked together, remembered for one machine only, each question failing alone."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from lcm.client.errors import UnreachableError
from lcm.cml.errors import CMLNotReadyError, CMLProtocolError, CMLTlsError
from lcm.cml.licensing import LicensePhase
from lcm.cml.types import Credentials
from lcm.controllers.common.accounts import CmlAccounts
from lcm.controllers.worker.observe.cml_monitor import CmlMonitor
from lcm.controllers.worker.observe.observation import CmlObservation
from lcm.core import clock
from tests.support.records.workers import a_worker
from tests.support.virtual.fake_cml import DEFAULT, FakeCml, FakeSecrets, FakeServer

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker

HERE = "192.0.2.1"
THERE = "192.0.2.2"
RUNNING: dict[str, Any] = {"status": "RUNNING", "instance_id": "i-1", "public_ip": HERE}


class Scene:
    """A watch, one server under an address, and the worker behind it."""

    def __init__(self, **options: Any) -> None:
        self.server = FakeServer()
        self.cml = FakeCml(**{HERE: self.server})
        self.secrets = FakeSecrets()
        accounts = CmlAccounts(self.secrets, DEFAULT)
        self.watch = CmlMonitor(self.cml, accounts, lambda worker: worker.public_ip, **options)
        self.worker = a_worker(**RUNNING)

    async def look(self, worker: Worker | None = None, *, max_age: float = 0, licence: bool = True) -> CmlObservation:
        return await self.watch.look(worker or self.worker, max_age=max_age, licence=licence)


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_a_ready_server_tells_everything(scene: Scene) -> None:
    assert scene.watch.sight(scene.worker) == CmlObservation()
    asked_at = clock.now()
    sight = await scene.look()
    assert (sight.asked_at, sight.ready, sight.version, sight.trouble) == (asked_at, True, "2.9.1+build.7", "")
    assert (sight.labs, sight.nodes, sight.running_nodes, sight.product) == (3, 12, 7, "CML_Enterprise")
    assert sight.license is not None
    assert sight.license.phase is LicensePhase.UNREGISTERED
    assert scene.watch.sight(scene.worker) == sight
    stats = scene.watch.stats(scene.worker)
    assert stats is not None
    assert stats.cpu_count == 8


async def test_a_server_that_is_still_starting_is_not_signed_in_to(scene: Scene) -> None:
    scene.server.ready = False
    sight = await scene.look()
    assert (sight.ready, sight.version, sight.trouble, sight.labs) == (False, "2.9.1+build.7", "", None)
    assert scene.server.asked == {"information": 1}
    assert not scene.secrets.asked


@pytest.mark.parametrize(
    "error", [CMLNotReadyError(HERE, "refused"), CMLTlsError(HERE, "wrong"), CMLProtocolError(HERE, "odd")]
)
async def test_nobody_answers_and_the_version_is_remembered(scene: Scene, error: Exception) -> None:
    await scene.look()
    scene.server.failures["information"] = error
    sight = await scene.look()
    assert (sight.ready, sight.version, sight.nodes, sight.license) == (False, "2.9.1+build.7", None, None)
    assert sight.trouble == error.args[0].removeprefix(f"CML at {HERE}: ")


async def test_statistics_fail_alone(scene: Scene) -> None:
    scene.server.failures["stats"] = CMLProtocolError(HERE, "odd figures")
    sight = await scene.look()
    assert (sight.ready, sight.labs, sight.running_nodes) == (True, None, None)
    assert sight.license is not None
    assert sight.trouble == "statistics: odd figures"


async def test_the_licence_fails_alone(scene: Scene) -> None:
    await scene.look()
    scene.server.failures["license"] = CMLNotReadyError(HERE, "no answer")
    sight = await scene.look()
    assert (sight.ready, sight.labs, sight.license, sight.product) == (True, 3, None, "")
    assert sight.trouble == "licence: no answer"


async def test_a_licence_that_was_not_asked_for_stays_known(scene: Scene) -> None:
    before = await scene.look()
    assert (await scene.look(licence=False)).license == before.license
    assert scene.server.asked["license"] == 1


async def test_without_an_account_readiness_is_still_known(scene: Scene) -> None:
    scene.secrets.failure = UnreachableError("the control plane is away")
    sight = await scene.look()
    assert (sight.ready, sight.labs, sight.license) == (True, None, None)
    assert "the control plane is away" in sight.trouble


async def test_a_refused_account_is_asked_for_anew_once(scene: Scene) -> None:
    scene.server.account = Credentials("ops", "changed-pw")
    for _ in range(4):
        sight = await scene.look()
        assert sight.ready
        assert "refused" in sight.trouble
    assert scene.secrets.asked["account w-1"] == 2
    scene.secrets.accounts["w-1"] = scene.server.account
    await asyncio.sleep(301)
    assert (await scene.look()).trouble == ""


async def test_what_is_young_enough_is_not_asked_again(scene: Scene) -> None:
    await scene.look()
    await asyncio.sleep(20)
    await scene.look(max_age=30)
    assert scene.server.asked["information"] == 1
    await scene.look(max_age=10)
    assert scene.server.asked["information"] == 2


async def test_a_failed_look_is_not_repeated_by_everybody_either(scene: Scene) -> None:
    del scene.cml.servers[HERE]
    await scene.look()
    await scene.look(max_age=30)
    assert scene.cml.dialled == [HERE]


async def test_those_who_ask_at_once_share_a_look(scene: Scene) -> None:
    sights = await asyncio.gather(*(scene.look() for _ in range(50)))
    assert set(sights) == {sights[0]}
    assert scene.server.asked == {"information": 1, "stats": 1, "license": 1, "definitions": 1}


async def test_what_nodes_it_can_run_is_asked_once_an_hour_and_for_each_version(scene: Scene) -> None:
    scene.server.definitions = ("iosv", "alpine")
    assert (await scene.look()).definitions == ("alpine", "iosv")
    scene.server.definitions = ("alpine",)
    await asyncio.sleep(3000)
    assert (await scene.look()).definitions == ("alpine", "iosv")
    scene.server.version = "2.10.0+build.1"
    assert (await scene.look()).definitions == ("alpine",)
    assert scene.server.asked["definitions"] == 2
    await asyncio.sleep(3601)
    await scene.look()
    assert scene.server.asked["definitions"] == 3


async def test_a_server_that_does_not_tell_its_nodes_is_ready_all_the_same(scene: Scene) -> None:
    scene.server.failures["definitions"] = CMLNotReadyError(HERE, "HTTP 502")
    sight = await scene.look()
    assert (sight.ready, sight.definitions, sight.trouble, sight.labs) == (True, None, "", 3)
    del scene.server.failures["definitions"]
    assert (await scene.look()).definitions is None, "a failed question is not repeated at every look"
    await asyncio.sleep(301)
    scene.server.hanging.add("definitions")
    assert (await scene.look()).ready
    scene.server.hanging.clear()
    await asyncio.sleep(301)
    assert (await scene.look()).definitions == ()


async def test_a_look_under_way_is_shared_only_by_those_for_whom_it_began_late_enough(scene: Scene) -> None:
    scene.server.seconds = 10
    first = asyncio.create_task(scene.look())
    await asyncio.sleep(5)
    patient = asyncio.create_task(scene.look(max_age=6))
    strict, stricter = asyncio.create_task(scene.look()), asyncio.create_task(scene.look())
    asked_at = clock.now()
    assert await patient == await first
    assert scene.server.asked["information"] == 1
    seen = (await strict).asked_at
    assert (await stricter).asked_at == seen
    assert seen is not None
    assert seen >= asked_at, "who drains must not go by what was so before"
    assert scene.server.asked["information"] == 2


async def test_who_wants_the_licence_is_not_content_with_a_look_without(scene: Scene) -> None:
    without, sight = await asyncio.gather(scene.look(licence=False), scene.look())
    assert without.license is None
    assert sight.license is not None
    assert scene.server.asked["information"] == 2


async def test_who_gives_up_takes_nothing_from_the_others(scene: Scene) -> None:
    impatient, patient = (asyncio.create_task(scene.look()) for _ in range(2))
    await asyncio.sleep(0.05)
    impatient.cancel()
    assert (await patient).ready


async def test_a_look_that_nobody_waits_for_ends_and_leaves_nothing_behind(scene: Scene) -> None:
    scene.server.hanging |= {"stats", "license"}
    before = asyncio.all_tasks()
    lonely = asyncio.create_task(scene.look())
    await asyncio.sleep(5)
    assert scene.cml.busy == 2
    lonely.cancel()
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == before
    assert scene.cml.busy == 0
    assert scene.watch.sight(scene.worker) == CmlObservation()
    scene.server.hanging.clear()
    assert (await scene.look()).labs == 3


async def test_a_hanging_server_delays_only_itself(scene: Scene) -> None:
    scene.cml.servers[THERE] = FakeServer(hanging={"information"})
    other = a_worker(id="w-2", status="RUNNING", instance_id="i-2", public_ip=THERE)
    hanging = asyncio.create_task(scene.look(other))
    began = clock.boottime()
    assert (await scene.look()).ready
    assert clock.boottime() - began < 1
    sight = await hanging
    assert clock.boottime() - began == pytest.approx(45, abs=1)
    assert (sight.ready, sight.trouble) == (False, "no whole answer within 45 s")


async def test_a_question_without_an_answer_does_not_cost_the_others(scene: Scene) -> None:
    scene.server.hanging.add("stats")
    sight = await scene.look()
    assert (sight.ready, sight.labs, sight.trouble) == (True, None, "no whole answer within 45 s")
    assert sight.license is not None


async def test_no_more_than_some_are_asked_at_once() -> None:
    scene = Scene(at_once=3)
    workers = [a_worker(id=f"w-{n}", instance_id=f"i-{n}", public_ip=f"192.0.2.{n}") for n in range(10, 30)]
    scene.cml.servers |= {str(worker.public_ip): FakeServer() for worker in workers}
    sights = await asyncio.gather(*(scene.look(worker, licence=False) for worker in workers))
    assert all(sight.ready for sight in sights)
    assert scene.cml.most_at_once == 6, "three servers, two questions to each"


@pytest.mark.parametrize(
    "change", [{"public_ip": THERE}, {"instance_id": "i-2"}, {"instance_id": "i-2", "public_ip": THERE}]
)
async def test_another_machine_is_another_server(scene: Scene, change: dict[str, Any]) -> None:
    await scene.look()
    moved = a_worker(**{**RUNNING, **change}, version=2)
    assert scene.watch.sight(moved) == CmlObservation()
    assert scene.cml.forgotten == [HERE]


async def test_a_worker_without_an_address_is_not_asked(scene: Scene) -> None:
    await scene.look()
    stopped = a_worker(status="STOPPED", instance_id="i-1", version=2)
    sight = await scene.look(stopped)
    assert (sight.asked_at, sight.ready, sight.trouble) == (None, None, "it has no address to ask at")
    assert scene.cml.forgotten == [HERE]
    assert await scene.watch.activity(stopped) is None


async def test_an_old_record_leads_nobody_to_a_machine_of_the_past(scene: Scene) -> None:
    scene.cml.servers[THERE] = FakeServer(version="2.10.0")
    moved = a_worker(**{**RUNNING, "instance_id": "i-2", "public_ip": THERE}, version=7)
    await scene.look(moved)
    assert await scene.look(scene.worker) == CmlObservation()
    assert await scene.watch.activity(scene.worker) is None
    assert HERE not in scene.cml.dialled
    assert scene.watch.sight(moved).version == "2.10.0"


async def test_a_look_that_waits_while_the_machine_changes_asks_nobody() -> None:
    scene = Scene(at_once=1)
    scene.cml.servers[THERE] = FakeServer(hanging={"information"})
    other = a_worker(id="w-2", instance_id="i-2", public_ip=THERE)
    hanging, waiting = asyncio.create_task(scene.look(other)), asyncio.create_task(scene.look())
    await asyncio.sleep(1)
    scene.watch.sight(a_worker(status="STOPPED", instance_id="i-1", version=2))
    await hanging
    assert await waiting == CmlObservation()
    assert HERE not in scene.cml.dialled


async def test_a_machine_that_changes_during_a_look_is_not_signed_in_to(scene: Scene) -> None:
    looking = asyncio.create_task(scene.look())
    await asyncio.sleep(0.12)
    scene.watch.sight(a_worker(status="STOPPED", instance_id="i-1", version=2))
    await looking
    assert scene.server.asked == {"information": 1}


async def test_an_address_that_another_worker_had_begins_anew(scene: Scene) -> None:
    await scene.look()
    heir = a_worker(id="w-2", instance_id="i-2", public_ip=HERE)
    assert scene.watch.sight(heir) == CmlObservation()
    assert scene.cml.forgotten == [HERE]


async def test_a_forgotten_worker_is_unknown(scene: Scene) -> None:
    await scene.look()
    scene.watch.forget("w-1")
    scene.watch.forget("w-9")
    assert scene.watch.sight(scene.worker) == CmlObservation()
    assert scene.cml.forgotten == [HERE]


async def phase(scene: Scene, **options: Any) -> LicensePhase | None:
    sight = await scene.look(**options)
    return None if sight.license is None else sight.license.phase


async def test_after_asking_for_registration_the_state_from_before_says_nothing(scene: Scene) -> None:
    assert await phase(scene) is LicensePhase.UNREGISTERED
    scene.watch.registration_requested("w-1")
    remembered = scene.watch.sight(scene.worker).license
    assert remembered is not None
    assert remembered.phase is LicensePhase.REGISTERING
    await asyncio.sleep(60)
    assert await phase(scene, max_age=100) is LicensePhase.UNREGISTERED


async def test_after_giving_it_back_the_licence_is_unknown_until_it_is_read_again(scene: Scene) -> None:
    await scene.cml.register_license(HERE, DEFAULT, "good-token")
    await asyncio.sleep(10)
    assert await phase(scene) is LicensePhase.REGISTERED
    reading = asyncio.create_task(phase(scene))
    await asyncio.sleep(0.15)
    scene.watch.license_released("w-1")
    assert scene.watch.sight(scene.worker).license is None
    assert await reading is None, "it was read before it was given back"
    scene.watch.license_released("w-1")
    assert await phase(scene, max_age=100) is not None
    assert scene.watch.license_age(scene.worker) == pytest.approx(0.1)


async def test_text_of_others_is_bounded(scene: Scene) -> None:
    scene.server.version = "2.9\n" + "9" * 1_000
    scene.server.failures["stats"] = CMLProtocolError(HERE, "x" * 5_000)
    sight = await scene.look()
    assert sight.version is not None
    assert len(sight.version) == 64
    assert sight.version.isprintable()
    assert len(sight.trouble) <= 1_000


async def test_telemetry_that_cannot_be_fetched_is_none_and_said_once(scene: Scene) -> None:
    scene.server.failures["activity"] = CMLNotReadyError(HERE, "no answer")
    with capture_logs() as logs:
        assert [await scene.watch.activity(scene.worker) for _ in range(3)] == [None, None, None]
        scene.server.failures.clear()
        scene.server.hanging.add("activity")
        assert await scene.watch.activity(scene.worker) is None
        scene.server.hanging.clear()
        scene.secrets.failure = UnreachableError("away")
        await asyncio.sleep(301)
        assert await scene.watch.activity(scene.worker) is None
    assert len(logs) == 1
    scene.secrets.failure = None
    assert await scene.watch.activity(scene.worker) == ()


async def test_an_account_that_telemetry_was_refused_to_is_asked_for_anew(scene: Scene) -> None:
    scene.server.account = Credentials("ops", "changed-pw")
    assert await scene.watch.activity(scene.worker) is None
    scene.secrets.accounts["w-1"] = scene.server.account
    assert await scene.watch.activity(scene.worker) == ()


async def test_no_password_is_in_a_log_or_in_what_is_told(scene: Scene) -> None:
    scene.server.account = Credentials("ops", "changed-pw")
    with capture_logs() as logs:
        told = repr(await scene.look()) + repr(await scene.watch.activity(scene.worker))
    told += repr(vars(scene.watch)) + str(logs)
    assert DEFAULT.password not in told


async def test_age_is_counted_from_the_beginning_of_a_look(scene: Scene) -> None:
    scene.server.seconds = 10
    await scene.look()
    assert scene.watch.sight(scene.worker).asked_at == clock.now() - timedelta(seconds=20, milliseconds=50)
    await scene.look(max_age=15)
    assert scene.server.asked["information"] == 2
