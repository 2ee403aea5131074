"""What somebody looks at in the list of workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lcm.control_plane.store.port import Where
from lcm.control_plane.web.list_query import Look
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.urgency import LAST_PROBLEM, Urgency

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.store.port import Value

_ENDED = WorkerStatus.TERMINATED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLook(Look):
    """One way to look at workers."""

    path = "/"
    views: ClassVar[Mapping[str, str]] = {
        "": "All",
        "problems": "Problems",
        "moving": "Moving",
        "ready": "Ready",
        "stopped": "Stopped",
        "held": "Held",
        "ended": "Ended",
    }
    columns = ("attention", "name", "status", "aws_region", "template_name", "cost_per_hour_usd", "updated_at")
    known = frozenset(WorkerStatus)

    region: tuple[str, ...] = ()
    template: tuple[str, ...] = ()

    def where(self) -> Where:
        """The filter in the store's words. Workers that have ended are shown only to who asks for them."""
        any_of: dict[str, list[Value]] = {}
        none_of: dict[str, list[Value]] = {}
        below: dict[str, Value] = {}
        if self.status:
            any_of["status"] = list(self.status)
        elif self.view == "ended":
            any_of["status"] = [_ENDED]
        else:
            none_of["status"] = [_ENDED]
        if self.view == "problems":
            below["urgency"] = int(LAST_PROBLEM) + 1
        elif self.view in ("moving", "stopped"):
            any_of["urgency"] = [int(Urgency.MOVING if self.view == "moving" else Urgency.RESTING)]
        elif self.view in ("ready", "held"):
            any_of[self.view] = [True]
        if self.region:
            any_of["aws_region"] = list(self.region)
        if self.template:
            any_of["template_name"] = list(self.template)
        return Where(any_of=any_of, none_of=none_of, below=below, contains={"name": self.q} if self.q else {})
