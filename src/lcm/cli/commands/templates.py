"""`lcm templates`: what workers can be made from."""

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
    from lcm.model.worker.template import WorkerTemplate

app = make_command_group("What workers can be made from.")

TemplateArgument = Annotated[str, typer.Argument(metavar="NAME", help="A template's name, or the beginning of it.")]


def _columns() -> list[Column[WorkerTemplate]]:
    return [
        Column("NAME", lambda each: each.name),
        Column("TYPE", lambda each: each.instance_type),
        Column("CPU", lambda each: str(each.capacity.cpu_cores), rank=2, right=True),
        Column("MEMORY", lambda each: f"{each.capacity.memory_gb:g} GB", rank=2, right=True),
        Column("DISK", lambda each: f"{each.capacity.storage_gb:g} GB", rank=3, right=True),
        Column("NODES", lambda each: str(each.capacity.max_nodes), rank=3, right=True),
        Column("$/H", lambda each: f"{each.cost_per_hour_usd:g}", rank=1, right=True),
        Column("ENABLED", lambda each: "yes" if each.enabled else "no", style=_enabled_style),
        Column("IMAGE", lambda each: each.ami_name_pattern or "default", rank=5, wide=True),
        Column("DESCRIPTION", lambda each: each.description, rank=6, least=12, wide=True),
    ]


def _enabled_style(template: WorkerTemplate) -> str:
    return "" if template.enabled else "dim"


@command(app, "list", lists=True)
async def list_templates(session: Session) -> None:
    """All templates, with what they offer and cost."""
    from lcm.cli.live.watch_loop import show_or_watch

    async def show() -> None:
        templates = [template async for template in session.client.templates.list()]
        session.screen.many(templates, _columns(), lambda each: each.name, "No templates.")

    await show_or_watch(session, show)


@command(app, "get")
async def get_template(session: Session, name: TemplateArgument) -> None:
    """One template."""
    from lcm.cli.runtime.lookup import find_template

    template = await find_template(session.client, name)
    session.screen.one(template, template.name, lambda each: _show_template(session, each))


@command(app, "apply", changes=True)
async def apply_templates(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML or JSON: one template, or a list.")],
) -> None:
    """Make or change templates from a file. Workers that were made from them stay as they are."""
    from lcm.cli.runtime.options import validate
    from lcm.model.worker.template import WorkerTemplate

    known = {template.name: template async for template in session.client.templates.list()}
    wanted = [validate(WorkerTemplate, entry) for entry in _read_templates(file)]
    for template in wanted:
        before = known.get(template.name)
        if before == template:
            _print_result(session, template, "is as the file says; nothing was changed")
            continue
        what = "is made" if before is None else f"changes: {', '.join(_differences(before, template))}"
        session.forecast = [(template.name, what), ("then", "workers made from now on follow it; others stay")]
        made = await session.client.templates.put(template)
        _print_result(session, made, "was made" if before is None else "was changed")


@command(app, "enable", changes=True)
async def enable_template(session: Session, name: TemplateArgument) -> None:
    """Let workers be made from a template."""
    from lcm.cli.runtime.lookup import find_template

    template = await find_template(session.client, name)
    session.forecast = [("then", "workers can be made from it")]
    _print_result(
        session, await session.client.templates.enable(template.name), "is enabled: workers can be made from it"
    )


@command(app, "disable", changes=True)
async def disable_template(session: Session, name: TemplateArgument) -> None:
    """Let no more workers be made from a template."""
    from lcm.cli.runtime.lookup import find_template

    template = await find_template(session.client, name)
    session.forecast = [("then", "no more workers are made from it; those that were stay")]
    _print_result(
        session, await session.client.templates.disable(template.name), "is disabled: no more workers from it"
    )


def _show_template(session: Session, template: WorkerTemplate) -> None:
    size = template.capacity
    session.screen.say(template.name, style="bold")
    session.screen.facts(
        [
            ("description", template.description or "none"),
            ("type", template.instance_type),
            ("image", template.ami_name_pattern or "by AMI_NAME_PATTERN"),
            ("offers", f"{size.cpu_cores} CPU, {size.memory_gb:g} GB memory, {size.storage_gb:g} GB disk"),
            ("nodes", f"{size.max_nodes} at most"),
            ("cost", f"${template.cost_per_hour_usd:g} an hour"),
            ("enabled", "yes" if template.enabled else "no"),
        ]
    )


def _print_result(session: Session, template: WorkerTemplate, text: str) -> None:
    session.screen.one(template, template.name, lambda each: session.screen.say(f"{each.name} {text}."))


def _read_templates(file: Path) -> list[dict[str, Any]]:
    import yaml

    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}") from None
    except yaml.YAMLError as error:
        raise CommandError(f"{file} is neither YAML nor JSON: {str(error).splitlines()[0]}") from None
    if isinstance(content, dict) and isinstance(content.get("templates"), list):
        content = content["templates"]
    entries = content if isinstance(content, list) else [content]
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        raise CommandError(f"{file} must hold a template, or a list of them")
    return entries


def _differences(before: WorkerTemplate, after: WorkerTemplate) -> list[str]:
    return [
        f"{name} {getattr(before, name)} → {getattr(after, name)}"
        for name in type(after).model_fields
        if getattr(before, name) != getattr(after, name)
    ]
