"""`lcm plan`: what controllers will do next, grouped by what it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import make_command_group
from lcm.cli.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from lcm.model.fleet.plan import FleetPlan, PlannedScheduleChange, PlannedWorker

app = make_command_group("What controllers will do next with workers and lablets, and why.")

UNDECIDED = "Not decided yet"
_INSTANCE_ID = re.compile(r"\binstance i-[0-9a-z]+\b", re.IGNORECASE)
_MAX_LINES = 10
_BOOKING_STEPS = {"WARMING": "warms up", "ACTIVE": "begins", "ENDED": "ends"}


@command(app, watchable=True)
async def plan(
    session: Session,
    *,
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="With -o json or yaml: the whole plan, as GET /api/plan has it; otherwise its workers."
        ),
    ] = False,
) -> None:
    """Show what controllers will do next if nothing changes: with workers, lablets, licenses and instances."""
    from lcm.cli.live.watch_loop import show_or_watch
    from lcm.cli.output.printer import to_json_data

    async def show() -> None:
        items = [item async for item in session.client.fleet.plan(page_size=500)]
        if not session.printer.for_people and full:
            overview = await session.client.fleet.plan_overview()
            whole = overview.model_copy(update={"items": tuple(items), "next_cursor": None})
            session.printer.data(to_json_data(whole))
            return
        if not session.printer.for_people:
            session.printer.data([to_json_data(item) for item in items])
            return
        overview = await session.client.fleet.plan_overview()
        for line in overview_lines(overview, items):
            session.printer.line(line)
        for heading, group in group_by_action(items):
            session.printer.line("")
            session.printer.line(f"{heading} ({len(group)})", style="bold")
            session.printer.table(_columns(), group)
        for heading, lines in other_sections(overview):
            session.printer.line("")
            session.printer.line(heading, style="bold")
            for line in lines:
                session.printer.line(f"  {line}")

    await show_or_watch(session, show)


def overview_lines(plan: FleetPlan, items: Sequence[PlannedWorker]) -> list[str]:
    """The first lines: whether the fleet is on hold, who evaluates it, and how many workers will change."""
    lines = []
    if plan.hold is not None:
        lines.append(f"The fleet is on hold by {plan.hold.by} ({plan.hold.reason}): all of this waits for its release.")
    if plan.evaluation:
        text = plan.evaluation
        lines.append(f"Workers are not evaluated at present: {text}.")
    changing = sum(1 for item in items if item.actions)
    undecided = sum(1 for item in items if item.note)
    parts = [f"{_workers(changing)} will change" if changing else "No worker will change"]
    parts += [f"{_workers(undecided)} not decided yet"] if undecided else []
    unchanged = len(items) - changing - undecided
    parts += [f"{_workers(unchanged)} as desired or in progress"] if unchanged else []
    return [*lines, "; ".join(parts) + "."]


def group_by_action(items: Iterable[PlannedWorker]) -> list[tuple[str, list[PlannedWorker]]]:
    """Group by what will be done; workers for which nothing will be done are left out."""
    groups: dict[str, list[PlannedWorker]] = {}
    for item in items:
        if item.actions or item.note:
            groups.setdefault(group_heading(item), []).append(item)
    return sorted(groups.items(), key=lambda group: (group[0] == UNDECIDED, group[0]))


def group_heading(item: PlannedWorker) -> str:
    """What will be done, without ids of instances."""
    if item.note:
        return UNDECIDED
    words = _INSTANCE_ID.sub("its instance", item.summary).rstrip(".")
    return words[0].upper() + words[1:]


def other_sections(plan: FleetPlan) -> list[tuple[str, list[str]]]:
    """Lablets, pauses, licenses and discovery: a heading and lines for each that has something to say."""
    found = [*_lablet_sections(plan), *_automation_sections(plan)]
    return [(heading, lines) for heading, lines in found if lines]


def _lablet_sections(plan: FleetPlan) -> list[tuple[str, list[str]]]:
    lablets = plan.lablets
    if lablets is None:
        return []
    after = f" (waits: {lablets.blocked})" if lablets.blocked else ""
    placed = [f"{each.lablet_name} on {each.worker_name}" for each in lablets.placements]
    grown = [
        (f"{each.worker_name} will be started" if each.worker_id else f"a {each.template} will be launched")
        + f" in {each.aws_region} for {_count(each.lablets, 'lablet')} (${each.cost_per_hour_usd:g} an hour)"
        for each in lablets.scale_ups
    ]
    waiting = [f"{each.lablet_name}: {each.reason}" for each in lablets.waiting]
    ending = [f"{each.lablet_name}: {each.reason}" for each in lablets.ending]
    skipped = [f"{each.lablet_name}: {each.reason}" for each in lablets.skipped]
    return [
        (f"Lablets to be placed ({lablets.placements_total}){after}", _capped(placed, lablets.placements_total)),
        (f"Workers for lablets ({lablets.scale_ups_total}){after}", _capped(grown, lablets.scale_ups_total)),
        (f"Lablets that wait ({lablets.waiting_total})", _capped(waiting, lablets.waiting_total)),
        (f"Lablets that will end ({lablets.ending_total})", _capped(ending, lablets.ending_total)),
        (f"Records that cannot be planned ({lablets.skipped_total})", _capped(skipped, lablets.skipped_total)),
    ]


def _automation_sections(plan: FleetPlan) -> list[tuple[str, list[str]]]:
    from lcm.cli.output.durations import format_duration, format_time_with_zone
    from lcm.core import clock

    now = clock.now()
    pauses = [
        f"{each.name} will be {'drained' if each.drain else 'paused'} "
        + (f"in {format_duration(each.at - now)}" if each.at > now else "at the next idle check")
        for each in plan.pauses
    ]
    schedules = [_scheduled(each, now) for each in plan.schedule_changes]
    boundaries = [
        f"{each.name} {'opens' if each.opens else 'closes'} at {format_time_with_zone(each.at)},"
        f" in {format_duration(each.at - now)}"
        for each in plan.schedule_boundaries
    ]
    classes = [
        f"{each.name}, class {each.number}: {_BOOKING_STEPS.get(each.status, each.status)} at"
        f" {format_time_with_zone(each.at)}, in {format_duration(each.at - now)}"
        for each in plan.booking_boundaries
    ]
    steps = [f"{each.name}, class {each.number}: {each.summary}" for each in plan.booking_steps]
    steps_total = max(plan.booking_steps_total, len(steps))
    licenses = [f"{each.name}: {each.operation}, requested by {each.requested_by}" for each in plan.license_operations]
    sections = [
        (f"By schedule ({plan.schedule_changes_total})", _capped(schedules, plan.schedule_changes_total)),
        (f"Schedules ({len(boundaries)})", _capped(boundaries, len(boundaries))),
        (f"Workers for classes ({steps_total})", _capped(steps, steps_total)),
        (f"Bookings ({plan.booking_boundaries_total})", _capped(classes, plan.booking_boundaries_total)),
        (f"If they stay idle ({plan.pauses_total})", _capped(pauses, plan.pauses_total)),
        (f"License operations ({plan.license_operations_total})", _capped(licenses, plan.license_operations_total)),
    ]
    scan = plan.discovery
    if scan is not None:
        imports = [f"{each.instance_id} in {each.region} will be imported" for each in scan.imports]
        losses = [f"{each.name or each.worker_id} will be marked as lost: its instance is gone" for each in scan.losses]
        total = scan.imports_total + scan.losses_total
        sections.append((f"Discovery ({total})", _capped([*imports, *losses], total)))
    return sections


def _scheduled(change: PlannedScheduleChange, now: datetime) -> str:
    from lcm.cli.output.durations import format_duration
    from lcm.model.worker.status import DesiredStatus

    starts = change.desired_status is DesiredStatus.RUNNING
    later = f"in {format_duration(change.at - now)}" if change.at > now else "now"
    if change.waits:
        later = "as soon as it is not in use"
    elif not starts and change.at > now:
        later += " or as soon as it is not in use"
    return f"{change.name} will be {'started' if starts else 'stopped'} {later}: {change.reason}"


def _capped(lines: list[str], total: int) -> list[str]:
    shown = lines[:_MAX_LINES]
    return [*shown, f"and {total - len(shown)} more"] if total > len(shown) else shown


def _workers(count: int) -> str:
    return _count(count, "worker")


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _columns() -> list[Column[PlannedWorker]]:
    from lcm.cli.output.durations import format_duration
    from lcm.cli.output.printer import status_style
    from lcm.core import clock

    now = clock.now()

    def when(item: PlannedWorker) -> str:
        if item.note:
            return ""
        if item.on_hold:
            return "after release"
        return f"in {format_duration(item.at - now)}" if item.at is not None and item.at > now else "now"

    def why(item: PlannedWorker) -> str:
        return item.note or (item.decision.reason if item.decision else "")

    return [
        Column("  NAME", lambda item: f"  {item.name}", min_width=12),
        Column("STATUS", lambda item: item.status.value, style=lambda item: status_style(item.status.value)),
        Column("DESIRED", lambda item: item.desired_status.value, priority=2),
        Column("REASON", why, min_width=20),
        Column("WHEN", when, priority=1, align_right=True),
    ]
