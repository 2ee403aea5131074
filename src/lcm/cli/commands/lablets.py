"""`lcm lablets`: labs run for people, where they are, and why they wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.errors import CommandError, WrongUsage
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import Reason, Yes, make_app
from lcm.cli.runtime.session import Session, ask_yes, can_ask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lcm.model.lablet.record import CreateLablet, Lablet
    from lcm.model.lablet.status import LabletStatus

app = make_app("Run labs, see where they are and why they wait, and end them.")

_MOST_NAMES = 25

LabletName = Annotated[
    str, typer.Argument(metavar="NAME", help="A lablet's name or id, or the beginning of one that fits only one.")
]
Definition = Annotated[str, typer.Argument(metavar="DEFINITION", help="What it is made from: a name, or name@version.")]
Statuses = Annotated[
    list[str] | None,
    typer.Option("--status", "-s", metavar="STATUS", help="Only these, such as running; repeat it or use commas."),
]
Owners = Annotated[list[str] | None, typer.Option("--owner", metavar="NAME", help="Only theirs.")]
OfWorker = Annotated[str | None, typer.Option("--worker", metavar="NAME", help="Only those on this worker.")]
Definitions = Annotated[
    list[str] | None, typer.Option("--definition", "-d", metavar="NAME", help="Only made from these.")
]
Query = Annotated[str | None, typer.Option("--name", "-q", metavar="TEXT", help="Only with this in their name.")]
Sort = Annotated[
    str, typer.Option(help="name, status, owner, definition, created_at or updated_at; -name turns it round.")
]
GivenName = Annotated[str | None, typer.Option("--name", "-n", metavar="NAME", help="What it is to be called.")]
Owner = Annotated[str | None, typer.Option("--owner", metavar="NAME", help="Whose it is; without it, yours.")]
Region = Annotated[str | None, typer.Option("--region", help="Where; without it, anywhere.")]
Starts = Annotated[str | None, typer.Option("--starts", metavar="WHEN", help="Not before: 2h, or 2026-01-17T10:30Z.")]
Ends = Annotated[str | None, typer.Option("--ends", metavar="WHEN", help="When it ends: 2h, or 2026-01-17T10:30Z.")]
Lives = Annotated[str | None, typer.Option("--ttl", metavar="SPAN", help="How long it runs at most, such as 90m.")]
IfLost = Annotated[
    str, typer.Option("--if-lost", metavar="reschedule|fail", help="What becomes of it when its worker is lost.")
]


@command(app, "list", lists=True)
async def list_lablets(
    session: Session,
    status: Statuses = None,
    owner: Owners = None,
    worker: OfWorker = None,
    definition: Definitions = None,
    name: Query = None,
    sort: Sort = "name",
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those that have ended as well.")] = False,
) -> None:
    """Lablets, one a line. Those that have ended only with --all, or when asked for."""
    from lcm.cli.live.watch_loop import shown
    from lcm.cli.output.lablet_views import lablet_columns
    from lcm.cli.runtime.lookup import find_worker
    from lcm.core import clock
    from lcm.model.lablet.status import FINAL

    wanted = _statuses(status)
    hidden = [] if everything or wanted else sorted(FINAL)
    on = [(await find_worker(session.client, worker)).id] if worker is not None else []

    async def show() -> None:
        found = session.client.lablets.list(
            status=wanted,
            exclude_statuses=hidden,
            owner=_split(owner),
            worker=on,
            definition=_split(definition),
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

    await shown(session, show)


@command(app, "get")
async def get_lablet(session: Session, name: LabletName) -> None:
    """One lablet, with all that is known of it."""
    from lcm.cli.output.lablet_views import show_lablet
    from lcm.cli.runtime.lookup import find_lablet

    lablet = await find_lablet(session.client, name)
    names = await _worker_names(session, [lablet]) if session.screen.for_people else {}
    on = names.get(lablet.worker_id or "", lablet.worker_id or "")
    session.screen.one(lablet, lablet.name, lambda each: show_lablet(session.screen, each, on))


@command(app, "history")
async def history(session: Session, name: LabletName) -> None:
    """A lablet's life so far: every step, when, by whom and why."""
    from lcm.cli.output.lablet_views import show_lablet_history
    from lcm.cli.output.printer import plain
    from lcm.cli.runtime.lookup import find_lablet

    lablet = await find_lablet(session.client, name)
    steps = [step async for step in session.client.lablets.history(lablet.id)]
    if session.screen.for_people:
        show_lablet_history(session.screen, lablet.name, steps)
    else:
        session.screen.data([plain(step) for step in steps])


@command(app, "create", changes=True)
async def create(
    session: Session,
    definition: Definition,
    name: GivenName = None,
    owner: Owner = None,
    region: Region = None,
    starts: Starts = None,
    ends: Ends = None,
    ttl: Lives = None,
    if_lost: IfLost = "reschedule",
) -> None:
    """A new lablet. It is placed as soon as a worker fits; where none does, one is resumed or launched."""
    body = _asked(definition, name, owner, region, starts, ends, ttl, if_lost)
    if session.dry_run:
        told = await session.client.lablets.preview(body)
        cost = f" (${told.cost_per_hour_usd:g} an hour more than now)" if told.cost_per_hour_usd else ""
        session.forecast = [("then", f"{told.reason}{cost}")]
    made = await session.client.lablets.create(body)
    text = f"{made.name} is created from {made.definition}.\nWait for it: lcm lablets wait {made.name}"
    session.screen.one(made, made.name, lambda _: session.screen.say(text))


@command(app, "preview")
async def preview(
    session: Session,
    definition: Definition,
    region: Region = None,
    starts: Starts = None,
    ends: Ends = None,
) -> None:
    """What would become of a lablet: who could take it, who could not and why, what would be launched, and its cost."""
    from lcm.cli.output.lablet_views import show_preview

    told = await session.client.lablets.preview(_asked(definition, None, None, region, starts, ends, None, None))
    session.screen.one(told, told.definition, lambda each: show_preview(session.screen, each))


@command(app, "terminate", changes=True)
async def terminate(session: Session, name: LabletName, reason: Reason = None, yes: Yes = False) -> None:
    """End a lablet: its lab is stopped, wiped and deleted. It asks first."""
    from lcm.cli.runtime.lookup import find_lablet
    from lcm.control_plane.lablets.lifecycle import terminate as ended
    from lcm.core import clock
    from lcm.model.lablet.status import FINAL

    lablet = await find_lablet(session.client, name)
    if not yes and not session.dry_run and lablet.wanted and lablet.status not in FINAL:
        can_ask()
        if not ask_yes(f"End {lablet.name}, which is {lablet.status}, and delete its lab?"):
            raise CommandError("nothing was changed")
    after = ended(lablet, clock.now(), reason or "")
    session.forecast = [(lablet.name, _end_words(lablet, after))]
    changed = await session.client.lablets.terminate(lablet.id, reason)
    line = f"{changed.name} is {changed.status}"
    if changed.version == lablet.version:
        line += ". That was so before: nothing was changed."
    elif changed.status in FINAL:
        line += "; nothing of it was on a worker."
    else:
        line += f" and ends.\nWait for it: lcm lablets wait {changed.name} --for terminated"
    session.screen.one(changed, changed.name, lambda _: session.screen.say(line))


@command(app, "wait", patient=True)
async def wait(
    session: Session,
    name: LabletName,
    wanted: Annotated[
        str, typer.Option("--for", metavar="STATUS", help="A status such as running or terminated.")
    ] = "running",
    timeout: Annotated[str, typer.Option(metavar="SPAN", help="How long at most, such as 90s, 10m or 1h.")] = "30m",
) -> None:
    """Wait until a lablet runs, or is in another status; exit code 1 and why if it will not be."""
    from lcm.cli.output.durations import parse_span
    from lcm.cli.runtime.lablet_waiting import wait_for_lablet

    (goal,) = _statuses([wanted], "--for") or _statuses(["running"])
    await wait_for_lablet(session, name, goal, parse_span(timeout, "--timeout"))


def _asked(
    definition: str,
    name: str | None,
    owner: str | None,
    region: str | None,
    starts: str | None,
    ends: str | None,
    ttl: str | None,
    if_lost: str | None,
) -> CreateLablet:
    from lcm.cli.output.durations import parse_moment, parse_span
    from lcm.cli.runtime.validating import valid
    from lcm.core import clock
    from lcm.model.lablet.record import CreateLablet

    now = clock.now()
    facts: dict[str, object | None] = {
        "definition": definition,
        "name": name,
        "owner": owner,
        "aws_region": region,
        "starts_at": None if starts is None else parse_moment(starts, now, "--starts"),
        "ends_at": None if ends is None else parse_moment(ends, now, "--ends"),
        "time_to_live_minutes": None if ttl is None else parse_span(ttl, "--ttl").total_seconds() / 60,
        "lost_worker_policy": None if if_lost == "reschedule" else if_lost,
    }
    return valid(CreateLablet, {key: value for key, value in facts.items() if value is not None})


def _end_words(before: Lablet, after: Lablet) -> str:
    """What an end makes of it."""
    if after.version == before.version:
        return f"{before.status}, as before"
    if after.status is not before.status:
        return f"{before.status} → {after.status}"
    return f"{before.status}, then {after.ending} once its lab is stopped, wiped and deleted"


async def _worker_names(session: Session, lablets: Iterable[Lablet]) -> dict[str, str]:
    """The names of the workers that they are on; where there are many, ids must do."""
    from lcm.client.errors import NotFound

    ids = sorted({lablet.worker_id for lablet in lablets if lablet.worker_id is not None})
    names: dict[str, str] = {}
    for worker_id in ids if len(ids) <= _MOST_NAMES else ():
        try:
            names[worker_id] = (await session.client.workers.get(worker_id)).name
        except NotFound:
            continue
    return names


def _statuses(values: list[str] | None, option: str = "--status") -> list[LabletStatus]:
    from lcm.model.lablet.status import LabletStatus

    short = {"pending": LabletStatus.PENDING_SCHEDULING}
    try:
        return [short.get(each.lower()) or LabletStatus(each) for each in _split(values)]
    except ValueError:
        known = ", ".join(status.value.lower() for status in LabletStatus)
        raise WrongUsage(f"{option} {','.join(values or [])}: there are {known}") from None


def _split(values: list[str] | None) -> list[str]:
    return [part.strip() for value in values or [] for part in value.split(",") if part.strip()]
