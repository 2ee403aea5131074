"""`lcm workers`: what there is, why it is so, and what people want of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.commands import worker_actions
from lcm.cli.errors import UsageError
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import WorkerArgument, make_command_group
from lcm.cli.runtime.session import Session

if TYPE_CHECKING:
    from lcm.model.worker.status import WorkerStatus

app = make_command_group("List, create, start, stop, explain and end workers.")

StatusesOption = Annotated[
    list[str] | None,
    typer.Option("--status", "-s", metavar="STATUS", help="Only these, such as running; repeat it or use commas."),
]
RegionsOption = Annotated[list[str] | None, typer.Option("--region", metavar="REGION", help="Only in these regions.")]
TemplatesOption = Annotated[list[str] | None, typer.Option("--template", metavar="NAME", help="Only made from these.")]
NameFilterOption = Annotated[
    str | None, typer.Option("--name", "-q", metavar="TEXT", help="Only with this in their name.")
]
SortOption = Annotated[
    str,
    typer.Option(help="name, status, aws_region, created_at, updated_at or cost_per_hour_usd; -name turns it round."),
]


@command(app, "list", lists=True)
async def list_workers(
    session: Session,
    status: StatusesOption = None,
    region: RegionsOption = None,
    template: TemplatesOption = None,
    name: NameFilterOption = None,
    sort: SortOption = "name",
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those that have ended as well.")] = False,
) -> None:
    """Workers, one a line. TERMINATED ones only with --all, or when asked for."""
    from lcm.cli.live.watch_loop import show_or_watch
    from lcm.cli.output.worker_views import worker_columns
    from lcm.core import clock
    from lcm.model.worker.status import WorkerStatus

    wanted = _parse_statuses(status)
    hidden = [] if everything or wanted else [WorkerStatus.TERMINATED]

    async def show() -> None:
        found = session.client.workers.list(
            status=wanted,
            exclude_statuses=hidden,
            aws_region=_split_commas(region),
            template=_split_commas(template),
            q=name,
            sort=sort,
            page_size=500,
        )
        workers = [worker async for worker in found]
        none = "No workers. Make one: lcm workers create NAME --template small"
        if wanted or region or template or name:
            none = "No worker fits."
        session.screen.many(workers, worker_columns(clock.now()), lambda worker: worker.name, none)

    await show_or_watch(session, show)


@command(app, "get")
async def get_worker(session: Session, name: WorkerArgument) -> None:
    """One worker, with all that is known of it."""
    from lcm.cli.output.worker_views import show_worker
    from lcm.cli.runtime.lookup import find_worker

    worker = await find_worker(session.client, name)
    session.screen.one(worker, worker.name, lambda each: show_worker(session.screen, each))


@command(app, "explain")
async def explain_worker(session: Session, name: WorkerArgument) -> None:
    """Why a worker is as it is, and what happens next."""
    from lcm.cli.output.worker_views import show_explanation
    from lcm.cli.runtime.lookup import find_worker

    worker = await find_worker(session.client, name)
    told = await session.client.workers.explain(worker.id)
    session.screen.one(told, worker.name, lambda each: show_explanation(session.screen, worker.name, each))


@command(app, "history")
async def worker_history(session: Session, name: WorkerArgument) -> None:
    """A worker's life so far: every step, when, by whom and why."""
    from lcm.cli.output.printer import to_json_data
    from lcm.cli.output.worker_views import show_worker_history
    from lcm.cli.runtime.lookup import find_worker

    worker = await find_worker(session.client, name)
    steps = [step async for step in session.client.workers.history(worker.id)]
    if session.screen.for_people:
        show_worker_history(session.screen, worker.name, steps)
    else:
        session.screen.data([to_json_data(step) for step in steps])


@command(app, "wait", patient=True)
async def wait_for_goal(
    session: Session,
    name: WorkerArgument,
    wanted: Annotated[
        str, typer.Option("--for", metavar="WHAT", help="ready, license, or a status such as stopped or terminated.")
    ] = "ready",
    timeout: Annotated[str, typer.Option(metavar="SPAN", help="How long at most, such as 90s, 10m or 1h.")] = "10m",
) -> None:
    """Wait until a worker is ready, licensed, or in a status; exit code 1 and why if it will not be."""
    from lcm.cli.output.durations import parse_duration
    from lcm.cli.runtime.waiting import parse_goal, wait_for_worker

    await wait_for_worker(session, name, parse_goal(wanted), parse_duration(timeout, "--timeout"))


worker_actions.register(app)


def _parse_statuses(values: list[str] | None) -> list[WorkerStatus]:
    from lcm.model.worker.status import WorkerStatus

    try:
        return [WorkerStatus(each) for each in _split_commas(values)]
    except ValueError:
        known = ", ".join(status.value.lower() for status in WorkerStatus)
        raise UsageError(f"--status {','.join(values or [])}: there are {known}") from None


def _split_commas(values: list[str] | None) -> list[str]:
    return [part.strip() for value in values or [] for part in value.split(",") if part.strip()]
