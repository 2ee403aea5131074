"""Arguments and options that several commands share, in the same words everywhere."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """How answers are written: for people, or for programs."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


Server = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="The control plane to ask; else LCM_URL, else the current context."),
]
TokenFile = Annotated[
    str | None,
    typer.Option("--token-file", metavar="FILE", help="A file with the token; else LCM_TOKEN, else the context's."),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="table and wide for people, the rest for programs.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be sent and what would follow; change nothing.")
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it again whenever it changes, until Ctrl-C.")]

WorkerName = Annotated[
    str, typer.Argument(metavar="NAME", help="A worker's name or id, or the beginning of one that fits only one.")
]
Reason = Annotated[
    str | None, typer.Option("--reason", "-r", metavar="TEXT", help="Why. It is kept with the change, for others.")
]
NeededReason = Annotated[
    str, typer.Option("--reason", "-r", metavar="TEXT", help="Why. It is kept with the change, for others.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="WHEN", help="When it ends by itself: 2h, or 2026-01-17T10:30Z. Else never."),
]
SINCE_WORDS = "Not what was before: 12h ago as 12h, or 2026-01-17T20:00Z."
Since = Annotated[str | None, typer.Option("--since", metavar="WHEN", help=SINCE_WORDS)]
Before = Annotated[
    str | None, typer.Option("--until", metavar="WHEN", help="Only what was before: 2h ago as 2h, or a date and time.")
]
Config = Annotated[str | None, typer.Option("--config", metavar="FILE", help="A TOML file with settings.")]


def make_app(text: str, *, alone: bool = False) -> typer.Typer:
    """A noun with its verbs. `alone`: it does something without a verb too."""
    return typer.Typer(
        help=text,
        no_args_is_help=not alone,
        invoke_without_command=alone,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
