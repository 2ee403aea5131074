"""Which commands there are beside those that run processes; each module is imported when it is asked for.

`lcm --help` needs one line of each, so those stand here and not with the command.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

# name: (module, help)
LAZY_COMMANDS = {
    "workers": ("commands.workers:app", "List, create, start, stop, explain and end workers."),
    "lablets": ("commands.lablets:app", "Run labs, see where they are and why they wait, and end them."),
    "definitions": ("commands.definitions:app", "What lablets can be made from."),
    "templates": ("commands.templates:app", "What workers can be made from."),
    "fleet": ("commands.fleet:app", "The fleet at a glance; hold all of it, and let it go on."),
    "plan": ("commands.plan:app", "What would be done now, and why."),
    "watch": ("live.watch:app", "The fleet live, with keys to act on it."),
    "top": ("live.top:app", "The load of each worker."),
    "audit": ("commands.audit:app", "Who changed or decided what, when and why."),
    "settings": ("commands.settings:app", "What the fleet does by itself, changed while it runs."),
    "tokens": ("commands.tokens:app", "Who may call, and in which role."),
    "secrets": ("commands.maintenance:secrets_app", "The key that stored secrets are encrypted with."),
    "breaker": ("commands.maintenance:breaker_app", "Let workers be marked as lost again after too many were."),
    "leadership": ("commands.maintenance:leadership_app", "Believe leaders again after etcd was replaced."),
    "dashboard": ("commands.auth:dashboard_app", "A link that signs your browser in to the dashboard."),
    "login": ("commands.auth:login_app", "Sign in to a control plane and remember it."),
    "contexts": ("commands.auth:contexts_app", "The control planes that you have signed in to."),
    "whoami": ("commands.auth:whoami_app", "Who you are to the control plane."),
    "config": ("config.commands:app", "The settings of a service: what counts, where it came from, whether it works."),
    "completion": ("config.completion:app", "Let your shell complete lcm's commands."),
}

_MAX_HELP_LENGTH = 120


class LazyCommand(TyperCommand):
    """Stands for a command whose module is not imported yet."""

    def __init__(self, name: str, module: str, text: str) -> None:
        super().__init__(name, help=text, short_help=text, rich_markup_mode=None)
        self._module = module

    def load(self) -> Any:
        """The command itself."""
        module, _, name = self._module.partition(":")
        command = typer.main.get_command(getattr(import_module(f"lcm.cli.{module}"), name))
        command.name = self.name
        return command


class LazyGroup(TyperGroup):
    """All commands: daily work first, then those that run processes."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        later = {name: LazyCommand(name, module, text) for name, (module, text) in LAZY_COMMANDS.items()}
        self.commands = {**later, **self.commands}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """In two parts, as people look for either."""
        daily = [(name, text) for name, (_, text) in LAZY_COMMANDS.items()]
        with formatter.section("Daily work"):
            formatter.write_dl(daily)
        with formatter.section("Processes"):
            formatter.write_dl(list(self._processes()))

    def _processes(self) -> Iterator[tuple[str, str]]:
        for name, command in self.commands.items():
            if not isinstance(command, LazyCommand) and not command.hidden:
                yield name, command.get_short_help_str(_MAX_HELP_LENGTH)
