"""How a function that talks to the control plane becomes a command, with the options that all of them share."""

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
    changes: bool = False,
    lists: bool = False,
    patient: bool = False,
    verbs: bool = False,
) -> Callable[[F], F]:
    """Make `async def verb(session, …)` a command of `app`; without a name, the only one.

    `changes`: it can be tried dry. `lists`: it can be watched. `patient`: it goes on through a lost connection.
    `verbs`: it is what the noun does by itself, and there are verbs beside it.
    """
    shared = [*([_DRY_RUN] if changes else []), *([_WATCH] if lists else []), _OUTPUT, _SERVER, _TOKEN_FILE]

    def decorate(function: F) -> F:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        wrapper = _make_wrapper(function, own, shared, patient=changes or patient)
        if verbs:
            app.callback()(wrapper)
        else:
            app.command(name)(wrapper)
        return function

    return decorate


def _make_wrapper(
    function: Callable[..., Awaitable[None]], own: list[Parameter], shared: list[Parameter], *, patient: bool
) -> Callable[..., None]:
    parameters = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own] + shared
    context = Parameter("ctx", Parameter.KEYWORD_ONLY, annotation=typer.Context)

    def wrapper(**values: Any) -> None:
        ctx: typer.Context = values.pop("ctx")
        if ctx.invoked_subcommand is not None:
            return
        common = {each.name: values.pop(each.name) for each in shared}
        raise typer.Exit(run(lambda session: function(session, **values), patient=patient, **common))

    wrapper.__doc__ = function.__doc__
    wrapper.__signature__ = Signature([context, *parameters])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {each.name: each.annotation for each in (context, *parameters)}
    return wrapper
