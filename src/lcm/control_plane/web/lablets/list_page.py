"""What somebody looks at in the list of lablets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from lcm.control_plane.store.port import Where
from lcm.control_plane.web.list_query import Look
from lcm.core import clock
from lcm.model.lablet.status import LabletStatus
from lcm.model.lablet.urgency import LAST_LABLET_PROBLEM, LabletUrgency

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.control_plane.store.port import Value

_OF_VIEW: Final[dict[str, dict[str, list[Value]]]] = {
    "waiting": {"status": [LabletStatus.PENDING_SCHEDULING.value]},
    "moving": {"urgency": [int(LabletUrgency.MOVING)]},
    "running": {"status": [LabletStatus.RUNNING.value]},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabletLook(Look):
    """One way to look at lablets."""

    path = "/lablets"
    views: ClassVar[Mapping[str, str]] = {
        "": "All",
        "problems": "Problems",
        "waiting": "Waiting",
        "moving": "Moving",
        "running": "Running",
        "ended": "Ended",
    }
    columns = ("attention", "name", "status", "owner", "definition", "created_at", "updated_at")
    known = frozenset(LabletStatus)

    owner: str = ""
    definition: str = ""
    worker: str = ""

    def where(self) -> Where:
        """The filter in the store's words. Lablets of the past are shown only to who asks for them."""
        any_of = dict(_OF_VIEW.get(self.view, {}))
        at_least: dict[str, Value] = {}
        below: dict[str, Value] = {}
        if self.status:
            any_of["status"] = list(self.status)
        elif self.view == "ended":
            below["shown_until"] = clock.now().isoformat()
        else:
            at_least["shown_until"] = clock.now().isoformat()
        if self.view == "problems":
            below["urgency"] = int(LAST_LABLET_PROBLEM) + 1
        if self.definition:
            any_of["definition" if "@" in self.definition else "definition_name"] = [self.definition]
        if self.worker:
            any_of["worker_id"] = [self.worker]
        contains = {name: text for name, text in (("name", self.q), ("owner", self.owner)) if text}
        return Where(any_of=any_of, at_least=at_least, below=below, contains=contains)
