"""The daily commands, each imported only when it is invoked.

`lcm --help` shows one line for each. Those lines are here so that help does not import the commands.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from lcm.cli.examples import add_examples

if TYPE_CHECKING:
    from collections.abc import Iterator

# name: (module, help)
LAZY_COMMANDS = {
    "workers": ("commands.workers:app", "List, create, start, stop, explain and terminate workers."),
    "lablets": ("commands.lablets:app", "Create lablets, see where they run or why they wait, and terminate them."),
    "definitions": ("commands.definitions:app", "Lablet definitions: versioned topologies and requirements."),
    "templates": ("commands.templates:app", "Worker templates: instance type, capacity and cost."),
    "fleet": ("commands.fleet:app", "Fleet summary; hold and release the whole fleet."),
    "plan": ("commands.plan:app", "What controllers will do next with workers and lablets, and why."),
    "watch": ("live.watch:app", "Live view of the fleet, with keys for actions."),
    "top": ("live.top:app", "CPU, memory and disk usage of each worker."),
    "audit": ("commands.audit:app", "Audit log: every change and decision, with actor and reason."),
    "settings": ("commands.settings:app", "Automation settings of the fleet, changeable at run time."),
    "bookings": ("commands.calendar.bookings:app", "Book seats for a class that are ready when it begins."),
    "schedules": ("commands.calendar.schedules:app", "Stop workers outside office hours, and start them again."),
    "subscriptions": ("commands.admin.subscriptions:app", "Notifications: which alerts are sent where."),
    "teams": ("commands.admin.teams:app", "Teams: their members and limits, and what belongs to them."),
    "tokens": ("commands.tokens:app", "API tokens and their roles."),
    "sessions": ("commands.tokens:sessions_app", "Open sessions of people: list, end."),
    "secrets": ("commands.maintenance:secrets_app", "Rotate the encryption key of stored secrets."),
    "breaker": ("commands.maintenance:breaker_app", "Reset the circuit breaker that suspends marking workers as lost."),
    "leadership": ("commands.maintenance:leadership_app", "Reset recorded leader terms after etcd was replaced."),
    "dashboard": ("commands.auth:dashboard_app", "Print a sign-in link to the dashboard."),
    "login": ("commands.auth:login_app", "Sign in to a control plane and save it as a context."),
    "logout": ("commands.auth:logout_app", "End your session at a control plane and forget it here."),
    "contexts": ("config.contexts:contexts_app", "Saved control planes: list, select, remove."),
    "whoami": ("commands.auth:whoami_app", "Show your name and role."),
    "config": ("config.commands:app", "Settings of a service: values, sources, and connectivity checks."),
    "completion": ("config.commands:completion_app", "Print a shell completion script."),
}

_MAX_HELP_LENGTH = 120


class LazyCommand(TyperCommand):
    """Placeholder for a command whose module is not imported yet."""

    def __init__(self, name: str, module: str, text: str) -> None:
        super().__init__(name, help=text, short_help=text, rich_markup_mode=None)
        self._module = module

    def load(self) -> Any:
        """Import the module and return the real command."""
        module, _, name = self._module.partition(":")
        command = typer.main.get_command(getattr(import_module(f"lcm.cli.{module}"), name))
        command.name = self.name
        add_examples(command, str(self.name))
        return command


class LazyGroup(TyperGroup):
    """All commands: daily commands first, then those that run processes."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        later = {name: LazyCommand(name, module, text) for name, (module, text) in LAZY_COMMANDS.items()}
        for name, command in self.commands.items():
            add_examples(command, name)
        self.commands = {**later, **self.commands}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List daily commands and processes in separate sections."""
        daily = [(name, text) for name, (_, text) in LAZY_COMMANDS.items()]
        with formatter.section("Daily work"):
            formatter.write_dl(daily)
        with formatter.section("Processes"):
            formatter.write_dl(list(self._processes()))

    def _processes(self) -> Iterator[tuple[str, str]]:
        for name, command in self.commands.items():
            if not isinstance(command, LazyCommand) and not command.hidden:
                yield name, command.get_short_help_str(_MAX_HELP_LENGTH)
