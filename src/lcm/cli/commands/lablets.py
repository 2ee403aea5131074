"""`lcm lablets`: labs run for people, where they are, and why they wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.errors import CommandError, UsageError
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import ReasonOption, YesOption, make_command_group
from lcm.cli.runtime.session import Session, confirm, require_terminal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lcm.model.lablet.record import CreateLabletRequest, Lablet
    from lcm.model.lablet.status import LabletStatus

app = make_command_group("Run labs, see where they are and why they wait, and end them.")

_MAX_NAME_LOOKUPS = 25

LabletArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A lablet's name or id, or the beginning of one that fits only one.")
]
DefinitionArgument = Annotated[
    str, typer.Argument(metavar="DEFINITION", help="What it is made from: a name, or name@version.")
]
StatusesOption = Annotated[
    list[str] | None,
    typer.Option("--status", "-s", metavar="STATUS", help="Only these, such as running; repeat it or use commas."),
]
OwnersOption = Annotated[list[str] | None, typer.Option("--owner", metavar="NAME", help="Only theirs.")]
WorkerOption = Annotated[str | None, typer.Option("--worker", metavar="NAME", help="Only those on this worker.")]
DefinitionsOption = Annotated[
    list[str] | None, typer.Option("--definition", "-d", metavar="NAME", help="Only made from these.")
]
NameFilterOption = Annotated[
    str | None, typer.Option("--name", "-q", metavar="TEXT", help="Only with this in their name.")
]
SortOption = Annotated[
    str, typer.Option(help="name, status, owner, definition, created_at or updated_at; -name turns it round.")
]
NameOption = Annotated[str | None, typer.Option("--name", "-n", metavar="NAME", help="What it is to be called.")]
OwnerOption = Annotated[str | None, typer.Option("--owner", metavar="NAME", help="Whose it is; without it, yours.")]
RegionOption = Annotated[str | None, typer.Option("--region", help="Where; without it, anywhere.")]
StartsOption = Annotated[
    str | None, typer.Option("--starts", metavar="WHEN", help="Not before: 2h, or 2026-01-17T10:30Z.")
]
EndsOption = Annotated[
    str | None, typer.Option("--ends", metavar="WHEN", help="When it ends: 2h, or 2026-01-17T10:30Z.")
]
TtlOption = Annotated[str | None, typer.Option("--ttl", metavar="SPAN", help="How long it runs at most, such as 90m.")]
IfLostOption = Annotated[
    str, typer.Option("--if-lost", metavar="reschedule|fail", help="What becomes of it when its worker is lost.")
]


@command(app, "list", lists=True)
async def list_lablets(
    session: Session,
    status: StatusesOption = None,
    owner: OwnersOption = None,
    worker: WorkerOption = None,
    definition: DefinitionsOption = None,
    name: NameFilterOption = None,
    sort: SortOption = "name",
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those that have ended as well.")] = False,
) -> None:
    """Lablets, one a line. Those that have ended only with --all, or when asked for."""
    from lcm.cli.live.watch_loop import show_or_watch
    from lcm.cli.output.lablet_views import lablet_columns
    from lcm.cli.runtime.lookup import find_worker
    from lcm.core import clock
    from lcm.model.lablet.status import FINAL_LABLET_STATUSES

    wanted = _parse_statuses(status)
    hidden = [] if everything or wanted else sorted(FINAL_LABLET_STATUSES)
    on = [(await find_worker(session.client, worker)).id] if worker is not None else []

    async def show() -> None:
        found = session.client.lablets.list(
            status=wanted,
            exclude_statuses=hidden,
            owner=_split_commas(owner),
            worker=on,
            definition=_split_commas(definition),
            q=name,
            sort=sort,
            page_size=500,
        )
        lablets = [lablet async for lablet in found]
        names = await _worker_names(session, lablets) if session.screen.for_people else {}
        none = "No lablets. Run one: lcm lablets create DEFINITION"
        if wanted or owner or worker or definition or name:
            none = "No lablet fits."
        session.screen.many(lablets, lablet_columns(clock.now(), names), lambda lablet: lablet.name, none)

    await show_or_watch(session, show)


@command(app, "get")
async def get_lablet(session: Session, name: LabletArgument) -> None:
    """One lablet, with all that is known of it."""
    from lcm.cli.output.lablet_views import show_lablet
    from lcm.cli.runtime.lookup import find_lablet

    lablet = await find_lablet(session.client, name)
    names = await _worker_names(session, [lablet]) if session.screen.for_people else {}
    on = names.get(lablet.worker_id or "", lablet.worker_id or "")
    session.screen.one(lablet, lablet.name, lambda each: show_lablet(session.screen, each, on))


@command(app, "history")
async def lablet_history(session: Session, name: LabletArgument) -> None:
    """A lablet's life so far: every step, when, by whom and why."""
    from lcm.cli.output.lablet_views import show_lablet_history
    from lcm.cli.output.printer import to_json_data
    from lcm.cli.runtime.lookup import find_lablet

    lablet = await find_lablet(session.client, name)
    steps = [step async for step in session.client.lablets.history(lablet.id)]
    if session.screen.for_people:
        show_lablet_history(session.screen, lablet.name, steps)
    else:
        session.screen.data([to_json_data(step) for step in steps])


@command(app, "create", changes=True)
async def create_lablet(
    session: Session,
    definition: DefinitionArgument,
    name: NameOption = None,
    owner: OwnerOption = None,
    region: RegionOption = None,
    starts: StartsOption = None,
    ends: EndsOption = None,
    ttl: TtlOption = None,
    if_lost: IfLostOption = "reschedule",
) -> None:
    """A new lablet. It is placed as soon as a worker fits; where none does, one is resumed or launched."""
    body = _create_request(definition, name, owner, region, starts, ends, ttl, if_lost)
    if session.dry_run:
        told = await session.client.lablets.preview(body)
        cost = f" (${told.cost_per_hour_usd:g} an hour more than now)" if told.cost_per_hour_usd else ""
        session.forecast = [("then", f"{told.reason}{cost}")]
    made = await session.client.lablets.create(body)
    text = f"{made.name} is created from {made.definition}.\nWait for it: lcm lablets wait {made.name}"
    session.screen.one(made, made.name, lambda _: session.screen.say(text))


@command(app, "preview")
async def preview_lablet(
    session: Session,
    definition: DefinitionArgument,
    region: RegionOption = None,
    starts: StartsOption = None,
    ends: EndsOption = None,
) -> None:
    """What would become of a lablet: who could take it, who could not and why, what would be launched, and its cost."""
    from lcm.cli.output.lablet_views import show_preview

    told = await session.client.lablets.preview(
        _create_request(definition, None, None, region, starts, ends, None, None)
    )
    session.screen.one(told, told.definition, lambda each: show_preview(session.screen, each))


@command(app, "terminate", changes=True)
async def terminate_lablet(
    session: Session, name: LabletArgument, reason: ReasonOption = None, yes: YesOption = False
) -> None:
    """End a lablet: its lab is stopped, wiped and deleted. It asks first."""
    from lcm.cli.runtime.lookup import find_lablet
    from lcm.control_plane.lablets.lifecycle import request_termination as ended
    from lcm.core import clock
    from lcm.model.lablet.status import FINAL_LABLET_STATUSES

    lablet = await find_lablet(session.client, name)
    if not yes and not session.dry_run and lablet.wanted and lablet.status not in FINAL_LABLET_STATUSES:
        require_terminal()
        if not confirm(f"End {lablet.name}, which is {lablet.status}, and delete its lab?"):
            raise CommandError("nothing was changed")
    after = ended(lablet, clock.now(), reason or "")
    session.forecast = [(lablet.name, _end_description(lablet, after))]
    changed = await session.client.lablets.terminate(lablet.id, reason)
    line = f"{changed.name} is {changed.status}"
    if changed.version == lablet.version:
        line += ". That was so before: nothing was changed."
    elif changed.status in FINAL_LABLET_STATUSES:
        line += "; nothing of it was on a worker."
    else:
        line += f" and ends.\nWait for it: lcm lablets wait {changed.name} --for terminated"
    session.screen.one(changed, changed.name, lambda _: session.screen.say(line))


@command(app, "wait", patient=True)
async def wait_for_status(
    session: Session,
    name: LabletArgument,
    wanted: Annotated[
        str, typer.Option("--for", metavar="STATUS", help="A status such as running or terminated.")
    ] = "running",
    timeout: Annotated[str, typer.Option(metavar="SPAN", help="How long at most, such as 90s, 10m or 1h.")] = "30m",
) -> None:
    """Wait until a lablet runs, or is in another status; exit code 1 and why if it will not be."""
    from lcm.cli.output.durations import parse_duration
    from lcm.cli.runtime.waiting import wait_for_lablet

    (goal,) = _parse_statuses([wanted], "--for") or _parse_statuses(["running"])
    await wait_for_lablet(session, name, goal, parse_duration(timeout, "--timeout"))


def _create_request(
    definition: str,
    name: str | None,
    owner: str | None,
    region: str | None,
    starts: str | None,
    ends: str | None,
    ttl: str | None,
    if_lost: str | None,
) -> CreateLabletRequest:
    from lcm.cli.output.durations import parse_duration, parse_time
    from lcm.cli.runtime.options import validate
    from lcm.core import clock
    from lcm.model.lablet.record import CreateLabletRequest

    now = clock.now()
    facts: dict[str, object | None] = {
        "definition": definition,
        "name": name,
        "owner": owner,
        "aws_region": region,
        "starts_at": None if starts is None else parse_time(starts, now, "--starts"),
        "ends_at": None if ends is None else parse_time(ends, now, "--ends"),
        "time_to_live_minutes": None if ttl is None else parse_duration(ttl, "--ttl").total_seconds() / 60,
        "lost_worker_policy": None if if_lost == "reschedule" else if_lost,
    }
    return validate(CreateLabletRequest, {key: value for key, value in facts.items() if value is not None})


def _end_description(before: Lablet, after: Lablet) -> str:
    """What an end makes of it."""
    if after.version == before.version:
        return f"{before.status}, as before"
    if after.status is not before.status:
        return f"{before.status} → {after.status}"
    return f"{before.status}, then {after.ending} once its lab is stopped, wiped and deleted"


async def _worker_names(session: Session, lablets: Iterable[Lablet]) -> dict[str, str]:
    """The names of the workers that they are on; where there are many, ids must do."""
    from lcm.client.errors import NotFoundError

    ids = sorted({lablet.worker_id for lablet in lablets if lablet.worker_id is not None})
    names: dict[str, str] = {}
    for worker_id in ids if len(ids) <= _MAX_NAME_LOOKUPS else ():
        try:
            names[worker_id] = (await session.client.workers.get(worker_id)).name
        except NotFoundError:
            continue
    return names


def _parse_statuses(values: list[str] | None, option: str = "--status") -> list[LabletStatus]:
    from lcm.model.lablet.status import LabletStatus

    short = {"pending": LabletStatus.PENDING_SCHEDULING}
    try:
        return [short.get(each.lower()) or LabletStatus(each) for each in _split_commas(values)]
    except ValueError:
        known = ", ".join(status.value.lower() for status in LabletStatus)
        raise UsageError(f"{option} {','.join(values or [])}: there are {known}") from None


def _split_commas(values: list[str] | None) -> list[str]:
    return [part.strip() for value in values or [] for part in value.split(",") if part.strip()]
