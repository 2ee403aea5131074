"""Arguments and options that several commands share, in the same words everywhere."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from lcm.cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel


class OutputFormat(StrEnum):
    """How answers are written: for people, or for programs."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


ServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="The control plane to ask; else LCM_URL, else the current context."),
]
TokenFileOption = Annotated[
    str | None,
    typer.Option("--token-file", metavar="FILE", help="A file with the token; else LCM_TOKEN, else the context's."),
]
OutputOption = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="table and wide for people, the rest for programs.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be sent and what would follow; change nothing.")
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Show it again whenever it changes, until Ctrl-C.")]

WorkerArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A worker's name or id, or the beginning of one that fits only one.")
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", "-r", metavar="TEXT", help="Why. It is kept with the change, for others.")
]
RequiredReasonOption = Annotated[
    str, typer.Option("--reason", "-r", metavar="TEXT", help="Why. It is kept with the change, for others.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="WHEN", help="When it ends by itself: 2h, or 2026-01-17T10:30Z. Else never."),
]
SINCE_HELP = "Not what was before: 12h ago as 12h, or 2026-01-17T20:00Z."
SinceOption = Annotated[str | None, typer.Option("--since", metavar="WHEN", help=SINCE_HELP)]
BeforeOption = Annotated[
    str | None, typer.Option("--until", metavar="WHEN", help="Only what was before: 2h ago as 2h, or a date and time.")
]
ConfigOption = Annotated[str | None, typer.Option("--config", metavar="FILE", help="A TOML file with settings.")]


def make_command_group(text: str, *, alone: bool = False) -> typer.Typer:
    """A noun with its verbs. `alone`: it does something without a verb too."""
    return typer.Typer(
        help=text,
        no_args_is_help=not alone,
        invoke_without_command=alone,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


M = TypeVar("M", bound="BaseModel")

_EMPTY_VALUE_ERRORS = ("too_short", "string_too_short")


def validate(kind: type[M], facts: Mapping[str, object]) -> M:
    """The data, or a word on each field that is wrong; secrets are never quoted."""
    from pydantic import ValidationError

    try:
        return kind.model_validate(dict(facts))
    except ValidationError as error:
        told = error.errors(include_input=False, include_url=False, include_context=False)
        problems = [
            f"{'.'.join(str(part) for part in each['loc'])}: {_error_message(each['type'], each['msg'])}"
            for each in told
        ]
        raise UsageError("\n".join(problems)) from None


def _error_message(kind: str, message: str) -> str:
    if kind in _EMPTY_VALUE_ERRORS:
        return "must not be empty"
    return message.removeprefix("Value error, ")
