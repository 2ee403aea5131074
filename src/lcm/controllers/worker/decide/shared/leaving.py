"""Steps that several statuses have in common: to stop, to terminate, and to follow what EC2 shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cloud.types import InstanceState
from lcm.controllers.common.actions import Nature
from lcm.controllers.worker.decide.shared.conditions import (
    NOT_DRAINING,
    NOT_STUCK,
    NOTHING_OF_CML,
    SOON,
    STATUS_OF,
    instance_ready,
)
from lcm.controllers.worker.decide.shared.instance import instance_lost, shutting_down
from lcm.controllers.worker.decision import ChangeInstance, CloudCall, WriteStatus, wait
from lcm.controllers.worker.observe.observation import Visibility
from lcm.model.worker.status import DesiredStatus, WorkerStatus

if TYPE_CHECKING:
    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.controllers.worker.policy import Policy
    from lcm.model.worker.record import Worker


def terminate(worker: Worker, seen: Observation, policy: Policy) -> Decision:
    """TERMINATED is desired: enter TERMINATING, whose handler gives the licence back first; gone is gone."""
    if worker.instance_id is None or seen.sight.gone:
        return instance_lost(worker, seen, policy)
    write = WriteStatus(WorkerStatus.TERMINATING, "it is to be terminated", Nature.INTENT)
    said = (instance_ready(False, "Terminating"), NOT_DRAINING, NOT_STUCK)
    return wait("terminate.begin", "it is to be terminated", write, after=0.0, conditions=said)


def stop(reason: str, *before: WriteStatus) -> Decision:
    """STOPPED is desired and the instance runs: write that down and stop it."""
    write = WriteStatus(WorkerStatus.STOPPING, reason, Nature.INTENT)
    said = (instance_ready(False, "Stopping"), *NOTHING_OF_CML, NOT_DRAINING, NOT_STUCK)
    return wait("stop.begin", reason, *before, write, ChangeInstance(CloudCall.STOP), after=SOON, conditions=said)


def not_seen(seen: Observation) -> Decision:
    """Nothing can be concluded from not seeing an instance."""
    sight = seen.sight
    if sight.visibility is Visibility.NO_LOOK:
        reason = f"EC2 could not be asked: {sight.trouble}" if sight.trouble else "EC2 has not been looked at yet"
        return wait("look.none", reason)
    return wait("look.not_visible", "EC2 does not show the instance; that alone does not mean that it is gone")


def elsewhere(worker: Worker, seen: Observation, policy: Policy) -> Decision | None:
    """What EC2 shows that no status expects: nothing, an end, or a state nobody knows. None: something else."""
    state = seen.sight.state
    if seen.sight.gone:
        return instance_lost(worker, seen, policy)
    if state is None:
        return not_seen(seen)
    if state is InstanceState.SHUTTING_DOWN:
        return shutting_down(worker, seen)
    return unknown_state(seen) if state is InstanceState.UNKNOWN else None


def unknown_state(seen: Observation) -> Decision:
    """EC2 shows a state that nobody knows."""
    reason = f"EC2 shows a state that nobody knows {seen.sight.state_reason}".rstrip()
    write = WriteStatus(WorkerStatus.UNKNOWN, reason)
    return wait("drift.unknown", reason, write, after=SOON, conditions=NOTHING_OF_CML, drift=seen.sight.word)


def follow(worker: Worker, seen: Observation, *, expected: bool = False) -> Decision:
    """Record the status that fits what EC2 shows. A stop that nobody here asked for is counted as drift."""
    state = seen.sight.state
    assert state is not None
    status = STATUS_OF[state]
    stops = status in (WorkerStatus.STOPPING, WorkerStatus.STOPPED)
    drifted = stops and not expected and worker.desired_status is DesiredStatus.RUNNING
    reason = f"EC2 shows the instance as {state.value}"
    fields: dict[str, object] = {"drift": True} if drifted and not worker.drifted else {}
    said = (instance_ready(False, state.value.capitalize(), reason), *NOTHING_OF_CML, NOT_DRAINING)
    write = WriteStatus(status, reason, Nature.RECORD, fields)
    return wait(f"drift.{state.value}", reason, write, after=0.0 if stops else SOON, conditions=said, drift=state.value)
