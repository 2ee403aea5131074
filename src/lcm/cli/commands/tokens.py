"""`lcm tokens` and `lcm sessions`: API tokens with their roles, and who is signed in."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.forecast import forecast_lines
from lcm.cli.runtime.options import YesOption, make_command_group
from lcm.cli.runtime.session import Session, confirm_change

if TYPE_CHECKING:
    from lcm.model.access import CreatedToken, SessionInfo, TokenInfo

app = make_command_group("API tokens and their roles.")


def _columns() -> list[Column[TokenInfo]]:
    from lcm.cli.output.durations import format_duration, format_time_with_zone
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
        Column("TEAM", lambda token: token.team or "", priority=2),
        Column("EXPIRES", ends, priority=1),
        Column(
            "LAST USED",
            lambda token: f"{format_duration(now - token.last_used_at)} ago" if token.last_used_at else "never",
            priority=2,
        ),
        Column("CREATED BY", lambda token: token.created_by, priority=3),
        Column("ID", lambda token: token.id, priority=4),
        Column("CREATED", lambda token: format_time_with_zone(token.created_at), priority=5, wide_only=True),
    ]


@command(app, "list", watchable=True)
async def list_tokens(
    session: Session,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Include revoked tokens.")] = False,
) -> None:
    """List tokens, without their secrets."""
    from lcm.cli.live.watch_loop import show_or_watch

    async def show() -> None:
        tokens = [token async for token in session.client.access.tokens()]
        shown = [token for token in tokens if everything or token.revoked_at is None]
        session.printer.items(shown, _columns(), lambda token: token.name, "No tokens.")

    await show_or_watch(session, show)


@command(app, "create", mutates=True)
async def create_token(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the owner, shown in history and audit.")],
    role: Annotated[
        str, typer.Option("--role", metavar="viewer|operator|admin|controller|instructor|learner", help="Role.")
    ],
    team: Annotated[
        str | None, typer.Option("--team", metavar="TEAM", help="Team of an instructor or learner, by name or id.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="WHEN", help="Expiry: 30d, or a date. Default: never.")
    ] = None,
) -> None:
    """Create a token. It is shown only once."""
    from lcm.cli.output.durations import parse_time
    from lcm.cli.runtime.options import validate
    from lcm.core import clock
    from lcm.model.access import CreateTokenRequest

    fields: dict[str, object] = {"name": name, "role": role}
    if team is not None:
        fields["team"] = team
    if expires is not None:
        fields["expires_at"] = parse_time(expires, clock.now(), "--expires")
    request = validate(CreateTokenRequest, fields)
    if session.dry_run:
        preview = await session.client.access.preview_token(
            request.name, request.role, team=request.team, expires_at=request.expires_at
        )
        session.forecast = forecast_lines(name, preview)
    created = await session.client.access.make_token(
        request.name, request.role, team=request.team, expires_at=request.expires_at
    )
    session.printer.item(created, created.info.name, _show_new_token)


@command(app, "revoke", mutates=True)
async def revoke_token(
    session: Session,
    token: Annotated[str, typer.Argument(metavar="NAME", help="Name or id of a token, or a unique prefix.")],
    yes: YesOption = False,
) -> None:
    """Revoke a token. Asks for confirmation."""
    from lcm.cli.runtime.lookup import find_token

    found = await find_token(session.client, token)
    preview = await session.client.access.preview_revocation(found.id)
    session.forecast = forecast_lines(found.name, preview)
    if preview.changes:
        about = f"{found.name} ({found.id}), {found.role}, created by {found.created_by}"
        confirm_change(session, [about, preview.effect, *preview.losses.values()], f"Revoke {found.name}?", yes=yes)
    revoked = await session.client.access.revoke_token(found.id)
    session.printer.item(revoked, revoked.name, lambda each: session.printer.line(f"Token {each.name} revoked."))


def _show_new_token(created: CreatedToken) -> None:
    """Print only the token to standard output, so that it can be piped; the rest goes to standard error."""
    info = created.info
    sys.stderr.write(f"Token of {info.name} ({info.role}), shown only once:\n")
    sys.stderr.flush()
    sys.stdout.write(f"{created.token.get_secret_value()}\n")


sessions_app = make_command_group("Open sessions of people: list, end.")
_SHORT_ID = 12


def _session_columns() -> list[Column[SessionInfo]]:
    from lcm.cli.output.durations import format_duration
    from lcm.core import clock

    now = clock.now()

    def began(each: SessionInfo) -> str:
        return "unknown" if each.signed_in_at is None else f"{format_duration(now - each.signed_in_at)} ago"

    return [
        Column("NAME", lambda each: each.name),
        Column("ROLE", lambda each: each.role_text),
        Column("KIND", lambda each: each.kind.label, priority=2),
        Column("SIGNED IN", began, priority=1),
        Column("EXPIRES", lambda each: f"in {format_duration(each.expires_at - now)}", priority=2),
        Column("FROM", lambda each: each.address or "unknown", priority=3),
        Column("ID", lambda each: each.id[:_SHORT_ID]),
        Column("IDENTITY", lambda each: each.identity, priority=4, wide_only=True),
    ]


@command(sessions_app, "list", watchable=True)
async def list_sessions(session: Session) -> None:
    """List the sessions of everyone who is signed in."""
    from lcm.cli.live.watch_loop import show_or_watch

    async def show() -> None:
        found = [each async for each in session.client.access.sessions()]
        session.printer.items(found, _session_columns(), lambda each: each.id, "No open sessions.")

    await show_or_watch(session, show)


@command(sessions_app, "end", mutates=True)
async def end_session(
    session: Session,
    which: Annotated[
        str, typer.Argument(metavar="SESSION", help="Id of a session, a unique prefix, or a name with one session.")
    ],
    yes: YesOption = False,
) -> None:
    """End a session of anyone. Asks for confirmation."""
    from lcm.cli.runtime.lookup import find_session

    found = await find_session(session.client, which)
    effect = f"{found.name} has to sign in again there"
    session.forecast = [("then", effect)]
    about = f"{found.name} ({found.role_text}), {found.kind.label}, from {found.address or 'an unknown address'}"
    confirm_change(session, [about, f"{effect}."], "End this session?", yes=yes)
    ended = await session.client.access.end_session(found.id)
    session.printer.item(ended, ended.id, lambda each: session.printer.line(f"The session of {each.name} has ended."))
