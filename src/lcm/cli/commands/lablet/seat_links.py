"""`lcm lablets seat-link`: links that let people use one lablet without an account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.errors import CommandError, UsageError
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import LabletArgument
from lcm.cli.runtime.session import Session

if TYPE_CHECKING:
    from lcm.cli.output.tables import Column
    from lcm.model.lablet.record import Lablet
    from lcm.model.lablet.seat_link import CreatedSeatLink, SeatLink

ExpiresOption = Annotated[
    str | None,
    typer.Option("--expires", metavar="WHEN", help="When it expires: 4h, or 2026-01-17T10:30Z. Default: 24h."),
]
RevokeOption = Annotated[
    str | None, typer.Option("--revoke", metavar="ID", help="Revoke this link, or all of the lablet: --revoke all.")
]
ListOption = Annotated[bool, typer.Option("--list", help="List the links of the lablet instead.")]


def register(app: typer.Typer) -> None:
    """Add the command to `lcm lablets`."""
    command(app, "seat-link", mutates=True)(seat_link)


async def seat_link(
    session: Session,
    name: LabletArgument,
    expires: ExpiresOption = None,
    revoke: RevokeOption = None,
    show: ListOption = False,
) -> None:
    """Create a link with which anyone can use one lablet. With --list or --revoke, show or revoke such links."""
    from lcm.cli.runtime.lookup import find_lablet

    if sum((expires is not None, revoke is not None, show)) > 1:
        raise UsageError("give only one of --expires, --revoke and --list")
    lablet = await find_lablet(session.client, name)
    if show:
        links = [link async for link in session.client.seat_links.list(lablet.id)]
        session.printer.items(links, _columns(), lambda link: link.id, f"{lablet.name} has no seat links.")
    elif revoke is not None:
        await _revoke(session, lablet, revoke)
    else:
        await _create(session, lablet, expires)


async def _create(session: Session, lablet: Lablet, expires: str | None) -> None:
    from lcm.cli.output.durations import parse_time
    from lcm.core import clock

    until = None if expires is None else parse_time(expires, clock.now(), "--expires")
    session.forecast = [(lablet.name, "anyone with the link will be able to use, extend, reset and end this lablet")]
    created = await session.client.seat_links.create(lablet.id, expires_at=until)
    address = session.target.url.rstrip("/") + created.path.get_secret_value()
    session.printer.item(created, address, lambda each: _show_link(session, each, address))


async def _revoke(session: Session, lablet: Lablet, link_id: str) -> None:
    open_ones = [link async for link in session.client.seat_links.list(lablet.id) if link.revoked_at is None]
    chosen = [link for link in open_ones if link_id in ("all", link.id)]
    if not chosen and link_id != "all":
        known = ", ".join(link.id for link in open_ones) or "none"
        raise CommandError(f"--revoke {link_id}: {lablet.name} has no open link with this id; it has: {known}")
    session.forecast = [(link.id, "will be revoked; what it has opened will end") for link in chosen]
    revoked = [await session.client.seat_links.revoke(lablet.id, link.id) for link in chosen]
    session.printer.items(revoked, _columns(), lambda link: link.id, f"{lablet.name} has no link to revoke.")


def _show_link(session: Session, created: CreatedSeatLink, address: str) -> None:
    from lcm.cli.output.durations import format_time_with_zone

    session.printer.line(address)
    session.printer.line(
        f"Shown only once. Until {format_time_with_zone(created.link.expires_at)}, anyone with it can open the lab."
        f" To revoke it: --revoke {created.link.id}"
    )


def _columns() -> list[Column[SeatLink]]:
    from lcm.cli.output.durations import format_duration
    from lcm.cli.output.tables import Column
    from lcm.core import clock

    now = clock.now()

    def state(link: SeatLink) -> str:
        if link.revoked_at is not None:
            return f"revoked by {link.revoked_by}"
        return "expired" if link.expires_at <= now else f"expires in {format_duration(link.expires_at - now)}"

    return [
        Column("ID", lambda each: each.id, min_width=12),
        Column("STATE", state),
        Column("OPENED", lambda each: str(each.opened), align_right=True),
        Column("CREATED BY", lambda each: each.created_by, priority=2),
    ]
