"""`lcm config`: the settings of a service: what counts, where it came from, and whether it works."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.errors import FAILED, INTERRUPTED, OK, USAGE
from lcm.cli.output.printer import Printer
from lcm.cli.output.tables import Column
from lcm.cli.runtime.options import ConfigOption, OutputFormat, OutputOption, make_command_group
from lcm.cli.runtime.session import print_error

if TYPE_CHECKING:
    from lcm.cli.config.check import Finding
    from lcm.settings import LoadedSettings, Settings

app = make_command_group("The settings of a service: what counts, where it came from, whether it works.")


class Service(StrEnum):
    """Whose settings."""

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

ServiceArgument = Annotated[Service, typer.Argument(help="The service whose settings are meant.")]


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting as it is shown. A secret is masked."""

    name: str
    value: str | None
    source: str
    description: str


@app.command("show")
def show_config(
    service: ServiceArgument = Service.UP,
    config: ConfigOption = None,
    output: OutputOption = OutputFormat.TABLE,
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not the default.")] = False,
) -> None:
    """Every setting of a service: its value, and where that came from. Secrets are masked."""
    every = setting_rows(_load_settings(service, config))
    kept = [each for each in every if not changed or each.source != "default"]
    screen = Printer(output)
    if output is OutputFormat.NAME:
        sys.stdout.write("".join(f"{each.name}\n" for each in kept))
    elif not screen.for_people:
        screen.data([asdict(each) for each in kept])
    elif kept:
        screen.table(_columns(), kept)
    else:
        screen.say("Everything is at its default.")


@app.command("check")
def check_config(
    service: ServiceArgument = Service.UP, config: ConfigOption = None, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Try what a service needs: etcd, the store, AWS, CML. One line each, and what to do about what is wrong.

    It changes nothing. Exit code 1 if anything is wrong.
    """
    from lcm.cli.config.check import run_checks
    from lcm.cli.runtime.client_factory import silence_logs

    loaded = _load_settings(service, config)
    silence_logs()
    screen = Printer(output)
    try:
        found = asyncio.run(
            run_checks(loaded.settings, (lambda each: _print_finding(screen, each)) if screen.for_people else None)
        )
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    if not screen.for_people:
        screen.data([asdict(each) for each in found])
    raise typer.Exit(OK if all(each.ok for each in found) else FAILED)


def setting_rows(loaded: LoadedSettings[Settings]) -> list[SettingRow]:
    """All settings with value and source, in the order of the service."""
    from lcm.settings import describe
    from lcm.settings.describe import MASK, format_value

    shown = []
    for doc in describe(type(loaded.settings)):
        value = getattr(loaded.settings, doc.name)
        text = None if value is None else format_value(value)
        if doc.secret:
            text = MASK if _is_set(value) else None
        source = loaded.source_of(doc.name)
        shown.append(SettingRow(doc.variable, _mask_url_password(text), source, doc.description))
    return shown


def _is_set(secret: object) -> bool:
    reveal = getattr(secret, "get_secret_value", None)
    return bool(reveal()) if reveal is not None else bool(secret)


def _mask_url_password(text: str | None) -> str | None:
    """An address may carry a user and a password."""
    import re

    return None if text is None else re.sub(r"://[^/@\s]+@", "://***@", text)


def _columns() -> list[Column[SettingRow]]:
    return [
        Column("SETTING", lambda each: each.name),
        Column("VALUE", lambda each: each.value or "not set", least=16, style=_value_style),
        Column("FROM", lambda each: each.source, least=12, style=_value_style),
        Column("WHAT IT IS", lambda each: each.description, rank=1, least=30, wide=True),
    ]


def _value_style(shown: SettingRow) -> str:
    return "dim" if shown.source == "default" else "bold"


def _load_settings(service: Service, config: str | None) -> LoadedSettings[Settings]:
    from lcm.settings import SettingsError, load

    module, _, name = _SETTINGS_CLASSES[service].partition(":")
    try:
        return load(getattr(import_module(module), name), config_file=config)
    except SettingsError as error:
        raise typer.Exit(print_error(str(error), USAGE)) from None


def _print_finding(screen: Printer, finding: Finding) -> None:
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
    screen.tidy(grid)
