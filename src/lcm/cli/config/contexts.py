"""`lcm contexts`: saved control planes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lcm.cli.config import context_store
from lcm.cli.errors import CommandError, print_error
from lcm.cli.output.printer import Printer
from lcm.cli.output.tables import Column
from lcm.cli.runtime.options import OutputFormat, OutputOption, make_command_group

contexts_app = make_command_group("Saved control planes: list, select, remove.")

ContextArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of a context, or a unique prefix.")]


@contexts_app.command("list")
def contexts_list(output: OutputOption = OutputFormat.TABLE) -> None:
    """List contexts; the current one is marked. Tokens are not shown."""
    saved = load_contexts_or_exit()
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
    sys.stdout.write(f"Current context: {found}, {load_contexts_or_exit().contexts[found].url}.\n")


@contexts_app.command("remove")
def contexts_remove(name: ContextArgument) -> None:
    """Remove a context. Its token stays valid until it is revoked, its session until it ends."""
    found = _pick_context(name)
    context = load_contexts_or_exit().contexts[found]
    context_store.remove(found)
    after = "Its token stays valid until it is revoked: lcm tokens revoke"
    if context.ends_at is not None:
        after = "Its session goes on until it ends; lcm logout would have ended it"
    sys.stdout.write(f"{found} removed. {after}\n")


def load_contexts_or_exit() -> context_store.ContextFile:
    """All contexts; a file that cannot be used ends the command."""
    try:
        return context_store.load()
    except context_store.ContextStoreError as error:
        raise typer.Exit(print_error(str(error), CommandError.code)) from None


def _pick_context(text: str) -> str:
    from lcm.cli.runtime.lookup import Candidate, pick_candidate

    try:
        return pick_candidate(
            text, [Candidate(name, name) for name in load_contexts_or_exit().contexts], "context", "lcm contexts list"
        )
    except CommandError as error:
        raise typer.Exit(print_error(str(error), error.code)) from None
