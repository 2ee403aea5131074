"""What the next pass will do if nothing changes but the time, and actions in the form in which they are shown."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.controllers.worker.decision import (
    ChangeHost,
    ChangeInstance,
    CheckIdle,
    CloudCall,
    DeregisterLicense,
    Drain,
    FollowSchedule,
    Launch,
    MaintenanceStep,
    RegisterLicense,
    StoreLaunchIntent,
    WriteLicenseStatus,
    WriteStatus,
)
from lcm.core.text import single_line
from lcm.model.audit import MAX_DECISION_ACTIONS, ActionType, PlannedAction
from lcm.model.worker.status import DesiredStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from lcm.controllers.worker.decision import Action, Decision
    from lcm.controllers.worker.observe.observation import Observation

_MAX_TEXT, _MAX_DETAIL = 300, 200
_CALL_TYPES = {
    CloudCall.START: ActionType.START_INSTANCE,
    CloudCall.STOP: ActionType.STOP_INSTANCE,
    CloudCall.TERMINATE: ActionType.TERMINATE_INSTANCE,
}


def forecast(
    decide_at: Callable[[Observation, datetime], Decision], observed: Observation, now: datetime, seconds: float
) -> tuple[Action, ...]:
    """The actions of the next pass, which begins in so many seconds, with the same observation.

    Those that a hold will keep then are included: the plan says that they wait for its end.
    """
    later = replace(observed, boottime=observed.boottime + seconds)
    decided = decide_at(later, now + timedelta(seconds=seconds))
    return (*decided.actions, *decided.held)


def planned_actions(actions: Iterable[Action]) -> tuple[PlannedAction, ...]:
    """Actions as they are reported. An idle check is part of every pass, and an intent part of its launch."""
    shown = (each for each in actions if not isinstance(each, CheckIdle | StoreLaunchIntent))
    return tuple(_planned_action(each) for each in shown)[:MAX_DECISION_ACTIONS]


def _planned_action(action: Action) -> PlannedAction:
    kind, detail = ActionType.OTHER, ""
    match action:
        case ChangeInstance():
            kind = _CALL_TYPES[action.call]
        case Launch():
            kind = ActionType.LAUNCH_INSTANCE
            detail = f"{action.parameters.instance_type} in {action.parameters.region}"
        case RegisterLicense():
            kind = ActionType.REGISTER_LICENSE
        case DeregisterLicense():
            kind = ActionType.DEREGISTER_LICENSE
        case Drain():
            kind = ActionType.DRAIN
        case ChangeHost():
            stops = action.step is MaintenanceStep.STOP
            kind, detail = ActionType.CHANGE_HOST, "stopped and started again" if stops else "started again"
        case FollowSchedule():
            starts = action.desired is DesiredStatus.RUNNING
            kind, detail = ActionType.FOLLOW_SCHEDULE, "started" if starts else "stopped"
        case WriteStatus():
            kind, detail = ActionType.RECORD_STATUS, action.status.value
        case WriteLicenseStatus():
            kind, detail = ActionType.RECORD_LICENSE, action.status.value
    return PlannedAction(type=kind, text=single_line(str(action), _MAX_TEXT), detail=single_line(detail, _MAX_DETAIL))
