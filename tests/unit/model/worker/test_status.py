"""The table of allowed transitions, compared with one written by hand from the specification."""

from __future__ import annotations

import itertools

import pytest

from lcm.model.worker.status import (
    STATUSES,
    IllegalWorkerTransitionError,
    WorkerStatus,
    check_transition,
    is_allowed_transition,
)

BY_HAND = """
PENDING: PROVISIONING FAILED TERMINATED
PROVISIONING: STARTING FAILED TERMINATING STOPPING STOPPED TERMINATED PENDING UNKNOWN
STARTING: RUNNING FAILED STOPPING TERMINATING STOPPED TERMINATED PENDING UNKNOWN
RUNNING: STOPPING TERMINATING DRAINING PROVISIONING STOPPED TERMINATED PENDING UNKNOWN
DRAINING: STOPPING RUNNING TERMINATING STOPPED TERMINATED UNKNOWN
STOPPING: STOPPED RUNNING TERMINATING TERMINATED PENDING UNKNOWN
STOPPED: STARTING RUNNING TERMINATING TERMINATED PENDING UNKNOWN
TERMINATING: TERMINATED UNKNOWN
FAILED: STARTING PENDING TERMINATING TERMINATED
UNKNOWN: PROVISIONING RUNNING STOPPING STOPPED TERMINATING TERMINATED STARTING PENDING
TERMINATED:
"""


def expected() -> dict[str, set[str]]:
    rows = (line.split(":") for line in BY_HAND.strip().splitlines())
    return {source: set(targets.split()) for source, targets in rows}


@pytest.mark.parametrize(("source", "target"), list(itertools.product(WorkerStatus, WorkerStatus)))
def test_every_pair(source: WorkerStatus, target: WorkerStatus) -> None:
    """worker-lifecycle.md#statuses: the arrows of the table."""
    allowed = target.value in expected()[source.value] or source is target
    assert is_allowed_transition(source, target) == allowed
    if allowed:
        check_transition(source, target)
    else:
        with pytest.raises(IllegalWorkerTransitionError, match=f"cannot go from {source} to {target};"):
            check_transition(source, target)


def test_the_table_covers_every_status() -> None:
    assert set(STATUSES) == set(WorkerStatus)
    assert len(WorkerStatus) == 11


def test_the_message_lists_the_allowed_statuses() -> None:
    with pytest.raises(IllegalWorkerTransitionError, match="next statuses: FAILED, PROVISIONING, TERMINATED"):
        check_transition(WorkerStatus.PENDING, WorkerStatus.RUNNING)
    with pytest.raises(IllegalWorkerTransitionError, match="the status is final"):
        check_transition(WorkerStatus.TERMINATED, WorkerStatus.RUNNING)
