"""Changes of the desired status that a policy decides: moves to another host, and schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from lcm.client.errors import NotPossibleNowError
from lcm.controllers.worker.decision import ChangeHost, FollowSchedule, wait

if TYPE_CHECKING:
    from lcm.controllers.worker.act.control_plane_writer import ControlPlaneWriter
    from lcm.controllers.worker.act.reconcile_pass import ReconcilePass
    from lcm.controllers.worker.decision import Decision

log = structlog.get_logger(__name__)

REFUSED_SECONDS: Final = 60.0
"""Seconds until a step of maintenance or of a schedule that the control plane refused is decided again."""


class DesiredStatusChanger:
    """Asks the control plane for the change; it may refuse."""

    def __init__(self, writer: ControlPlaneWriter) -> None:
        self._writer = writer

    async def change(self, current: ReconcilePass, action: ChangeHost | FollowSchedule) -> Decision:
        """Carry out the action; returns what is decided next."""
        if isinstance(action, ChangeHost):
            return await self._change_host(current, action)
        return await self._follow_schedule(current, action)

    async def _change_host(self, current: ReconcilePass, action: ChangeHost) -> Decision:
        """The control plane has the last word on lablets, holds and MIN_WORKERS."""
        try:
            current.worker = await self._writer.change_host(current.worker, action)
        except NotPossibleNowError as refusal:
            return wait("maintenance.refused", refusal.detail, after=REFUSED_SECONDS)
        log.info(
            "a worker moves to another host",
            worker=current.worker.id,
            name=current.worker.name,
            step=action.step.value,
            reason=action.reason,
        )
        return wait("maintenance.changing", action.reason, after=0.0)

    async def _follow_schedule(self, current: ReconcilePass, action: FollowSchedule) -> Decision:
        """The control plane has the last word on schedules, overrides, lablets and holds."""
        try:
            current.worker = await self._writer.follow_schedule(current.worker, action)
        except NotPossibleNowError as refusal:
            return wait("schedule.refused", refusal.detail, after=REFUSED_SECONDS)
        desired = action.desired.value
        log.info("schedule followed", worker=current.worker.id, name=current.worker.name, desired=desired)
        return wait("schedule.changing", action.reason, after=0.0)
