"""Which team something new belongs to, whose lablet it is, and whether the limits of the team allow it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lcm.control_plane.auth.roles import ForbiddenError, email_owner
from lcm.control_plane.auth.teams import put_team
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets.lifecycle import LabletOwner
from lcm.control_plane.records.kinds import LABLETS, TEAMS
from lcm.control_plane.store.port import Where
from lcm.control_plane.teams.visibility import manages
from lcm.model.access import Role
from lcm.model.formatting import count_of
from lcm.model.lablet.status import FINAL_LABLET_STATUSES
from lcm.model.problems import ProblemCode
from lcm.model.team import Team

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.auth.teams import TeamList
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import StoredDocument
    from lcm.model.lablet.record import Lablet

_IDENTITIES = ("oidc:", "token:")


def team_not_found(reference: str) -> ProblemError:
    """The error for a team that does not exist, or that the caller is not in."""
    return ProblemError(ProblemCode.NOT_FOUND, f"there is no team {reference}; lcm teams list shows yours")


def find_team(teams: TeamList, caller: Caller, reference: str) -> Team:
    """A team that the caller may see, by name or id."""
    team = teams.find(reference)
    if team is None or not (caller.scope.everything or team.id in caller.scope.all_teams):
        raise team_not_found(reference)
    return team


def choose_team(teams: TeamList, caller: Caller, reference: str | None) -> Team | None:
    """The team for something new; None for none, which operators may choose.

    Without a reference it is the only team in which an instructor has the role.
    """
    if reference is not None:
        team = find_team(teams, caller, reference)
        if not manages(caller, team.id):
            raise ForbiddenError(f"This needs the role instructor in the team {team.name}.")
        return team
    if caller.allows(Role.OPERATOR):
        return None
    mine = sorted({grant.team for grant in caller.grants if grant.role is Role.INSTRUCTOR})
    if len(mine) == 1:
        return find_team(teams, caller, mine[0])
    names = ", ".join(sorted(teams.name(each) for each in mine))
    raise ProblemError(ProblemCode.INVALID, f"team: you are an instructor in several teams; name one of {names}")


def choose_owner(team: Team | None, caller: Caller, named: str | None) -> LabletOwner:
    """Whose lablet it is: the caller's, unless another person is named.

    A member of the team is named by e-mail address; anyone by what proves them, such as `token:` and an id. Any other
    text is a name, which proves nothing.
    """
    if named is None or named == caller.name:
        return LabletOwner(caller.identity, caller.name)
    return named_owner(team, named)


def named_owner(team: Team | None, named: str) -> LabletOwner:
    """The owner that a text names, whoever the caller is."""
    if named.startswith(_IDENTITIES):
        return LabletOwner(named, named)
    member = None if team is None or "@" not in named else team.member(named)
    if member is None:
        return LabletOwner("", named)
    if member.subject is not None:
        return LabletOwner(f"oidc:{member.subject}", member.name or named)
    return LabletOwner(email_owner(member.email), named)


async def admit(tx: Transaction, lablet: Lablet) -> Lablet:
    """The new lablet within the limits of its team, which the commit depends on; a problem if they do not allow it."""
    if not lablet.team:
        return lablet
    stored, team = await read_team(tx, lablet.team)
    lablet = _within_lifetime(lablet, team)
    await _check_max_lablets(tx, team)
    _add_to(tx, stored, team)
    return lablet


async def admit_assigned(tx: Transaction, lablet: Lablet, team_id: str) -> dict[str, Any]:
    """What changes of the end of a lablet that comes to a team. It counts there as a new one, unless it has ended."""
    stored, team = await read_team(tx, team_id)
    _add_to(tx, stored, team)
    if lablet.status in FINAL_LABLET_STATUSES:
        return {}
    await _check_max_lablets(tx, team)
    return _changed_end(lablet, team, tx.now)


async def add_to_team(tx: Transaction, team_id: str) -> None:
    """Something in this commit belongs to the team, or to none if there is no id."""
    if team_id:
        _add_to(tx, *await read_team(tx, team_id))


async def add_to_named_team(tx: Transaction, reference: str) -> str:
    """Something in this commit belongs to the team with this id or name; returns its id."""
    stored = await tx.store.get(TEAMS, reference) or await tx.store.get_unique(TEAMS, "name", reference)
    if stored is None:
        raise team_not_found(reference)
    _add_to(tx, stored, Team.model_validate_json(stored.body))
    return stored.id


def _add_to(tx: Transaction, stored: StoredDocument, team: Team) -> None:
    """Write the team as it is. Whoever deletes it has counted what it has, and must count again after this commit.

    So it is with its limit: of two lablets that are created at once, the second counts the first.
    """
    tx.stage(put_team(team, stored.revision))


async def _check_max_lablets(tx: Transaction, team: Team) -> None:
    if team.limits.max_lablets is None:
        return
    live = Where(any_of={"team": [team.id]}, none_of={"status": sorted(FINAL_LABLET_STATUSES)})
    count = sum(number for _, number, _ in await tx.store.count_by(LABLETS, ["status"], live))
    if count >= team.limits.max_lablets:
        allowed = count_of(team.limits.max_lablets, "lablet")
        detail = f"team {team.name} may have {allowed} at once and has {count}; end one, or ask an admin for more"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)


async def read_team(tx: Transaction, team_id: str) -> tuple[StoredDocument, Team]:
    """A team as it is now."""
    stored = await tx.store.get(TEAMS, team_id)
    if stored is None:
        raise team_not_found(team_id)
    return stored, Team.model_validate_json(stored.body)


def _changed_end(lablet: Lablet, team: Team, now: datetime) -> dict[str, Any]:
    """Assigned lablets end after `max_lifetime_minutes` at the latest, counted from now or from their later start.

    One that has run for longer is not ended at once: whoever uses it may not have heard of the team.
    """
    most = team.limits.max_lifetime_minutes
    if most is None:
        return {}
    latest = max(now, lablet.starts_at or now) + timedelta(minutes=most)
    changes: dict[str, Any] = {}
    if lablet.ends_at is not None:
        changes["ends_at"] = min(lablet.ends_at, latest)
    elif lablet.running_since is None:
        changes["time_to_live_minutes"] = min(most, lablet.time_to_live_minutes or most)
    elif lablet.expires_at is None or lablet.expires_at > latest:
        changes["ends_at"] = latest
    return {name: value for name, value in changes.items() if getattr(lablet, name) != value}


def _within_lifetime(lablet: Lablet, team: Team) -> Lablet:
    """Lablets of the team end after `max_lifetime_minutes` at the latest."""
    most = team.limits.max_lifetime_minutes
    if most is None:
        return lablet
    begins = max(lablet.created_at, lablet.starts_at or lablet.created_at)
    if lablet.ends_at is not None and lablet.ends_at > begins + timedelta(minutes=most):
        detail = f"ends_at: lablets of team {team.name} may last {most:g} minutes at most"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    if lablet.ends_at is not None and lablet.time_to_live_minutes is None:
        return lablet
    return lablet.model_copy(update={"time_to_live_minutes": min(most, lablet.time_to_live_minutes or most)})
