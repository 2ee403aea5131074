"""Turns an async function that uses the control plane into a command with the shared options."""

from __future__ import annotations

import inspect
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from lcm.cli.runtime import options
from lcm.cli.runtime.session import run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

F = TypeVar("F", bound="Callable[..., Awaitable[None]]")

_SERVER = Parameter("server", Parameter.KEYWORD_ONLY, default=None, annotation=options.ServerOption)
_TOKEN_FILE = Parameter("token_file", Parameter.KEYWORD_ONLY, default=None, annotation=options.TokenFileOption)
_OUTPUT = Parameter(
    "output", Parameter.KEYWORD_ONLY, default=options.OutputFormat.TABLE, annotation=options.OutputOption
)
_DRY_RUN = Parameter("dry_run", Parameter.KEYWORD_ONLY, default=False, annotation=options.DryRunOption)
_WATCH = Parameter("watch", Parameter.KEYWORD_ONLY, default=False, annotation=options.WatchOption)


def command(
    app: typer.Typer,
    name: str | None = None,
    *,
    mutates: bool = False,
    watchable: bool = False,
    retry: bool = False,
    is_group: bool = False,
) -> Callable[[F], F]:
    """Register `async def function(session, …)` as a command of `app`; without a name, as the only one.

    `mutates` adds --dry-run, `watchable` adds --watch. `retry`: the command continues after a lost connection.
    `is_group`: the function runs when the group is invoked without a subcommand.
    """
    shared = [*([_DRY_RUN] if mutates else []), *([_WATCH] if watchable else []), _OUTPUT, _SERVER, _TOKEN_FILE]

    def decorate(function: F) -> F:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        wrapper = _make_wrapper(function, own, shared, retry=mutates or retry)
        if is_group:
            app.callback()(wrapper)
        else:
            app.command(name)(wrapper)
        return function

    return decorate


def _make_wrapper(
    function: Callable[..., Awaitable[None]], own: list[Parameter], shared: list[Parameter], *, retry: bool
) -> Callable[..., None]:
    parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own] + shared
    context = Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context)

    def wrapper(**values: Any) -> None:
        ctx: typer.Context = values.pop("ctx")
        if ctx.invoked_subcommand is not None:
            return
        common = {each.name: values.pop(each.name) for each in shared}
        raise typer.Exit(run(lambda session: function(session, **values), retry=retry, **common))

    wrapper.__doc__ = function.__doc__
    wrapper.__signature__ = Signature([context, *parameters])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {each.name: each.annotation for each in (context, *parameters)}
    return wrapper
