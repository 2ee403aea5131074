"""The query of the audit list: filters and cursor, as they appear in the URL."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from lcm.control_plane.http.query_params import split_values
from lcm.control_plane.journal.search import AuditFilter
from lcm.control_plane.web.forms import parse_form_time
from lcm.model.audit import ActorKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from starlette.datastructures import QueryParams

PAGE_SIZE: Final = 50
SUMMARY_PERIODS: Final[dict[str, timedelta]] = {
    "12h": timedelta(hours=12),
    "24h": timedelta(hours=24),
    "3d": timedelta(days=3),
    "7d": timedelta(days=7),
}
"""Periods to summarize, by their value in the URL; the first is the default."""
ACTOR_KIND_LABELS: Final[dict[str, str]] = {
    "": "All",
    ActorKind.PERSON.value: "People",
    ActorKind.CONTROLLER.value: "Controllers",
    ActorKind.POLICY.value: "Policies",
    ActorKind.SYSTEM.value: "System",
}
_MAX_TEXT = 100
_MAX_VALUES = 20


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """The query of the audit list. Invalid parameters are ignored, so that old bookmarks still show a page."""

    q: str = ""
    actors: tuple[str, ...] = ()
    kind: str = ""
    actions: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    period: str = "12h"
    after: str = ""

    @classmethod
    def from_query(cls, params: QueryParams) -> AuditQuery:
        """Parse the parameters of a URL."""
        kind, period = params.get("by", "").lower(), params.get("night", "12h")
        return cls(
            q=params.get("q", "").strip()[:_MAX_TEXT],
            actors=tuple(split_values(params.getlist("actor")))[:_MAX_VALUES],
            kind=kind if kind in ACTOR_KIND_LABELS else "",
            actions=tuple(split_values(params.getlist("action")))[:_MAX_VALUES],
            subjects=tuple(each for each in split_values(params.getlist("subject")) if each.isprintable())[
                :_MAX_VALUES
            ],
            since=_normalized_minute(params.get("since", "")),
            until=_normalized_minute(params.get("until", "")),
            period=period if period in SUMMARY_PERIODS else "12h",
            after=params.get("after", "")[:_MAX_TEXT],
        )

    @property
    def is_filtered(self) -> bool:
        """Whether any filter is set."""
        return bool(self.q or self.actors or self.kind or self.actions or self.subjects or self.since or self.until)

    def filter(self, ids: tuple[str, ...]) -> AuditFilter:
        """The filter for the audit. `ids` are the IDs of the subjects."""
        return AuditFilter(
            subjects=ids,
            actors=self.actors,
            actor_kinds=(self.kind,) if self.kind else (),
            actions=self.actions,
            since=_parse_time(self.since),
            until=_parse_time(self.until),
            q=self.q,
        )

    def url(self, path: str = "/activity", **changes: object) -> str:
        """The URL of this query with changes. A different filter starts at the newest entry."""
        reset = {} if "after" in changes else {"after": ""}
        changed = replace(self, **{**reset, **changes})  # type: ignore[arg-type]
        query = urlencode([(name, value) for name, value in changed.query_params().items() if value])
        return f"{path}?{query}" if query else path

    def query_params(self) -> Mapping[str, str]:
        """Name and value of each URL parameter; empty for a default."""
        return {
            "q": self.q,
            "by": self.kind,
            "actor": ",".join(self.actors),
            "action": ",".join(self.actions),
            "subject": ",".join(self.subjects),
            "since": self.since,
            "until": self.until,
            "night": "" if self.period == "12h" else self.period,
            "after": self.after,
        }


def _normalized_minute(text: str) -> str:
    """A time to the minute, with its zone; empty if invalid."""
    time = _parse_time(text.strip()[:_MAX_TEXT])
    return "" if time is None else time.strftime("%Y-%m-%dT%H:%MZ")


def _parse_time(text: str) -> datetime | None:
    time = parse_form_time(text)
    return time if time is not None and 1970 <= time.year <= 9000 else None
