"""The form of a team: its fields as a request, a team as its fields, and problems beside the field they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lcm.control_plane.web.forms import WHOLE_FORM, field_problems, form_field, parse_number
from lcm.model.access import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import ValidationError

    from lcm.model.team import Team, TeamSummary

LIMITS: Final = ("max_lablets", "max_seats", "max_lifetime_minutes")
_MEMBERS: Final = (
    ("instructors", Role.INSTRUCTOR, "email"),
    ("instructor_groups", Role.INSTRUCTOR, "group"),
    ("learners", Role.LEARNER, "email"),
    ("learner_groups", Role.LEARNER, "group"),
)
"""The fields with members, one on each line: with which role, and what names them."""
FIELDS: Final = ("name", "description", *(field for field, _, _ in _MEMBERS), *LIMITS)


class Entry(NamedTuple):
    """A member, and where in the form it was typed."""

    field: str
    line: int
    role: Role
    kind: str
    text: str

    @property
    def identity(self) -> tuple[str, str]:
        """Two entries with the same are for the same people."""
        return self.kind, self.text.casefold() if self.kind == "email" else self.text


def typed_values(fields: dict[str, list[str]]) -> dict[str, str]:
    """What was typed, to show it again."""
    return {name: form_field(fields, name) for name in FIELDS}


def shown_values(team: Team | TeamSummary) -> dict[str, str]:
    """The text in the fields of the form for this team."""
    values = {"name": team.name, "description": team.description}
    for field, role, kind in _MEMBERS:
        named = [getattr(each, kind) for each in team.members if each.role is role]
        values[field] = "\n".join(each for each in named if each is not None)
    for field in LIMITS:
        limit = getattr(team.limits, field)
        values[field] = "" if limit is None else f"{limit:.15g}"
    return values


def wanted_team(values: dict[str, str]) -> dict[str, Any]:
    """The request that the form stands for. An empty limit is none."""
    return {
        "name": values["name"],
        "description": values["description"],
        "members": tuple({"role": each.role, each.kind: each.text} for each in _entries(values)),
        "limits": {field: parse_number(values[field]) for field in LIMITS if values[field]},
    }


def problems_of_form(error: ValidationError, values: dict[str, str]) -> dict[str, str]:
    """The first problem of each field, with the line that it is about."""
    entries = list(_entries(values))
    found: dict[str, str] = {}
    for path, text in field_problems(error).items():
        name, _, rest = path.partition(".")
        number = rest.partition(".")[0]
        entry = entries[int(number)] if name == "members" and number.isdigit() else None
        if name == "members" and entry is None:
            entry = _repeated(entries)
        if entry is not None:
            found.setdefault(entry.field, f"line {entry.line}: {text}")
        elif name == "limits":
            found.setdefault(number, text)
        else:
            found.setdefault(name if name in FIELDS else WHOLE_FORM, text if name in FIELDS else f"{path}: {text}")
    return found


def _entries(values: dict[str, str]) -> Iterator[Entry]:
    """The members that were typed, field by field."""
    for field, role, kind in _MEMBERS:
        for line, text in enumerate(values[field].splitlines(), start=1):
            if text.strip():
                yield Entry(field, line, role, kind, text.strip())


def _repeated(entries: list[Entry]) -> Entry | None:
    """The first entry for somebody who was listed before."""
    seen: set[tuple[str, str]] = set()
    for each in entries:
        if each.identity in seen:
            return each
        seen.add(each.identity)
    return None
