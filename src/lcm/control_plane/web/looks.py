"""What somebody looks at in the list of workers: filters, order and place, as they stand in the address."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from lcm.control_plane.routes.workers import split
from lcm.control_plane.store.port import Sort, Where
from lcm.model.attention import LAST_PROBLEM, Urgency
from lcm.model.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.datastructures import QueryParams

    from lcm.control_plane.store.port import Value

ROWS: Final = 50
_LONGEST = 100
_ENDED = WorkerStatus.TERMINATED.value
COLUMNS: Final[dict[str, str]] = {
    "attention": "Problems first",
    "name": "Name",
    "status": "Status",
    "aws_region": "Region",
    "template_name": "Template",
    "cost_per_hour_usd": "Cost",
    "updated_at": "Last change",
}
VIEWS: Final[dict[str, str]] = {
    "": "All",
    "problems": "Problems",
    "moving": "Moving",
    "ready": "Ready",
    "stopped": "Stopped",
    "held": "Held",
    "ended": "Ended",
}


@dataclass(frozen=True, slots=True)
class Look:
    """One way to look. What the address says wrongly is left out: a bookmark of yesterday still shows something."""

    view: str = ""
    q: str = ""
    statuses: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    sort: str = "attention"
    after: str = ""
    page: int = 1

    @classmethod
    def of(cls, query: QueryParams) -> Look:
        """The look that an address stands for."""
        sort = query.get("sort", "attention")
        number = query.get("page", "1")
        known = set(WorkerStatus)
        return cls(
            view=query.get("view", "") if query.get("view", "") in VIEWS else "",
            q=query.get("q", "").strip()[:_LONGEST],
            statuses=tuple(word.upper() for word in split(query.getlist("status")) if word.upper() in known),
            regions=tuple(split(query.getlist("region"))),
            templates=tuple(split(query.getlist("template"))),
            sort=sort if sort.removeprefix("-") in COLUMNS else "attention",
            after=query.get("after", "")[:500],
            page=int(number) if number.isdecimal() and len(number) < 6 else 1,
        )

    @property
    def narrowed(self) -> bool:
        """Whether somebody looks at less than everything."""
        return bool(self.view or self.q or self.statuses or self.regions or self.templates)

    def sorting(self) -> Sort:
        """The order in the store's words."""
        return Sort(self.sort.removeprefix("-"), descending=self.sort.startswith("-"))

    def where(self) -> Where:
        """The filter in the store's words. Workers that have ended are shown only to who asks for them."""
        any_of: dict[str, list[Value]] = {}
        none_of: dict[str, list[Value]] = {}
        below: dict[str, Value] = {}
        if self.statuses:
            any_of["status"] = list(self.statuses)
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
        if self.regions:
            any_of["aws_region"] = list(self.regions)
        if self.templates:
            any_of["template_name"] = list(self.templates)
        return Where(any_of=any_of, none_of=none_of, below=below, contains={"name": self.q} if self.q else {})

    def address(self, **changes: object) -> str:
        """The address of this look with something changed; another filter or order begins at the first page."""
        fresh = {} if "after" in changes else {"after": "", "page": 1}
        look = replace(self, **{**fresh, **changes})  # type: ignore[arg-type]
        query = urlencode([(name, value) for name, value in look.words().items() if value])
        return f"/?{query}" if query else "/"

    def words(self) -> Mapping[str, str]:
        """Name and value of each part of the address; empty where it is as usual."""
        return {
            "view": self.view,
            "q": self.q,
            "status": ",".join(self.statuses),
            "region": ",".join(self.regions),
            "template": ",".join(self.templates),
            "sort": "" if self.sort == "attention" else self.sort,
            "after": self.after,
            "page": str(self.page) if self.page > 1 else "",
        }

    def turned(self, column: str) -> str:
        """The address that sorts by a column, or the other way round if it does already."""
        return self.address(sort=f"-{column}" if self.sort == column else column)
