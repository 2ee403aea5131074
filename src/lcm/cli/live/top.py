"""`lcm top`: the latest resource usage of each worker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import make_command_group
from lcm.cli.runtime.session import Session

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.worker.metrics import MetricsSample
    from lcm.model.worker.record import Worker

app = make_command_group("CPU, memory and disk usage of each worker.")

_MAX_CONCURRENT = 8
_RECENT = timedelta(minutes=15)
_WARNING_PERCENT, _CRITICAL_PERCENT = 70, 90
_SORT_KEYS = ("cpu", "memory", "disk", "nodes", "name")


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """A worker and its latest metrics sample."""

    worker: Worker
    sample: MetricsSample | None


@command(app, retry=True)
async def top(
    session: Session,
    sort: Annotated[str, typer.Option(metavar="cpu|memory|disk|nodes|name", help="Sort key.")] = "cpu",
    once: Annotated[bool, typer.Option("--once", help="Print once and exit, even on a terminal.")] = False,
    interval: Annotated[str, typer.Option(metavar="SPAN", help="Refresh interval.")] = "5s",
) -> None:
    """Show CPU, memory, disk, labs and nodes of each running worker. Refreshes on a terminal until Ctrl-C."""
    from lcm.cli.errors import UsageError
    from lcm.cli.live.watch_loop import show_or_watch
    from lcm.cli.output.durations import parse_duration

    if sort not in _SORT_KEYS:
        raise UsageError(f"--sort {sort!r}: must be one of {', '.join(_SORT_KEYS)}")
    session.watch = session.printer.is_terminal and session.printer.for_people and not once

    async def show() -> None:
        await _show_loads(session, sort)

    await show_or_watch(session, show, parse_duration(interval, "--interval").total_seconds())


async def _show_loads(session: Session, sort: str) -> None:
    from lcm.cli.output.printer import to_json_data
    from lcm.core import clock
    from lcm.model.worker.status import CML_STATUSES

    now = clock.now()
    running = session.client.workers.list(status=CML_STATUSES, page_size=500)
    workers = [worker async for worker in running]
    limit = asyncio.Semaphore(_MAX_CONCURRENT)

    async def load_of(worker: Worker) -> WorkerLoad:
        async with limit:
            samples = await session.client.workers.metrics(worker.id, since=now - _RECENT)
        return WorkerLoad(worker, samples[-1] if samples else None)

    loads = sorted(await asyncio.gather(*map(load_of, workers)), key=lambda load: sort_key(load, sort))
    if not session.printer.for_people:
        measured = [{"name": each.worker.name, **(to_json_data(each.sample) if each.sample else {})} for each in loads]
        session.printer.data(measured)
    elif loads:
        session.printer.table(_columns(now), loads)
    else:
        session.printer.line("No running workers.")


def sort_key(load: WorkerLoad, sort: str) -> tuple[float, str]:
    """Highest first; workers without a sample last."""
    sample = load.sample
    if sort == "name" or sample is None:
        return (0.0 if sort == "name" else 1.0, load.worker.name)
    value = {
        "cpu": sample.cpu_utilization,
        "memory": sample.memory_utilization,
        "disk": sample.disk_utilization,
        "nodes": sample.running_nodes,
    }[sort]
    return (1.0 if value is None else -float(value), load.worker.name)


def _columns(now: datetime) -> list[Column[WorkerLoad]]:
    def percent(title: str, name: str, priority: int) -> Column[WorkerLoad]:
        def value(load: WorkerLoad) -> float | None:
            value: float | None = getattr(load.sample, name, None)
            return value

        def cell(load: WorkerLoad) -> str:
            share = value(load)
            return "" if share is None else f"{usage_bar(share)} {share:3.0f} %"

        return Column(title, cell, priority=priority, style=lambda load: usage_style(value(load)))

    def count(title: str, name: str, priority: int) -> Column[WorkerLoad]:
        return Column(
            title, lambda load: _number(getattr(load.sample, name, None)), priority=priority, align_right=True
        )

    return [
        Column("NAME", lambda load: load.worker.name, min_width=12, distinct=True),
        percent("CPU", "cpu_utilization", 0),
        percent("MEMORY", "memory_utilization", 1),
        percent("DISK", "disk_utilization", 2),
        count("LABS", "labs_count", 3),
        count("NODES", "running_nodes", 3),
        Column("REGION", lambda load: load.worker.aws_region, priority=5),
        Column("USED", lambda load: _ago(load.worker.last_activity_at, now), priority=4, align_right=True),
        Column(
            "MEASURED",
            lambda load: _ago(load.sample.collected_at if load.sample else None, now),
            priority=6,
            align_right=True,
        ),
    ]


def usage_bar(share: float, width: int = 10) -> str:
    """A usage bar."""
    full = round(min(max(share, 0), 100) / 100 * width)
    return "█" * full + "░" * (width - full)


def usage_style(share: float | None) -> str:
    """The colour of a usage percentage."""
    if share is None:
        return "dim"
    if share >= _CRITICAL_PERCENT:
        return "red"
    return "yellow" if share >= _WARNING_PERCENT else "green"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _ago(moment: datetime | None, now: datetime) -> str:
    from lcm.cli.output.durations import format_duration

    return "" if moment is None else f"{format_duration(now - moment)} ago"
