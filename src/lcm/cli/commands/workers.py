"""`lcm workers`: list, show, explain and wait. Commands that change workers are in `worker`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.commands.worker import actions
from lcm.cli.errors import UsageError
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import WorkerArgument, make_command_group
from lcm.cli.runtime.session import Session

if TYPE_CHECKING:
    from lcm.model.worker.status import WorkerStatus

app = make_command_group("List, create, start, stop, explain and terminate workers.")

StatusesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--status", "-s", metavar="STATUS", help="Only these statuses, such as running; repeat or separate by commas."
    ),
]
RegionsOption = Annotated[list[str] | None, typer.Option("--region", metavar="REGION", help="Only these regions.")]
TemplatesOption = Annotated[
    list[str] | None,
    typer.Option("--template", metavar="NAME", help="Only these templates; repeat or separate by commas."),
]
SearchOption = Annotated[
    str | None,
    typer.Option(
        "--search",
        "--name",
        "-q",
        metavar="TEXT",
        help="Only those with these words in name, id, instance id, address, region, template or tags.",
    ),
]
SortOption = Annotated[
    str,
    typer.Option(
        metavar="FIELD",
        help="name, status, aws_region, created_at, updated_at or cost_per_hour_usd; -name reverses the order.",
    ),
]


@command(app, "list", watchable=True)
async def list_workers(
    session: Session,
    status: StatusesOption = None,
    region: RegionsOption = None,
    template: TemplatesOption = None,
    search: SearchOption = None,
    sort: SortOption = "name",
    everything: Annotated[bool, typer.Option("--all", "-a", help="Include terminated ones.")] = False,
) -> None:
    """List workers. TERMINATED ones are shown with --all or --status."""
    from lcm.cli.live.watch_loop import show_or_watch
    from lcm.cli.output.worker_views import worker_columns
    from lcm.core import clock
    from lcm.model.worker.status import WorkerStatus

    statuses = _parse_statuses(status)
    hidden = [] if everything or statuses else [WorkerStatus.TERMINATED]

    async def show() -> None:
        pages = session.client.workers.list(
            status=statuses,
            exclude_statuses=hidden,
            aws_region=_split_commas(region),
            template=_split_commas(template),
            q=search,
            sort=sort,
            page_size=500,
        )
        workers = [worker async for worker in pages]
        none = "No workers. Create one: lcm workers create NAME --template small"
        if statuses or region or template or search:
            none = "No matching workers."
        session.printer.items(workers, worker_columns(clock.now()), lambda worker: worker.name, none)

    await show_or_watch(session, show)


@command(app, "get")
async def get_worker(session: Session, name: WorkerArgument) -> None:
    """Show one worker in detail."""
    from lcm.cli.output.worker_views import show_worker
    from lcm.cli.runtime.lookup import find_worker

    worker = await find_worker(session.client, name)
    session.printer.item(worker, worker.name, lambda each: show_worker(session.printer, each))


@command(app, "explain")
async def explain_worker(session: Session, name: WorkerArgument) -> None:
    """Explain the status of a worker and what happens next."""
    from lcm.cli.output.worker_views import show_explanation
    from lcm.cli.runtime.lookup import find_worker

    worker = await find_worker(session.client, name)
    explanation = await session.client.workers.explain(worker.id)
    session.printer.item(explanation, worker.name, lambda each: show_explanation(session.printer, worker.name, each))


@command(app, "history")
async def worker_history(session: Session, name: WorkerArgument) -> None:
    """Show the status history of a worker: each change with time, actor and reason."""
    from lcm.cli.output.printer import to_json_data
    from lcm.cli.output.worker_views import show_worker_history
    from lcm.cli.runtime.lookup import find_worker

    worker = await find_worker(session.client, name)
    steps = [step async for step in session.client.workers.history(worker.id)]
    if session.printer.for_people:
        show_worker_history(session.printer, worker.name, steps)
    else:
        session.printer.data([to_json_data(step) for step in steps])


@command(app, "wait", retry=True)
async def wait_for_goal(
    session: Session,
    name: WorkerArgument,
    goal: Annotated[
        str, typer.Option("--for", metavar="WHAT", help="ready, license, or a status such as stopped or terminated.")
    ] = "ready",
    timeout: Annotated[str, typer.Option(metavar="SPAN", help="Timeout, such as 90s, 10m or 1h.")] = "10m",
) -> None:
    """Wait until a worker is ready, licensed, or in a status. Exit code 1, with the reason, if that fails."""
    from lcm.cli.output.durations import parse_duration
    from lcm.cli.runtime.waiting import parse_goal, wait_for_worker

    await wait_for_worker(session, name, parse_goal(goal), parse_duration(timeout, "--timeout"))


actions.register(app)


def _parse_statuses(values: list[str] | None) -> list[WorkerStatus]:
    from lcm.model.worker.status import WorkerStatus

    try:
        return [WorkerStatus(each) for each in _split_commas(values)]
    except ValueError:
        known = ", ".join(status.value.lower() for status in WorkerStatus)
        raise UsageError(f"--status {','.join(values or [])}: must be one of {known}") from None


def _split_commas(values: list[str] | None) -> list[str]:
    return [part.strip() for value in values or [] for part in value.split(",") if part.strip()]
