"""Teams: who belongs to one, what they may use, and the requests about them."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema, model_validator

from lcm.model.access import TEAM_ROLES, Role
from lcm.model.base import (
    CARRIED,
    WHOLE_NUMBER,
    LenientModel,
    Record,
    ResourceName,
    SingleLineText,
    StrictModel,
    UtcDatetime,
)
from lcm.model.validation import text_like

MAX_MEMBERS = 1_000
MAX_TEAMS = 1_000
MAX_LIFETIME_MINUTES = 525_600


def _fold_email(text: str) -> str:
    """Addresses are compared without regard to case, as providers do."""
    return text.casefold()


Email = Annotated[
    str,
    text_like(r"^[^@\s\x00-\x1f]{1,64}@[^@\s\x00-\x1f]{1,190}$", "an e-mail address such as ann@example.org"),
    AfterValidator(_fold_email),
]


def _team_role(role: Role) -> Role:
    if role not in TEAM_ROLES:
        raise ValueError(f"must be {' or '.join(TEAM_ROLES)}: other roles are for the whole fleet")
    return role


TeamRole = Annotated[
    Role, AfterValidator(_team_role), WithJsonSchema({"type": "string", "enum": [role.value for role in TEAM_ROLES]})
]


_GROUP_OR_EMAIL: Any = {
    "oneOf": [
        {"required": ["group"], "properties": {"group": {"type": "string"}, "email": {"type": "null"}}},
        {"required": ["email"], "properties": {"email": {"type": "string"}, "group": {"type": "null"}}},
    ]
}


class RequestedMember(StrictModel):
    """Who belongs to a team: everybody in a group of the identity provider, or one person by a verified address."""

    model_config = ConfigDict(json_schema_extra=_GROUP_OR_EMAIL)

    role: TeamRole
    group: Annotated[SingleLineText, Field(min_length=1, max_length=256)] | None = None
    email: Email | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.group is None) == (self.email is None):
            raise ValueError("give either group or email")
        return self


def _once_each(members: tuple[RequestedMember, ...]) -> tuple[RequestedMember, ...]:
    named = [(each.group, each.email) for each in members]
    for each in members:
        if named.count((each.group, each.email)) > 1:
            raise ValueError(f"{each.group or each.email} is listed twice; give the role that counts")
    return members


class TeamMember(Record):
    """A member of a team. A person named by address is pinned to issuer and subject at the first sign-in."""

    role: Annotated[Role, CARRIED]
    group: str | None = None
    email: str | None = None
    subject: str | None = Field(
        default=None, description="Issuer and subject of the person who first signed in with the address."
    )
    name: str = Field(default="", description="The name of that person when they first signed in.")

    @property
    def key(self) -> tuple[str | None, str | None]:
        """What identifies the entry within its team."""
        return self.group, self.email


MaxLablets = Annotated[int, Field(ge=0, le=100_000, description="Lablets at once, of all members."), WHOLE_NUMBER]
MaxSeats = Annotated[int, Field(ge=0, le=100_000, description="Seats that bookings may have at once."), WHOLE_NUMBER]
MaxLifetime = Annotated[
    float,
    Field(gt=0, le=MAX_LIFETIME_MINUTES, strict=True, description="How long a lablet may last, with all extensions."),
]


class TeamLimits(Record):
    """What a team may use at once. Null means no limit."""

    max_lablets: MaxLablets | None = None
    max_seats: MaxSeats | None = None
    max_lifetime_minutes: MaxLifetime | None = None


class RequestedLimits(StrictModel):
    """The limits of a team in a request. What is left out has no limit."""

    max_lablets: MaxLablets | None = None
    max_seats: MaxSeats | None = None
    max_lifetime_minutes: MaxLifetime | None = None


class Team(Record):
    """A team: its instructors see its definitions and lablets, its learners their own lablets."""

    id: str
    name: ResourceName
    description: Annotated[SingleLineText, Field(max_length=500)] = ""
    members: tuple[TeamMember, ...] = ()
    limits: TeamLimits = TeamLimits()
    version: int = 1
    created_at: UtcDatetime
    updated_at: UtcDatetime
    created_by: str = ""

    def member(self, email: str) -> TeamMember | None:
        """The entry with this address."""
        return next((each for each in self.members if each.email == email.casefold()), None)


class CreateTeamRequest(StrictModel):
    """Create a team."""

    name: ResourceName
    description: Annotated[SingleLineText, Field(max_length=500)] = ""
    members: Annotated[tuple[RequestedMember, ...], Field(max_length=MAX_MEMBERS), AfterValidator(_once_each)] = ()
    limits: RequestedLimits = RequestedLimits()


class UpdateTeamRequest(StrictModel):
    """Change a team: only the given fields change. `members` and `limits` replace what was there."""

    name: ResourceName | None = None
    description: Annotated[SingleLineText, Field(max_length=500)] | None = None
    members: (
        Annotated[tuple[RequestedMember, ...], Field(max_length=MAX_MEMBERS), AfterValidator(_once_each)] | None
    ) = None
    limits: RequestedLimits | None = None


class TeamSummary(LenientModel):
    """A team as its members see it; admins and other roles of the fleet see all members and limits."""

    id: str
    name: ResourceName
    description: str = ""
    members: tuple[TeamMember, ...] = Field(
        default=(), description="Learners see none; instructors see no issuer and subject."
    )
    limits: TeamLimits = TeamLimits()
    lablets: int = Field(default=0, description="Its lablets that have not ended.")
    version: int = 1
    created_at: UtcDatetime
    updated_at: UtcDatetime
    created_by: str = ""


class WorkerReadiness(LenientModel):
    """What an instructor may know of a worker."""

    name: str
    ready: bool = Field(description="Whether it takes lablets now: it is ready, adopted, schedulable and not on hold.")
