"""Roles: what each allows, and how a caller is named in the audit."""

from __future__ import annotations

import pytest

from lcm.control_plane.auth.roles import Caller, ForbiddenError, allows
from lcm.model.access import CallerKind, Role
from lcm.model.audit import ActorKind

BY_HAND = {
    Role.VIEWER: {Role.VIEWER},
    Role.OPERATOR: {Role.VIEWER, Role.OPERATOR},
    Role.ADMIN: {Role.VIEWER, Role.OPERATOR, Role.ADMIN},
    Role.CONTROLLER: {Role.CONTROLLER},
}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("needed", Role)
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
    kinds = {role: Caller(name="x", kind=CallerKind.TOKEN, role=role).actor.kind for role in Role}
    assert kinds.pop(Role.CONTROLLER) is ActorKind.CONTROLLER
    assert set(kinds.values()) == {ActorKind.PERSON}
