"""Registering and deregistering licenses: one task per worker, a callback at its end, and no token in any output."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from lcm.client.errors import UnreachableError
from lcm.cml.errors import CMLAuthenticationError, CMLInvalidRequestError, CMLNotReadyError, CMLOutcomeUnknownError
from lcm.cml.types import Credentials, DeregistrationResult, LicensePhase
from lcm.controllers.common.accounts import CmlAccounts
from lcm.controllers.worker.act.license_tasks import RETRY_AFTER, LicenseTasks, mask_secret
from lcm.controllers.worker.observe.cml_monitor import CmlMonitor
from lcm.controllers.worker.observe.observation import LicenseTaskState
from lcm.core import clock
from lcm.core.authorization import SendAuthorization, authorized
from tests.support.records.workers import a_worker
from tests.support.virtual.fake_cml import DEFAULT, UNREGISTERED, FakeCml, FakeSecrets, FakeServer

if TYPE_CHECKING:
    from tests.support.virtual.time import VirtualClock

HERE = "192.0.2.1"
TOKEN = "canary+Zm9vYmFy/0123456789=="
REGISTERED = replace(UNREGISTERED, registration="COMPLETED")


class Scene:
    """The license tasks of one worker on one server, and a monitor that listens to them."""

    def __init__(self) -> None:
        self.server = FakeServer(good_token=TOKEN, seconds=20)
        self.cml = FakeCml(**{HERE: self.server})
        self.cml.trust(HERE, self.server.certificate)
        self.secrets = FakeSecrets()
        self.secrets.tokens["w-1"] = TOKEN
        self.ended: list[tuple[str, LicenseTaskState]] = []
        accounts = CmlAccounts(self.secrets, DEFAULT)
        self.monitor = CmlMonitor(self.cml, accounts, lambda worker: worker.public_ip)
        self.tasks = LicenseTasks(
            self.cml,
            accounts,
            self.secrets,
            lambda worker: worker.public_ip,
            on_end=self.note_end,
            listener=self.monitor,
        )
        self.worker = a_worker(status="RUNNING", instance_id="i-1", public_ip=HERE)

    def note_end(self, worker_id: str) -> None:
        self.ended.append((worker_id, self.tasks.state(worker_id)))

    async def register(self, **options: Any) -> LicenseTaskState:
        self.tasks.register(self.worker, **options)
        return await self.end()

    async def deregister(self) -> LicenseTaskState:
        self.tasks.deregister(self.worker)
        return await self.end()

    async def end(self) -> LicenseTaskState:
        while self.tasks.state("w-1") is LicenseTaskState.RUNNING:
            await asyncio.sleep(1)
        return self.tasks.state("w-1")


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_registration_runs_in_the_background_and_calls_back_at_its_end(scene: Scene) -> None:
    assert scene.tasks.state("w-1") is LicenseTaskState.NONE
    assert scene.tasks.requested_at("w-1") is None
    scene.tasks.register(scene.worker)
    assert scene.tasks.state("w-1") is LicenseTaskState.RUNNING
    assert scene.tasks.requested_at("w-1") == clock.boottime()
    assert await scene.end() is LicenseTaskState.NONE
    assert scene.ended == [("w-1", LicenseTaskState.NONE)]
    assert scene.tasks.error("w-1") == ""
    await asyncio.sleep(6)
    assert scene.server.license.registration == "COMPLETED"


@pytest.mark.parametrize("task", ["register", "deregister"])
async def test_a_task_whose_process_was_suspended_sends_nothing(
    scene: Scene, virtual_clock: VirtualClock, task: str
) -> None:
    """controllers.md#authorization: another leader may have decided otherwise."""
    with authorized(SendAuthorization(clock.boottime(), 7.5)):
        getattr(scene.tasks, task)(scene.worker)
    virtual_clock.suspended += 60
    assert await scene.end() is LicenseTaskState.FAILED
    assert scene.tasks.error("w-1").startswith("not sent")
    assert not scene.server.calls


async def test_requested_at_is_when_the_call_ended(scene: Scene) -> None:
    began = clock.boottime()
    await scene.register()
    requested_at = scene.tasks.requested_at("w-1")
    assert requested_at is not None
    assert requested_at - began == pytest.approx(20.1, abs=0.1)


async def test_a_second_call_while_a_task_runs_does_nothing(scene: Scene) -> None:
    scene.tasks.register(scene.worker)
    await asyncio.sleep(5)
    scene.tasks.register(scene.worker)
    scene.tasks.deregister(scene.worker)
    await scene.end()
    assert scene.server.calls == {"register": 1}
    assert len(scene.ended) == 1


async def test_a_token_that_cannot_be_read_is_a_failure(scene: Scene) -> None:
    del scene.secrets.tokens["w-1"]
    assert await scene.register() is LicenseTaskState.FAILED
    assert scene.tasks.error("w-1") == "worker w-1 has no license token"
    assert scene.tasks.requested_at("w-1") is not None, "so that it is not requested again at once"
    assert not scene.server.calls


async def test_a_control_plane_that_is_away_is_a_failure_too(scene: Scene) -> None:
    scene.secrets.failure = UnreachableError("no connection")
    assert await scene.register() is LicenseTaskState.FAILED
    scene.secrets.failure = None
    await asyncio.sleep(RETRY_AFTER)
    assert await scene.register() is LicenseTaskState.NONE


async def test_a_server_that_refuses_is_a_failure_and_may_be_tried_again(scene: Scene) -> None:
    scene.server.failures["register"] = CMLInvalidRequestError(HERE, "HTTP 400: no such characters")
    assert await scene.register() is LicenseTaskState.REFUSED
    assert "no such characters" in scene.tasks.error("w-1")
    scene.server.failures.clear()
    await asyncio.sleep(RETRY_AFTER)
    assert await scene.register() is LicenseTaskState.NONE
    assert scene.tasks.error("w-1") == ""


async def test_a_lost_response_is_not_a_rejection(scene: Scene) -> None:
    scene.server.failures["register"] = CMLOutcomeUnknownError(HERE, "no complete response within 35 s")
    assert await scene.register() is LicenseTaskState.NONE
    assert "no complete response" in scene.tasks.error("w-1")
    assert scene.tasks.requested_at("w-1") is not None


async def test_a_registered_server_registers_again_only_on_request(scene: Scene) -> None:
    scene.server.license = REGISTERED
    assert await scene.register() is LicenseTaskState.FAILED
    await asyncio.sleep(RETRY_AFTER)
    assert await scene.register(reregister=True) is LicenseTaskState.NONE


async def test_a_refused_account_is_read_again_by_the_next_task(scene: Scene) -> None:
    scene.server.account = Credentials("ops", "own-pw")
    assert await scene.register() is LicenseTaskState.FAILED
    scene.secrets.accounts["w-1"] = scene.server.account
    await asyncio.sleep(RETRY_AFTER)
    assert await scene.register() is LicenseTaskState.NONE


async def test_a_worker_without_an_address_fails(scene: Scene) -> None:
    scene.worker = a_worker(instance_id="i-1")
    assert await scene.deregister() is LicenseTaskState.FAILED
    assert scene.tasks.error("w-1") == "the worker has no address"
    assert scene.cml.dialled == []


@pytest.mark.parametrize(
    ("registered", "outcome", "state"),
    [
        (True, DeregistrationResult.DONE, LicenseTaskState.RELEASED),
        (True, DeregistrationResult.LOCAL_ONLY, LicenseTaskState.LEAKED),
        (False, DeregistrationResult.DONE, LicenseTaskState.RELEASED),
    ],
)
async def test_results_of_a_deregistration(
    scene: Scene, registered: bool, outcome: DeregistrationResult, state: LicenseTaskState
) -> None:
    scene.server.license = REGISTERED if registered else UNREGISTERED
    scene.server.deregistration = outcome
    assert await scene.deregister() is state
    assert scene.ended == [("w-1", state)]


async def test_a_failed_deregistration_may_be_retried_but_not_at_once(scene: Scene) -> None:
    scene.server.license = REGISTERED
    scene.server.failures["deregister"] = CMLNotReadyError(HERE, "no response")
    assert await scene.deregister() is LicenseTaskState.FAILED
    assert "no response" in scene.tasks.error("w-1")
    scene.server.failures.clear()
    assert await scene.deregister() is LicenseTaskState.FAILED
    assert scene.server.calls["deregister"] == 1
    await asyncio.sleep(RETRY_AFTER)
    assert await scene.deregister() is LicenseTaskState.RELEASED
    assert [state for _, state in scene.ended] == [LicenseTaskState.FAILED, LicenseTaskState.RELEASED]


async def test_a_registration_that_may_still_start_is_not_deregistered_yet(scene: Scene) -> None:
    scene.server.registers_in = 60
    await scene.register()
    scene.server.license = UNREGISTERED  # what CML still reports a moment after it accepted the token
    assert await scene.deregister() is LicenseTaskState.FAILED
    assert "may still start" in scene.tasks.error("w-1")
    await asyncio.sleep(RETRY_AFTER)
    assert await scene.deregister() is LicenseTaskState.RELEASED


async def test_stop_during_a_call_cancels_it_and_drops_all(scene: Scene) -> None:
    before = asyncio.all_tasks()
    scene.tasks.register(scene.worker)
    other = a_worker(id="w-2", instance_id="i-2", public_ip=HERE)
    scene.tasks.deregister(other)
    await asyncio.sleep(5)
    assert scene.cml.busy == 2
    await scene.tasks.stop()
    assert asyncio.all_tasks() == before
    assert scene.cml.busy == 0
    assert scene.ended == []
    assert scene.tasks.state("w-1") is LicenseTaskState.NONE
    assert scene.tasks.requested_at("w-1") is None
    assert await scene.register() is LicenseTaskState.NONE, "the next term starts fresh"


async def test_a_deregistration_of_an_earlier_term_is_dropped(scene: Scene) -> None:
    await scene.deregister()
    await scene.tasks.stop()
    assert scene.tasks.state("w-1") is LicenseTaskState.NONE


async def test_a_task_of_another_instance_is_forgotten(scene: Scene) -> None:
    await scene.deregister()
    assert scene.tasks.state("w-1", "i-1") is LicenseTaskState.RELEASED
    assert scene.tasks.state("w-1", "i-2") is LicenseTaskState.NONE
    assert scene.tasks.state("w-1") is LicenseTaskState.NONE


async def test_a_running_task_of_another_instance_gives_way(scene: Scene) -> None:
    scene.tasks.register(scene.worker)
    await asyncio.sleep(5)
    scene.server.license = REGISTERED
    scene.tasks.deregister(a_worker(instance_id="i-2", public_ip=HERE, version=2))
    assert await scene.end() is LicenseTaskState.RELEASED
    assert scene.ended == [("w-1", LicenseTaskState.RELEASED)]


async def test_a_dropped_task_ends_without_a_callback(scene: Scene) -> None:
    before = asyncio.all_tasks()
    scene.tasks.register(scene.worker)
    await asyncio.sleep(5)
    scene.tasks.forget("w-1")
    scene.tasks.forget("w-9")
    await asyncio.sleep(60)
    assert asyncio.all_tasks() == before
    assert scene.ended == []
    assert scene.tasks.state("w-1") is LicenseTaskState.NONE


async def test_the_monitor_is_notified_of_what_outdates_its_state(scene: Scene) -> None:
    scene.server.seconds = 0.1
    await scene.monitor.query(scene.worker, max_age=0, with_license=True)
    await scene.register()
    progress = scene.monitor.last_observation(scene.worker).license
    assert progress is not None
    assert progress.phase is LicensePhase.REGISTERING
    await asyncio.sleep(30)
    progress = (await scene.monitor.query(scene.worker, max_age=0, with_license=True)).license
    assert progress is not None
    assert progress.phase is LicensePhase.REGISTERED
    await scene.deregister()
    assert scene.monitor.last_observation(scene.worker).license is None


@pytest.mark.parametrize("kind", [CMLInvalidRequestError, CMLAuthenticationError, CMLOutcomeUnknownError, RuntimeError])
async def test_the_token_shows_nowhere_even_if_the_server_quotes_it(scene: Scene, kind: Any) -> None:
    quoted = f"HTTP 400: token '{TOKEN}' is odd"
    scene.server.failures["register"] = kind(quoted) if kind is RuntimeError else kind(HERE, quoted)
    with capture_logs() as logs:
        await scene.register()
    text = scene.tasks.error("w-1") + str(logs) + repr(vars(scene.tasks)) + repr(scene.tasks._tasks_by_worker["w-1"])
    assert scene.tasks.error("w-1")
    assert TOKEN not in text


async def test_a_text_that_was_cut_off_within_the_token_shows_no_part_of_it(scene: Scene) -> None:
    token = await scene.secrets.license_token("w-1")
    assert mask_secret(f"bad token {TOKEN[:12]}…", token) == "bad token ***"
    assert mask_secret(f"{TOKEN} or {TOKEN}!", token) == "*** or ***!"
    assert mask_secret("nothing of it…", token) == "nothing of it…"
