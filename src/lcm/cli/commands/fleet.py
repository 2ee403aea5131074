"""`lcm fleet`: summary, activity report, and hold and release of the whole fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.forecast import forecast_lines
from lcm.cli.runtime.options import BeforeOption, RequiredReasonOption, SinceOption, UntilOption, make_command_group
from lcm.cli.runtime.session import Session

if TYPE_CHECKING:
    from lcm.model.fleet.activity_summary import ActivityCount, ActivitySummary
    from lcm.model.fleet.state import FleetState, FleetSummary

app = make_command_group("Fleet summary; hold and release the whole fleet.", alone=True)


@command(app, watchable=True, is_group=True)
async def fleet_summary(session: Session) -> None:
    """Show the fleet: counts, capacity, cost, holds, breakers and leaders."""
    from lcm.cli.live.watch_loop import show_or_watch

    async def show() -> None:
        fleet = await session.client.fleet.summary()
        session.printer.item(fleet, "fleet", lambda each: show_summary(session, each))

    await show_or_watch(session, show)


@command(app, "hold", mutates=True)
async def hold_fleet(session: Session, reason: RequiredReasonOption, until: UntilOption = None) -> None:
    """Hold the fleet: nothing is launched, started, stopped or terminated until it is released."""
    from lcm.cli.output.durations import format_hold_end, parse_time
    from lcm.cli.runtime.options import validate
    from lcm.core import clock
    from lcm.model.worker.requests import HoldRequest

    fields: dict[str, object] = {"reason": reason}
    if until is not None:
        fields["until"] = parse_time(until, clock.now(), "--until")
    body = validate(HoldRequest, fields)
    if session.dry_run:
        session.forecast = forecast_lines("fleet", await session.client.fleet.preview_hold(body))
    state = await session.client.fleet.hold(body)
    end = format_hold_end(None if state.hold is None else state.hold.until)
    _print_state(session, state, f"The fleet is on hold {end}.\nTo release it: lcm fleet release")


@command(app, "release", mutates=True)
async def release_fleet(session: Session) -> None:
    """Release the hold on the fleet. Holds on single workers stay."""
    if session.dry_run:
        session.forecast = forecast_lines("fleet", await session.client.fleet.preview_release())
    _print_state(
        session, await session.client.fleet.release(), "The fleet is released; controllers make changes again."
    )


@command(app, "overnight")
async def show_activity(session: Session, since: SinceOption = None, until: BeforeOption = None) -> None:
    """Show what automation did and saved in the last 12 hours, or in any other period."""
    from lcm.cli.output.durations import parse_past_time
    from lcm.core import clock

    now = clock.now()
    activity = await session.client.fleet.overnight(
        since=None if since is None else parse_past_time(since, now, "--since"),
        until=None if until is None else parse_past_time(until, now, "--until"),
    )
    session.printer.item(activity, "overnight", lambda each: _show_activity(session, each))


def _print_state(session: Session, state: FleetState, text: str) -> None:
    session.printer.item(state, "fleet", lambda _: session.printer.line(text))


def show_summary(session: Session, fleet: FleetSummary) -> None:
    """Print the summary."""
    from lcm.cli.output.durations import format_duration, format_time_with_zone
    from lcm.cli.output.printer import status_style
    from lcm.core import clock
    from lcm.model.formatting import count_of
    from lcm.model.worker.status import WorkerStatus

    now, printer = clock.now(), session.printer
    capacity = fleet.capacity
    details = [
        ("workers", f"{fleet.workers}, {fleet.ready} ready"),
        ("lablets", _lablets(fleet)),
        ("capacity", f"{capacity.cpu_cores} CPU, {capacity.memory_gb:g} GB memory, {capacity.storage_gb:g} GB disk"),
        ("nodes", f"at most {capacity.max_nodes}"),
        ("cost", f"{fleet.cost} now"),
        (
            "saved",
            f"${fleet.saved_per_hour_usd:.2f} per hour from stopped workers, ${fleet.saved_total_usd:.2f} so far",
        ),
    ]
    if fleet.leaked_instances:
        belong = "belongs" if fleet.leaked_instances == 1 else "belong"
        leaked = count_of(fleet.leaked_instances, "instance")
        details.append(("leaked", f"{leaked} of LCM {belong} to no worker (lcm audit --action leaked_instance)"))
    for leader in fleet.leaders:
        sweep = "" if leader.startup_sweep_done else ", startup sweep in progress"
        since = f"since {format_time_with_zone(leader.announced_at)} ({format_duration(now - leader.announced_at)} ago)"
        details.append(("leader", f"{leader.controller}, term {leader.term}, {since}{sweep}"))
    if not fleet.leaders:
        details.append(("leader", "none: no controller has reported, so no changes are made"))
    if fleet.hold is not None:
        details.append(("on hold", f"by {fleet.hold.by}: {fleet.hold.reason} (lcm fleet release)"))
    if fleet.held_workers:
        details.append(("held", f"{fleet.held_workers} workers"))
    details += [
        ("breaker", f"{each.region} open for {format_duration(now - each.since)}: {each.reason} (lcm breaker reset)")
        for each in fleet.breakers
    ]
    printer.details(details, indent=0)
    used = [status for status in WorkerStatus if any(status in row for row in fleet.by_region.values())]
    if not used:
        return
    printer.line()
    columns: list[Column[str]] = [Column("REGION", lambda region: region)]
    columns += [_count_column(fleet, status.value, status_style(status.value)) for status in used]
    printer.table(columns, sorted(fleet.by_region))


def _lablets(fleet: FleetSummary) -> str:
    """The number of active lablets, by status."""
    from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus

    counts = [
        (status, fleet.lablets_by_status.get(status, 0))
        for status in LabletStatus
        if status not in FINAL_LABLET_STATUSES
    ]
    by_status = ", ".join(f"{count} {status}" for status, count in counts if count)
    return f"{sum(count for _, count in counts)}: {by_status}" if by_status else "none"


def _count_column(fleet: FleetSummary, status: str, style: str) -> Column[str]:
    def cell(region: str) -> str:
        return str(next((count for each, count in fleet.by_region[region].items() if each.value == status), ""))

    return Column(status, cell, priority=1, style=lambda _: style, align_right=True)


def _show_activity(session: Session, activity: ActivitySummary) -> None:
    from lcm.cli.output.durations import format_duration, format_time_with_zone

    printer = session.printer
    cut = "" if activity.complete else " (truncated: more activity than one report can hold)"
    by_policy, by_people = f"${activity.saved_by_policy_usd:.2f}", f"${activity.saved_by_people_usd:.2f}"
    period = f"{format_time_with_zone(activity.since)} to {format_time_with_zone(activity.until)}"
    details = [
        ("period", f"{period}, {format_duration(activity.until - activity.since)}{cut}"),
        ("saved", f"${activity.saved_usd:.2f}: {by_policy} by policies, {by_people} by people"),
        ("stopped", f"{activity.stopped_throughout} workers were stopped for the whole period"),
    ]
    printer.details(details, indent=0)
    printer.line()
    if activity.automation:
        printer.table(_activity_columns("AUTOMATION"), activity.automation)
    else:
        printer.line("No automated actions.")
    printer.line()
    if activity.people:
        printer.table(_activity_columns("PEOPLE"), activity.people)
    else:
        printer.line("No actions by people.")


def _activity_columns(title: str) -> list[Column[ActivityCount]]:
    from lcm.model.fleet.activity_summary import action_label

    return [
        Column("COUNT", lambda done: str(done.count), align_right=True),
        Column(title, lambda done: action_label(done.what)),
        Column("SUBJECTS", _subject_names, priority=1, min_width=24),
    ]


def _subject_names(done: ActivityCount) -> str:
    named = ", ".join(each.name or each.id for each in done.concerned)
    return f"{named}, …" if done.count > len(done.concerned) else named
