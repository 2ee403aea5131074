"""What is decided in every cell of status, desired status and EC2 state, written down by hand from worker-lifecycle.md.

Each entry has the statuses that are written, in order, joined by `>`, then `+` and each thing done outside. Where
nothing is written or done: `wait` (it is looked at again), `rest` (it is as it should be), `skip` (there is nothing to
do for anybody, ever). `rest/wait`: nothing is done, and when it is looked at again is left open.

Not in the grids, because other tests look at them: conditions, the license and idleness. No deadline is near, nothing
is held, a lost instance is not replaced, and a stop from outside is undone.
"""

from __future__ import annotations

import pytest

from lcm.controllers.worker.decision import WriteStatus
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.unit.controllers.worker.decide.cases import COLUMNS, INSTANCE, NO_INSTANCE, calls, cell, notation

GRIDS = {
    # An instance was launched and is not up yet (worker-lifecycle.md#deadlines). A pending instance cannot be stopped.
    "PROVISIONING": """
        wanted         RUNNING           STOPPED                 TERMINATED
        pending        wait              wait                    TERMINATING
        running        STARTING>RUNNING  STARTING>STOPPING+stop  TERMINATING
        stopping       STOPPING          STOPPING                TERMINATING
        stopped        STOPPED           STOPPED                 TERMINATING
        shutting-down  TERMINATING       TERMINATING             TERMINATING
        terminated     FAILED            FAILED                  TERMINATED
        unknown        UNKNOWN           UNKNOWN                 TERMINATING
        absent         FAILED            FAILED                  TERMINATING+terminate
        not-visible    wait              wait                    TERMINATING
        not-observed        wait              wait                    TERMINATING
    """,
    # It is being started, or waits for its address (worker-lifecycle.md#deadlines). `stopped` is no drift before it was
    # pending or running.
    "STARTING": """
        wanted         RUNNING      STOPPED        TERMINATED
        pending        wait         wait           TERMINATING
        running        RUNNING      STOPPING+stop  TERMINATING
        stopping       STOPPING     STOPPING       TERMINATING
        stopped        +start       STOPPED        TERMINATING
        shutting-down  TERMINATING  TERMINATING    TERMINATING
        terminated     TERMINATED   TERMINATED     TERMINATED
        unknown        UNKNOWN      UNKNOWN        TERMINATING
        absent         TERMINATED   TERMINATED     TERMINATING+terminate
        not-visible    wait         wait           TERMINATING
        not-observed        wait         wait           TERMINATING
    """,
    # Desired state first, then drift by the table of worker-lifecycle.md#running.
    "RUNNING": """
        wanted         RUNNING       STOPPED        TERMINATED
        pending        PROVISIONING  wait           TERMINATING
        running        rest          STOPPING+stop  TERMINATING
        stopping       STOPPING      STOPPING       TERMINATING
        stopped        STOPPED       STOPPED        TERMINATING
        shutting-down  TERMINATING   TERMINATING    TERMINATING
        terminated     TERMINATED    TERMINATED     TERMINATED
        unknown        UNKNOWN       UNKNOWN        TERMINATING
        absent         TERMINATED    TERMINATED     TERMINATING+terminate
        not-visible    wait          wait           TERMINATING
        not-observed        wait          wait           TERMINATING
    """,
    # With no node running and no lablet there is nothing to wait for (worker-lifecycle.md#terminating).
    "DRAINING": """
        wanted         RUNNING      STOPPED        TERMINATED
        pending        wait         wait           TERMINATING
        running        RUNNING      STOPPING+stop  TERMINATING
        stopping       STOPPING     STOPPING       TERMINATING
        stopped        STOPPED      STOPPED        TERMINATING
        shutting-down  TERMINATING  TERMINATING    TERMINATING
        terminated     TERMINATED   TERMINATED     TERMINATED
        unknown        UNKNOWN      UNKNOWN        TERMINATING
        absent         TERMINATED   TERMINATED     TERMINATING+terminate
        not-visible    wait         wait           TERMINATING
        not-observed        wait         wait           TERMINATING
    """,
    # worker-lifecycle.md#stopping, but gone is TERMINATED, and it is stopped again only if STOPPED is still desired
    # (worker-lifecycle.md#terminating).
    "STOPPING": """
        wanted         RUNNING      STOPPED      TERMINATED
        pending        wait         wait         TERMINATING
        running        RUNNING      +stop        TERMINATING
        stopping       wait         wait         TERMINATING
        stopped        STOPPED      STOPPED      TERMINATING
        shutting-down  TERMINATING  TERMINATING  TERMINATING
        terminated     TERMINATED   TERMINATED   TERMINATED
        unknown        UNKNOWN      UNKNOWN      TERMINATING
        absent         TERMINATED   TERMINATED   TERMINATING+terminate
        not-visible    wait         wait         TERMINATING
        not-observed        wait         wait         TERMINATING
    """,
    # worker-lifecycle.md#startup-sweep: what EC2 does meanwhile is recorded, and stopped again from RUNNING.
    "STOPPED": """
        wanted         RUNNING         STOPPED      TERMINATED
        pending        STARTING        wait         TERMINATING
        running        RUNNING         RUNNING      TERMINATING
        stopping       wait            wait         TERMINATING
        stopped        STARTING+start  rest         TERMINATING
        shutting-down  TERMINATING     TERMINATING  TERMINATING
        terminated     TERMINATED      TERMINATED   TERMINATED
        unknown        UNKNOWN         UNKNOWN      TERMINATING
        absent         TERMINATED      TERMINATED   TERMINATING+terminate
        not-visible    wait            wait         TERMINATING
        not-observed        wait            wait         TERMINATING
    """,
    # worker-lifecycle.md#terminating. If termination is not desired, it was only observed shutting down and is not
    # terminated (worker-lifecycle.md#decisions).
    "TERMINATING": """
        wanted         RUNNING     STOPPED     TERMINATED
        pending        wait        wait        +terminate
        running        wait        wait        +terminate
        stopping       wait        wait        +terminate
        stopped        wait        wait        +terminate
        shutting-down  wait        wait        wait
        terminated     TERMINATED  TERMINATED  TERMINATED
        unknown        UNKNOWN     UNKNOWN     +terminate
        absent         TERMINATED  TERMINATED  +terminate
        not-visible    wait        wait        wait
        not-observed        wait        wait        wait
    """,
    # Final (worker-lifecycle.md#statuses, 1.2).
    "TERMINATED": """
        wanted         RUNNING  STOPPED  TERMINATED
        pending        skip     skip     skip
        running        skip     skip     skip
        stopping       skip     skip     skip
        stopped        skip     skip     skip
        shutting-down  skip     skip     skip
        terminated     skip     skip     skip
        unknown        skip     skip     skip
        absent         skip     skip     skip
        not-visible    skip     skip     skip
        not-observed        skip     skip     skip
    """,
    # It waits for a person (worker-lifecycle.md#startup-sweep). If its instance is gone, only the id is removed.
    "FAILED": """
        wanted         RUNNING    STOPPED    TERMINATED
        pending        rest       rest       TERMINATING
        running        rest       rest       TERMINATING
        stopping       rest       rest       TERMINATING
        stopped        rest       rest       TERMINATING
        shutting-down  rest/wait  rest/wait  TERMINATING
        terminated     FAILED     FAILED     TERMINATED
        unknown        rest       rest       TERMINATING
        absent         FAILED     FAILED     TERMINATING+terminate
        not-visible    rest/wait  rest/wait  TERMINATING
        not-observed        rest/wait  rest/wait  TERMINATING
    """,
    # It follows EC2 (worker-lifecycle.md#statuses); the desired status is handled from there.
    "UNKNOWN": """
        wanted         RUNNING       STOPPED       TERMINATED
        pending        PROVISIONING  PROVISIONING  TERMINATING
        running        RUNNING       RUNNING       TERMINATING
        stopping       STOPPING      STOPPING      TERMINATING
        stopped        STOPPED       STOPPED       TERMINATING
        shutting-down  TERMINATING   TERMINATING   TERMINATING
        terminated     TERMINATED    TERMINATED    TERMINATED
        unknown        wait          wait          TERMINATING
        absent         TERMINATED    TERMINATED    TERMINATING+terminate
        not-visible    wait          wait          TERMINATING
        not-observed        wait          wait          TERMINATING
    """,
}

WITHOUT_INSTANCE = """
    wanted         RUNNING         STOPPED     TERMINATED
    PENDING        +intent+launch  rest        TERMINATED
    PROVISIONING   FAILED          FAILED      TERMINATED
    STARTING       FAILED          FAILED      TERMINATED
    RUNNING        TERMINATED      TERMINATED  TERMINATED
    DRAINING       TERMINATED      TERMINATED  TERMINATED
    STOPPING       STOPPED         STOPPED     TERMINATED
    STOPPED        PENDING         rest        TERMINATED
    TERMINATING    TERMINATED      TERMINATED  TERMINATED
    TERMINATED     skip            skip        skip
    FAILED         rest            rest        TERMINATED
    UNKNOWN        TERMINATED      TERMINATED  TERMINATED
"""


def _read(grid: str) -> list[tuple[str, str, str]]:
    """The entries of a grid: row, column and value."""
    (_, *columns), *lines = (line.split() for line in grid.strip().splitlines())
    return [(row, *entry) for row, *entries in lines for entry in zip(columns, entries, strict=True)]


WITH = [(status, desired, shown, entry) for status, grid in GRIDS.items() for shown, desired, entry in _read(grid)]
WITHOUT = _read(WITHOUT_INSTANCE)


def test_no_cell_is_missing() -> None:
    everything = {
        (status.value, desired.value, column)
        for status in WorkerStatus
        for desired in DesiredStatus
        for column in COLUMNS
        if status is not WorkerStatus.PENDING
    }
    assert {entry[:3] for entry in WITH} == everything
    assert len(WITH) == len(everything)
    assert [entry[:2] for entry in WITHOUT] == [
        (status.value, desired.value) for status in WorkerStatus for desired in DesiredStatus
    ]


@pytest.mark.parametrize(("status", "desired", "column", "expected"), WITH)
def test_with_an_instance(status: str, desired: str, column: str, expected: str) -> None:
    """Every cell of the grids.

    Reference: worker-lifecycle.md#running, worker-lifecycle.md#stopping, worker-lifecycle.md#terminating,
    worker-lifecycle.md#startup-sweep.
    """
    decision = cell(status, desired, column).decided()
    assert notation(decision) in expected.split("/"), f"{decision.rule}: {decision.reason}"


@pytest.mark.parametrize(("status", "desired", "expected"), WITHOUT)
def test_without_an_instance(status: str, desired: str, expected: str) -> None:
    """The branches without an instance.

    Reference: worker-lifecycle.md#deadlines, worker-lifecycle.md#stopping, worker-lifecycle.md#terminating.
    """
    decision = cell(status, desired, NO_INSTANCE).decided()
    assert notation(decision) == expected, f"{decision.rule}: {decision.reason}"


@pytest.mark.parametrize("desired", DesiredStatus)
@pytest.mark.parametrize("column", COLUMNS)
def test_pending_with_an_instance_which_cannot_be(desired: DesiredStatus, column: str) -> None:
    """worker-lifecycle.md#launching: never two instances for one worker, and none forgotten."""
    decision = cell(WorkerStatus.PENDING, desired, column).decided()
    assert not {"start", "stop", "terminate"} & set(calls(decision))
    ids = [
        action.fields["instance_id"]
        for action in decision.actions
        if isinstance(action, WriteStatus) and "instance_id" in action.fields
    ]
    assert set(ids) <= {INSTANCE, None}
    if column not in ("terminated", "absent"):
        assert "launch" not in calls(decision)
        assert None not in ids
        assert not any(
            action.status is WorkerStatus.TERMINATED for action in decision.actions if isinstance(action, WriteStatus)
        )
