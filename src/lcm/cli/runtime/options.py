"""Arguments and options that several commands share, and validation of their values."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from lcm.cli.errors import UsageError
from lcm.cli.runtime.completion import complete_lablets, complete_workers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel


class OutputFormat(StrEnum):
    """Output formats: tables for people, the rest for programs."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="URL", help="URL of the control plane. Default: LCM_URL, then the current context."
    ),
]
TokenFileOption = Annotated[
    str | None,
    typer.Option(
        "--token-file", metavar="FILE", help="File with the token. Default: LCM_TOKEN, then the context's token."
    ),
]
OutputOption = Annotated[
    OutputFormat,
    typer.Option("--output", "-o", help="Output format: table and wide for people, the rest for programs."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show the request and its expected effect; change nothing.")
]
WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Refresh on every change, until Ctrl-C.")]

WorkerArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name or id of a worker, or a unique prefix of either.",
        autocompletion=complete_workers,
    ),
]
LabletArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name or id of a lablet, or a unique prefix of either.",
        autocompletion=complete_lablets,
    ),
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", "-r", metavar="TEXT", help="Reason, recorded with the change.")
]
RequiredReasonOption = Annotated[
    str, typer.Option("--reason", "-r", metavar="TEXT", help="Reason, recorded with the change.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="WHEN", help="End time: 2h, or 2026-01-17T10:30Z. Default: no end."),
]
SINCE_HELP = "Only entries after this time: 12h (ago), or 2026-01-17T20:00Z."
SinceOption = Annotated[str | None, typer.Option("--since", metavar="WHEN", help=SINCE_HELP)]
BeforeOption = Annotated[
    str | None,
    typer.Option("--until", metavar="WHEN", help="Only entries before this time: 2h (ago), or a date and time."),
]
ConfigOption = Annotated[str | None, typer.Option("--config", metavar="FILE", help="TOML file with settings.")]


def make_command_group(text: str, *, alone: bool = False) -> typer.Typer:
    """A command group. With `alone`, the group also runs without a subcommand."""
    return typer.Typer(
        help=text,
        no_args_is_help=not alone,
        invoke_without_command=alone,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


M = TypeVar("M", bound="BaseModel")


def validate(model: type[M], fields: Mapping[str, object]) -> M:
    """The validated data. Raises an error with one line for each invalid field; secrets are never quoted."""
    from pydantic import ValidationError

    from lcm.model.validation import problems_of

    try:
        return model.model_validate(dict(fields))
    except ValidationError as error:
        problems = [": ".join(filter(None, (".".join(path), text))) for path, text in problems_of(error)]
        raise UsageError("\n".join(problems)) from None


def parse_tags(pairs: list[str]) -> dict[str, str]:
    """The tags of repeated `--tag KEY=VALUE`."""
    tags = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"--tag {pair!r}: must be KEY=VALUE")
        tags[key] = value
    return tags
