"""`lcm definitions`: what lablets can be made from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcm.cli.errors import CommandError
from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import make_command_group
from lcm.cli.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.model.lablet.record import LabletDefinition, LabletDefinitionSummary

app = make_command_group("What lablets can be made from.")

_MAX_TOPOLOGY_LINES = 40

DefinitionArgument = Annotated[
    str, typer.Argument(metavar="NAME[@VERSION]", help="A definition's name, or the beginning of it; else the newest.")
]
VersionArgument = Annotated[str, typer.Argument(metavar="NAME@VERSION", help="A version of a definition.")]


def _columns() -> list[Column[LabletDefinitionSummary]]:
    return [
        Column("NAME", lambda each: each.name, least=12),
        Column("VERSION", lambda each: each.version),
        Column("CPU", lambda each: f"{each.requirements.cpu_cores:g}", rank=2, right=True),
        Column("MEMORY", lambda each: f"{each.requirements.memory_gb:g} GB", rank=2, right=True),
        Column("DISK", lambda each: f"{each.requirements.storage_gb:g} GB", rank=3, right=True),
        Column("NODES", lambda each: str(each.requirements.nodes), rank=3, right=True),
        Column("CML", lambda each: each.requirements.cml_version or "any", rank=5),
        Column("ENABLED", lambda each: "yes" if each.enabled else "no", style=_enabled_style),
        Column("BY", lambda each: each.created_by, rank=6, wide=True),
        Column("DESCRIPTION", lambda each: each.description, rank=4, least=12),
    ]


def _enabled_style(definition: LabletDefinitionSummary) -> str:
    return "" if definition.enabled else "dim"


@command(app, "list", lists=True)
async def list_definitions(
    session: Session,
    name: Annotated[str | None, typer.Option("--name", "-q", metavar="TEXT", help="With this in their name.")] = None,
) -> None:
    """All versions of all definitions, with what they need."""
    from lcm.cli.live.watch_loop import show_or_watch

    async def show() -> None:
        found = [each async for each in session.client.definitions.list(q=name)]
        none = "No definition fits." if name else "No definitions. Make one: lcm definitions create -f FILE"
        session.screen.many(found, _columns(), lambda each: each.id, none)

    await show_or_watch(session, show)


@command(app, "get")
async def get_definition(session: Session, name: DefinitionArgument) -> None:
    """One version with its topology; without a version the newest."""
    from lcm.cli.runtime.lookup import find_definition

    found = await find_definition(session.client, name)
    versions = [each async for each in session.client.definitions.versions(found.name)]
    definition = await session.client.definitions.get(found.name, found.version)
    session.screen.one(definition, definition.id, lambda each: _show_definition(session, each, versions))


@command(app, "create", changes=True)
async def create_definition(
    session: Session,
    file: Annotated[
        Path, typer.Option("--file", "-f", metavar="FILE", help="YAML or JSON: name, version, topology, requirements.")
    ],
    topology: Annotated[
        Path | None, typer.Option("--topology", metavar="FILE", help="The topology, as CML exports a lab.")
    ] = None,
) -> None:
    """A new version from a file. A version never changes: for a change make another one."""
    from lcm.cli.runtime.options import validate
    from lcm.model.lablet.record import CreateDefinitionRequest

    body = validate(CreateDefinitionRequest, _read_definition(file, topology))
    session.forecast = [("then", "lablets can be made from it; those of other versions stay as they are")]
    made = await session.client.definitions.create(body)
    text = f"{made.id} is there.\nRun it: lcm lablets create {made.id}"
    session.screen.one(made, made.id, lambda _: session.screen.say(text))


@command(app, "enable", changes=True)
async def enable_definition(session: Session, name: VersionArgument) -> None:
    """Let lablets be made from a version."""
    found = await _find_single_version(session, name)
    session.forecast = [("then", "lablets can be made from it")]
    done = await session.client.definitions.enable(found.name, found.version)
    _print_result(session, done, "is enabled: lablets can be made from it")


@command(app, "disable", changes=True)
async def disable_definition(session: Session, name: VersionArgument) -> None:
    """Let no more lablets be made from a version."""
    found = await _find_single_version(session, name)
    session.forecast = [("then", "no more lablets are made from it; those that were stay")]
    done = await session.client.definitions.disable(found.name, found.version)
    _print_result(session, done, "is disabled: no more lablets from it")


async def _find_single_version(session: Session, text: str) -> LabletDefinitionSummary:
    """A switch must not hit a version that nobody named: the only one of a name is enough, one of several is not."""
    from lcm.cli.runtime.lookup import find_definition

    found = await find_definition(session.client, text)
    versions = [each.id async for each in session.client.definitions.versions(found.name)]
    if "@" not in text and len(versions) > 1:
        raise CommandError(f"{found.name} has {len(versions)} versions: {', '.join(versions[:8])}. Say which")
    return found


def _show_definition(
    session: Session, definition: LabletDefinition, versions: Sequence[LabletDefinitionSummary]
) -> None:
    from lcm.cli.output.durations import format_timestamp_utc
    from lcm.cli.output.lablet_views import requirements_text

    others = ", ".join(each.version for each in versions if each.version != definition.version)
    lives = definition.time_to_live_minutes
    lines = definition.topology.splitlines()
    session.screen.say(definition.id, style="bold")
    session.screen.facts(
        [
            ("description", definition.description or "none"),
            ("needs", requirements_text(definition.requirements)),
            ("lives", f"{lives:g} minutes" if lives is not None else "until somebody ends it"),
            ("enabled", "yes" if definition.enabled else "no"),
            ("versions", f"{others} besides" if others else "no other"),
            ("created", f"{format_timestamp_utc(definition.created_at)} by {definition.created_by}"),
        ]
    )
    session.screen.say()
    for line in lines[:_MAX_TOPOLOGY_LINES]:
        session.screen.say(f"  {line}")
    if len(lines) > _MAX_TOPOLOGY_LINES:
        session.screen.say(
            f"  … {len(lines) - _MAX_TOPOLOGY_LINES} lines more: lcm definitions get {definition.id} -o json"
        )


def _print_result(session: Session, definition: LabletDefinition, text: str) -> None:
    session.screen.one(definition, definition.id, lambda each: session.screen.say(f"{each.id} {text}."))


def _read_definition(file: Path, topology: Path | None) -> dict[str, Any]:
    """What the file says. The topology may be text, or stand there as YAML, or in a file of its own."""
    import yaml

    try:
        content = yaml.safe_load(_read_text(file))
    except yaml.YAMLError as error:
        raise CommandError(f"{file} is neither YAML nor JSON: {str(error).splitlines()[0]}") from None
    if not isinstance(content, dict):
        raise CommandError(f"{file} must hold a mapping with name, version, topology and requirements")
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
