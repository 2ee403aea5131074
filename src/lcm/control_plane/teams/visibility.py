"""What a caller sees of lablets and definitions, and may change. What they may not see looks as if it did not exist."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lcm.control_plane.auth.roles import ForbiddenError
from lcm.control_plane.auth.seats.sessions import SeatCaller
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import team_owner
from lcm.control_plane.store.port import DocumentPage, StoredDocument
from lcm.model.access import Role
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.control_plane.auth.roles import Caller, Scope
    from lcm.control_plane.store.port import FieldValue
    from lcm.model.lablet.record import Lablet


def lablets_in_scope(scope: Scope) -> Mapping[str, Sequence[FieldValue]]:
    """The condition `either` for lablets: of the caller's teams, or the caller's own. Empty for all lablets."""
    if scope.everything:
        return {}
    return {"team": sorted(scope.teams), "team_owner": sorted(team_owner(*each) for each in scope.own)}


def definitions_in_scope(scope: Scope) -> dict[str, Sequence[FieldValue]]:
    """The condition `any_of` for definitions. Empty for all definitions."""
    return {} if scope.everything else {"team": sorted(scope.teams)}


def lablet_not_found(lablet_id: str) -> ProblemError:
    """The error for a lablet that does not exist, or that the caller may not see."""
    return ProblemError(ProblemCode.NOT_FOUND, f"there is no lablet {lablet_id}")


def require_visible(caller: Caller, lablet: Lablet) -> None:
    """Raise as for an unknown lablet unless the caller may see it."""
    if not caller.scope.sees(lablet.team, lablet.owner):
        raise lablet_not_found(lablet.id)


def manages(caller: Caller, team: str) -> bool:
    """Whether the caller may change everything of a team; without a team, only operators may."""
    return caller.allows(Role.OPERATOR) or instructs(caller, team)


def instructs(caller: Caller, team: str) -> bool:
    """Whether the caller is an instructor of the team."""
    return any(grant.role is Role.INSTRUCTOR and grant.team == team for grant in caller.grants)


def may_change(caller: Caller, lablet: Lablet) -> bool:
    """Whether the caller may extend, reset and end a lablet: who manages its team, and the learner whose it is."""
    return manages(caller, lablet.team) or (lablet.team, lablet.owner) in caller.own_lablets


def require_may_change(caller: Caller | SeatCaller, lablet: Lablet) -> None:
    """Raise unless the caller may see the lablet, and extend, reset and end it. A seat reaches its lablet alone."""
    if isinstance(caller, SeatCaller):
        if caller.lablet_id != lablet.id:
            raise lablet_not_found(lablet.id)
        return
    require_visible(caller, lablet)
    if not may_change(caller, lablet):
        raise _forbidden(caller, lablet)


def require_manages(caller: Caller, lablet: Lablet) -> None:
    """Raise unless the caller may see the lablet and manages its team."""
    require_visible(caller, lablet)
    if not manages(caller, lablet.team):
        raise _forbidden(caller, lablet)


def _forbidden(caller: Caller, lablet: Lablet) -> ForbiddenError:
    return ForbiddenError(
        f"This needs the role operator, or instructor in the team of {lablet.name}; {caller.name} has the role"
        f" {caller.role_text}."
    )


def shown_lablet(scope: Scope, body: bytes) -> bytes:
    """A stored lablet as the caller may see it: which other workers were rejected, and why, is about the fleet."""
    if scope.everything:
        return body
    lablet = json.loads(body)
    if lablet.get("placement"):
        lablet["placement"] |= {"rejections": [], "rejected": 0}
    return json.dumps(lablet, separators=(",", ":"), ensure_ascii=False).encode()


def shown_page(scope: Scope, page: DocumentPage) -> DocumentPage:
    """A page of stored lablets as the caller may see them."""
    if scope.everything:
        return page
    items = [StoredDocument(each.id, each.revision, shown_lablet(scope, each.body)) for each in page.items]
    return DocumentPage(items, page.next_cursor)
