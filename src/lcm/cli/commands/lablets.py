"""`lcm lablets`: create lablets, show where they run or why they wait, and terminate them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.commands.lablet import changes, seat_links
from lcm.cli.errors import CommandError, UsageError
from lcm.cli.runtime.command import command
from lcm.cli.runtime.completion import complete_definitions, complete_workers
from lcm.cli.runtime.forecast import forecast_lines
from lcm.cli.runtime.options import LabletArgument, ReasonOption, YesOption, make_command_group
from lcm.cli.runtime.session import Session, confirm_by_name, require_terminal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lcm.client import Client
    from lcm.model.lablet.access import LabletAccess
    from lcm.model.lablet.record import CreateLabletRequest, Lablet
    from lcm.model.lablet.status import LabletStatus
    from lcm.model.worker.record import Worker

app = make_command_group("Create lablets, see where they run or why they wait, and terminate them.")

_MAX_WORKER_LOOKUPS = 25
_MAX_REREADS = 3

DefinitionArgument = Annotated[
    str,
    typer.Argument(
        metavar="DEFINITION", help="Definition: a name, or name@version.", autocompletion=complete_definitions
    ),
]
StatusesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--status", "-s", metavar="STATUS", help="Only these statuses, such as running; repeat or separate by commas."
    ),
]
TeamOption = Annotated[
    str | None, typer.Option("--team", metavar="TEAM", help="Team, by name or id. Default: yours, or none.")
]
OwnersOption = Annotated[list[str] | None, typer.Option("--owner", metavar="NAME", help="Only these owners.")]
WorkerOption = Annotated[
    str | None,
    typer.Option("--worker", metavar="NAME", help="Only lablets on this worker.", autocompletion=complete_workers),
]
DefinitionsOption = Annotated[
    list[str] | None,
    typer.Option("--definition", "-d", metavar="NAME", help="Only these definitions; repeat or separate by commas."),
]
SearchOption = Annotated[
    str | None,
    typer.Option(
        "--search",
        "--name",
        "-q",
        metavar="TEXT",
        help="Only those with these words in name, id, owner, definition, worker id, region or address.",
    ),
]
SortOption = Annotated[
    str,
    typer.Option(
        metavar="FIELD", help="name, status, owner, definition, created_at or updated_at; -name reverses the order."
    ),
]
NameOption = Annotated[str | None, typer.Option("--name", "-n", metavar="NAME", help="Name.")]
OwnerOption = Annotated[str | None, typer.Option("--owner", metavar="NAME", help="Owner. Default: you.")]
RegionOption = Annotated[str | None, typer.Option("--region", metavar="REGION", help="Region. Default: any.")]
StartsOption = Annotated[
    str | None, typer.Option("--starts", metavar="WHEN", help="Start time: 2h, or 2026-01-17T10:30Z.")
]
EndsOption = Annotated[str | None, typer.Option("--ends", metavar="WHEN", help="End time: 2h, or 2026-01-17T10:30Z.")]
TtlOption = Annotated[str | None, typer.Option("--ttl", metavar="SPAN", help="Time limit, such as 90m.")]
IfLostOption = Annotated[
    str, typer.Option("--if-lost", metavar="reschedule|fail", help="What to do if its worker is lost.")
]


@command(app, "list", watchable=True)
async def list_lablets(
    session: Session,
    status: StatusesOption = None,
    owner: OwnersOption = None,
    worker: WorkerOption = None,
    definition: DefinitionsOption = None,
    search: SearchOption = None,
    sort: SortOption = "name",
    everything: Annotated[bool, typer.Option("--all", "-a", help="Include those that have ended.")] = False,
) -> None:
    """List lablets. Those that have ended are shown with --all or --status."""
    from lcm.cli.live.watch_loop import show_or_watch
    from lcm.cli.output.lablet_views import lablet_columns
    from lcm.cli.runtime.lookup import find_worker
    from lcm.core import clock
    from lcm.model.lablet.status import FINAL_LABLET_STATUSES

    statuses = _parse_statuses(status)
    hidden = [] if everything or statuses else sorted(FINAL_LABLET_STATUSES)
    on = [(await find_worker(session.client, worker)).id] if worker is not None else []

    async def show() -> None:
        pages = session.client.lablets.list(
            status=statuses,
            exclude_statuses=hidden,
            owner=_split_commas(owner),
            worker=on,
            definition=_split_commas(definition),
            q=search,
            sort=sort,
            page_size=500,
        )
        lablets = [lablet async for lablet in pages]
        workers = await _workers(session, lablets) if session.printer.for_people else {}
        none = "No lablets. Create one: lcm lablets create DEFINITION"
        if statuses or owner or worker or definition or search:
            none = "No matching lablets."
        session.printer.items(lablets, lablet_columns(clock.now(), workers), lambda lablet: lablet.name, none)

    await show_or_watch(session, show)


@command(app, "get")
async def get_lablet(session: Session, name: LabletArgument) -> None:
    """Show one lablet in detail, and how to reach it: host, ports and commands."""
    from lcm.cli.output.lablet_views import show_lablet
    from lcm.cli.runtime.lookup import find_lablet

    lablet, access = await find_lablet(session.client, name), None
    if session.printer.for_people:
        lablet, access = await read_with_access(session.client, lablet)
    session.printer.item(lablet, lablet.name, lambda each: show_lablet(session.printer, each, access))


async def read_with_access(client: Client, lablet: Lablet) -> tuple[Lablet, LabletAccess]:
    """The lablet and how to reach it, of the same moment: what changes between the two requests is read again."""
    access = await client.lablets.access(lablet.id)
    for _ in range(_MAX_REREADS):
        before, lablet = lablet, await client.lablets.get(lablet.id)
        if lablet.version == before.version:
            break
        access = await client.lablets.access(lablet.id)
    return lablet, access


@command(app, "history")
async def lablet_history(session: Session, name: LabletArgument) -> None:
    """Show the status history of a lablet: each change with time, actor and reason."""
    from lcm.cli.output.lablet_views import show_lablet_history
    from lcm.cli.output.printer import to_json_data
    from lcm.cli.runtime.lookup import find_lablet

    lablet = await find_lablet(session.client, name)
    steps = [step async for step in session.client.lablets.history(lablet.id)]
    if session.printer.for_people:
        show_lablet_history(session.printer, lablet.name, steps)
    else:
        session.printer.data([to_json_data(step) for step in steps])


@command(app, "create", mutates=True)
async def create_lablet(
    session: Session,
    definition: DefinitionArgument,
    name: NameOption = None,
    owner: OwnerOption = None,
    team: TeamOption = None,
    region: RegionOption = None,
    starts: StartsOption = None,
    ends: EndsOption = None,
    ttl: TtlOption = None,
    if_lost: IfLostOption = "reschedule",
) -> None:
    """Create a lablet. It is placed on a matching worker; if there is none, one is started or launched."""
    from lcm.cli.output.lablet_views import preview_lines

    body = _create_request(definition, name, owner, region, starts, ends, ttl, if_lost, team=team)
    if session.dry_run:
        session.forecast = preview_lines(await session.client.lablets.preview(body))
    created = await session.client.lablets.create(body)
    text = f"{created.name} created from {created.definition}.\nWait for it: lcm lablets wait {created.name}"
    session.printer.item(created, created.name, lambda _: session.printer.line(text))


@command(app, "preview")
async def preview_lablet(
    session: Session,
    definition: DefinitionArgument,
    team: TeamOption = None,
    region: RegionOption = None,
    starts: StartsOption = None,
    ends: EndsOption = None,
) -> None:
    """Preview the placement of a lablet: candidates, rejected workers with reasons, launches and cost."""
    from lcm.cli.output.lablet_views import show_preview

    preview = await session.client.lablets.preview(
        _create_request(definition, None, None, region, starts, ends, None, None, team=team)
    )
    session.printer.item(preview, preview.definition, lambda each: show_preview(session.printer, each))


@command(app, "terminate", mutates=True)
async def terminate_lablet(
    session: Session, name: LabletArgument, reason: ReasonOption = None, yes: YesOption = False
) -> None:
    """Terminate a lablet: its lab is stopped, wiped and deleted. Asks for confirmation."""
    from lcm.cli.runtime.lookup import find_lablet
    from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus

    lablet = await find_lablet(session.client, name)
    preview = await session.client.lablets.preview_termination(lablet.id)
    session.forecast = forecast_lines(lablet.name, preview)
    if not yes and not session.dry_run and preview.changes:
        require_terminal()
        session.printer.details(session.forecast, indent=0)
        if not confirm_by_name(f"Terminate {lablet.name}, which is {lablet.status}?", lablet.name):
            raise CommandError("no changes made")
    changed = await session.client.lablets.terminate(lablet.id, reason)
    line = f"{changed.name} is {changed.status}"
    if changed.version == lablet.version:
        line += ". No change needed."
    elif changed.status is LabletStatus.FAILED:
        line += " and will not be made anew."
    elif changed.status in FINAL_LABLET_STATUSES:
        line += "; it was not on a worker."
    else:
        line += f"; terminating.\nWait for it: lcm lablets wait {changed.name} --for terminated"
    session.printer.item(changed, changed.name, lambda _: session.printer.line(line))


@command(app, "wait", retry=True)
async def wait_for_status(
    session: Session,
    name: LabletArgument,
    status: Annotated[
        str, typer.Option("--for", metavar="STATUS", help="Status, such as running or terminated.")
    ] = "running",
    timeout: Annotated[str, typer.Option(metavar="SPAN", help="Timeout, such as 90s, 10m or 1h.")] = "30m",
) -> None:
    """Wait until a lablet is running or in another status. Exit code 1, with the reason, if that fails."""
    from lcm.cli.output.durations import parse_duration
    from lcm.cli.runtime.waiting import wait_for_lablet

    (goal,) = _parse_statuses([status], "--for") or _parse_statuses(["running"])
    await wait_for_lablet(session, name, goal, parse_duration(timeout, "--timeout"))


changes.register(app)
seat_links.register(app)


def _create_request(
    definition: str,
    name: str | None,
    owner: str | None,
    region: str | None,
    starts: str | None,
    ends: str | None,
    ttl: str | None,
    if_lost: str | None,
    *,
    team: str | None = None,
) -> CreateLabletRequest:
    from lcm.cli.output.durations import parse_duration, parse_time
    from lcm.cli.runtime.options import validate
    from lcm.core import clock
    from lcm.model.lablet.record import CreateLabletRequest

    now = clock.now()
    fields: dict[str, object | None] = {
        "definition": definition,
        "name": name,
        "owner": owner,
        "team": team,
        "aws_region": region,
        "starts_at": None if starts is None else parse_time(starts, now, "--starts"),
        "ends_at": None if ends is None else parse_time(ends, now, "--ends"),
        "time_to_live_minutes": None if ttl is None else parse_duration(ttl, "--ttl").total_seconds() / 60,
        "lost_worker_policy": None if if_lost == "reschedule" else if_lost,
    }
    return validate(CreateLabletRequest, {key: value for key, value in fields.items() if value is not None})


async def _workers(session: Session, lablets: Iterable[Lablet]) -> dict[str, Worker]:
    """The lablets' workers by id; if there are too many to look up, only those on which no lab can be reached.

    Those that are TERMINATED are left out then: there may be thousands, and labs do not stay on them.
    """
    from lcm.client.errors import NotFoundError, PermissionDeniedError
    from lcm.model.worker.status import CML_STATUSES, WorkerStatus

    ids = {lablet.worker_id for lablet in lablets if lablet.worker_id is not None}
    workers: dict[str, Worker] = {}
    try:
        if len(ids) > _MAX_WORKER_LOOKUPS:
            left_out = sorted({*CML_STATUSES, WorkerStatus.TERMINATED})
            others = session.client.workers.list(exclude_statuses=left_out, page_size=500)
            return {worker.id: worker async for worker in others if worker.id in ids}
        for worker_id in sorted(ids):
            with suppress(NotFoundError):
                workers[worker_id] = await session.client.workers.get(worker_id)
    except PermissionDeniedError:
        return {}  # a role in a team only: no workers are shown
    return workers


def _parse_statuses(values: list[str] | None, option: str = "--status") -> list[LabletStatus]:
    from lcm.model.lablet.status import LabletStatus

    short = {"pending": LabletStatus.PENDING_SCHEDULING}
    try:
        return [short.get(each.lower()) or LabletStatus(each) for each in _split_commas(values)]
    except ValueError:
        known = ", ".join(status.value.lower() for status in LabletStatus)
        raise UsageError(f"{option} {','.join(values or [])}: must be one of {known}") from None


def _split_commas(values: list[str] | None) -> list[str]:
    return [part.strip() for value in values or [] for part in value.split(",") if part.strip()]
