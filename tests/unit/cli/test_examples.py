"""Every command shows examples, and the examples are commands that exist."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest
import typer.main

from lcm.cli.examples import EXAMPLES
from lcm.cli.lazy_group import LazyCommand
from lcm.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that can be run, by its path."""

    def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        loaded = command.load() if isinstance(command, LazyCommand) else command
        subcommands = getattr(loaded, "commands", {})
        if not subcommands or loaded.invoke_without_command:
            yield path, loaded
        for name, each in subcommands.items():
            yield from walk(each, f"{path} {name}")

    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        yield from walk(command, name)


COMMANDS = dict(commands())


def test_every_command_has_examples_and_every_example_has_a_command() -> None:
    assert set(COMMANDS) == set(EXAMPLES)


@pytest.mark.parametrize(("path", "line"), [(path, line) for path, lines in EXAMPLES.items() for line in lines])
def test_an_example_is_accepted_by_its_command(path: str, line: str) -> None:
    words = shlex.split(line.removeprefix("source <(").removesuffix(")"))
    own = ["lcm", *path.split()]
    assert words[: len(own)] == own
    with COMMANDS[path].make_context(path, words[len(own) :]) as context:
        assert path in str(context.command_path)


@pytest.mark.parametrize("path", EXAMPLES)
def test_help_ends_with_the_examples(path: str) -> None:
    command = COMMANDS[path]
    text = command.get_help(command.context_class(command, info_name=path))
    assert text.splitlines()[-1].strip() == EXAMPLES[path][-1]
