"""`lcm tokens`: who may call, and in which role."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.errors import CommandError
from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import YesOption, make_command_group
from lcm.cli.runtime.session import Session, confirm

if TYPE_CHECKING:
    from lcm.model.access import CreatedToken, TokenInfo

app = make_command_group("Who may call, and in which role.")


def _columns() -> list[Column[TokenInfo]]:
    from lcm.cli.output.durations import format_duration, format_timestamp_utc
    from lcm.core import clock

    now = clock.now()

    def ends(token: TokenInfo) -> str:
        if token.revoked_at is not None:
            return f"revoked {format_duration(now - token.revoked_at)} ago"
        if token.expires_at is None:
            return "never"
        return f"in {format_duration(token.expires_at - now)}" if token.expires_at > now else "expired"

    return [
        Column("NAME", lambda token: token.name),
        Column("ROLE", lambda token: token.role.value),
        Column("ENDS", ends, rank=1),
        Column(
            "LAST USED",
            lambda token: f"{format_duration(now - token.last_used_at)} ago" if token.last_used_at else "never",
            rank=2,
        ),
        Column("MADE BY", lambda token: token.created_by, rank=3),
        Column("ID", lambda token: token.id, rank=4),
        Column("MADE", lambda token: format_timestamp_utc(token.created_at), rank=5, wide=True),
    ]


@command(app, "list", lists=True)
async def list_tokens(
    session: Session,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Revoked ones as well.")] = False,
) -> None:
    """All tokens, without their secrets."""
    from lcm.cli.live.watch_loop import show_or_watch

    async def show() -> None:
        tokens = [token async for token in session.client.access.tokens()]
        kept = [token for token in tokens if everything or token.revoked_at is None]
        session.screen.many(kept, _columns(), lambda token: token.name, "No tokens.")

    await show_or_watch(session, show)


@command(app, "create", changes=True)
async def create_token(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is; it stands in history and audit.")],
    role: Annotated[str, typer.Option("--role", metavar="viewer|operator|admin|controller", help="What it allows.")],
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="WHEN", help="When it ends: 30d, or a date. Else never.")
    ] = None,
) -> None:
    """Make a token. It is shown this once and nowhere else."""
    from lcm.cli.output.durations import parse_time
    from lcm.cli.runtime.options import validate
    from lcm.core import clock
    from lcm.model.access import CreateTokenRequest

    facts: dict[str, object] = {"name": name, "role": role}
    if expires is not None:
        facts["expires_at"] = parse_time(expires, clock.now(), "--expires")
    wanted = validate(CreateTokenRequest, facts)
    session.forecast = [("then", f"whoever shows the token is {name}, with the role {wanted.role}")]
    made = await session.client.access.make_token(wanted.name, wanted.role, expires_at=wanted.expires_at)
    session.screen.one(made, made.info.name, _show_new_token)


@command(app, "revoke", changes=True)
async def revoke_token(
    session: Session,
    token: Annotated[str, typer.Argument(metavar="NAME", help="A token's name or id, or the beginning of one.")],
    yes: YesOption = False,
) -> None:
    """Let a token open nothing any more. It asks first."""
    from lcm.cli.runtime.lookup import find_token

    found = await find_token(session.client, token)
    session.forecast = [("then", f"whoever shows {found.name}'s token is turned away at once")]
    if not yes and not session.dry_run:
        session.screen.say(f"{found.name} ({found.id}), {found.role}, made by {found.created_by}")
        if not confirm("Revoke it? Whoever uses it is turned away at once."):
            raise CommandError("nothing was changed")
    gone = await session.client.access.revoke_token(found.id)
    session.screen.one(gone, gone.name, lambda each: session.screen.say(f"{each.name}'s token is revoked."))


def _show_new_token(made: CreatedToken) -> None:
    """The token alone on standard output, so that it can be piped; the rest beside it."""
    info = made.info
    sys.stderr.write(f"The token of {info.name} ({info.role}). It is shown this once:\n")
    sys.stderr.flush()
    sys.stdout.write(f"{made.token.get_secret_value()}\n")
