"""The CML monitor: callers share a query, its result belongs to one instance only, and each request fails alone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from lcm.client.errors import UnreachableError
from lcm.cml.errors import CMLNotReadyError, CMLPollerError, CMLProtocolError, CMLTlsError, CMLUnauthorizedError
from lcm.cml.types import Credentials, LicensePhase
from lcm.controllers.common.accounts import CACHE_SECONDS, CmlAccounts
from lcm.controllers.worker.observe.cml_monitor import CmlMonitor
from lcm.controllers.worker.observe.cml_state import INFORMATION_INTERVAL, LABS_INTERVAL
from lcm.controllers.worker.observe.observation import CmlObservation
from lcm.core import clock
from tests.support.records.workers import a_worker
from tests.support.virtual.fake_cml import DEFAULT, FakeCml, FakeSecrets, FakeServer

if TYPE_CHECKING:
    from lcm.cml.reading import ServerQuery, ServerReading
    from lcm.model.worker.record import Worker

HERE = "192.0.2.1"
THERE = "192.0.2.2"
PINNED = FakeServer.certificate
RUNNING: dict[str, Any] = {
    "status": "RUNNING",
    "instance_id": "i-1",
    "public_ip": HERE,
    "cml_certificate": PINNED,
}


class Scene:
    """A monitor, one server at an address, and its worker."""

    def __init__(self, **options: Any) -> None:
        self.server = FakeServer(booted=True)
        self.cml = FakeCml(**{HERE: self.server})
        self.secrets = FakeSecrets()
        accounts = CmlAccounts(self.secrets, DEFAULT)
        self.monitor = CmlMonitor(self.cml, accounts, lambda worker: worker.public_ip, **options)
        self.worker = a_worker(**RUNNING)

    async def query(
        self, worker: Worker | None = None, *, max_age: float = 0, with_license: bool = True
    ) -> CmlObservation:
        return await self.monitor.query(worker or self.worker, max_age=max_age, with_license=with_license)


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_nothing_is_sent_to_an_imported_server_that_nobody_has_adopted(scene: Scene) -> None:
    imported = a_worker(**{**RUNNING, "origin": "imported"})
    observation = await scene.query(imported)
    assert (observation.ready, observation.account_withheld, observation.labs) == (True, True, None)
    assert await scene.monitor.activity(imported) is None
    assert set(scene.server.calls) == {"information"}
    adopted = imported.model_copy(update={"adopted_at": clock.now(), "version": imported.version + 1})
    observation = await scene.query(adopted)
    assert (observation.account_withheld, observation.labs) == (False, 3)


async def test_a_ready_server_reports_everything(scene: Scene) -> None:
    assert scene.monitor.last_observation(scene.worker) == CmlObservation()
    queried_at = clock.now()
    observation = await scene.query()
    assert (observation.queried_at, observation.ready, observation.version, observation.error) == (
        queried_at,
        True,
        "2.9.1+build.7",
        "",
    )
    assert (observation.labs, observation.nodes, observation.running_nodes, observation.product) == (
        3,
        12,
        7,
        "CML_Enterprise",
    )
    assert observation.license is not None
    assert observation.license.phase is LicensePhase.UNREGISTERED
    assert scene.monitor.last_observation(scene.worker) == observation
    stats = scene.monitor.stats(scene.worker)
    assert stats is not None
    assert stats.cpu_count == 8


async def test_a_server_that_is_still_starting_is_not_signed_in_to(scene: Scene) -> None:
    scene.server.ready = False
    observation = await scene.query()
    assert (observation.ready, observation.version, observation.error, observation.labs) == (
        False,
        "2.9.1+build.7",
        "",
        None,
    )
    assert scene.server.calls == {"information": 1}
    assert not scene.secrets.calls


@pytest.mark.parametrize(
    "error", [CMLNotReadyError(HERE, "refused"), CMLTlsError(HERE, "wrong"), CMLProtocolError(HERE, "odd")]
)
async def test_a_failed_query_keeps_the_version(scene: Scene, error: Exception) -> None:
    await scene.query()
    scene.server.failures["all"] = error
    observation = await scene.query()
    assert (observation.ready, observation.version, observation.nodes, observation.license) == (
        False,
        "2.9.1+build.7",
        None,
        None,
    )
    assert observation.error == error.args[0].removeprefix(f"CML at {HERE}: ")


async def test_statistics_fail_alone(scene: Scene) -> None:
    scene.server.failures["stats"] = CMLProtocolError(HERE, "unexpected values")
    observation = await scene.query()
    assert (observation.ready, observation.labs, observation.running_nodes) == (True, None, None)
    assert observation.license is not None
    assert observation.error == "statistics: unexpected values"


async def test_the_license_fails_alone(scene: Scene) -> None:
    await scene.query()
    scene.server.failures["license"] = CMLNotReadyError(HERE, "no response")
    observation = await scene.query()
    assert (observation.ready, observation.labs, observation.license, observation.product) == (True, 3, None, "")
    assert observation.error == "license: no response"


async def test_a_query_without_the_license_keeps_the_known_license(scene: Scene) -> None:
    before = await scene.query()
    assert (await scene.query(with_license=False)).license == before.license
    assert scene.server.calls["license"] == 1


async def test_without_an_account_readiness_is_still_known(scene: Scene) -> None:
    scene.secrets.failure = UnreachableError("the control plane is unreachable")
    observation = await scene.query()
    assert (observation.ready, observation.labs, observation.license) == (True, None, None)
    assert "the control plane is unreachable" in observation.error


async def test_a_ready_server_stays_ready_when_the_control_plane_is_slow(scene: Scene) -> None:
    """Before, the server was given no time to say that it is ready, and counted as not ready."""
    await scene.query()
    await asyncio.sleep(CACHE_SECONDS + 1)
    scene.secrets.seconds = 1_000
    scene.server.calls.clear()
    observation = await scene.query()
    assert (observation.ready, observation.labs) == (True, None)
    assert observation.error.endswith("cannot be read: the control plane did not respond within 30 s")
    assert scene.server.calls == {"information": 1}


async def test_a_query_without_time_says_nothing_about_the_server() -> None:
    """The process was suspended, for example."""
    scene = Scene(query_timeout=0.0)
    assert (await scene.query()).ready is None
    assert scene.server.calls == {}


async def test_a_refused_account_is_read_again_once(scene: Scene) -> None:
    scene.server.account = Credentials("ops", "changed-pw")
    for _ in range(4):
        observation = await scene.query()
        assert observation.ready is False
        assert "CML refuses the account 'admin'" in observation.refusal
    assert scene.secrets.calls["account w-1"] == 2
    scene.secrets.accounts["w-1"] = scene.server.account
    await asyncio.sleep(301)
    observation = await scene.query()
    assert (observation.ready, observation.refusal, observation.error) == (True, "", "")


async def test_a_server_that_answers_401_to_everything_is_not_ready_and_why_is_known(scene: Scene) -> None:
    """worker-lifecycle.md#conditions: it stayed ready without a message, and nothing on it could be managed."""
    scene.server.failures["stats"] = CMLUnauthorizedError(HERE, "HTTP 401: no reason given")
    observation = await scene.query()
    assert observation.ready is False
    assert observation.refusal == "CML refuses the account 'admin': HTTP 401: no reason given"
    scene.server.failures.clear()
    assert (await scene.query()).ready


async def test_a_recent_result_is_not_queried_again(scene: Scene) -> None:
    await scene.query()
    await asyncio.sleep(20)
    await scene.query(max_age=30)
    assert scene.server.calls["stats"] == 1
    await scene.query(max_age=10)
    assert scene.server.calls["stats"] == 2


async def test_a_failed_query_is_not_repeated_by_every_caller(scene: Scene) -> None:
    del scene.cml.servers[HERE]
    await scene.query()
    await scene.query(max_age=30)
    assert scene.cml.dialled == [HERE]


async def test_concurrent_callers_share_a_query(scene: Scene) -> None:
    observations = await asyncio.gather(*(scene.query() for _ in range(50)))
    assert set(observations) == {observations[0]}
    assert scene.server.calls == {"information": 1, "stats": 1, "license": 1, "health": 1, "definitions": 1}


async def test_a_ready_server_is_asked_for_what_changes_rarely_only_now_and_then(scene: Scene) -> None:
    """Ten minutes of polling: the statistics every minute, the rest within its bounds."""
    for _ in range(10):
        observation = await scene.query(with_license=False)
        assert (observation.ready, observation.version, observation.labs) == (True, "2.9.1+build.7", 3)
        await asyncio.sleep(60)
    calls = scene.server.calls
    assert calls["stats"] == 10
    assert (calls["information"], calls["labs"]) == (5, 0)
    assert scene.server.labs_counted == 2


async def test_labs_are_counted_at_once_when_the_nodes_change(scene: Scene) -> None:
    await scene.query()
    scene.server.stats = replace(scene.server.stats, labs=4, nodes=13)
    assert (await scene.query()).labs == 4
    scene.server.stats = replace(scene.server.stats, labs=5)
    assert (await scene.query()).labs == 4, "a lab without nodes"
    await asyncio.sleep(LABS_INTERVAL)
    assert (await scene.query()).labs == 5


async def test_a_server_that_is_no_longer_ready_is_noticed_within_the_interval(scene: Scene) -> None:
    await scene.query()
    scene.server.ready = False
    await asyncio.sleep(INFORMATION_INTERVAL)
    observation = await scene.query()
    assert (observation.ready, observation.error, observation.nodes) == (False, "", None)
    scene.server.ready = True
    assert (await scene.query()).ready, "one that is not ready is asked every time"


async def test_a_ready_server_whose_statistics_fail_says_at_once_whether_it_is_ready(scene: Scene) -> None:
    await scene.query()
    scene.server.ready = False
    scene.server.failures["stats"] = CMLNotReadyError(HERE, "HTTP 502")
    observation = await scene.query()
    assert (observation.ready, observation.error) == (False, "")
    scene.server.ready = True
    del scene.server.failures["stats"]
    await scene.query()
    scene.server.hanging.add("stats")
    began = clock.boottime()
    observation = await scene.query()
    assert (observation.ready, observation.nodes) == (True, None)
    assert observation.error == "no complete response within 45 s"
    assert clock.boottime() - began <= 45
    scene.server.hanging.clear()


async def test_a_server_that_no_poller_asked_is_neither_ready_nor_down(scene: Scene) -> None:
    await scene.query()
    read_server = scene.cml.read_server

    async def fail(query: ServerQuery, seconds: float) -> ServerReading:
        raise CMLPollerError(query.address, "the poller process does not run")

    scene.cml.read_server = fail  # type: ignore[method-assign]
    observation = await scene.query()
    assert (observation.ready, observation.error) == (None, "the poller process does not run")
    assert observation.queried_at is not None
    scene.cml.read_server = read_server  # type: ignore[method-assign]
    await asyncio.sleep(1)
    assert (await scene.query()).ready


async def test_kvm_is_read_once_an_hour_and_after_each_start(scene: Scene) -> None:
    scene.server.kvm = True
    assert (await scene.query()).kvm_enabled is True
    scene.server.kvm = False
    await asyncio.sleep(3000)
    assert (await scene.query()).kvm_enabled is True
    await asyncio.sleep(INFORMATION_INTERVAL)
    scene.server.ready = False
    await scene.query()
    scene.server.ready = True
    assert (await scene.query()).kvm_enabled is False, "a restart may have changed it"
    assert scene.server.calls["health"] == 2


async def test_missing_kvm_is_checked_again_soon_and_silence_proves_nothing(scene: Scene) -> None:
    scene.server.kvm = False
    assert (await scene.query()).kvm_enabled is False
    await asyncio.sleep(301)
    scene.server.kvm = None
    assert (await scene.query()).kvm_enabled is False
    await asyncio.sleep(301)
    scene.server.failures["health"] = CMLNotReadyError(HERE, "HTTP 502")
    observation = await scene.query()
    assert (observation.ready, observation.kvm_enabled, observation.error) == (True, False, "")
    await asyncio.sleep(301)
    del scene.server.failures["health"]
    scene.server.kvm = True
    assert (await scene.query()).kvm_enabled is True


async def test_a_health_that_hangs_delays_no_other_value(scene: Scene) -> None:
    scene.server.hanging.add("health")
    observation = await scene.query()
    assert (observation.ready, observation.labs, observation.kvm_enabled) == (True, 3, None)
    scene.server.hanging.clear()


async def test_node_definitions_are_read_once_an_hour_and_for_each_version(scene: Scene) -> None:
    scene.server.definitions = ("iosv", "alpine")
    assert (await scene.query()).definitions == ("alpine", "iosv")
    scene.server.definitions = ("alpine",)
    await asyncio.sleep(3000)
    assert (await scene.query()).definitions == ("alpine", "iosv")
    scene.server.version = "2.10.0+build.1"
    await asyncio.sleep(INFORMATION_INTERVAL)
    assert (await scene.query()).version == "2.10.0+build.1"
    assert (await scene.query()).definitions == ("alpine",)
    assert scene.server.calls["definitions"] == 2
    await asyncio.sleep(3601)
    await scene.query()
    assert scene.server.calls["definitions"] == 3


async def test_a_server_without_node_definitions_is_still_ready(scene: Scene) -> None:
    scene.server.failures["definitions"] = CMLNotReadyError(HERE, "HTTP 502")
    observation = await scene.query()
    assert (observation.ready, observation.definitions, observation.error, observation.labs) == (True, None, "", 3)
    del scene.server.failures["definitions"]
    assert (await scene.query()).definitions is None, "a failed read is not repeated in every query"
    await asyncio.sleep(301)
    scene.server.hanging.add("definitions")
    assert (await scene.query()).ready
    scene.server.hanging.clear()
    await asyncio.sleep(301)
    assert (await scene.query()).definitions == ()


async def test_a_query_in_flight_is_shared_only_if_it_began_late_enough(scene: Scene) -> None:
    scene.server.seconds = 10
    first = asyncio.create_task(scene.query())
    await asyncio.sleep(5)
    patient = asyncio.create_task(scene.query(max_age=6))
    strict, stricter = asyncio.create_task(scene.query()), asyncio.create_task(scene.query())
    queried_at = clock.now()
    assert await patient == await first
    assert scene.server.calls["stats"] == 1
    observed_at = (await strict).queried_at
    assert (await stricter).queried_at == observed_at
    assert observed_at is not None
    assert observed_at >= queried_at, "a drain must not use a result from before it began"
    assert scene.server.calls["stats"] == 2


async def test_a_query_with_license_does_not_share_one_without(scene: Scene) -> None:
    without, observation = await asyncio.gather(scene.query(with_license=False), scene.query())
    assert without.license is None
    assert observation.license is not None
    assert scene.server.calls["stats"] == 2


async def test_a_cancelled_caller_does_not_affect_the_others(scene: Scene) -> None:
    impatient, patient = (asyncio.create_task(scene.query()) for _ in range(2))
    await asyncio.sleep(0.05)
    impatient.cancel()
    assert (await patient).ready


async def test_a_query_without_callers_ends_and_leaves_nothing_behind(scene: Scene) -> None:
    scene.server.hanging |= {"stats", "license"}
    before = asyncio.all_tasks()
    lonely = asyncio.create_task(scene.query())
    await asyncio.sleep(5)
    assert scene.cml.busy == 2
    lonely.cancel()
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == before
    assert scene.cml.busy == 0
    assert scene.monitor.last_observation(scene.worker) == CmlObservation()
    scene.server.hanging.clear()
    assert (await scene.query()).labs == 3


async def test_a_hanging_server_delays_only_itself(scene: Scene) -> None:
    scene.cml.servers[THERE] = FakeServer(hanging={"information"})
    other = a_worker(id="w-2", status="RUNNING", instance_id="i-2", public_ip=THERE)
    hanging = asyncio.create_task(scene.query(other))
    began = clock.boottime()
    assert (await scene.query()).ready
    assert clock.boottime() - began < 1
    observation = await hanging
    assert clock.boottime() - began == pytest.approx(45, abs=1)
    assert (observation.ready, observation.error) == (False, "no complete response within 45 s")


async def test_a_request_without_a_response_does_not_affect_the_others(scene: Scene) -> None:
    scene.server.hanging.add("stats")
    observation = await scene.query()
    assert (observation.ready, observation.labs, observation.error) == (True, None, "no complete response within 45 s")
    assert observation.license is not None


async def test_concurrent_queries_are_limited() -> None:
    scene = Scene(max_concurrent=3)
    workers = [a_worker(id=f"w-{n}", instance_id=f"i-{n}", public_ip=f"192.0.2.{n}") for n in range(10, 30)]
    scene.cml.servers |= {str(worker.public_ip): FakeServer() for worker in workers}
    observations = await asyncio.gather(*(scene.query(worker, with_license=False) for worker in workers))
    assert all(observation.ready for observation in observations)
    assert scene.cml.most_at_once == 3, "three servers, one request to each at a time"


@pytest.mark.parametrize(
    "change", [{"public_ip": THERE}, {"instance_id": "i-2"}, {"instance_id": "i-2", "public_ip": THERE}]
)
async def test_another_instance_is_another_server(scene: Scene, change: dict[str, Any]) -> None:
    await scene.query()
    moved = a_worker(**{**RUNNING, **change}, version=2)
    assert scene.monitor.last_observation(moved) == CmlObservation()
    assert scene.cml.forgotten == [HERE]


async def test_a_worker_without_an_address_is_not_queried(scene: Scene) -> None:
    await scene.query()
    stopped = a_worker(status="STOPPED", instance_id="i-1", version=2)
    observation = await scene.query(stopped)
    assert (observation.queried_at, observation.ready, observation.error) == (None, None, "the worker has no address")
    assert scene.cml.forgotten == [HERE]
    assert await scene.monitor.activity(stopped) is None


async def test_an_old_record_does_not_lead_to_a_former_instance(scene: Scene) -> None:
    scene.cml.servers[THERE] = FakeServer(version="2.10.0")
    moved = a_worker(**{**RUNNING, "instance_id": "i-2", "public_ip": THERE}, version=7)
    await scene.query(moved)
    assert await scene.query(scene.worker) == CmlObservation()
    assert await scene.monitor.activity(scene.worker) is None
    assert HERE not in scene.cml.dialled
    assert scene.monitor.last_observation(moved).version == "2.10.0"


async def test_a_query_that_waits_while_the_instance_changes_sends_nothing() -> None:
    scene = Scene(max_concurrent=1)
    scene.cml.servers[THERE] = FakeServer(hanging={"information"})
    other = a_worker(id="w-2", instance_id="i-2", public_ip=THERE)
    hanging, waiting = asyncio.create_task(scene.query(other)), asyncio.create_task(scene.query())
    await asyncio.sleep(1)
    scene.monitor.last_observation(a_worker(status="STOPPED", instance_id="i-1", version=2))
    await hanging
    assert await waiting == CmlObservation()
    assert HERE not in scene.cml.dialled


async def test_an_instance_that_changes_during_a_query_is_not_signed_in_to(scene: Scene) -> None:
    query = asyncio.create_task(scene.query())
    await asyncio.sleep(0.12)
    scene.monitor.last_observation(a_worker(status="STOPPED", instance_id="i-1", version=2))
    await query
    assert scene.server.calls == {"information": 1}


async def test_an_address_that_another_worker_had_begins_anew(scene: Scene) -> None:
    await scene.query()
    heir = a_worker(id="w-2", instance_id="i-2", public_ip=HERE)
    assert scene.monitor.last_observation(heir) == CmlObservation()
    assert scene.cml.forgotten == [HERE]


async def test_a_forgotten_worker_is_unknown(scene: Scene) -> None:
    await scene.query()
    scene.monitor.forget("w-1")
    scene.monitor.forget("w-9")
    assert scene.monitor.last_observation(scene.worker) == CmlObservation()
    assert scene.cml.forgotten == [HERE]


async def phase(scene: Scene, **options: Any) -> LicensePhase | None:
    observation = await scene.query(**options)
    return None if observation.license is None else observation.license.phase


async def test_after_a_registration_request_the_earlier_state_does_not_count(scene: Scene) -> None:
    assert await phase(scene) is LicensePhase.UNREGISTERED
    scene.monitor.registration_requested("w-1")
    remembered = scene.monitor.last_observation(scene.worker).license
    assert remembered is not None
    assert remembered.phase is LicensePhase.REGISTERING
    await asyncio.sleep(60)
    assert await phase(scene, max_age=100) is LicensePhase.UNREGISTERED


async def test_after_deregistration_the_license_is_unknown_until_it_is_read_again(scene: Scene) -> None:
    scene.cml.trust(HERE, PINNED)
    await scene.cml.register_license(HERE, DEFAULT, "good-token")
    await asyncio.sleep(10)
    assert await phase(scene) is LicensePhase.REGISTERED
    reading = asyncio.create_task(phase(scene))
    await asyncio.sleep(0.05)
    scene.monitor.license_released("w-1")
    assert scene.monitor.last_observation(scene.worker).license is None
    assert await reading is None, "it was read before it was deregistered"
    scene.monitor.license_released("w-1")
    assert await phase(scene, max_age=100) is not None
    assert scene.monitor.license_age(scene.worker) == pytest.approx(0.1)


async def test_text_of_others_is_bounded(scene: Scene) -> None:
    scene.server.version = "2.9\n" + "9" * 1_000
    scene.server.failures["stats"] = CMLProtocolError(HERE, "x" * 5_000)
    observation = await scene.query()
    assert observation.version is not None
    assert len(observation.version) == 64
    assert observation.version.isprintable()
    assert len(observation.error) <= 1_000


async def test_telemetry_that_cannot_be_fetched_is_none_and_said_once(scene: Scene) -> None:
    scene.server.failures["activity"] = CMLNotReadyError(HERE, "no response")
    with capture_logs() as logs:
        assert [await scene.monitor.activity(scene.worker) for _ in range(3)] == [None, None, None]
        scene.server.failures.clear()
        scene.server.hanging.add("activity")
        assert await scene.monitor.activity(scene.worker) is None
        scene.server.hanging.clear()
        scene.secrets.failure = UnreachableError("away")
        await asyncio.sleep(301)
        assert await scene.monitor.activity(scene.worker) is None
    assert len(logs) == 1
    scene.secrets.failure = None
    assert await scene.monitor.activity(scene.worker) == ()


async def test_an_account_refused_for_activity_events_is_read_again(scene: Scene) -> None:
    scene.server.account = Credentials("ops", "changed-pw")
    assert await scene.monitor.activity(scene.worker) is None
    scene.secrets.accounts["w-1"] = scene.server.account
    assert await scene.monitor.activity(scene.worker) == ()


async def test_no_password_is_logged_or_shown(scene: Scene) -> None:
    scene.server.account = Credentials("ops", "changed-pw")
    with capture_logs() as logs:
        text = repr(await scene.query()) + repr(await scene.monitor.activity(scene.worker))
    text += repr(vars(scene.monitor)) + str(logs)
    assert DEFAULT.password not in text


async def test_age_is_counted_from_the_start_of_a_query(scene: Scene) -> None:
    scene.server.seconds = 10
    await scene.query()
    assert scene.monitor.last_observation(scene.worker).queried_at == clock.now() - timedelta(
        seconds=23, milliseconds=50
    ), "the fourth part with an account began three seconds after the first"
    await scene.query(max_age=15)
    assert scene.server.calls["stats"] == 2


# Certificates


async def test_a_certificate_is_pinned_when_the_server_is_ready_and_not_before(scene: Scene) -> None:
    """cloud-and-cml.md#certificates: the one of a server that boots may be another, and was pinned for ever."""
    unpinned = a_worker(**{**RUNNING, "cml_certificate": None})
    scene.server.ready, scene.server.certificate = False, "b0" * 32
    assert (await scene.query(unpinned)).certificate is None
    scene.server.ready, scene.server.certificate = True, "a0" * 32
    observation = await scene.query(unpinned)
    assert (observation.ready, observation.certificate, observation.error) == (True, "a0" * 32, "")
    assert scene.cml.pins == {HERE: "a0" * 32}


async def test_a_pin_is_kept_with_the_record_and_outlives_a_controller(scene: Scene) -> None:
    scene.server.certificate = "a0" * 32
    observation = await scene.query()
    assert (observation.ready, observation.presented) == (False, "a0" * 32)
    assert scene.server.calls["stats"] == 0, "nothing is sent to it"


async def test_a_certificate_that_a_person_trusts_is_accepted_at_once(scene: Scene) -> None:
    scene.server.certificate = "a0" * 32
    await scene.query()
    trusting = scene.worker.model_copy(update={"cml_certificate": "a0" * 32, "version": scene.worker.version + 1})
    observation = await scene.query(trusting)
    assert (observation.ready, observation.presented) == (True, None)
    await scene.query(scene.worker)  # a list lags behind
    assert scene.cml.pins == {HERE: "a0" * 32}, "an older record does not bring the old certificate back"


async def test_another_instance_has_another_certificate(scene: Scene) -> None:
    await scene.query()
    scene.server.certificate = "a0" * 32
    replaced = scene.worker.model_copy(
        update={"instance_id": "i-2", "cml_certificate": None, "version": scene.worker.version + 1}
    )
    assert (await scene.query(replaced)).certificate == "a0" * 32
