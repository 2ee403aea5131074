"""Teams in selectors: people give names, records keep ids, because names may change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import TEAMS
from lcm.control_plane.records.readable import read_or_skip
from lcm.model.problems import ProblemCode
from lcm.model.team import Team

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lcm.control_plane.store.port import Store


async def find_team_ids(
    store: Store, references: Iterable[str], field: str, *, selected: Iterable[str] = ()
) -> tuple[str, ...]:
    """The ids of teams that are given by name or id in a field of a request; one that does not exist is rejected.

    Ids that the field has already, `selected`, are accepted: whoever changes something else sends them back.
    """
    found: list[str] = []
    present = frozenset(selected)
    for reference in references:
        if reference in present:
            found.append(reference)
            continue
        stored = await store.get(TEAMS, reference) or await store.get_unique(TEAMS, "name", reference)
        if stored is None:
            detail = f"{field}: there is no team {reference}; lcm teams list shows the existing ones"
            raise ProblemError(ProblemCode.INVALID, detail)
        found.append(stored.id)
    return tuple(dict.fromkeys(found))


async def read_team_names(store: Store, team_ids: Iterable[str]) -> dict[str, str]:
    """The names of teams by id. Those that are gone have none."""
    selected = list(team_ids)
    if not selected:
        return {}
    teams = [read_or_skip(each, Team, "team") for each in (await store.get_many(TEAMS, selected)).values()]
    return {each.id: each.name for each in teams if each is not None}
