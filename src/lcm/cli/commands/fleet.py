"""`lcm fleet`: everything at a glance, and a hold on all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import BeforeOption, RequiredReasonOption, SinceOption, UntilOption, make_command_group
from lcm.cli.runtime.session import Session

if TYPE_CHECKING:
    from lcm.model.fleet.activity_summary import ActivityCount, ActivitySummary
    from lcm.model.fleet.state import FleetState, FleetSummary

app = make_command_group("The fleet at a glance; hold all of it, and let it go on.", alone=True)


@command(app, lists=True, verbs=True)
async def fleet_summary(session: Session) -> None:
    """The fleet at a glance: counts, capacity, cost, what is suspended, and who leads."""
    from lcm.cli.live.watch_loop import show_or_watch

    async def show() -> None:
        fleet = await session.client.fleet.summary()
        session.screen.one(fleet, "fleet", lambda each: _show_summary(session, each))

    await show_or_watch(session, show)


@command(app, "hold", changes=True)
async def hold_fleet(session: Session, reason: RequiredReasonOption, until: UntilOption = None) -> None:
    """Stop all changes of all workers: nothing is launched, started, stopped or ended until it is released."""
    from lcm.cli.output.durations import format_hold_end, parse_time
    from lcm.cli.runtime.options import validate
    from lcm.core import clock
    from lcm.model.worker.requests import HoldRequest

    facts: dict[str, object] = {"reason": reason}
    if until is not None:
        facts["until"] = parse_time(until, clock.now(), "--until")
    if session.dry_run:
        fleet = await session.client.fleet.summary()
        session.forecast = [("then", f"nothing is changed on {fleet.workers} workers; looking and explaining go on")]
    state = await session.client.fleet.hold(validate(HoldRequest, facts))
    end = format_hold_end(None if state.hold is None else state.hold.until)
    _print_state(session, state, f"The fleet is on hold, {end}.\nLet it go on: lcm fleet release")


@command(app, "release", changes=True)
async def release_fleet(session: Session) -> None:
    """Let changes go on after a hold on the fleet. Holds on single workers stay."""
    session.forecast = [("then", "controllers bring workers to what is wanted, as of now")]
    _print_state(session, await session.client.fleet.release(), "The fleet is released: changes go on.")


@command(app, "overnight")
async def show_activity(session: Session, since: SinceOption = None, until: BeforeOption = None) -> None:
    """What automation did while nobody looked, and what it saved: the last 12 hours, or any span."""
    from lcm.cli.output.durations import parse_past_time
    from lcm.core import clock

    now = clock.now()
    night = await session.client.fleet.overnight(
        since=None if since is None else parse_past_time(since, now, "--since"),
        until=None if until is None else parse_past_time(until, now, "--until"),
    )
    session.screen.one(night, "overnight", lambda each: _show_activity(session, each))


def _print_state(session: Session, state: FleetState, text: str) -> None:
    session.screen.one(state, "fleet", lambda _: session.screen.say(text))


def _show_summary(session: Session, fleet: FleetSummary) -> None:
    from lcm.cli.output.durations import format_duration, format_timestamp_utc
    from lcm.cli.output.printer import status_style
    from lcm.core import clock
    from lcm.model.worker.status import WorkerStatus

    now, screen = clock.now(), session.screen
    offer = fleet.capacity
    facts = [
        ("workers", f"{fleet.workers}, of which {fleet.ready} ready"),
        ("lablets", _lablets(fleet)),
        ("offer", f"{offer.cpu_cores} CPU, {offer.memory_gb:g} GB memory, {offer.storage_gb:g} GB disk"),
        ("nodes", f"{offer.max_nodes} at most"),
        ("cost", f"${fleet.cost_per_hour_usd:.2f} an hour now"),
        ("saved", f"${fleet.saved_per_hour_usd:.2f} an hour by what is stopped, ${fleet.saved_total_usd:.2f} so far"),
    ]
    for leader in fleet.leaders:
        swept = "" if leader.startup_sweep_done else ", still in its first sweep"
        since = f"since {format_timestamp_utc(leader.announced_at)} ({format_duration(now - leader.announced_at)} ago)"
        facts.append(("leads", f"{leader.controller}, term {leader.term}, {since}{swept}"))
    if not fleet.leaders:
        facts.append(("leads", "nobody: no controller has announced itself, so nothing is done"))
    if fleet.hold is not None:
        facts.append(("on hold", f"by {fleet.hold.by}: {fleet.hold.reason} (lcm fleet release)"))
    if fleet.held_workers:
        facts.append(("held", f"{fleet.held_workers} single workers"))
    facts += [
        ("breaker", f"{each.region} open for {format_duration(now - each.since)}: {each.reason} (lcm breaker reset)")
        for each in fleet.breakers
    ]
    screen.facts(facts, indent=0)
    used = [status for status in WorkerStatus if any(status in row for row in fleet.by_region.values())]
    if not used:
        return
    screen.say()
    columns: list[Column[str]] = [Column("REGION", lambda region: region)]
    columns += [_count_column(fleet, status.value, status_style(status.value)) for status in used]
    screen.table(columns, sorted(fleet.by_region))


def _lablets(fleet: FleetSummary) -> str:
    """How many there are that have not ended, and where they are in their lives."""
    from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus

    counts = [
        (status, fleet.lablets_by_status.get(status, 0))
        for status in LabletStatus
        if status not in FINAL_LABLET_STATUSES
    ]
    told = ", ".join(f"{count} {status}" for status, count in counts if count)
    return f"{sum(count for _, count in counts)}: {told}" if told else "none"


def _count_column(fleet: FleetSummary, status: str, style: str) -> Column[str]:
    def cell(region: str) -> str:
        return str(next((count for each, count in fleet.by_region[region].items() if each.value == status), ""))

    return Column(status, cell, rank=1, style=lambda _: style, right=True)


def _show_activity(session: Session, night: ActivitySummary) -> None:
    from lcm.cli.output.durations import format_duration, format_timestamp_utc

    screen = session.screen
    cut = "" if night.complete else " (more happened before than one look takes in)"
    by_policy, by_people = f"${night.saved_by_policy_usd:.2f}", f"${night.saved_by_people_usd:.2f}"
    facts = [
        (
            "time",
            f"{format_timestamp_utc(night.since)} to {format_timestamp_utc(night.until)}, {format_duration(night.until - night.since)}{cut}",
        ),
        ("saved", f"${night.saved_usd:.2f}: {by_policy} by policies, {by_people} by people"),
        ("stopped", f"{night.stopped_throughout} workers all the time"),
    ]
    screen.facts(facts, indent=0)
    screen.say()
    if night.automation:
        screen.table(_activity_columns("AUTOMATION"), night.automation)
    else:
        screen.say("Automation did nothing worth a word.")
    screen.say()
    if night.people:
        screen.table(_activity_columns("PEOPLE"), night.people)
    else:
        screen.say("People did nothing.")


def _activity_columns(title: str) -> list[Column[ActivityCount]]:
    from lcm.model.fleet.activity_summary import action_label

    return [
        Column("TIMES", lambda done: str(done.count), right=True),
        Column(title, lambda done: action_label(done.what)),
        Column("TO", _subject_names, rank=1, least=24),
    ]


def _subject_names(done: ActivityCount) -> str:
    named = ", ".join(each.name or each.id for each in done.concerned)
    return f"{named}, …" if done.count > len(done.concerned) else named
