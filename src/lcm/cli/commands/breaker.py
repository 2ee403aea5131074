"""`lcm breaker`: let workers be marked as lost again."""

from __future__ import annotations

from typing import Annotated

import typer

from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import make_app
from lcm.cli.runtime.session import Session

app = make_app("Let workers be marked as lost again after too many were.")


@app.callback()
def noun() -> None:
    """Let workers be marked as lost again after too many were."""


@command(app, "reset", changes=True)
async def reset(
    session: Session,
    region: Annotated[str | None, typer.Argument(metavar="[REGION]", help="Only the breaker of this region.")] = None,
) -> None:
    """Close open breakers: what the next scans do not find is marked as lost again."""
    from lcm.cli.errors import CommandError

    fleet = await session.client.fleet.summary()
    closing = [each for each in fleet.breakers if region in (None, each.region)]
    if not closing:
        known = ", ".join(each.region for each in fleet.breakers)
        raise CommandError(f"no breaker is open{f' in {region}; open: {known}' if known else ''}: nothing was changed")
    session.forecast = [
        *((each.region, f"open: {each.reason} ({each.affected} workers)") for each in closing),
        ("then", "workers that the next complete scans do not find are marked as lost"),
    ]
    state = await session.client.fleet.reset_breakers(region)
    names = ", ".join(each.region for each in closing)
    session.screen.one(state, "breaker", lambda _: session.screen.say(f"The breaker is closed: {names}."))
