"""`lcm secrets`, `breaker` and `leadership`: maintenance commands for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.errors import CommandError
from lcm.cli.runtime.command import command
from lcm.cli.runtime.forecast import forecast_lines
from lcm.cli.runtime.options import YesOption, make_command_group
from lcm.cli.runtime.session import Session, confirm_change

if TYPE_CHECKING:
    from lcm.model.access import SecretRotationResult


secrets_app = make_command_group("Rotate the encryption key of stored secrets.")


@secrets_app.callback()
def secrets_group() -> None:
    """Rotate the encryption key of stored secrets."""


@command(secrets_app, "rotate", mutates=True)
async def rotate_secrets(session: Session) -> None:
    """Re-encrypt all stored secrets with the first key of LCM_SECRET_KEY_FILE. Safe to repeat."""
    if session.dry_run:
        session.forecast = forecast_lines("secrets", await session.client.access.preview_rotation())
    done = await session.client.access.rotate_secrets()
    session.printer.item(done, "secrets", lambda each: _show_rotation(session, each))
    if done.unreadable:
        raise CommandError(
            f"{len(done.unreadable)} secrets cannot be decrypted: their key is missing or they were altered:"
            f" {', '.join(done.unreadable)}"
        )


def _show_rotation(session: Session, done: SecretRotationResult) -> None:
    session.printer.line(f"{done.rotated} secrets re-encrypted; {done.already} already used the first key.")


breaker_app = make_command_group("Reset the circuit breaker that suspends marking workers as lost.")


@breaker_app.callback()
def breaker_group() -> None:
    """Reset the circuit breaker that suspends marking workers as lost."""


@command(breaker_app, "reset", mutates=True)
async def reset_breaker(
    session: Session,
    region: Annotated[str | None, typer.Argument(metavar="REGION", help="Only the breaker of this region.")] = None,
    yes: YesOption = False,
) -> None:
    """Close open breakers: workers missing from the next scans are marked as lost again. Asks for confirmation."""
    fleet = await session.client.fleet.summary()
    closing = [each for each in fleet.breakers if region in (None, each.region)]
    if not closing:
        known = ", ".join(each.region for each in fleet.breakers)
        raise CommandError(f"no breaker is open{f' in {region}; open: {known}' if known else ''}: no changes made")
    preview = await session.client.fleet.preview_breaker_reset(region)
    session.forecast = forecast_lines("breaker", preview)
    reasons = [f"{where}: {reason}" for where, reason in preview.losses.items()]
    confirm_change(session, [*reasons, preview.effect], "Close the breaker?", yes=yes)
    state = await session.client.fleet.reset_breakers(region)
    names = ", ".join(each.region for each in closing)
    session.printer.item(state, "breaker", lambda _: session.printer.line(f"Breaker closed: {names}."))


leadership_app = make_command_group("Reset recorded leader terms after etcd was replaced.")


@leadership_app.callback()
def leadership_group() -> None:
    """Reset recorded leader terms after etcd was replaced."""


@command(leadership_app, "reset", mutates=True)
async def reset_leadership(
    session: Session,
    controller: Annotated[str, typer.Argument(metavar="CONTROLLER", help="Such as worker-controller.")],
    yes: YesOption = False,
) -> None:
    """Reset the recorded term of a controller, so that writes of a leader elected by a new etcd are accepted.

    Use it only after etcd was replaced: it also lets an older leader write again. Asks for confirmation.
    """
    from lcm.cli.runtime.lookup import Candidate, pick_candidate

    fleet = await session.client.fleet.summary()
    seen = {leader.controller: leader for leader in fleet.leaders}
    name = pick_candidate(controller, [Candidate(each, each) for each in seen], "controller", "lcm fleet")
    preview = await session.client.fleet.preview_leadership_reset(name)
    session.forecast = forecast_lines(name, preview)
    effects = [f"The recorded term of {name} is {seen[name].term}.", preview.effect]
    confirm_change(session, effects, "Reset it? Do this only after etcd was replaced.", yes=yes)
    done = await session.client.fleet.reset_leadership(name)
    if session.printer.for_people:
        session.printer.line(f"The term of {done} was reset; its next leader is accepted.")
    else:
        session.printer.data({"controller": done})
