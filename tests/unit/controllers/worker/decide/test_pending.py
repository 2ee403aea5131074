"""PENDING: an instance is launched exactly once, and earlier launches are settled first.

Reference: worker-lifecycle.md#launching.
"""

from __future__ import annotations

from typing import Any

import pytest

from lcm.cloud.errors import (
    CloudAccessDeniedError,
    CloudError,
    CloudThrottledError,
    InsufficientCapacityError,
    InvalidCloudRequestError,
    QuotaExceededError,
)
from lcm.cloud.types import Instance, InstanceState
from lcm.controllers.worker.decision import Launch, StoreLaunchIntent, WriteStatus
from lcm.controllers.worker.observe.observation import LaunchCalls, LaunchedInstances, LaunchResolution
from lcm.core.controller.resources import Outcome
from lcm.model.worker.record import Hold, LaunchIntent, Worker
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.support.records.workers import NOW
from tests.unit.controllers.worker.decide.cases import (
    BOOTTIME,
    IMAGE,
    KIND,
    calls,
    decided,
    notation,
    observing_no_launch,
    parameters,
    seconds_ago,
    statuses,
    worker_in,
)

DEADLINE = 1_000.0
SETTLED = DEADLINE + 300
STORED = parameters(attempt=2, subnet_id="subnet-of-then")
LIVE = [state for state in InstanceState if state.live]
NOT_YET = LaunchCalls(deadline=BOOTTIME, uncertain=True)
"""A call may still be in flight, or its instance not be visible yet."""


def intending(desired: str = "RUNNING", **changes: Any) -> Worker:
    """A worker with a stored launch intent."""
    intent = LaunchIntent(attempt=2, parameters=STORED.to_json(), stored_at=seconds_ago(30))
    return worker_in("PENDING", desired, **{"launch_intent": intent, "launch_attempt": 2, **changes})


def found(*states: InstanceState, complete: bool = True, began_at: float = BOOTTIME - 1) -> LaunchedInstances:
    instances = tuple(
        Instance(f"i-{number}", state, KIND, IMAGE, seconds_ago(20)) for number, state in enumerate(states)
    )
    return LaunchedInstances(complete, instances, began_at)


def writes(decision_of: Worker, **observed: Any) -> list[WriteStatus]:
    decision = decided(decision_of, observing_no_launch(**observed))
    return [action for action in decision.actions if isinstance(action, WriteStatus)]


# A first call


@pytest.mark.parametrize("before", [0, 3])
def test_the_intent_of_the_next_attempt_is_stored_before_the_call(before: int) -> None:
    """worker-lifecycle.md#launching: resolved once per attempt and stored before the call."""
    wanted = parameters(before + 1)
    decision = decided(
        worker_in("PENDING", launch_attempt=before), observing_no_launch(resolution=LaunchResolution(wanted))
    )
    intent, launch = (action for action in decision.actions if isinstance(action, StoreLaunchIntent | Launch))
    assert intent == StoreLaunchIntent(before + 1, wanted)
    assert launch == Launch(before + 1, wanted)


def test_an_unrecorded_instance_is_adopted_before_another_is_launched() -> None:
    """worker-lifecycle.md#launching: search for a live instance of this worker, any attempt, by tag and adopt it."""
    decision = decided(worker_in("PENDING"), observing_no_launch(launched_instances=found(InstanceState.RUNNING)))
    assert statuses(decision)[:1] == [WorkerStatus.PROVISIONING]
    assert not calls(decision)


def test_what_can_never_be_launched_fails_with_the_reason() -> None:
    """worker-lifecycle.md#launching: template unknown, region not configured."""
    error = LaunchResolution(error="template small does not exist", permanent=True)
    decision = decided(worker_in("PENDING"), observing_no_launch(resolution=error))
    assert notation(decision) == "FAILED"
    assert error.error in decision.reason


def test_a_failed_report_is_retried() -> None:
    """worker-lifecycle.md#launching: only what is refused for good is FAILED."""
    error = LaunchResolution(error="images cannot be read now")
    decision = decided(worker_in("PENDING"), observing_no_launch(resolution=error))
    assert notation(decision) == "wait"
    assert decision.outcome is Outcome.RETRY


def test_desired_stopped_nothing_is_launched_and_nothing_fails() -> None:
    """worker-lifecycle.md#launching: PENDING with desired STOPPED waits, without an intent."""
    error = LaunchResolution(error="template small does not exist", permanent=True)
    assert notation(decided(worker_in("PENDING", "STOPPED"), observing_no_launch(resolution=error))) == "rest"


# With a stored intent


@pytest.mark.parametrize("desired", DesiredStatus)
@pytest.mark.parametrize("state", LIVE)
def test_what_was_launched_is_adopted_whatever_is_desired(desired: DesiredStatus, state: InstanceState) -> None:
    """worker-lifecycle.md#launching items 3 and 4: found is PROVISIONING, and stopped or terminated from there."""
    worker = intending(desired)
    written = writes(worker, launched_instances=found(state), calls=NOT_YET)
    assert written[0].status is WorkerStatus.PROVISIONING
    assert written[0].fields["instance_id"] == "i-0"
    decision = decided(worker, observing_no_launch(launched_instances=found(state), calls=NOT_YET))
    assert not {"launch", "intent", "terminate", "stop"} & set(calls(decision))


def test_adopting_is_recording() -> None:
    """worker-lifecycle.md#hold: under a hold, recording what already happened goes on."""
    held = intending(hold=Hold(reason="maintenance", by="anna", since=NOW))
    written = writes(held, launched_instances=found(InstanceState.PENDING), calls=NOT_YET)
    assert [write.status for write in written] == [WorkerStatus.PROVISIONING]


def test_under_a_hold_nothing_is_launched_again() -> None:
    """worker-lifecycle.md#hold: a hold stops cloud changes."""
    held = intending(hold=Hold(reason="maintenance", by="anna", since=NOW))
    assert not calls(decided(held, observing_no_launch(calls=NOT_YET)))


def test_of_what_was_launched_the_one_that_lives_is_adopted() -> None:
    """worker-lifecycle.md#launching: a *live* instance."""
    launched_instances = found(InstanceState.TERMINATED, InstanceState.SHUTTING_DOWN, InstanceState.PENDING)
    assert writes(intending(), launched_instances=launched_instances, calls=NOT_YET)[0].fields["instance_id"] == "i-2"


def test_a_replay_has_exactly_the_stored_parameters() -> None:
    """worker-lifecycle.md#launching items 1 and 3: a replay uses the stored parameters, and a
    timeout never starts a new attempt.
    """
    other = LaunchResolution(parameters(attempt=2, subnet_id="subnet-of-now", image_id="ami-of-now"))
    decision = decided(intending(), observing_no_launch(resolution=other, calls=NOT_YET))
    assert [action for action in decision.actions if isinstance(action, Launch)] == [Launch(2, STORED)]
    assert not [action for action in decision.actions if isinstance(action, StoreLaunchIntent)]
    assert not statuses(decision)


def test_a_launch_of_a_newer_version_is_not_repeated_but_settled() -> None:
    """worker-lifecycle.md#launching: a call without the parameter that only the newer version knows is another call."""
    intent = LaunchIntent(
        attempt=2, parameters={**STORED.to_json(), "of_a_newer_version": True}, stored_at=seconds_ago(30)
    )
    worker = intending(launch_intent=intent)
    waits = decided(worker, observing_no_launch(launched_instances=found(), calls=NOT_YET))
    assert (waits.rule, waits.actions) == ("pending.settling", ())
    (adopted,) = writes(worker, launched_instances=found(InstanceState.RUNNING), calls=NOT_YET)
    assert adopted.status is WorkerStatus.PROVISIONING
    (settled,) = writes(
        worker, launched_instances=found(began_at=SETTLED + 1), calls=LaunchCalls(deadline=DEADLINE, uncertain=True)
    )
    assert (settled.status, settled.fields) == (WorkerStatus.PENDING, {"launch_intent": None})


def test_a_replay_needs_no_template_any_more() -> None:
    """worker-lifecycle.md#launching: settled before any FAILED."""
    gone = LaunchResolution(error="template small does not exist", permanent=True)
    assert notation(decided(intending(), observing_no_launch(resolution=gone, calls=NOT_YET))) == "+launch"


@pytest.mark.parametrize("desired", DesiredStatus)
@pytest.mark.parametrize(
    "launched_instances", [None, LaunchedInstances(complete=False, began_at=BOOTTIME - 1)], ids=["none", "incomplete"]
)
@pytest.mark.parametrize("deadline", [DEADLINE, BOOTTIME], ids=["long over", "still running"])
def test_an_incomplete_search_decides_nothing(
    desired: DesiredStatus, launched_instances: LaunchedInstances | None, deadline: float
) -> None:
    """worker-lifecycle.md#launching, cloud-and-cml.md: an incomplete sweep proves no absence."""
    observed = observing_no_launch(launched_instances=launched_instances, calls=LaunchCalls(deadline=deadline))
    assert notation(decided(intending(desired), observed)) == "wait"


@pytest.mark.parametrize(
    ("began_at", "now", "settled"),
    [
        (SETTLED - 1, SETTLED, False),
        (SETTLED - 1, BOOTTIME, False),
        (DEADLINE + 1, BOOTTIME, False),
        (SETTLED + 1, SETTLED + 2, True),
    ],
    ids=["too early", "an early search", "a search right after the call", "a search after the deadline"],
)
def test_desired_terminated_it_waits_until_certainly_nothing_was_launched(
    began_at: float, now: float, *, settled: bool
) -> None:
    """worker-lifecycle.md#launching: absent from complete sweeps until 5 minutes after the last call's deadline."""
    observed = observing_no_launch(
        launched_instances=found(began_at=began_at), calls=LaunchCalls(deadline=DEADLINE), boottime=now
    )
    assert notation(decided(intending("TERMINATED"), observed)) == ("TERMINATED" if settled else "wait")


def test_desired_stopped_it_is_settled_and_rests_without_an_intent() -> None:
    """worker-lifecycle.md#launching: PENDING with desired STOPPED waits, without an intent."""
    assert notation(decided(intending("STOPPED"), observing_no_launch(calls=NOT_YET))) == "wait"
    observed: dict[str, Any] = {
        "launched_instances": found(began_at=SETTLED + 1),
        "calls": LaunchCalls(deadline=DEADLINE),
    }
    (write,) = writes(intending("STOPPED"), **observed, boottime=SETTLED + 2)
    assert write.status is WorkerStatus.PENDING
    assert "launch_intent" in write.fields
    assert write.fields["launch_intent"] is None


@pytest.mark.parametrize("desired", ["STOPPED", "TERMINATED"])
@pytest.mark.parametrize("deadline", [DEADLINE, BOOTTIME])
@pytest.mark.parametrize("uncertain", [False, True])
def test_only_workers_desired_running_are_launched(desired: str, deadline: float, *, uncertain: bool) -> None:
    """worker-lifecycle.md#decisions: every handler checks desired_status first."""
    observed = observing_no_launch(calls=LaunchCalls(deadline=deadline, uncertain=uncertain))
    assert not calls(decided(intending(desired), observed))


@pytest.mark.parametrize("kind", [CloudAccessDeniedError, QuotaExceededError, InvalidCloudRequestError])
def test_what_is_refused_for_good_fails(kind: type[CloudError]) -> None:
    """worker-lifecycle.md#launching: bad parameters, no permission, quota."""
    refused = LaunchCalls(deadline=DEADLINE, uncertain=False, refusal=kind("no such thing", operation="RunInstances"))
    decision = decided(intending(), observing_no_launch(calls=refused))
    assert statuses(decision)[-1:] == [WorkerStatus.FAILED]
    assert "no such thing" in decision.reason
    assert not calls(decision)


@pytest.mark.parametrize("kind", [CloudAccessDeniedError, QuotaExceededError, InvalidCloudRequestError])
def test_a_rejection_after_a_call_of_unknown_outcome_is_settled_first(kind: type[CloudError]) -> None:
    """worker-lifecycle.md#launching: settled first, before any FAILED."""
    refused = LaunchCalls(deadline=BOOTTIME, uncertain=True, refusal=kind("no", operation="RunInstances"))
    assert WorkerStatus.FAILED not in statuses(decided(intending(), observing_no_launch(calls=refused)))


@pytest.mark.parametrize("kind", [InsufficientCapacityError, CloudThrottledError])
def test_what_may_work_later_stays_pending(kind: type[CloudError]) -> None:
    """worker-lifecycle.md#launching: capacity or throttling stay PENDING."""
    refused = LaunchCalls(deadline=DEADLINE, uncertain=False, refusal=kind("not now", operation="RunInstances"))
    decision = decided(intending(), observing_no_launch(calls=refused))
    assert set(statuses(decision)) <= {WorkerStatus.PENDING}
    assert decision.outcome is not Outcome.SKIP
