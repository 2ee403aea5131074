"""Commands and options in the documentation and alerts exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from lcm.cli.lazy_group import LazyCommand
from lcm.cli.main import app

ROOT = Path(__file__).parents[3]
PAGES = ["README.md", "docs/operations.md", "docs/guide.md", "docs/settings.md", "deploy/prometheus-alerts.yml"]
_CODE = re.compile(r"```.*?```|`[^`]+`", re.DOTALL)
_COMMAND = re.compile(r"(?:^|[\s`/(])lcm ([a-z][^`\n|#&;]*)")


@cache
def every_command() -> Any:
    return typer.main.get_command(app)


@cache
def loaded(command: Any) -> Any:
    return command.load() if isinstance(command, LazyCommand) else command


def commands(page: str) -> list[str]:
    """The lcm commands in code blocks, one per line."""
    text = (ROOT / page).read_text(encoding="utf-8")
    code = _CODE.findall(text) if page.endswith(".md") else [text]
    # A release of Helm may be called lcm too.
    lines = [line for piece in code for line in piece.splitlines() if not line.startswith(("lcm: ", "helm "))]
    found = [match.strip() for line in lines for match in _COMMAND.findall(line)]
    return sorted({each for each in found if each and not each.startswith("is up")})


@pytest.mark.parametrize(("page", "line"), [(page, line) for page in PAGES for line in commands(page)])
def test_a_command_that_is_named_exists(page: str, line: str) -> None:
    known = every_command()
    words = line.split()
    options: set[str] = {"--help"}
    while words and hasattr(known, "commands") and words[0] in known.commands:
        known = loaded(known.commands[words.pop(0)])
        options |= {name for parameter in known.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert known.name != "lcm", f"{page}: lcm {line}"
    if hasattr(known, "commands") and words and re.fullmatch(r"[a-z-]+", words[0]) and not words[0].startswith("-"):
        pytest.fail(f"{page}: lcm {line}: no such verb")
    named = {word.split("=")[0].rstrip(".,;:)") for word in words if re.match(r"-{1,2}[a-z]", word)}
    assert named <= options, f"{page}: lcm {line}"
