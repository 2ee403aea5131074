"""What somebody looks at in the audit: filters and place, as they stand in the address."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from lcm.control_plane.http.api.workers import split_values
from lcm.control_plane.journal.search import AuditFilter
from lcm.model.audit import ActorKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.datastructures import QueryParams

PAGE_SIZE: Final = 50
SUMMARY_PERIODS: Final[dict[str, timedelta]] = {
    "12h": timedelta(hours=12),
    "24h": timedelta(hours=24),
    "3d": timedelta(days=3),
    "7d": timedelta(days=7),
}
"""Spans to sum up, by their word in the address; the first is the usual one."""
ACTOR_KIND_LABELS: Final[dict[str, str]] = {
    "": "Everybody",
    ActorKind.PERSON.value: "People",
    ActorKind.CONTROLLER.value: "Controllers",
    ActorKind.POLICY.value: "Policies",
    ActorKind.SYSTEM.value: "System",
}
_MAX_TEXT = 100
_MAX_VALUES = 20


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """One way to look. What the address says wrongly is left out: a bookmark of yesterday still shows something."""

    q: str = ""
    actors: tuple[str, ...] = ()
    kind: str = ""
    actions: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    night: str = "12h"
    after: str = ""

    @classmethod
    def of(cls, query: QueryParams) -> AuditQuery:
        """The look that an address stands for."""
        kind, night = query.get("by", "").lower(), query.get("night", "12h")
        return cls(
            q=query.get("q", "").strip()[:_MAX_TEXT],
            actors=tuple(split_values(query.getlist("actor")))[:_MAX_VALUES],
            kind=kind if kind in ACTOR_KIND_LABELS else "",
            actions=tuple(split_values(query.getlist("action")))[:_MAX_VALUES],
            subjects=tuple(each for each in split_values(query.getlist("subject")) if each.isprintable())[:_MAX_VALUES],
            since=_normalized_minute(query.get("since", "")),
            until=_normalized_minute(query.get("until", "")),
            night=night if night in SUMMARY_PERIODS else "12h",
            after=query.get("after", "")[:_MAX_TEXT],
        )

    @property
    def narrowed(self) -> bool:
        """Whether somebody looks at less than everything."""
        return bool(self.q or self.actors or self.kind or self.actions or self.subjects or self.since or self.until)

    def filter(self, ids: tuple[str, ...]) -> AuditFilter:
        """The filter in the audit's words; `ids` are what the subjects are called in it."""
        return AuditFilter(
            subjects=ids,
            actors=self.actors,
            actor_kinds=(self.kind,) if self.kind else (),
            actions=self.actions,
            since=_parse_time(self.since),
            until=_parse_time(self.until),
            q=self.q,
        )

    def address(self, path: str = "/activity", **changes: object) -> str:
        """The address of this look with something changed; another filter begins with the newest line."""
        fresh = {} if "after" in changes else {"after": ""}
        look = replace(self, **{**fresh, **changes})  # type: ignore[arg-type]
        query = urlencode([(name, value) for name, value in look.words().items() if value])
        return f"{path}?{query}" if query else path

    def words(self) -> Mapping[str, str]:
        """Name and value of each part of the address; empty where it is as usual."""
        return {
            "q": self.q,
            "by": self.kind,
            "actor": ",".join(self.actors),
            "action": ",".join(self.actions),
            "subject": ",".join(self.subjects),
            "since": self.since,
            "until": self.until,
            "night": "" if self.night == "12h" else self.night,
            "after": self.after,
        }


def _normalized_minute(text: str) -> str:
    """A minute as browsers send and show it, or nothing."""
    moment = _parse_time(text.strip()[:_MAX_TEXT])
    return "" if moment is None else moment.strftime("%Y-%m-%dT%H:%M")


def _parse_time(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if not 1970 <= moment.year <= 9000:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
