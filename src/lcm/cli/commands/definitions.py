"""`lcm definitions`: versioned topologies that lablets are created from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcm.cli.errors import CommandError, yaml_problem
from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.completion import complete_definitions, complete_versions
from lcm.cli.runtime.forecast import forecast_lines
from lcm.cli.runtime.options import YesOption, make_command_group
from lcm.cli.runtime.session import Session, confirm_change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.model.change_preview import ChangePreview
    from lcm.model.lablet.record import LabletDefinition, LabletDefinitionSummary

app = make_command_group("Lablet definitions: versioned topologies and requirements.")

_MAX_TOPOLOGY_LINES = 40

DefinitionArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME[@VERSION]",
        help="Name of a definition, or a unique prefix. Default: the newest version.",
        autocompletion=complete_definitions,
    ),
]
VersionArgument = Annotated[
    str,
    typer.Argument(metavar="NAME@VERSION", help="Version of a definition.", autocompletion=complete_versions),
]


def _columns() -> list[Column[LabletDefinitionSummary]]:
    return [
        Column("NAME", lambda each: each.name, min_width=12),
        Column("VERSION", lambda each: each.version),
        Column("CPU", lambda each: f"{each.requirements.cpu_cores:g}", priority=2, align_right=True),
        Column("MEMORY", lambda each: f"{each.requirements.memory_gb:g} GB", priority=2, align_right=True),
        Column("DISK", lambda each: f"{each.requirements.storage_gb:g} GB", priority=3, align_right=True),
        Column("NODES", lambda each: str(each.requirements.nodes), priority=3, align_right=True),
        Column("CML", lambda each: each.requirements.cml_version or "any", priority=5),
        Column("ENABLED", lambda each: "yes" if each.enabled else "no", style=_enabled_style),
        Column("BY", lambda each: each.created_by, priority=6, wide_only=True),
        Column("DESCRIPTION", lambda each: each.description, priority=4, min_width=12),
    ]


def _enabled_style(definition: LabletDefinitionSummary) -> str:
    return "" if definition.enabled else "dim"


@command(app, "list", watchable=True)
async def list_definitions(
    session: Session,
    name: Annotated[
        str | None, typer.Option("--name", "-q", metavar="TEXT", help="Only names that contain this text.")
    ] = None,
) -> None:
    """List all versions of all definitions with their requirements."""
    from lcm.cli.live.watch_loop import show_or_watch

    async def show() -> None:
        found = [each async for each in session.client.definitions.list(q=name)]
        none = "No matching definitions." if name else "No definitions. Create one: lcm definitions create -f FILE"
        session.printer.items(found, _columns(), lambda each: each.id, none)

    await show_or_watch(session, show)


@command(app, "get")
async def get_definition(session: Session, name: DefinitionArgument) -> None:
    """Show one version with its topology. Default: the newest."""
    from lcm.cli.runtime.lookup import find_definition

    found = await find_definition(session.client, name)
    versions = [each async for each in session.client.definitions.versions(found.name, team=found.team or None)]
    definition = await session.client.definitions.get(found.name, found.version, team=found.team or None)
    session.printer.item(definition, definition.id, lambda each: _show_definition(session, each, versions))


@command(app, "create", mutates=True)
async def create_definition(
    session: Session,
    file: Annotated[
        Path, typer.Option("--file", "-f", metavar="FILE", help="YAML or JSON: name, version, topology, requirements.")
    ],
    team: Annotated[
        str | None, typer.Option("--team", metavar="TEAM", help="Team, by name or id. Default: yours, or none.")
    ] = None,
    topology: Annotated[
        Path | None, typer.Option("--topology", metavar="FILE", help="Topology file, as exported by CML.")
    ] = None,
) -> None:
    """Create a version from a file. Versions are immutable: to change one, create another."""
    from lcm.cli.runtime.options import validate
    from lcm.model.lablet.record import CreateDefinitionRequest

    fields = _read_definition(file, topology)
    if team is not None:
        fields["team"] = team
    body = validate(CreateDefinitionRequest, fields)
    if session.dry_run:
        preview = await session.client.definitions.preview_create(body)
        session.forecast = forecast_lines(f"{body.name}@{body.version}", preview)
    created = await session.client.definitions.create(body)
    text = f"{created.reference} created.\nRun it: lcm lablets create {created.reference}"
    session.printer.item(created, created.id, lambda _: session.printer.line(text))


@command(app, "enable", mutates=True)
async def enable_definition(session: Session, name: VersionArgument) -> None:
    """Enable a version: lablets can be created from it."""
    found = await _find_single_version(session, name)
    if session.dry_run:
        session.forecast = forecast_lines(found.id, await _preview(session, found, "enable"))
    done = await session.client.definitions.enable(found.name, found.version, team=found.team or None)
    _print_result(session, done, "is enabled: lablets can be created from it")


@command(app, "disable", mutates=True)
async def disable_definition(session: Session, name: VersionArgument, yes: YesOption = False) -> None:
    """Disable a version: no new lablets can be created from it. Asks for confirmation."""
    found = await _find_single_version(session, name)
    preview = await _preview(session, found, "disable")
    if preview.changes:
        confirm_change(session, [preview.effect], f"Disable {found.id}?", yes=yes)
    session.forecast = forecast_lines(found.id, preview)
    done = await session.client.definitions.disable(found.name, found.version, team=found.team or None)
    _print_result(session, done, "is disabled: no new lablets can be created from it")


async def _preview(session: Session, definition: LabletDefinitionSummary, action: str) -> ChangePreview:
    """What the control plane says that the action would do."""
    from lcm.model.change_preview import DefinitionAction, PreviewDefinitionRequest

    body = PreviewDefinitionRequest(action=DefinitionAction(action))
    return await session.client.definitions.preview(
        definition.name, definition.version, body, team=definition.team or None
    )


async def _find_single_version(session: Session, text: str) -> LabletDefinitionSummary:
    """The named version. A name without a version is accepted only if it has a single version."""
    from lcm.cli.runtime.lookup import find_definition

    found = await find_definition(session.client, text)
    versions = [
        each.reference async for each in session.client.definitions.versions(found.name, team=found.team or None)
    ]
    if "@" not in text and len(versions) > 1:
        raise CommandError(f"{found.name} has {len(versions)} versions: {', '.join(versions[:8])}. Specify one")
    return found


def _show_definition(
    session: Session, definition: LabletDefinition, versions: Sequence[LabletDefinitionSummary]
) -> None:
    from lcm.cli.output.durations import format_minutes, format_time_with_zone
    from lcm.cli.output.lablet_views import requirements_text

    others = ", ".join(each.version for each in versions if each.version != definition.version)
    lines = definition.topology.splitlines()
    session.printer.line(definition.id, style="bold")
    session.printer.details(
        [
            ("description", definition.description or "none"),
            ("requirements", requirements_text(definition.requirements)),
            ("time limit", format_minutes(definition.time_to_live_minutes) or "none"),
            ("enabled", "yes" if definition.enabled else "no"),
            ("versions", f"also {others}" if others else "only this one"),
            ("created", f"{format_time_with_zone(definition.created_at)} by {definition.created_by}"),
        ]
    )
    session.printer.line()
    for line in lines[:_MAX_TOPOLOGY_LINES]:
        session.printer.line(f"  {line}")
    if len(lines) > _MAX_TOPOLOGY_LINES:
        session.printer.line(
            f"  … {len(lines) - _MAX_TOPOLOGY_LINES} more lines: lcm definitions get {definition.id} -o json"
        )


def _print_result(session: Session, definition: LabletDefinition, text: str) -> None:
    session.printer.item(definition, definition.id, lambda each: session.printer.line(f"{each.id} {text}."))


def _read_definition(file: Path, topology: Path | None) -> dict[str, Any]:
    """The content of the file. The topology may be text, nested YAML, or a separate file."""
    import yaml

    try:
        content = yaml.safe_load(_read_text(file))
    except yaml.YAMLError as error:
        raise CommandError(f"{file} is neither YAML nor JSON: {yaml_problem(error)}") from None
    if not isinstance(content, dict):
        raise CommandError(f"{file} must contain a mapping with name, version, topology and requirements")
    if isinstance(content.get("version"), int | float):
        content["version"] = str(content["version"])
    if isinstance(content.get("topology"), dict):
        content["topology"] = yaml.safe_dump(content["topology"], sort_keys=False)
    if topology is not None:
        content["topology"] = _read_text(topology)
    return content


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CommandError(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}") from None
