"""`lcm config`: settings of a service, their sources, and connectivity checks. `lcm completion`: a shell script."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # it has no other name for it

from lcm.cli.errors import FAILED, INTERRUPTED, OK, USAGE, print_error
from lcm.cli.output.printer import Printer
from lcm.cli.output.tables import Column
from lcm.cli.runtime.options import ConfigOption, OutputFormat, OutputOption, make_command_group

if TYPE_CHECKING:
    from lcm.cli.config.check import Finding
    from lcm.settings import LoadedSettings, Settings


app = make_command_group("Settings of a service: values, sources, and connectivity checks.")


class Service(StrEnum):
    """Services that have settings."""

    UP = "up"
    CONTROL_PLANE = "control-plane"
    WORKER_CONTROLLER = "worker-controller"
    RESOURCE_SCHEDULER = "resource-scheduler"
    LABLET_CONTROLLER = "lablet-controller"
    CONTROLLER = "controller"


_SETTINGS_CLASSES = {
    Service.UP: "lcm.wiring.up:UpSettings",
    Service.CONTROL_PLANE: "lcm.wiring.control_plane:ControlPlaneProcessSettings",
    Service.WORKER_CONTROLLER: "lcm.wiring.worker_controller:WorkerControllerProcessSettings",
    Service.RESOURCE_SCHEDULER: "lcm.wiring.resource_scheduler:ResourceSchedulerProcessSettings",
    Service.LABLET_CONTROLLER: "lcm.wiring.lablet_controller:LabletControllerProcessSettings",
    Service.CONTROLLER: "lcm.wiring.controllers:StandaloneControllerSettings",
}

ServiceArgument = Annotated[Service, typer.Argument(help="The service.")]


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting for display. A secret is masked."""

    name: str
    value: str | None
    source: str
    description: str


@app.command("show")
def show_config(
    service: ServiceArgument = Service.UP,
    config: ConfigOption = None,
    output: OutputOption = OutputFormat.TABLE,
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that differ from the default.")] = False,
) -> None:
    """Show every setting of a service with its value and source. Secrets are masked."""
    every_row = setting_rows(_load_settings(service, config))
    rows = [each for each in every_row if not changed or each.source != "default"]
    printer = Printer(output)
    if output is OutputFormat.NAME:
        sys.stdout.write("".join(f"{each.name}\n" for each in rows))
    elif not printer.for_people:
        printer.data([asdict(each) for each in rows])
    elif rows:
        printer.table(_columns(), rows)
    else:
        printer.line("All settings have their defaults.")


@app.command("check")
def check_config(
    service: ServiceArgument = Service.UP, config: ConfigOption = None, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Check what a service needs: etcd, store, AWS, CML. Prints one line each, with a remedy for each problem.

    It changes nothing. Exit code 1 if a check fails.
    """
    from lcm.cli.config.check import run_checks
    from lcm.cli.runtime.client_factory import silence_logs

    loaded = _load_settings(service, config)
    silence_logs()
    printer = Printer(output)
    try:
        found = asyncio.run(
            run_checks(loaded.settings, (lambda each: _print_finding(printer, each)) if printer.for_people else None)
        )
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if not printer.for_people:
        printer.data([asdict(each) for each in found])
    raise typer.Exit(OK if all(each.ok for each in found) else FAILED)


def setting_rows(loaded: LoadedSettings[Settings]) -> list[SettingRow]:
    """All settings of a service with value and source, in declaration order."""
    from lcm.settings import describe
    from lcm.settings.describe import MASK, format_value

    rows = []
    for doc in describe(type(loaded.settings)):
        value = getattr(loaded.settings, doc.name)
        text = None if value is None else format_value(value)
        if doc.secret:
            text = MASK if _is_set(value) else None
        source = loaded.source_of(doc.name)
        rows.append(SettingRow(doc.variable, _mask_url_password(text), source, doc.description))
    return rows


def _is_set(secret: object) -> bool:
    reveal = getattr(secret, "get_secret_value", None)
    return bool(reveal()) if reveal is not None else bool(secret)


def _mask_url_password(text: str | None) -> str | None:
    """Mask the user and password in a URL, and secrets among its parameters."""
    import re

    if text is None:
        return None
    masked = re.sub(r"://[^?\s]*@", "://***@", text)
    masked = re.sub(r"(AWS_SESSION_TOKEN:)[^,&\s]+", r"\1***", masked, flags=re.IGNORECASE)
    return re.sub(
        r"([?&;][^=&;\s]*(?:password|passphrase|secret|token)[^=&;\s]*=)[^&;\s]*", r"\1***", masked, flags=re.IGNORECASE
    )


def _columns() -> list[Column[SettingRow]]:
    return [
        Column("SETTING", lambda each: each.name),
        Column("VALUE", lambda each: each.value or "not set", min_width=16, style=_value_style),
        Column("SOURCE", lambda each: each.source, min_width=12, style=_value_style),
        Column("DESCRIPTION", lambda each: each.description, priority=1, min_width=30, wide_only=True),
    ]


def _value_style(row: SettingRow) -> str:
    return "dim" if row.source == "default" else "bold"


def _load_settings(service: Service, config: str | None) -> LoadedSettings[Settings]:
    from lcm.settings import SettingsError, load

    module, _, name = _SETTINGS_CLASSES[service].partition(":")
    try:
        return load(getattr(import_module(module), name), config_file=config)
    except SettingsError as error:
        raise typer.Exit(print_error(str(error), USAGE)) from None


def _print_finding(printer: Printer, finding: Finding) -> None:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    for width in (5, 13):
        grid.add_column(no_wrap=True, min_width=width)
    grid.add_column(overflow="fold")
    mark = Text("note", style="yellow") if finding.note else Text("ok", style="green")
    mark = mark if finding.ok else Text("WRONG", style="bold red")
    grid.add_row(mark, Text(finding.part, style="bold"), Text(finding.says))
    if finding.remedy:
        grid.add_row("", "", Text(finding.remedy, style="yellow"))
    printer.renderable(grid)


completion_app = make_command_group("Print a shell completion script.")


class Shell(StrEnum):
    """Supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@completion_app.command()
def completion(
    shell: Annotated[Shell | None, typer.Argument(metavar="bash|zsh|fish", help="Default: your login shell.")] = None,
) -> None:
    """Print the completion script; `lcm --install-completion` installs it.

    For the current shell only: source <(lcm completion bash)
    """
    named = shell.value if shell is not None else Path(os.environ.get("SHELL", "")).name
    if named not in [each.value for each in Shell]:
        raise typer.Exit(print_error("unknown shell: run lcm completion bash, zsh or fish", USAGE))
    sys.stdout.write(get_completion_script(prog_name="lcm", complete_var="_LCM_COMPLETE", shell=named) + "\n")
