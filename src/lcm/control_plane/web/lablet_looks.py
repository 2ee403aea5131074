"""What somebody looks at in the list of lablets: filters, order and place, as they stand in the address."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from lcm.control_plane.routes.workers import split
from lcm.control_plane.store.port import Sort, Where
from lcm.core import clock
from lcm.model.lablet_attention import LAST_LABLET_PROBLEM, LabletUrgency
from lcm.model.lablet_status import LabletStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.datastructures import QueryParams

    from lcm.control_plane.store.port import Value

ROWS: Final = 50
COLUMNS: Final = ("attention", "name", "status", "owner", "definition", "created_at", "updated_at")
VIEWS: Final[dict[str, str]] = {
    "": "All",
    "problems": "Problems",
    "waiting": "Waiting",
    "moving": "Moving",
    "running": "Running",
    "ended": "Ended",
}
_LONGEST = 100
_OF_VIEW: Final[dict[str, dict[str, list[Value]]]] = {
    "waiting": {"status": [LabletStatus.PENDING_SCHEDULING.value]},
    "moving": {"urgency": [int(LabletUrgency.MOVING)]},
    "running": {"status": [LabletStatus.RUNNING.value]},
}


@dataclass(frozen=True, slots=True)
class LabletLook:
    """One way to look. What the address says wrongly is left out: a bookmark of yesterday still shows something."""

    view: str = ""
    q: str = ""
    owner: str = ""
    statuses: tuple[str, ...] = ()
    definition: str = ""
    worker: str = ""
    sort: str = "attention"
    after: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: QueryParams) -> LabletLook:
        """The look that an address stands for."""
        sort = query.get("sort", "attention")
        number = query.get("page", "1")
        known = set(LabletStatus)
        return cls(
            view=query.get("view", "") if query.get("view", "") in VIEWS else "",
            q=query.get("q", "").strip()[:_LONGEST],
            owner=query.get("owner", "").strip()[:_LONGEST],
            statuses=tuple(word.upper() for word in split(query.getlist("status")) if word.upper() in known),
            definition=query.get("definition", "").strip()[:_LONGEST],
            worker=query.get("worker", "").strip()[:_LONGEST],
            sort=sort if sort.removeprefix("-") in COLUMNS else "attention",
            after=query.get("after", "")[:500],
            page=int(number) if number.isdecimal() and len(number) < 6 else 1,
        )

    @property
    def narrowed(self) -> bool:
        """Whether somebody looks at less than everything."""
        return bool(self.view or self.q or self.owner or self.statuses or self.definition or self.worker)

    def sorting(self) -> Sort:
        """The order in the store's words."""
        return Sort(self.sort.removeprefix("-"), descending=self.sort.startswith("-"))

    def where(self) -> Where:
        """The filter in the store's words. Lablets of the past are shown only to who asks for them."""
        any_of = dict(_OF_VIEW.get(self.view, {}))
        at_least: dict[str, Value] = {}
        below: dict[str, Value] = {}
        if self.statuses:
            any_of["status"] = list(self.statuses)
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

    def address(self, **changes: object) -> str:
        """The address of this look with something changed; another filter or order begins at the first page."""
        fresh = {} if "after" in changes else {"after": "", "page": 1}
        look = replace(self, **{**fresh, **changes})  # type: ignore[arg-type]
        query = urlencode([(name, value) for name, value in look.words().items() if value])
        return f"/lablets?{query}" if query else "/lablets"

    def words(self) -> Mapping[str, str]:
        """Name and value of each part of the address; empty where it is as usual."""
        return {
            "view": self.view,
            "q": self.q,
            "owner": self.owner,
            "status": ",".join(self.statuses),
            "definition": self.definition,
            "worker": self.worker,
            "sort": "" if self.sort == "attention" else self.sort,
            "after": self.after,
            "page": str(self.page) if self.page > 1 else "",
        }

    def turned(self, column: str) -> str:
        """The address that sorts by a column, or the other way round if it does already."""
        return self.address(sort=f"-{column}" if self.sort == column else column)
