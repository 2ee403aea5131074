"""`lcm login`, `contexts`, `whoami` and `dashboard`: signing in to control planes."""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from lcm.cli.config import context_store
from lcm.cli.errors import OK, CommandError, UsageError, print_error
from lcm.cli.output.printer import Printer
from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import OutputFormat, OutputOption, make_command_group
from lcm.cli.runtime.session import Session, run
from lcm.cli.runtime.target import Target

if TYPE_CHECKING:
    from lcm.model.access import CallerIdentity, SignInLink


login_app = make_command_group("Sign in to a control plane and save it as a context.")


@login_app.command()
def login(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Such as https://lcm.example.org or http://127.0.0.1:8080.")
    ],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the context. Default: the host name.")
    ] = None,
    token_stdin: Annotated[bool, typer.Option("--token-stdin", help="Read the token from standard input.")] = False,
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="Read the token from a file.")
    ] = None,
    keep_current: Annotated[bool, typer.Option("--keep-current", help="Keep the current context selected.")] = False,
) -> None:
    """Sign in to a control plane. The token is read without echo, checked, and saved in a file only you can read."""
    try:
        by_host = context_name_from_url(url)
        token = _read_token(token_stdin, token_file)
    except CommandError as error:
        raise typer.Exit(print_error(str(error), error.code)) from None

    async def work(session: Session) -> None:
        session.target = Target(url, token, "login")
        me = await session.client.access.whoami()
        try:
            context_store.save(name or by_host, url.rstrip("/"), token, make_current=not keep_current)
        except context_store.ContextStoreError as error:
            raise CommandError(str(error)) from None
        if url.lower().startswith("http://") and by_host != "local":
            print_error("warning: the token is sent without encryption; use https:// for another machine", OK)
        session.printer.line(f"Signed in to {url} as {me.name} ({me.role}). Saved as context {name or by_host}.")

    code = run(work, server=url, output=OutputFormat.TABLE)
    if code != OK:
        raise typer.Exit(code)


def context_name_from_url(url: str) -> str:
    """The context name for a URL: its host, or `local` for this machine."""
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
        raise UsageError("no token given")
    return text


contexts_app = make_command_group("Saved control planes: list, select, remove.")

ContextArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of a context, or a unique prefix.")]


@contexts_app.command("list")
def contexts_list(output: OutputOption = OutputFormat.TABLE) -> None:
    """List contexts; the current one is marked. Tokens are not shown."""
    saved = _load_contexts_or_exit()
    printer = Printer(output)
    every_context = sorted(saved.contexts.values(), key=lambda context: context.name)
    if output is OutputFormat.NAME:
        sys.stdout.write("".join(f"{context.name}\n" for context in every_context))
    elif not printer.for_people:
        printer.data(
            [{"name": each.name, "url": each.url, "current": each.name == saved.current} for each in every_context]
        )
    elif every_context:
        columns: list[Column[context_store.Context]] = [
            Column("", lambda each: "*" if each.name == saved.current else " "),
            Column("NAME", lambda each: each.name),
            Column("URL", lambda each: each.url, min_width=20),
            Column("TOKEN", lambda each: "saved" if each.token else "none", priority=1),
        ]
        printer.table(columns, every_context)
    else:
        printer.line("No contexts. Sign in: lcm login URL")


@contexts_app.command("use")
def contexts_use(name: ContextArgument) -> None:
    """Select the context that commands use."""
    found = _pick_context(name)
    context_store.use(found)
    sys.stdout.write(f"Current context: {found}, {_load_contexts_or_exit().contexts[found].url}.\n")


@contexts_app.command("remove")
def contexts_remove(name: ContextArgument) -> None:
    """Remove a context. Its token stays valid until it is revoked."""
    found = _pick_context(name)
    context_store.remove(found)
    sys.stdout.write(f"{found} removed. Its token stays valid until it is revoked: lcm tokens revoke\n")


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


whoami_app = make_command_group("Show your name and role.")


@command(whoami_app)
async def whoami(session: Session) -> None:
    """Show your name, role and authentication method."""
    me = await session.client.access.whoami()
    session.printer.item(me, me.name, lambda each: _show_whoami(session, each))


def _show_whoami(session: Session, me: CallerIdentity) -> None:
    from lcm.cli.output.durations import format_time_with_zone

    details = [("name", me.name), ("role", me.role.value), ("by", me.kind.value)]
    if me.expires_at is not None:
        details.append(("until", format_time_with_zone(me.expires_at)))
    session.printer.details([*details, ("at", f"{session.target.url} (from {session.target.source})")], indent=0)


dashboard_app = make_command_group("Print a sign-in link to the dashboard.")


@command(dashboard_app)
async def dashboard(session: Session) -> None:
    """Print a link that signs your browser in to the dashboard as you. It works once, within ten minutes."""
    link = await session.client.access.sign_in_link()
    address = session.target.url.rstrip("/") + link.path.get_secret_value()
    session.printer.item(link, address, lambda each: _show_link(session, each, address))


def _show_link(session: Session, link: SignInLink, address: str) -> None:
    from lcm.cli.output.durations import format_time_with_zone

    session.printer.line(address)
    session.printer.line(
        f"Valid once, until {format_time_with_zone(link.expires_at)}; anyone who opens it is signed in as you."
    )
