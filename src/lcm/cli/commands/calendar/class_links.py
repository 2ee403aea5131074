"""`lcm bookings seat-links`: links for all seats of a class, for people without an account."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.errors import CommandError, UsageError
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import YesOption
from lcm.cli.runtime.session import Session, confirm_change

if TYPE_CHECKING:
    from lcm.model.booking.record import Booking, BookingOccurrence
    from lcm.model.booking.seat_links import ClassSeatLinks

BookingArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of a booking, or a unique prefix.")]
ClassOption = Annotated[
    int | None,
    typer.Option("--class", metavar="N", help="The class. Default: the one under way, else the next one."),
]
ExpiresOption = Annotated[
    str | None,
    typer.Option("--expires", metavar="WHEN", help="When they expire: 4h, or a time. Default: when the class ends."),
]
RevokeOption = Annotated[bool, typer.Option("--revoke", help="Revoke all links of the class instead.")]


def register(app: typer.Typer) -> None:
    """Add the command to `lcm bookings`."""
    command(app, "seat-links", mutates=True)(seat_links)


async def seat_links(
    session: Session,
    name: BookingArgument,
    number: ClassOption = None,
    expires: ExpiresOption = None,
    revoke: RevokeOption = False,
    yes: YesOption = False,
) -> None:
    """Create a link for each seat of a class, and print them as CSV. With --revoke, revoke all links of the class."""
    from lcm.cli.output.durations import parse_time
    from lcm.cli.runtime.lookup import find_booking
    from lcm.core import clock

    if revoke and expires is not None:
        raise UsageError("give only one of --expires and --revoke")
    booking = await find_booking(session.client, name)
    chosen = current_class(booking) if number is None else number
    if revoke:
        await _revoke(session, booking, chosen, yes=yes)
        return
    until = None if expires is None else parse_time(expires, clock.now(), "--expires")
    session.forecast = [(booking.name, f"each seat of class {chosen} will get a link, unless its learner signs in")]
    links = await session.client.bookings.create_seat_links(booking.id, chosen, expires_at=until)
    session.printer.item(links, booking.name, lambda each: _show(session, each))


async def _revoke(session: Session, booking: Booking, number: int, *, yes: bool) -> None:
    effects = [f"all seat links of class {number} will be revoked; what they have opened will end"]
    session.forecast = [(booking.name, each) for each in effects]
    confirm_change(session, effects, f"Revoke the seat links of {booking.name}?", yes=yes)
    done = await session.client.bookings.revoke_seat_links(booking.id, number)
    text = f"Seat links of {booking.name}, class {number}, revoked: {done.revoked}."
    session.printer.item(done, booking.name, lambda _: session.printer.line(text))


def _show(session: Session, links: ClassSeatLinks) -> None:
    from lcm.core.text import escape_unprintable
    from lcm.model.booking.seat_links import class_links_csv

    for line in class_links_csv(links.items, session.target.url).splitlines():
        session.printer.console.print(line, soft_wrap=True)  # a line of the file stays one line
    for each in links.left_out:
        who = f" ({each.learner})" if each.learner else ""
        sys.stderr.write(f"{escape_unprintable(f'seat {each.seat}{who} has no link: {each.reason}')}\n")


def current_class(booking: Booking) -> int:
    """The class under way, else the next one."""
    from lcm.model.booking.record import UNDER_WAY

    def order(each: BookingOccurrence) -> tuple[bool, object]:
        return each.status not in UNDER_WAY, each.starts_at

    found = min(booking.open_occurrences, key=order, default=None)
    if found is None:
        raise CommandError(f"every class of {booking.name} is over or cancelled")
    return found.number
