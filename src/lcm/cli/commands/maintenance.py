"""`lcm secrets`: the key that stored secrets are encrypted with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.errors import CommandError
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import YesOption, make_command_group
from lcm.cli.runtime.session import Session, confirm

if TYPE_CHECKING:
    from lcm.model.access import SecretRotationResult


secrets_app = make_command_group("The key that stored secrets are encrypted with.")


@secrets_app.callback()
def secrets_group() -> None:
    """The key that stored secrets are encrypted with."""


@command(secrets_app, "rotate", changes=True)
async def rotate_secrets(session: Session) -> None:
    """Encrypt all stored secrets with the first key, after one was put in front. It can be run again at any time."""
    session.forecast = [("then", "every licence token and password is encrypted with the first key")]
    done = await session.client.access.rotate_secrets()
    session.screen.one(done, "secrets", lambda each: _show_rotation(session, each))
    if done.unreadable:
        raise CommandError(
            f"{len(done.unreadable)} secrets cannot be read, as their key is missing or they were altered:"
            f" {', '.join(done.unreadable)}"
        )


def _show_rotation(session: Session, done: SecretRotationResult) -> None:
    session.screen.say(f"{done.rotated} secrets were encrypted anew, {done.already} had the first key already.")


breaker_app = make_command_group("Let workers be marked as lost again after too many were.")


@breaker_app.callback()
def breaker_group() -> None:
    """Let workers be marked as lost again after too many were."""


@command(breaker_app, "reset", changes=True)
async def reset_breaker(
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


leadership_app = make_command_group("Believe leaders again after etcd was replaced.")


@leadership_app.callback()
def leadership_group() -> None:
    """Believe leaders again after etcd was replaced."""


@command(leadership_app, "reset", changes=True)
async def reset_leadership(
    session: Session,
    controller: Annotated[str, typer.Argument(metavar="CONTROLLER", help="Such as worker-controller.")],
    yes: YesOption = False,
) -> None:
    """Forget the newest term of a controller, so that a leader of a new etcd is not taken for an old one.

    Only after etcd was replaced: it lets an older leader write again. It asks first.
    """
    from lcm.cli.errors import CommandError
    from lcm.cli.runtime.lookup import Candidate, pick_candidate

    fleet = await session.client.fleet.summary()
    seen = {leader.controller: leader for leader in fleet.leaders}
    name = pick_candidate(controller, [Candidate(each, each) for each in seen], "controller", "lcm fleet")
    session.forecast = [(name, f"term {seen[name].term}"), ("then", "the next leader's term counts, whatever it is")]
    if not yes and not session.dry_run:
        session.screen.say(f"The newest term of {name} is {seen[name].term}.")
        if not confirm("Forget it? Only after etcd was replaced."):
            raise CommandError("nothing was changed")
    done = await session.client.fleet.reset_leadership(name)
    if session.screen.for_people:
        session.screen.say(f"The term of {done} is forgotten: its next leader is believed.")
    else:
        session.screen.data({"controller": done})
