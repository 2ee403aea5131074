"""`lcm login`: sign in to a control plane and remember it."""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from lcm.cli.config import context_store
from lcm.cli.errors import OK, CommandError, UsageError
from lcm.cli.output.printer import Printer
from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import OutputFormat, OutputOption, make_command_group
from lcm.cli.runtime.session import Session, print_error, run
from lcm.cli.runtime.target import Target

if TYPE_CHECKING:
    from lcm.model.access import CallerIdentity, SignInLink


login_app = make_command_group("Sign in to a control plane and remember it.")


@login_app.command()
def login(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Such as https://lcm.example.org or http://127.0.0.1:8080.")
    ],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="What to call it; without it, by its host.")
    ] = None,
    token_stdin: Annotated[bool, typer.Option("--token-stdin", help="Read the token from standard input.")] = False,
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="Read the token from a file.")
    ] = None,
    keep_current: Annotated[bool, typer.Option("--keep-current", help="Do not make it the current context.")] = False,
) -> None:
    """Sign in to a control plane: the token is asked for without showing it, checked, and kept for you alone."""
    try:
        by_host = context_name_from_url(url)
        token = _read_token(token_stdin, token_file)
    except CommandError as error:
        raise typer.Exit(print_error(str(error), error.code)) from None

    async def work(session: Session) -> None:
        session.reach = Target(url, token, "login")
        me = await session.client.access.whoami()
        try:
            context_store.save(name or by_host, url.rstrip("/"), token, make_current=not keep_current)
        except context_store.ContextStoreError as error:
            raise CommandError(str(error)) from None
        session.screen.say(f"Signed in to {url} as {me.name} ({me.role}). Kept as context {name or by_host}.")

    code = run(work, server=url, output=OutputFormat.TABLE)
    if code != OK:
        raise typer.Exit(code)


def context_name_from_url(url: str) -> str:
    """A name for a control plane, from its host; `local` for this machine."""
    host = urlsplit(url).hostname
    if urlsplit(url).scheme not in ("http", "https") or not host:
        raise UsageError(f"{url!r}: must begin with http:// or https:// and name a host")
    return "local" if host in ("localhost", "127.0.0.1", "::1") else host.replace(":", "-")


def _read_token(from_input: bool, from_file: str | None) -> str:
    from lcm.cli.runtime.target import read_token

    if from_file is not None:
        return read_token(from_file)
    if from_input:
        text = sys.stdin.readline().strip()
    elif sys.stdin.isatty():
        text = getpass.getpass("Token: ").strip()
    else:
        raise UsageError("there is no terminal to ask for the token on: use --token-stdin or --token-file FILE")
    if not text:
        raise UsageError("no token was given")
    return text


contexts_app = make_command_group("The control planes that you have signed in to.")

ContextArgument = Annotated[str, typer.Argument(metavar="NAME", help="A context's name, or the beginning of it.")]


@contexts_app.command("list")
def contexts_list(output: OutputOption = OutputFormat.TABLE) -> None:
    """All contexts; the current one is marked. Tokens are not shown."""
    known = _load_contexts_or_exit()
    screen = Printer(output)
    every = sorted(known.contexts.values(), key=lambda context: context.name)
    if output is OutputFormat.NAME:
        sys.stdout.write("".join(f"{context.name}\n" for context in every))
    elif not screen.for_people:
        screen.data([{"name": each.name, "url": each.url, "current": each.name == known.current} for each in every])
    elif every:
        columns: list[Column[context_store.Context]] = [
            Column("", lambda each: "*" if each.name == known.current else " "),
            Column("NAME", lambda each: each.name),
            Column("URL", lambda each: each.url, least=20),
            Column("TOKEN", lambda each: "kept" if each.token else "none", rank=1),
        ]
        screen.table(columns, every)
    else:
        screen.say("None yet. Sign in: lcm login URL")


@contexts_app.command("use")
def contexts_use(name: ContextArgument) -> None:
    """Make a context the one that commands ask."""
    found = _pick_context(name)
    context_store.use(found)
    sys.stdout.write(f"Commands now ask {found}, {_load_contexts_or_exit().contexts[found].url}.\n")


@contexts_app.command("remove")
def contexts_remove(name: ContextArgument) -> None:
    """Forget a context. Its token stays valid until it is revoked."""
    found = _pick_context(name)
    context_store.remove(found)
    sys.stdout.write(f"{found} is forgotten. Its token stays valid until somebody revokes it: lcm tokens revoke\n")


def _load_contexts_or_exit() -> context_store.ContextFile:
    try:
        return context_store.load()
    except context_store.ContextStoreError as error:
        raise typer.Exit(print_error(str(error), CommandError.code)) from None


def _pick_context(text: str) -> str:
    from lcm.cli.runtime.lookup import Candidate, pick_candidate

    try:
        return pick_candidate(
            text, [Candidate(name, name) for name in _load_contexts_or_exit().contexts], "context", "lcm contexts list"
        )
    except CommandError as error:
        raise typer.Exit(print_error(str(error), error.code)) from None


whoami_app = make_command_group("Who you are to the control plane.")


@command(whoami_app)
async def whoami(session: Session) -> None:
    """Who you are to the control plane, which role that is, and how it was found."""
    me = await session.client.access.whoami()
    session.screen.one(me, me.name, lambda each: _show_whoami(session, each))


def _show_whoami(session: Session, me: CallerIdentity) -> None:
    from lcm.cli.output.durations import format_timestamp_utc

    facts = [("name", me.name), ("role", me.role.value), ("by", me.kind.value)]
    if me.expires_at is not None:
        facts.append(("until", format_timestamp_utc(me.expires_at)))
    session.screen.facts([*facts, ("at", f"{session.reach.url} (from {session.reach.source})")], indent=0)


dashboard_app = make_command_group("A link that signs your browser in to the dashboard.")


@command(dashboard_app)
async def dashboard(session: Session) -> None:
    """Print a link that opens the dashboard and signs you in: once, within ten minutes, as whoever you are here."""
    link = await session.client.access.sign_in_link()
    address = session.reach.url.rstrip("/") + link.path.get_secret_value()
    session.screen.one(link, address, lambda each: _show_link(session, each, address))


def _show_link(session: Session, link: SignInLink, address: str) -> None:
    from lcm.cli.output.durations import format_timestamp_utc

    session.screen.say(address)
    session.screen.say(
        f"Good once, until {format_timestamp_utc(link.expires_at)}; whoever opens it is signed in as you."
    )
