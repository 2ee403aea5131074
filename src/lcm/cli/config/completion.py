"""`lcm completion`: let a shell complete commands."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # it has no other name for it

from lcm.cli.errors import USAGE
from lcm.cli.runtime.options import make_command_group
from lcm.cli.runtime.session import print_error

app = make_command_group("Let your shell complete lcm's commands.")


class Shell(StrEnum):
    """Shells that can."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command()
def completion(
    shell: Annotated[Shell | None, typer.Argument(metavar="bash|zsh|fish", help="Without it, the one you use.")] = None,
) -> None:
    """Print the script that completes lcm's commands; `lcm --install-completion` puts it in place for you.

    For this shell alone: source <(lcm completion bash)
    """
    named = shell.value if shell is not None else Path(os.environ.get("SHELL", "")).name
    if named not in [each.value for each in Shell]:
        raise typer.Exit(print_error("which shell? lcm completion bash, zsh or fish", USAGE))
    sys.stdout.write(get_completion_script(prog_name="lcm", complete_var="_LCM_COMPLETE", shell=named) + "\n")
