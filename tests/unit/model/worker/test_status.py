"""The table of legal transitions, checked against one written by hand from the specification."""

from __future__ import annotations

import itertools

import pytest

from lcm.model.worker.status import (
    ALLOWED_TRANSITIONS,
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
    """Seed 000 §1: the arrows, and what SPEC adds to them."""
    legal = target.value in expected()[source.value] or source is target
    assert is_allowed_transition(source, target) == legal
    if legal:
        check_transition(source, target)
    else:
        with pytest.raises(IllegalWorkerTransitionError, match=f"{source} cannot become {target}"):
            check_transition(source, target)


def test_the_table_covers_every_status() -> None:
    assert set(ALLOWED_TRANSITIONS) == set(WorkerStatus)
    assert len(WorkerStatus) == 11


def test_the_message_says_what_would_be_possible() -> None:
    with pytest.raises(IllegalWorkerTransitionError, match="can become FAILED, PROVISIONING, TERMINATED"):
        check_transition(WorkerStatus.PENDING, WorkerStatus.RUNNING)
    with pytest.raises(IllegalWorkerTransitionError, match="it is final"):
        check_transition(WorkerStatus.TERMINATED, WorkerStatus.RUNNING)
