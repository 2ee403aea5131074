"""What every command does in every status, written by hand from the contract."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.workers.lifecycle import cancel_drain, drain, retry, start, stop, terminate, trust
from lcm.model.problems import ProblemCode
from lcm.model.worker.record import LaunchIntent, Worker
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.support.records.workers import NOW, a_worker

LATER = NOW + timedelta(minutes=5)
REJECTED = None


def expected_start(status: str, desired: str) -> tuple[str, str] | None:
    if desired == "TERMINATED" or status in ("FAILED", "TERMINATED"):
        return REJECTED
    return ("RUNNING" if status == "DRAINING" else status, "RUNNING")


def expected_stop(status: str, desired: str) -> tuple[str, str] | None:
    if desired == "TERMINATED" or status in ("FAILED", "TERMINATED"):
        return REJECTED
    return ("STOPPING" if status == "DRAINING" else status, "STOPPED")


def expected_terminate(status: str, desired: str) -> tuple[str, str] | None:
    return (status, desired if status == "TERMINATED" else "TERMINATED")


def expected_drain(status: str, desired: str) -> tuple[str, str] | None:
    if desired == "TERMINATED" or status not in ("RUNNING", "DRAINING"):
        return REJECTED
    return ("DRAINING", desired if status == "DRAINING" else "STOPPED")


def expected_cancel_drain(status: str, desired: str) -> tuple[str, str] | None:
    return ("RUNNING", "RUNNING") if status == "DRAINING" and desired != "TERMINATED" else REJECTED


def expected_retry(status: str, desired: str) -> tuple[str, str] | None:
    return ("PENDING", desired) if status == "FAILED" and desired != "TERMINATED" else REJECTED


Command = Callable[[Worker, datetime], Worker]
Expected = Callable[[str, str], tuple[str, str] | None]
COMMANDS: tuple[tuple[Command, Expected], ...] = (
    (start, expected_start),
    (stop, expected_stop),
    (terminate, expected_terminate),
    (drain, expected_drain),
    (cancel_drain, expected_cancel_drain),
    (retry, expected_retry),
)
REPEATABLE: tuple[Command, ...] = (start, stop, terminate, drain)  # the others are rejected when repeated


@pytest.mark.parametrize(("status", "desired"), list(itertools.product(WorkerStatus, DesiredStatus)))
@pytest.mark.parametrize(
    ("command", "expected"), COMMANDS, ids=["start", "stop", "terminate", "drain", "cancel-drain", "retry"]
)
def test_every_command_in_every_state(
    command: Command, expected: Expected, status: WorkerStatus, desired: DesiredStatus
) -> None:
    worker = a_worker(status=status, desired_status=desired)
    outcome = expected(status.value, desired.value)
    if outcome is REJECTED:
        with pytest.raises(ProblemError) as caught:
            command(worker, LATER)
        assert caught.value.code is ProblemCode.NOT_POSSIBLE_NOW
        assert len(caught.value.detail) > 20
        return
    after = command(worker, LATER)
    assert (after.status.value, after.desired_status.value) == outcome
    moved = outcome != (status.value, desired.value)
    assert (after.version - worker.version, after.generation - worker.generation) == (int(moved), int(moved))
    assert (after is worker) == (not moved)
    if command in REPEATABLE:
        assert command(after, LATER + timedelta(minutes=1)) is after


def test_a_pause_and_a_resume_by_hand_are_counted_and_dated() -> None:
    running = a_worker(status="RUNNING")
    paused = stop(running, LATER, "over for today")
    assert (paused.manual_pause_count, paused.auto_pause_count) == (1, 0)
    assert (paused.last_paused_at, paused.pause_reason) == (LATER, "over for today")
    assert stop(paused, LATER).manual_pause_count == 1
    resumed = start(paused, LATER)
    assert (resumed.manual_resume_count, resumed.pause_reason) == (1, None)
    assert start(resumed, LATER).manual_resume_count == 1


def test_a_resume_before_the_worker_has_left_running_is_dated() -> None:
    """No transition follows that would date it, and without a date a policy would stop the worker again at once."""
    idle = a_worker(status="RUNNING", last_resumed_at=NOW - timedelta(hours=5))
    resumed = start(stop(idle, NOW), LATER)
    assert (resumed.status, resumed.last_resumed_at) == (WorkerStatus.RUNNING, LATER)
    assert start(idle, LATER) is idle, "nothing was resumed"


def test_a_cancelled_drain_counts_as_an_entry_to_running() -> None:
    draining = drain(a_worker(status="RUNNING"), NOW)
    assert draining.desired_status is DesiredStatus.STOPPED
    for command in (cancel_drain, start):
        running = command(draining, LATER)
        assert running.status is WorkerStatus.RUNNING
        assert (running.last_resumed_at, running.status_since) == (LATER, LATER)


def test_scale_downs_drain_counts_as_automatic() -> None:
    drained = drain(a_worker(status="RUNNING"), LATER, "idle", by_policy=True)
    assert (drained.auto_pause_count, drained.manual_pause_count, drained.pause_reason) == (1, 0, "idle")


def test_retry_goes_on_with_the_instance_if_there_is_one() -> None:
    assert retry(a_worker(status="FAILED", instance_id="i-1"), LATER).status is WorkerStatus.STARTING


def test_retry_without_an_instance_clears_the_intent_for_the_next_attempt() -> None:
    intent = LaunchIntent(attempt=2, parameters={"a": 1}, stored_at=NOW)
    again = retry(a_worker(status="FAILED", launch_attempt=2, launch_intent=intent), LATER)
    assert (again.status, again.launch_intent, again.launch_attempt) == (WorkerStatus.PENDING, None, 2)


def test_the_presented_certificate_is_trusted_and_nothing_else_changes() -> None:
    """cloud-and-cml.md#certificates: exactly the certificate that was shown is accepted."""
    worker = a_worker(cml_certificate="a0" * 32, cml_certificate_presented="b0" * 32)
    after = trust(worker, NOW)
    assert (after.cml_certificate, after.cml_certificate_presented) == ("b0" * 32, None)
    assert (after.version, after.generation) == (worker.version + 1, worker.generation)
    with pytest.raises(ProblemError, match="no certificate to trust"):
        trust(after, NOW)
