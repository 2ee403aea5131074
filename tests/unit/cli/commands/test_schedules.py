"""What `lcm schedules` prints of a preview."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lcm.cli.commands.calendar.schedules import _worker_lines
from lcm.model.calendar.schedule import Schedule
from lcm.model.calendar.schedule_preview import ScheduledWorker, SchedulePreview, ScheduleStatus
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.support.records.workers import NOW


def preview_of(change_to: DesiredStatus, in_hours: int) -> SchedulePreview:
    schedule = Schedule.model_validate(
        {
            "id": "s-1",
            "name": "office",
            "zone": "UTC",
            "windows": ["mon-fri 08:00-18:00"],
            "selector": {"names": ["alpha"]},
            "created_at": NOW,
            "updated_at": NOW,
        }
    )
    worker = ScheduledWorker(
        worker_id="w-1",
        name="alpha",
        status=WorkerStatus.RUNNING,
        desired_status=DesiredStatus.RUNNING,
        change_to=change_to,
        change_at=NOW + timedelta(hours=in_hours),
    )
    return SchedulePreview(
        status=ScheduleStatus(schedule=schedule), previewed_at=NOW, workers=(worker,), workers_total=1
    )


@pytest.mark.parametrize("in_hours", [0, 2])
def test_a_worker_in_use_is_not_said_to_be_stopped_at_once(in_hours: int) -> None:
    (line,) = _worker_lines(preview_of(DesiredStatus.STOPPED, in_hours))
    assert line.endswith(", or as soon as it is not in use")


def test_a_start_waits_for_nothing() -> None:
    (line,) = _worker_lines(preview_of(DesiredStatus.RUNNING, 0))
    assert line == "alpha is RUNNING, and will be started now"
