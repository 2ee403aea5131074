"""`lcm bookings`: seats for a class, admitted against what is booked and exists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.commands.calendar import class_links
from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import ReasonOption, YesOption, make_command_group
from lcm.cli.runtime.session import Session, confirm_change

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from datetime import datetime

    from lcm.model.booking.record import Booking, BookingOccurrence
    from lcm.model.booking.requests import BookingChangePreview, BookingPreview, CreateBookingRequest, FreeTime

app = make_command_group("Bookings: seats for a class that are ready when it begins.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of a booking, or a unique prefix.")]
DefinitionOption = Annotated[
    str, typer.Option("--definition", "-d", metavar="NAME[@VERSION]", help="Definition of the labs.")
]
SeatsOption = Annotated[int, typer.Option("--seats", metavar="N", help="Number of labs, one for each learner.")]
StartOption = Annotated[
    str, typer.Option("--start", metavar="WHEN", help="Start, as clocks in the zone show it: 2026-11-16T09:00.")
]
ZoneOption = Annotated[str, typer.Option("--zone", metavar="ZONE", help="Time zone, such as Europe/Brussels.")]
DurationOption = Annotated[str, typer.Option("--duration", metavar="SPAN", help="How long a class lasts, such as 4h.")]
WhichOption = Annotated[
    str | None, typer.Option("--which", metavar="first|second", help="Which one if clocks show the start twice.")
]
WeeksOption = Annotated[
    int,
    typer.Option("--weeks", metavar="N", help="Number of classes, a week apart. All are booked, or none."),
]
TeamOption = Annotated[str | None, typer.Option("--team", metavar="TEAM", help="The team that it is for.")]
RegionOption = Annotated[str | None, typer.Option("--region", metavar="REGION", help="AWS region of the workers.")]
LearnerOption = Annotated[
    list[str] | None,
    typer.Option("--learner", metavar="NAME", help="Name or e-mail address of a person who gets a seat; repeatable."),
]
ClassOption = Annotated[int | None, typer.Option("--class", metavar="N", help="The class, 1 for the first.")]


def _columns() -> list[Column[Booking]]:
    return [
        Column("NAME", lambda each: each.name),
        Column("STATUS", lambda each: each.status.value),
        Column("NEXT CLASS", _next_class),
        Column("SEATS", lambda each: str(each.seats)),
        Column("AT RISK", _at_risk),
        Column("REGION", lambda each: each.aws_region, priority=1),
        Column("WORKERS", lambda each: f"{each.workers} x {each.template}", priority=1),
        Column("DEFINITION", lambda each: each.definition, priority=2),
        Column("CLASSES", lambda each: f"{len(each.open_occurrences)} of {len(each.occurrences)}", priority=3),
        Column("ID", lambda each: each.id, priority=4),
    ]


@command(app, "list", watchable=True)
async def list_bookings(
    session: Session,
    every: Annotated[bool, typer.Option("--all", "-a", help="Include bookings that are over or cancelled.")] = False,
) -> None:
    """List bookings by the time of their first class."""
    from lcm.cli.live.watch_loop import show_or_watch
    from lcm.model.booking.record import OPEN_STATUSES

    async def show() -> None:
        found = [each async for each in session.client.bookings.list(status=() if every else OPEN_STATUSES)]
        session.printer.items(found, _columns(), lambda each: each.name, "No bookings.")

    await show_or_watch(session, show)


@command(app, "get", watchable=True)
async def get_booking(session: Session, name: NameArgument) -> None:
    """Show a booking with all of its classes, and what is missing for them."""
    from lcm.cli.live.watch_loop import show_or_watch
    from lcm.cli.runtime.lookup import find_booking

    found = await find_booking(session.client, name)

    async def show() -> None:
        booking = await session.client.bookings.get(found.id)
        session.printer.item(booking, booking.name, lambda each: _show(session, each))

    await show_or_watch(session, show)


@command(app, "preview")
async def preview_booking(
    session: Session,
    definition: DefinitionOption,
    seats: SeatsOption,
    start: StartOption,
    zone: ZoneOption,
    duration: DurationOption,
    which: WhichOption = None,
    weeks: WeeksOption = 1,
    team: TeamOption = None,
    region: RegionOption = None,
) -> None:
    """Show whether a booking fits, what is short, when it would fit, and what it costs. Nothing is booked."""
    request = _request("preview", definition, seats, start, zone, duration, which, weeks, team, region, [])
    preview = await session.client.bookings.preview(request)
    session.printer.item(preview, preview.reason, lambda each: _show_preview(session, each))


@command(app, "create", mutates=True)
async def create_booking(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the booking.")],
    definition: DefinitionOption,
    seats: SeatsOption,
    start: StartOption,
    zone: ZoneOption,
    duration: DurationOption,
    which: WhichOption = None,
    weeks: WeeksOption = 1,
    team: TeamOption = None,
    region: RegionOption = None,
    learner: LearnerOption = None,
) -> None:
    """Book seats for a class. If they do not fit, LCM says what is short and when they would."""
    request = _request(name, definition, seats, start, zone, duration, which, weeks, team, region, learner or [])
    if session.dry_run:
        preview = await session.client.bookings.preview(request)
        session.forecast = [("then", line) for line in _preview_lines(preview)]
    booking = await _admitted(session.client.bookings.create(request))
    _print_result(session, booking, f"confirmed: {_next_class(booking)}")


@command(app, "extend", mutates=True)
async def extend_booking(
    session: Session,
    name: NameArgument,
    by: Annotated[str, typer.Option("--by", metavar="SPAN", help="How much later the class ends, such as 30m.")],
    number: ClassOption = None,
) -> None:
    """Extend a class: the one that is under way, or else the next one."""
    from lcm.cli.runtime.lookup import find_booking
    from lcm.cli.runtime.options import validate
    from lcm.model.booking.requests import ExtendBookingRequest

    found = await find_booking(session.client, name)
    request = validate(ExtendBookingRequest, {"minutes": _minutes(by, "--by"), "number": number})
    chosen = class_links.current_class(found) if number is None else number
    if session.dry_run:
        session.forecast = await _change_forecast(session.client.bookings.preview_extension(found.id, request))
    extended = await _admitted(session.client.bookings.extend(found.id, request))
    _print_result(session, extended, f"extended: class {chosen} ends at {_local(_class(extended, chosen).ends_at)}")


@command(app, "move", mutates=True)
async def move_booking(
    session: Session,
    name: NameArgument,
    number: Annotated[int, typer.Option("--class", metavar="N", help="The class, 1 for the first.")],
    start: StartOption,
    which: WhichOption = None,
) -> None:
    """Move one class to another time, in the zone of the booking. It is admitted like a new one."""
    from lcm.cli.runtime.lookup import find_booking
    from lcm.cli.runtime.options import validate
    from lcm.model.booking.requests import MoveOccurrenceRequest

    found = await find_booking(session.client, name)
    request = validate(MoveOccurrenceRequest, {"start": start, "occurrence": which})
    if session.dry_run:
        session.forecast = await _change_forecast(session.client.bookings.preview_move(found.id, number, request))
    moved = await _admitted(session.client.bookings.move(found.id, number, request))
    _print_result(session, moved, f"changed: class {number} begins at {_wall(moved, _class(moved, number))}")


@command(app, "cancel", mutates=True)
async def cancel_booking(
    session: Session,
    name: NameArgument,
    number: ClassOption = None,
    reason: ReasonOption = None,
    yes: YesOption = False,
) -> None:
    """Cancel a booking, or one class of it. Labs of a class that is under way end. Asks for confirmation."""
    from lcm.cli.errors import CommandError
    from lcm.cli.runtime.lookup import find_booking

    found = await find_booking(session.client, name)
    cancelled = [each for each in found.open_occurrences if number in (None, each.number)]
    if not cancelled:
        what = f"class {number}" if number else "every class"
        raise CommandError(f"{what} of {found.name} is over, or does not exist")
    effects = [f"class {each.number} at {_wall(found, each)} will be cancelled{_labs_end(each)}" for each in cancelled]
    session.forecast = [("then", each) for each in effects]
    confirm_change(session, effects, f"Cancel {found.name}?", yes=yes)
    booking = await session.client.bookings.cancel(found.id, reason, number=number, version=found.version)
    _print_result(session, booking, "cancelled" if number is None else f"changed: class {number} is cancelled")


class_links.register(app)


def _request(
    name: str,
    definition: str,
    seats: int,
    start: str,
    zone: str,
    duration: str,
    which: str | None,
    weeks: int,
    team: str | None,
    region: str | None,
    learners: list[str],
) -> CreateBookingRequest:
    from lcm.cli.runtime.options import validate
    from lcm.model.booking.requests import CreateBookingRequest, split_learners

    fields = {
        "name": name,
        "definition": definition,
        "seats": seats,
        "start": start,
        "zone": zone,
        "occurrence": which,
        "duration_minutes": _minutes(duration, "--duration"),
        "repeat_weeks": weeks,
        "team": team,
        "aws_region": region,
        "learners": [person for each in learners for person in split_learners(each)],
    }
    return validate(CreateBookingRequest, fields)


def _minutes(text: str, option: str) -> int:
    from lcm.cli.errors import UsageError
    from lcm.cli.output.durations import parse_duration

    seconds = parse_duration(text, option).total_seconds()
    if seconds % 60:
        raise UsageError(f"{option} {text!r}: must be whole minutes, such as 90m")
    return int(seconds // 60)


async def _admitted(change: Awaitable[Booking]) -> Booking:
    """The booking. A refusal ends the command with what is short and when it would fit, a line each."""
    from lcm.cli.errors import CommandError
    from lcm.client.errors import BookingRefusedError
    from lcm.model.booking.requests import BookingPreview

    try:
        return await change
    except BookingRefusedError as error:
        lines = [error.detail]
        if error.current and "confirmed" in error.current:  # the answer to a new booking; others say it in one line
            lines = _preview_lines(BookingPreview.model_validate(error.current))
        raise CommandError("\n".join(lines)) from None


def _preview_lines(preview: BookingPreview) -> list[str]:
    lines = [preview.reason]
    if not preview.confirmed:
        lines = [each.message for each in preview.shortages] or lines
    if not preview.confirmed and (preview.template is not None or preview.free_times):
        free = ", ".join(_free_time(each) for each in preview.free_times)
        zone = preview.free_times[0].start.zone if free else ""
        lines.append(f"It would fit at: {free} in {zone}" if free else "It does not fit at any time within 14 days.")
    if preview.confirmed and preview.cost:
        lines.append(preview.cost)
    return [*lines, *preview.warnings]


async def _change_forecast(change: Awaitable[BookingChangePreview]) -> list[tuple[str, str]]:
    """What a dry run says of a change. A control plane of an earlier version has no previews of it."""
    from lcm.client.errors import ApiError

    try:
        preview = await change
    except ApiError as error:
        if error.status != 405 and not error.detail.endswith("/preview does not exist"):
            raise  # another 404 is about the class
        return [("then", "this control plane cannot preview it: whether it fits is known when it is sent")]
    reason = preview.reason if preview.confirmed else f"it would be refused: {preview.reason}"
    return [("then", each) for each in (reason, preview.cost, *preview.warnings) if each]


def _free_time(free: FreeTime) -> str:
    which = "" if free.start.occurrence is None else f" --which {free.start.occurrence.value}"
    return f"{free.start.at:%Y-%m-%dT%H:%M}{which}"


def _show_preview(session: Session, preview: BookingPreview) -> None:
    line = session.printer.line
    for text in _preview_lines(preview):
        line(text)
    for each in preview.occurrences:
        line(f"  class {each.number}: {each.start.at:%Y-%m-%d %H:%M}, workers from {_local(each.warm_up_at)}")


def _show(session: Session, booking: Booking) -> None:
    from lcm.cli.output.durations import format_minutes

    session.printer.line(booking.name, style="bold")
    session.printer.details(
        [
            ("status", booking.status.value),
            ("definition", booking.definition),
            ("seats", str(booking.seats)),
            ("workers", f"{booking.workers} x {booking.template} in {booking.aws_region}"),
            ("duration", format_minutes(booking.duration_minutes)),
            ("learners", ", ".join(booking.learners) or "none named"),
            ("id", booking.id),
        ]
    )
    for each in booking.occurrences:
        session.printer.line(f"  class {each.number}: {_wall(booking, each)}  {each.status}")
        if each.at_risk is not None:
            session.printer.line(f"    at risk: {each.at_risk.missing}", style="bold")


def _wall(booking: Booking, occurrence: BookingOccurrence) -> str:
    """The start as clocks in the zone of the booking show it, and here if that differs."""
    return f"{occurrence.start.at:%Y-%m-%d %H:%M} {booking.zone} ({_local(occurrence.starts_at)})"


def _local(moment: datetime) -> str:
    from lcm.cli.output.durations import format_time_with_zone

    return format_time_with_zone(moment)


def _next_class(booking: Booking) -> str:
    following = min(booking.open_occurrences, key=lambda each: each.starts_at, default=None)
    return "-" if following is None else f"{following.start.at:%Y-%m-%d %H:%M} {booking.zone}"


def _at_risk(booking: Booking) -> str:
    numbers = [str(each.number) for each in booking.open_occurrences if each.at_risk is not None]
    return f"class {', '.join(numbers)}" if numbers else "-"


def _class(booking: Booking, number: int) -> BookingOccurrence:
    return next(each for each in booking.occurrences if each.number == number)


def _labs_end(occurrence: BookingOccurrence) -> str:
    from lcm.model.booking.record import UNDER_WAY

    return "; its labs will end, and all work in them will be lost" if occurrence.status in UNDER_WAY else ""


def _print_result(session: Session, booking: Booking, word: str) -> None:
    session.printer.item(booking, booking.name, lambda each: session.printer.line(f"Booking {each.name} {word}."))
