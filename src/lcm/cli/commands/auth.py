"""`lcm login`: sign in to a control plane and remember it."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated
from urllib.parse import urlsplit

import typer

from lcm.cli.config import context_store
from lcm.cli.errors import OK, CommandError, WrongUsage
from lcm.cli.runtime.options import Format, make_app
from lcm.cli.runtime.session import Session, complain, run
from lcm.cli.runtime.target import Reach

app = make_app("Sign in to a control plane and remember it.")


@app.command()
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
        by_host = context_name(url)
        token = _token(token_stdin, token_file)
    except CommandError as error:
        raise typer.Exit(complain(str(error), error.code)) from None

    async def work(session: Session) -> None:
        session.reach = Reach(url, token, "login")
        me = await session.client.access.whoami()
        try:
            context_store.save(name or by_host, url.rstrip("/"), token, make_current=not keep_current)
        except context_store.ContextsProblem as error:
            raise CommandError(str(error)) from None
        session.screen.say(f"Signed in to {url} as {me.name} ({me.role}). Kept as context {name or by_host}.")

    code = run(work, server=url, output=Format.TABLE)
    if code != OK:
        raise typer.Exit(code)


def context_name(url: str) -> str:
    """A name for a control plane, from its host; `local` for this machine."""
    host = urlsplit(url).hostname
    if urlsplit(url).scheme not in ("http", "https") or not host:
        raise WrongUsage(f"{url!r}: must begin with http:// or https:// and name a host")
    return "local" if host in ("localhost", "127.0.0.1", "::1") else host.replace(":", "-")


def _token(from_input: bool, from_file: str | None) -> str:
    from lcm.cli.runtime.target import read_token

    if from_file is not None:
        return read_token(from_file)
    if from_input:
        text = sys.stdin.readline().strip()
    elif sys.stdin.isatty():
        text = getpass.getpass("Token: ").strip()
    else:
        raise WrongUsage("there is no terminal to ask for the token on: use --token-stdin or --token-file FILE")
    if not text:
        raise WrongUsage("no token was given")
    return text
