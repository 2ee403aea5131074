"""Commands that change lablets which exist: extend and reset. Each can show what would happen."""

from __future__ import annotations

from typing import Annotated

import typer

from lcm.cli.errors import CommandError, UsageError
from lcm.cli.runtime.command import command
from lcm.cli.runtime.forecast import forecast_lines
from lcm.cli.runtime.options import LabletArgument, ReasonOption, YesOption
from lcm.cli.runtime.session import Session, confirm_by_name, require_terminal

ByOption = Annotated[str | None, typer.Option("--by", metavar="SPAN", help="By how much, such as 30m or 1h.")]
NewEndOption = Annotated[
    str | None, typer.Option("--until", metavar="WHEN", help="The new end: 2h from now, or 2026-01-17T10:30Z.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to `lcm lablets`."""
    command(app, "extend", mutates=True)(extend_lablet)
    command(app, "reset", mutates=True)(reset_lablet)


async def extend_lablet(
    session: Session, name: LabletArgument, by: ByOption = None, until: NewEndOption = None, reason: ReasonOption = None
) -> None:
    """Move the end of a lablet to a later time, such as --by 1h, up to the maximum lifetime."""
    from lcm.cli.output.durations import format_time_with_zone, parse_duration, parse_time
    from lcm.cli.runtime.lookup import find_lablet
    from lcm.cli.runtime.options import validate
    from lcm.core import clock
    from lcm.model.lablet.requests import ExtendLabletRequest, LabletAction, PreviewLabletRequest

    if (by is None) == (until is None):
        raise UsageError("give either --by, such as --by 1h, or --until, such as --until 2026-01-17T17:30")
    fields: dict[str, object] = {}
    if by is not None:
        fields["minutes"] = parse_duration(by, "--by").total_seconds() / 60
    if until is not None:
        fields["ends_at"] = parse_time(until, clock.now(), "--until")
    lablet = await find_lablet(session.client, name)
    if session.dry_run:
        body = validate(PreviewLabletRequest, {"action": LabletAction.EXTEND, **fields})
        session.forecast = forecast_lines(lablet.name, await session.client.lablets.preview_action(lablet.id, body))
    asked = validate(ExtendLabletRequest, fields if reason is None else {**fields, "reason": reason})
    changed = await session.client.lablets.extend(lablet.id, asked)
    end = changed.expires_at
    line = f"{changed.name} may run for {changed.time_to_live_minutes or 0:g} minutes, counted from when it first runs."
    if end is not None:
        line = f"{changed.name} ends at {format_time_with_zone(end)}."
    if changed.version == lablet.version:
        line += " No change needed."
    session.printer.item(changed, changed.name, lambda _: session.printer.line(line))


async def reset_lablet(
    session: Session, name: LabletArgument, reason: ReasonOption = None, yes: YesOption = False
) -> None:
    """Make a new lab in place of the lablet's: worker, ports and end stay, all work in it is lost. Asks first.

    A failed seat of a class that is under way is made anew on a worker of the class.
    """
    from lcm.cli.runtime.lookup import find_lablet
    from lcm.model.lablet.requests import LabletAction, PreviewLabletRequest

    lablet = await find_lablet(session.client, name)
    preview = await session.client.lablets.preview_action(lablet.id, PreviewLabletRequest(action=LabletAction.RESET))
    session.forecast = forecast_lines(lablet.name, preview)
    if not yes and not session.dry_run:
        require_terminal()
        session.printer.details(session.forecast, indent=0)
        if not confirm_by_name(f"Reset {lablet.name}?", lablet.name):
            raise CommandError("no changes made")
    changed = await session.client.lablets.reset(lablet.id, reason)
    line = f"{changed.name} is {changed.status}; its lab is made anew.\nWait for it: lcm lablets wait {changed.name}"
    session.printer.item(changed, changed.name, lambda _: session.printer.line(line))
