"""`lcm login`, `logout`, `whoami` and `dashboard`: signing in to control planes."""

from __future__ import annotations

import getpass
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from lcm.cli.config import context_store
from lcm.cli.config.contexts import load_contexts_or_exit
from lcm.cli.errors import OK, CommandError, UsageError, print_error
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import OutputFormat, make_command_group
from lcm.cli.runtime.session import Session, run
from lcm.cli.runtime.target import Target

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from lcm.model.access import CallerIdentity, SignInLink

_SIGN_IN_SECONDS = 30.0  # the identity provider may need some of them


login_app = make_command_group("Sign in to a control plane and save it as a context.")


@login_app.command()
def login(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Such as https://lcm.example.org or http://127.0.0.1:8080.")
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="Name of the context. Default: the host name, with the port if need be."
        ),
    ] = None,
    token_stdin: Annotated[bool, typer.Option("--token-stdin", help="Read the token from standard input.")] = False,
    token_file: Annotated[
        str | None, typer.Option("--token-file", metavar="FILE", help="Read the token from a file.")
    ] = None,
    keep_current: Annotated[bool, typer.Option("--keep-current", help="Keep the current context selected.")] = False,
    browser: Annotated[
        bool, typer.Option("--browser", help="Sign in with a browser on this computer instead of a code.")
    ] = False,
) -> None:
    """Sign in to a control plane, with your organization's account or with a token.

    If the control plane has an identity provider, you sign in there, with a code on any device or with a browser on
    this computer, for 12 hours. Otherwise, or with an option for it, a token is read without echo. What is saved is in
    a file that only you can read.
    """
    try:
        by_host = context_name_from_url(url)
        if url.lower().startswith("http://") and by_host != "local":
            print_error("warning: the token is sent without encryption; use https:// for another machine", OK)
        given = _read_token(token_stdin, token_file) if token_stdin or token_file is not None else None
        saved = load_contexts_or_exit().contexts
        context = name or _context_name(url, by_host, saved)
        save_as = _Destination(url.rstrip("/"), context, not keep_current, saved.get(context))
        if given is None and not _sign_in_at_provider(save_as, with_browser=browser):
            given = _read_token(token_stdin, token_file)
        if given is not None:
            _sign_in_with_token(save_as, given)
    except CommandError as error:
        raise typer.Exit(print_error(str(error), error.code)) from None


@dataclass(frozen=True, slots=True)
class _Destination:
    """Where the user signs in, and the context that is saved; `earlier` is what it replaces."""

    url: str
    context: str
    make_current: bool
    earlier: context_store.Context | None

    async def save(self, token: str, ends_at: datetime | None = None) -> None:
        """Save the token. A session that nobody can use any more is ended."""
        try:
            context_store.save(self.context, self.url, token, make_current=self.make_current, ends_at=ends_at)
        except context_store.ContextStoreError as error:
            raise CommandError(str(error)) from None
        if self.earlier is not None and self.earlier.token != token:
            await _end_session(self.earlier)


def _sign_in_with_token(save_as: _Destination, token: str) -> None:
    async def work(session: Session) -> None:
        session.target = Target(save_as.url, token, "login")
        me = await session.client.access.whoami()
        await save_as.save(token)
        context = save_as.context
        session.printer.line(f"Signed in to {save_as.url} as {me.name} ({me.role_text}). Saved as context {context}.")

    _run_or_exit(work, save_as.url)


def _sign_in_at_provider(save_as: _Destination, *, with_browser: bool) -> bool:
    """Whether the control plane has an identity provider, at which the user has signed in now."""
    offered = True

    async def work(session: Session) -> None:
        nonlocal offered
        from lcm.cli.output.durations import format_time_with_zone
        from lcm.cli.runtime.client_factory import make_client
        from lcm.cli.runtime.sign_in import sign_in

        session.target = Target(save_as.url, None, "login")
        client = make_client(session.target, seconds=_SIGN_IN_SECONDS)
        try:
            begun = await sign_in(client, with_browser=with_browser)
        finally:
            await client.aclose()
        if begun is None:
            offered = False
            return
        token = begun.token.get_secret_value()
        session.target = Target(save_as.url, token, "login", begun.expires_at)
        me = await session.client.access.whoami()  # its first use: a session that is never used ends soon
        await save_as.save(token, begun.expires_at)
        session.printer.line(
            f"Signed in to {save_as.url} as {me.name} ({me.role_text}) until {format_time_with_zone(begun.expires_at)}."
            f" Saved as context {save_as.context}."
        )

    _run_or_exit(work, save_as.url)
    return offered


def _run_or_exit(work: Callable[[Session], Awaitable[None]], url: str) -> None:
    code = run(work, server=url, output=OutputFormat.TABLE)
    if code != OK:
        raise typer.Exit(code)


async def _end_session(context: context_store.Context) -> str:
    """End the session of a context at its own control plane; returns why that failed, empty if it has ended."""
    from lcm.cli.runtime.client_factory import describe_error, make_client
    from lcm.client.errors import ClientError, UnauthenticatedError
    from lcm.model.access import SESSION_TOKEN_PREFIX

    if context.token is None or not context.token.startswith(SESSION_TOKEN_PREFIX):
        return ""
    target = Target(context.url, context.token, f"context {context.name}")
    client = make_client(target)
    try:
        await client.access.sign_out()
    except UnauthenticatedError:
        return ""  # it has already ended
    except ClientError as error:
        return describe_error(error, target) or str(error)
    finally:
        await client.aclose()
    return ""


logout_app = make_command_group("End your session at a control plane and forget it here.")


@logout_app.command()
def logout(
    which: Annotated[
        str | None, typer.Argument(metavar="URL", help="URL or context name. Default: the current context.")
    ] = None,
) -> None:
    """Sign out: end the session at the control plane, and remove it from this computer.

    A token that an admin created is only removed here. It stays valid until it is revoked.
    """
    from lcm.model.access import SESSION_TOKEN_PREFIX

    context = _signed_in_context(load_contexts_or_exit(), which)
    is_session = (context.token or "").startswith(SESSION_TOKEN_PREFIX)

    async def work(session: Session) -> None:
        problem = await _end_session(context)
        try:
            context_store.forget_token(context.name)
        except context_store.ContextStoreError as error:
            raise CommandError(str(error)) from None
        if problem:
            until = "" if context.ends_at is None else f" It ends by itself at {context.ends_at:%Y-%m-%d %H:%M} UTC."
            raise CommandError(f"{problem}. The session is removed here, but was not ended there.{until}")
        session.printer.line(f"Signed out of {context.url}.")
        if not is_session:
            session.printer.line("The token stays valid until it is revoked: lcm tokens revoke")

    _run_or_exit(work, context.url)


def _signed_in_context(saved: context_store.ContextFile, which: str | None) -> context_store.Context:
    name = saved.current if which is None else which
    found = saved.contexts.get(name or "") or (None if which is None else saved.at(which))
    if found is not None and found.token is not None:
        return found
    where = found.url if found is not None else which
    problem = f"you are not signed in to {where}" if where else "you are not signed in: there is no current context"
    raise typer.Exit(print_error(f"{problem}; all contexts: lcm contexts list", CommandError.code))


def _context_name(url: str, by_host: str, saved: Mapping[str, context_store.Context]) -> str:
    """The name by the host, with the port if it names another control plane: its token would be lost."""
    other = saved.get(by_host)
    if other is None or other.url.rstrip("/") == url.rstrip("/"):
        return by_host
    address = urlsplit(url)
    return f"{by_host}-{address.port or (443 if address.scheme == 'https' else 80)}"


def context_name_from_url(url: str) -> str:
    """The context name for a URL: its host, or `local` for this machine."""
    try:
        address = urlsplit(url)
        host, is_known = address.hostname, address.port != 0 and address.scheme in ("http", "https")
    except ValueError as error:  # such as a port that is no number
        raise UsageError(f"{url!r}: {error}") from None
    if not is_known or not host:
        raise UsageError(f"{url!r}: must begin with http:// or https:// and name a host")
    return "local" if host in ("localhost", "127.0.0.1", "::1") else host.replace(":", "-")


def _read_token(from_input: bool, from_file: str | None) -> str:
    from lcm.cli.runtime.target import read_token

    if from_file is not None:
        return read_token(from_file)
    if sys.stdin.isatty():
        text = getpass.getpass("Token: ").strip()
    elif from_input:
        text = sys.stdin.readline().strip()
    else:
        raise UsageError("there is no terminal to ask for the token on: use --token-stdin or --token-file FILE")
    if not text:
        raise UsageError("no token given")
    return text


whoami_app = make_command_group("Show your name and role.")


@command(whoami_app)
async def whoami(session: Session) -> None:
    """Show your name, role and authentication method."""
    me = await session.client.access.whoami()
    session.printer.item(me, me.name, lambda each: _show_whoami(session, each))


def _show_whoami(session: Session, me: CallerIdentity) -> None:
    from lcm.cli.output.durations import format_time_with_zone

    details = [("name", me.name), ("role", me.role_text), ("by", me.kind.value)]
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
