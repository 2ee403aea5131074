"""`lcm contexts`: the control planes that somebody has signed in to."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lcm.cli.config import context_store
from lcm.cli.errors import CommandError
from lcm.cli.output.printer import Screen
from lcm.cli.output.tables import Column
from lcm.cli.runtime.options import Format, Output, make_app
from lcm.cli.runtime.session import complain

app = make_app("The control planes that you have signed in to.")

ContextName = Annotated[str, typer.Argument(metavar="NAME", help="A context's name, or the beginning of it.")]


@app.command("list")
def list_contexts(output: Output = Format.TABLE) -> None:
    """All contexts; the current one is marked. Tokens are not shown."""
    known = _known()
    screen = Screen(output)
    every = sorted(known.contexts.values(), key=lambda context: context.name)
    if output is Format.NAME:
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


@app.command("use")
def use_context(name: ContextName) -> None:
    """Make a context the one that commands ask."""
    found = _pick(name)
    context_store.use(found)
    sys.stdout.write(f"Commands now ask {found}, {_known().contexts[found].url}.\n")


@app.command("remove")
def remove_context(name: ContextName) -> None:
    """Forget a context. Its token stays valid until it is revoked."""
    found = _pick(name)
    context_store.remove(found)
    sys.stdout.write(f"{found} is forgotten. Its token stays valid until somebody revokes it: lcm tokens revoke\n")


def _known() -> context_store.Contexts:
    try:
        return context_store.load()
    except context_store.ContextsProblem as error:
        raise typer.Exit(complain(str(error), CommandError.code)) from None


def _pick(text: str) -> str:
    from lcm.cli.runtime.lookup import Candidate, pick

    try:
        return pick(text, [Candidate(name, name) for name in _known().contexts], "context", "lcm contexts list")
    except CommandError as error:
        raise typer.Exit(complain(str(error), error.code)) from None
