"""Roles: what each allows, and how a caller is named in the audit."""

from __future__ import annotations

import pytest

from lcm.control_plane.auth.roles import Caller, ForbiddenError, allows
from lcm.model.access import CallerKind, Grant, Role
from lcm.model.audit import ActorKind

BY_HAND = {
    Role.VIEWER: {Role.VIEWER},
    Role.OPERATOR: {Role.VIEWER, Role.OPERATOR},
    Role.ADMIN: {Role.VIEWER, Role.OPERATOR, Role.ADMIN},
    Role.CONTROLLER: {Role.CONTROLLER},
}


@pytest.mark.parametrize("role", BY_HAND)
@pytest.mark.parametrize("needed", BY_HAND)
def test_every_pair(role: Role, needed: Role) -> None:
    caller = Caller(name="ann", kind=CallerKind.TOKEN, role=role)
    allowed = needed in BY_HAND[role]
    assert allows(role, needed) == allowed
    if allowed:
        caller.require(needed)
    else:
        with pytest.raises(ForbiddenError, match=f"needs the role {needed}; ann has the role {role}"):
            caller.require(needed)


def test_the_audit_distinguishes_controllers_from_people() -> None:
    kinds = {role: Caller(name="x", kind=CallerKind.TOKEN, role=role).actor.kind for role in BY_HAND}
    assert kinds.pop(Role.CONTROLLER) is ActorKind.CONTROLLER
    assert set(kinds.values()) == {ActorKind.PERSON}


@pytest.mark.parametrize("role", [Role.INSTRUCTOR, Role.LEARNER])
@pytest.mark.parametrize("needed", BY_HAND)
def test_a_role_in_a_team_is_none_for_the_fleet(role: Role, needed: Role) -> None:
    caller = Caller(name="ann", kind=CallerKind.TOKEN, role=None, grants=(Grant(team="team-1", role=role),))
    with pytest.raises(ForbiddenError, match=f"needs the role {needed}; ann has the role {role}"):
        caller.require(needed)


def test_what_each_role_sees_of_teams() -> None:
    def scope(role: Role | None, *grants: Grant) -> list[str]:
        caller = Caller("ann", CallerKind.TOKEN, role, token_id="t-1", grants=grants)
        things = {"mine": ("a", "token:t-1"), "other": ("a", "token:t-2"), "by-email": ("a", "email:ann@x.org")}
        things |= {"elsewhere": ("b", "token:t-1"), "none": ("", "token:t-1")}
        return [name for name, thing in things.items() if caller.scope.sees(*thing)]

    assert scope(Role.VIEWER) == ["mine", "other", "by-email", "elsewhere", "none"]
    assert scope(None) == []
    assert scope(None, Grant(team="a", role=Role.INSTRUCTOR)) == ["mine", "other", "by-email"]
    assert scope(None, Grant(team="a", role=Role.LEARNER)) == ["mine"]
    assert scope(None, Grant(team="a", role=Role.LEARNER, email="ann@x.org")) == ["mine", "by-email"]
    both = (Grant(team="a", role=Role.LEARNER), Grant(team="b", role=Role.INSTRUCTOR))
    assert scope(None, *both) == ["mine", "elsewhere"]
