"""`lcm teams`: who belongs to a team, what it may use, and which lablets and definitions are its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcm.cli.errors import CommandError, UsageError
from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import YesOption, make_command_group
from lcm.cli.runtime.session import Session, confirm_change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.model.team import TeamSummary, WorkerReadiness

app = make_command_group("Teams: their members and limits, and what belongs to them.")

TeamArgument = Annotated[str, typer.Argument(metavar="TEAM", help="Name or id of a team.")]
InstructorOption = Annotated[
    list[str] | None, typer.Option("--instructor", metavar="EMAIL", help="An instructor; repeatable.")
]
LearnerOption = Annotated[list[str] | None, typer.Option("--learner", metavar="EMAIL", help="A learner; repeatable.")]
InstructorGroupOption = Annotated[
    list[str] | None, typer.Option("--instructor-group", metavar="GROUP", help="A group of instructors; repeatable.")
]
LearnerGroupOption = Annotated[
    list[str] | None, typer.Option("--learner-group", metavar="GROUP", help="A group of learners; repeatable.")
]
DescriptionOption = Annotated[str | None, typer.Option("--description", metavar="TEXT", help="Description.")]
MaxLabletsOption = Annotated[int | None, typer.Option("--max-lablets", metavar="N", help="Lablets at once.")]
MaxSeatsOption = Annotated[int | None, typer.Option("--max-seats", metavar="N", help="Seats booked at once.")]
MaxLifetimeOption = Annotated[
    str | None, typer.Option("--max-lifetime", metavar="SPAN", help="How long a lablet may last, such as 4h.")
]


def _columns() -> list[Column[TeamSummary]]:
    return [
        Column("NAME", lambda each: each.name),
        Column("LABLETS", lambda each: _of(each.lablets, each.limits.max_lablets), align_right=True),
        Column("MEMBERS", lambda each: str(len(each.members)), priority=1, align_right=True),
        Column("DESCRIPTION", lambda each: each.description, priority=2),
        Column("ID", lambda each: each.id, priority=3),
    ]


_LIMIT_LABELS = {
    "max_lablets": "lablets at once",
    "max_seats": "seats booked at once",
    "max_lifetime_minutes": "max lifetime",
}


def _limit_text(name: str, limit: float | None) -> str:
    from lcm.cli.output.durations import format_minutes

    if limit is None:
        return "no limit"
    return format_minutes(limit) if name == "max_lifetime_minutes" else str(limit)


def _of(count: int, most: int | None) -> str:
    return str(count) if most is None else f"{count} of {most}"


@command(app, "list", watchable=True)
async def list_teams(session: Session) -> None:
    """List teams: yours, or all if your role is for the whole fleet."""
    from lcm.cli.live.watch_loop import show_or_watch

    async def show() -> None:
        found = [each async for each in session.client.teams.list()]
        session.printer.items(found, _columns(), lambda each: each.name, "No teams.")

    await show_or_watch(session, show)


@command(app, "get")
async def get_team(session: Session, team: TeamArgument) -> None:
    """Show a team with its members and limits."""
    found = await session.client.teams.get(team)
    session.printer.item(found, found.name, lambda each: _show(session, each))


def _show(session: Session, team: TeamSummary) -> None:
    limits = team.limits
    details = [
        ("name", team.name),
        ("id", team.id),
        ("description", team.description or "-"),
        ("lablets", _of(team.lablets, limits.max_lablets)),
        ("seats", _limit_text("max_seats", limits.max_seats)),
        ("max lifetime", _limit_text("max_lifetime_minutes", limits.max_lifetime_minutes)),
    ]
    for member in team.members:
        named = f"group {member.group}" if member.group else f"{member.email}"
        pinned = f", first signed in as {member.name}" if member.name else ""
        details.append((member.role.value, named + pinned))
    session.printer.details(details)


@command(app, "create", mutates=True)
async def create_team(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the team.")],
    description: DescriptionOption = None,
    instructor: InstructorOption = None,
    learner: LearnerOption = None,
    instructor_group: InstructorGroupOption = None,
    learner_group: LearnerGroupOption = None,
    max_lablets: MaxLabletsOption = None,
    max_seats: MaxSeatsOption = None,
    max_lifetime: MaxLifetimeOption = None,
) -> None:
    """Create a team. Members sign in with the identity provider, or with a token for the team."""
    from lcm.cli.runtime.options import validate
    from lcm.model.formatting import count_of
    from lcm.model.team import CreateTeamRequest

    fields: dict[str, Any] = {
        "name": name,
        "description": description or "",
        "members": _members(instructor, learner, instructor_group, learner_group),
        "limits": _limits(max_lablets, max_seats, max_lifetime),
    }
    body = validate(CreateTeamRequest, fields)
    session.forecast = [(name, f"will be created, with {count_of(len(body.members), 'member')}")]
    created = await session.client.teams.create(body)
    session.printer.item(created, created.name, lambda each: session.printer.line(f"Team {each.name} created."))


@command(app, "edit", mutates=True)
async def edit_team(
    session: Session,
    team: TeamArgument,
    rename: Annotated[str | None, typer.Option("--rename", metavar="NAME", help="Another name.")] = None,
    description: DescriptionOption = None,
    max_lablets: MaxLabletsOption = None,
    max_seats: MaxSeatsOption = None,
    max_lifetime: MaxLifetimeOption = None,
    no_limits: Annotated[bool, typer.Option("--no-limits", help="Remove the limits that are not given.")] = False,
) -> None:
    """Change name, description or limits of a team."""
    new_limits = _limits(max_lablets, max_seats, max_lifetime)
    if rename is None and description is None and not new_limits and not no_limits:
        raise UsageError("nothing to change; pass at least one option, such as --max-lablets 40")
    found = await session.client.teams.get(team)
    before = found.limits.model_dump()
    limits = {} if no_limits else found.limits.model_dump(exclude_none=True)
    limits |= new_limits
    given = {"name": rename, "description": description}
    fields = {name: value for name, value in given.items() if value is not None and value != getattr(found, name)}
    effects = [f"{name}: {getattr(found, name) or 'none'} → {value or 'none'}" for name, value in fields.items()]
    effects += [
        f"{label}: {_limit_text(name, before[name])} → {_limit_text(name, limits.get(name))}"
        for name, label in _LIMIT_LABELS.items()
        if before[name] != limits.get(name)
    ]
    text = f"Team {rename or found.name} changed." if effects else f"Team {found.name}: no change needed."
    await _change(session, found, {**fields, "limits": limits}, effects or ["no change needed"], text)


@command(app, "add", mutates=True)
async def add_members(
    session: Session,
    team: TeamArgument,
    instructor: InstructorOption = None,
    learner: LearnerOption = None,
    instructor_group: InstructorGroupOption = None,
    learner_group: LearnerGroupOption = None,
) -> None:
    """Add members to a team, or change their roles."""
    found = await session.client.teams.get(team)
    added = _members(instructor, learner, instructor_group, learner_group)
    if not added:
        raise UsageError("name at least one member: --instructor, --learner, --instructor-group or --learner-group")
    new = {(each.get("group"), each.get("email", "").casefold()) for each in added}
    kept = [each for each in _present(found) if (each.get("group"), each.get("email", "")) not in new]
    roles = {"instructor": "an instructor", "learner": "a learner"}
    effects = [f"{each.get('email') or 'group ' + each['group']} will be {roles[each['role']]}" for each in added]
    await _change(session, found, {"members": [*kept, *added]}, effects, f"Team {found.name}: members added.")


@command(app, "remove", mutates=True)
async def remove_member(
    session: Session,
    team: TeamArgument,
    member: Annotated[str, typer.Argument(metavar="MEMBER", help="E-mail address or group.")],
    yes: YesOption = False,
) -> None:
    """Remove a member from a team. Their lablets stay. Asks for confirmation."""
    found = await session.client.teams.get(team)
    kept = [each for each in _present(found) if member.casefold() not in (each.get("email"), _group(each))]
    if len(kept) == len(found.members):
        raise CommandError(f"{member} is not a member of {found.name}; lcm teams get {found.name} lists them")
    effect = f"{member} will lose access to everything of {found.name}. Their lablets stay."
    confirm_change(session, [effect], f"Remove {member} from {found.name}?", yes=yes)
    await _change(session, found, {"members": kept}, [effect], f"Team {found.name}: {member} removed.")


@command(app, "delete", mutates=True)
async def delete_team(session: Session, team: TeamArgument, yes: YesOption = False) -> None:
    """Delete a team without lablets, definitions, bookings and workers. Asks for confirmation."""
    found = await session.client.teams.get(team)
    needed = "unless definitions, lablets, bookings or workers still belong to it"
    session.forecast = [(found.name, f"will be deleted, {needed}")]
    confirm_change(session, ["Its members will lose their roles in it."], f"Delete the team {found.name}?", yes=yes)
    await session.client.teams.delete(found.id)
    session.printer.item(found, found.name, lambda each: session.printer.line(f"Team {each.name} deleted."))


@command(app, "workers", watchable=True)
async def list_readiness(session: Session) -> None:
    """List name and readiness of the workers that lablets of your teams may be placed on."""
    from lcm.cli.live.watch_loop import show_or_watch

    columns: list[Column[WorkerReadiness]] = [
        Column("NAME", lambda each: each.name),
        Column("READY", lambda each: "yes" if each.ready else "no"),
    ]

    async def show() -> None:
        found = [each async for each in session.client.teams.worker_readiness()]
        session.printer.items(found, columns, lambda each: each.name, "No workers.")

    await show_or_watch(session, show)


@command(app, "assign-lablet", mutates=True)
async def assign_lablet(
    session: Session,
    lablet: Annotated[str, typer.Argument(metavar="LABLET", help="Name or id of a lablet, or a unique prefix.")],
    team: TeamArgument,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="EMAIL", help="The new owner: a member of the team.")
    ] = None,
) -> None:
    """Assign a lablet to a team, and to a person in it. Its lab goes on."""
    from lcm.cli.runtime.lookup import find_lablet
    from lcm.cli.runtime.options import validate
    from lcm.model.lablet.record import AssignLabletRequest

    found = await find_lablet(session.client, lablet)
    body = validate(AssignLabletRequest, {"team": team, "owner": owner})
    session.forecast = [(found.name, f"will be assigned to {team}")]
    done = await session.client.lablets.assign(found.id, body)
    text = f"{done.name} belongs to team {team}; its owner is {done.owner_name or 'not known'}."
    if owner is not None and not done.owner:
        text += f" No member of the team has this address, so {owner} does not see it: lcm teams add {team}"
    session.printer.item(done, done.name, lambda _: session.printer.line(text))


@command(app, "assign-definition", mutates=True)
async def assign_definition(
    session: Session,
    definition: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="Version of a definition.")],
    team: Annotated[str | None, typer.Argument(metavar="TEAM", help="Name or id of a team. Default: none.")] = None,
) -> None:
    """Assign a version of a definition to a team, or to none. Existing lablets are unaffected."""
    from lcm.cli.runtime.lookup import find_definition
    from lcm.cli.runtime.options import validate
    from lcm.model.lablet.record import AssignDefinitionRequest

    found = await find_definition(session.client, definition)
    body = validate(AssignDefinitionRequest, {"team": team})
    session.forecast = [(found.reference, f"will be assigned to {team or 'no team'}")]
    done = await session.client.definitions.assign(found.name, found.version, body, team=found.team or None)
    text = f"{done.reference} belongs to {team or 'no team'}."
    session.printer.item(done, done.id, lambda _: session.printer.line(text))


async def _change(
    session: Session, team: TeamSummary, fields: dict[str, Any], effects: Sequence[str], text: str
) -> None:
    from lcm.cli.runtime.options import validate
    from lcm.model.team import UpdateTeamRequest

    session.forecast = [(team.name, effect) for effect in effects]
    changed = await session.client.teams.edit(team.id, validate(UpdateTeamRequest, fields), version=team.version)
    session.printer.item(changed, changed.name, lambda _: session.printer.line(text))


def _members(
    instructors: list[str] | None,
    learners: list[str] | None,
    instructor_groups: list[str] | None,
    learner_groups: list[str] | None,
) -> list[dict[str, str]]:
    return [
        *({"role": "instructor", "email": each} for each in instructors or ()),
        *({"role": "learner", "email": each} for each in learners or ()),
        *({"role": "instructor", "group": each} for each in instructor_groups or ()),
        *({"role": "learner", "group": each} for each in learner_groups or ()),
    ]


def _present(team: TeamSummary) -> list[dict[str, str]]:
    """The members of a team, as a request names them."""
    return [
        {"role": each.role.value, **({"group": each.group} if each.group else {"email": each.email or ""})}
        for each in team.members
    ]


def _group(member: dict[str, str]) -> str:
    return member.get("group", "").casefold()


def _limits(max_lablets: int | None, max_seats: int | None, max_lifetime: str | None) -> dict[str, Any]:
    from lcm.cli.output.durations import parse_duration

    minutes = None if max_lifetime is None else parse_duration(max_lifetime, "--max-lifetime").total_seconds() / 60
    found = {"max_lablets": max_lablets, "max_seats": max_seats, "max_lifetime_minutes": minutes}
    return {name: value for name, value in found.items() if value is not None}
