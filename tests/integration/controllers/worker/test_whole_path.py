"""The lifecycle of a worker on real parts, and leaders that are killed or stopped at every step of it."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.real.worker_platform import PATIENCE, RealPlatform, Step, around, real_platform, terms
from tests.support.servers.processes import LcmProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.network.http_gate import Exchange

pytestmark = pytest.mark.timeout(600)

LAUNCH = [*around("plane", "launch"), *around("aws", "RunInstances"), *around("plane", "status PROVISIONING")]
TERMINATION = [
    *around("plane", "status TERMINATING"),
    *around("cml", "deregistration"),
    *around("aws", "TerminateInstances"),
    *around("plane", "status TERMINATED"),
]
UP = ["PENDING", "PROVISIONING", "STARTING", "RUNNING"]
DOWN = ["STOPPING", "STOPPED"]
UP_AGAIN = ["STARTING", "RUNNING"]
END = ["TERMINATING", "TERMINATED"]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPlatform]:
    """Two controllers; a killed one is started again."""
    with real_platform(tmp_path_factory.mktemp("platform"), "one", "two") as platform:
        yield platform


@pytest.fixture(autouse=True)
def _calm(platform: RealPlatform) -> Iterator[None]:
    """Release what a test left held or stopped."""
    yield
    platform.calm()


@pytest.fixture(scope="module")
def third(platform: RealPlatform) -> None:
    """A third controller, so that a test does not wait for one that the previous test killed."""
    platform.start_controller("three")


@pytest.fixture(scope="module")
def licensed(platform: RealPlatform) -> list[str]:
    """Running, licensed workers, one for each test that terminates one: created at once to save time."""
    made = [platform.create(license_token="good-token") for _ in TERMINATION]
    for worker_id in made:
        platform.until(worker_id, status="RUNNING", license_status="registered")
    return made


def test_from_creation_to_termination(platform: RealPlatform) -> None:
    """One instance from the beginning to the end, and the license is deregistered.

    Reference: worker-lifecycle.md, idle-and-scaling.md.
    """
    platform.until_led()
    others = set(platform.machines.account.holders)
    worker_id = platform.create(license_token="good-token", idle_detection_enabled=True)
    instance_id = platform.until(worker_id, status="RUNNING")["instance_id"]
    platform.until(worker_id, ready=True)
    platform.until(worker_id, license_status="registered")
    assert platform.machines.holds_license(instance_id)

    platform.change_settings(idle={"worker_idle_timeout_minutes": 1, "worker_auto_pause_enabled": False})
    platform.until_condition(worker_id, "Idle", "activity")
    assert platform.worker(worker_id)["desired_status"] == "RUNNING"
    platform.change_settings(idle={"worker_auto_pause_enabled": True})
    paused = platform.until(worker_id, status="STOPPED")
    assert (paused["desired_status"], paused["pause_reason"]) == ("STOPPED", "idle_timeout")
    assert (paused["auto_pause_count"], paused["public_ip"]) == (1, None)
    assert platform.machines.holds_license(instance_id), "it stays on the disk"

    platform.change_settings(idle={"worker_idle_timeout_minutes": None, "worker_auto_pause_enabled": None})
    platform.command(worker_id, "start")
    platform.until(worker_id, status="RUNNING", ready=True)
    lab_id = platform.loop.run(platform.machines.start_user_lab(instance_id))
    wait_until(lambda: platform.loop.run(platform.machines.nodes_running(instance_id)) > 0, "nodes run")
    platform.command(worker_id, "drain")
    platform.until_condition(worker_id, "Draining", "nodes run on the worker")
    assert platform.worker(worker_id)["status"] == "DRAINING"
    platform.loop.run(platform.machines.person_stops_lab(instance_id, lab_id))
    platform.until(worker_id, status="STOPPED")

    platform.command(worker_id, "start")
    platform.until(worker_id, status="RUNNING", ready=True)
    platform.command(worker_id, "terminate")
    ended = platform.until(worker_id, status="TERMINATED")
    assert ended["license_status"] == "deregistered"
    assert platform.launched_for(worker_id) == [instance_id]
    assert platform.aws.state(instance_id) == "terminated"
    assert platform.machines.times_given_back(instance_id) == 1
    assert set(platform.machines.account.holders) <= others
    assert platform.history(worker_id) == [*UP, *DOWN, *UP_AGAIN, "DRAINING", *DOWN, *UP_AGAIN, *END]
    audits = platform.audits(worker_id)
    requested = ["created", "launch_intended", "provisioned", "auto_paused", "start", "drain", "start", "terminate"]
    assert [action for action in audits if action in requested] == requested
    assert "license_leaked" not in audits


@pytest.mark.usefixtures("third")
@pytest.mark.parametrize("step", LAUNCH, ids=str)
def test_a_leader_killed_in_a_launch_leaves_one_instance(platform: RealPlatform, step: Step) -> None:
    """Never two instances for one worker, and none forgotten, whatever crashes in between.

    Reference: worker-lifecycle.md#launching.
    """
    platform.until_led()
    hold = platform.hold(step)
    worker_id = platform.create()
    platform.kill_at(hold)
    worker = platform.until(worker_id, status="RUNNING")
    assert platform.launched_for(worker_id) == [worker["instance_id"]]
    assert platform.aws.state(worker["instance_id"]) == "running"
    assert worker["launch_attempt"] == 1
    assert platform.history(worker_id) == UP
    audits = platform.audits(worker_id)
    assert audits.count("launch_intended") == 1
    assert audits.count("provisioned") == 1


@pytest.mark.usefixtures("third")
@pytest.mark.parametrize("step", TERMINATION, ids=str)
def test_after_a_leader_is_killed_in_a_termination_the_license_is_deregistered_once(
    platform: RealPlatform, licensed: list[str], step: Step
) -> None:
    """The license is deregistered before the instance ends, by whichever leader, and nothing is left.

    Reference: worker-lifecycle.md#terminating.
    """
    platform.until_led()
    worker_id = licensed.pop()
    instance_id = platform.worker(worker_id)["instance_id"]
    assert platform.machines.holds_license(instance_id)
    hold = platform.hold(step, instance_id)
    platform.command(worker_id, "terminate")
    platform.kill_at(hold)
    ended = platform.until(worker_id, status="TERMINATED")
    assert platform.launched_for(worker_id) == [instance_id]
    assert platform.aws.state(instance_id) == "terminated"
    assert not platform.machines.holds_license(instance_id)
    assert platform.machines.times_given_back(instance_id) == 1
    assert ended["license_status"] == "deregistered"
    assert platform.history(worker_id) == [*UP, *END]
    assert "license_leaked" not in platform.audits(worker_id)


def continued(process: LcmProcess) -> None:
    """Resume the process, and wait until it has dropped all its work as a leader."""

    def calm() -> int:
        return len(process.logged("standing by")) + len(process.logged("leadership won"))

    before, lost = calm(), len(process.logged("leadership lost"))
    process.signal(signal.SIGCONT)
    wait_until(lambda: len(process.logged("leadership lost")) > lost, "it has noticed that it does not lead", PATIENCE)
    wait_until(lambda: calm() > before, "it campaigns again", PATIENCE)


def launches(platform: RealPlatform, worker_id: str, by: LcmProcess) -> list[Exchange]:
    requested = platform.aws_gate.of(lambda one: one.operation == "RunInstances" and worker_id in one.form.values())
    return [one for one in requested if platform.sender(one) is by]


@pytest.mark.parametrize("step", [Step("plane", "launch", True), Step("aws", "RunInstances", False)], ids=str)
def test_a_leader_stopped_when_it_is_about_to_launch_launches_no_second_instance(
    platform: RealPlatform, step: Step
) -> None:
    """Such a call starts only while the lease outlasts it; §1.3: one that was sent before is the same call.

    Reference: controllers.md.
    """
    platform.until_led()
    hold = platform.hold(step)
    worker_id = platform.create()
    old = platform.sender(hold.wait())
    old.signal(signal.SIGSTOP)
    sent = len(launches(platform, worker_id, old))
    platform.until_another_leads(old)
    worker = platform.until(worker_id, status="RUNNING")
    hold.let_go()
    continued(old)
    assert len(launches(platform, worker_id, old)) == sent
    assert platform.launched_for(worker_id) == [worker["instance_id"]]
    assert platform.worker(worker_id)["status"] == "RUNNING"
    assert platform.history(worker_id) == UP


def test_a_leader_stopped_when_it_is_about_to_write_is_refused(platform: RealPlatform) -> None:
    """The control plane refuses terms older than the newest; nothing of the old leader is taken any more.

    Reference: controllers.md.
    """
    platform.until_led()
    hold = platform.hold(Step("plane", "status PROVISIONING", after=False))
    worker_id = platform.create()
    late = hold.wait()
    assert late is not None
    old = platform.sender(late)
    old.signal(signal.SIGSTOP)
    heir = platform.until_another_leads(old)
    worker = platform.until(worker_id, status="RUNNING")
    requested = len(platform.plane_gate.exchanges)
    hold.let_go()
    assert (late.status, late.response_json["code"]) == (409, "stale_leader")
    continued(old)
    accepted = [one for one in platform.plane_gate.exchanges[requested:] if one.term == late.term and one.status < 400]
    assert not accepted
    assert late.term < max(terms(heir))
    assert platform.worker(worker_id)["instance_id"] == worker["instance_id"]
    assert platform.launched_for(worker_id) == [worker["instance_id"]]
    assert platform.history(worker_id) == UP


def test_no_worker_was_imported_and_nothing_is_left_over(platform: RealPlatform) -> None:
    """Whatever was killed, discovery has imported no instance of ours, and every instance has its worker.

    Reference: discovery.md.
    """
    platform.until(platform.create(), status="RUNNING")
    workers = platform.ask("GET", "/api/workers", params={"limit": 500}).json()["items"]
    assert {worker["origin"] for worker in workers} <= {"created"}
    living = sorted(worker["instance_id"] for worker in workers if worker["status"] != "TERMINATED")
    assert asyncio.run(platform.aws.live_instances()) == living
