"""`lcm templates`: instance types, capacity and cost that workers are created from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcm.cli.errors import CommandError, yaml_problem
from lcm.cli.output.tables import Column
from lcm.cli.runtime.command import command
from lcm.cli.runtime.completion import complete_templates
from lcm.cli.runtime.options import YesOption, make_command_group
from lcm.cli.runtime.session import Session, confirm_change

if TYPE_CHECKING:
    from lcm.model.change_preview import ChangePreview, TemplateAction
    from lcm.model.worker.template import WorkerTemplate

app = make_command_group("Worker templates: instance type, capacity and cost.")

TemplateArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of a template, or a unique prefix.", autocompletion=complete_templates),
]


def _columns() -> list[Column[WorkerTemplate]]:
    return [
        Column("NAME", lambda each: each.name),
        Column("TYPE", lambda each: each.instance_type),
        Column("CPU", lambda each: str(each.capacity.cpu_cores), priority=2, align_right=True),
        Column("MEMORY", lambda each: f"{each.capacity.memory_gb:g} GB", priority=2, align_right=True),
        Column("DISK", lambda each: f"{each.capacity.storage_gb:g} GB", priority=3, align_right=True),
        Column("NODES", lambda each: str(each.capacity.max_nodes), priority=3, align_right=True),
        Column("$/H", lambda each: f"{each.cost_per_hour_usd:g}", priority=1, align_right=True),
        Column("KVM", _kvm, priority=4),
        Column("ENABLED", lambda each: "yes" if each.enabled else "no", style=_enabled_style),
        Column("IMAGE", lambda each: each.ami_name_pattern or "default", priority=5, wide_only=True),
        Column("DESCRIPTION", lambda each: each.description, priority=6, min_width=12, wide_only=True),
    ]


def _kvm(template: WorkerTemplate) -> str:
    return "nested" if template.nested_virtualization else "required" if template.requires_kvm else "-"


def _enabled_style(template: WorkerTemplate) -> str:
    return "" if template.enabled else "dim"


@command(app, "list", watchable=True)
async def list_templates(session: Session) -> None:
    """List templates with capacity and cost."""
    from lcm.cli.live.watch_loop import show_or_watch

    async def show() -> None:
        templates = [template async for template in session.client.templates.list()]
        session.printer.items(templates, _columns(), lambda each: each.name, "No templates.")

    await show_or_watch(session, show)


@command(app, "get")
async def get_template(session: Session, name: TemplateArgument) -> None:
    """Show one template."""
    from lcm.cli.runtime.lookup import find_template

    template = await find_template(session.client, name)
    session.printer.item(template, template.name, lambda each: _show_template(session, each))


@command(app, "apply", mutates=True)
async def apply_templates(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML or JSON file: one template, or a list.")],
) -> None:
    """Create or update templates from a file. Workers that were launched stay as they are."""
    from lcm.cli.runtime.options import validate
    from lcm.model.change_preview import TemplateAction
    from lcm.model.worker.template import WorkerTemplate

    existing = {template.name: template async for template in session.client.templates.list()}
    templates = [validate(WorkerTemplate, entry) for entry in _read_templates(file)]
    for template in templates:
        before = existing.get(template.name)
        if before == template:
            _print_result(session, template, "is up to date; no changes made")
            continue
        if session.dry_run:
            await _forecast(session, template.name, TemplateAction.APPLY, template)
        stored = await session.client.templates.put(template)
        _print_result(session, stored, "created" if before is None else "updated")


@command(app, "enable", mutates=True)
async def enable_template(session: Session, name: TemplateArgument) -> None:
    """Enable a template: workers can be created from it."""
    from lcm.cli.runtime.lookup import find_template
    from lcm.model.change_preview import TemplateAction

    template = await find_template(session.client, name)
    await _forecast(session, template.name, TemplateAction.ENABLE)
    _print_result(
        session, await session.client.templates.enable(template.name), "is enabled: workers can be created from it"
    )


@command(app, "disable", mutates=True)
async def disable_template(session: Session, name: TemplateArgument, yes: YesOption = False) -> None:
    """Disable a template: no new workers can be created from it. Asks for confirmation."""
    from lcm.cli.runtime.lookup import find_template
    from lcm.model.change_preview import TemplateAction

    template = await find_template(session.client, name)
    preview = await _forecast(session, template.name, TemplateAction.DISABLE)
    if preview.changes:
        confirm_change(session, [preview.effect], f"Disable {template.name}?", yes=yes)
    _print_result(
        session,
        await session.client.templates.disable(template.name),
        "is disabled: no new workers can be created from it",
    )


async def _forecast(
    session: Session, name: str, action: TemplateAction, template: WorkerTemplate | None = None
) -> ChangePreview:
    """Set the forecast of a change to a template."""
    from lcm.cli.runtime.forecast import forecast_lines
    from lcm.model.change_preview import PreviewTemplateRequest

    preview = await session.client.templates.preview(name, PreviewTemplateRequest(action=action, template=template))
    session.forecast = forecast_lines(name, preview)
    return preview


def _show_template(session: Session, template: WorkerTemplate) -> None:
    size = template.capacity
    session.printer.line(template.name, style="bold")
    session.printer.details(
        [
            ("description", template.description or "none"),
            ("type", template.instance_type),
            ("image", template.ami_name_pattern or "by AMI_NAME_PATTERN"),
            ("capacity", f"{size.cpu_cores} CPU, {size.memory_gb:g} GB memory, {size.storage_gb:g} GB disk"),
            ("nodes", f"at most {size.max_nodes}"),
            ("cost", f"${template.cost_per_hour_usd:g} per hour"),
            ("nested", "yes" if template.nested_virtualization else "no"),
            ("requires KVM", "yes" if template.requires_kvm else "no"),
            ("enabled", "yes" if template.enabled else "no"),
        ]
    )


def _print_result(session: Session, template: WorkerTemplate, text: str) -> None:
    session.printer.item(template, template.name, lambda each: session.printer.line(f"{each.name} {text}."))


def _read_templates(file: Path) -> list[dict[str, Any]]:
    import yaml

    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}") from None
    except yaml.YAMLError as error:
        raise CommandError(f"{file} is neither YAML nor JSON: {yaml_problem(error)}") from None
    if isinstance(content, dict) and isinstance(content.get("templates"), list):
        content = content["templates"]
    entries = content if isinstance(content, list) else [content]
    if not entries or not all(isinstance(entry, dict) for entry in entries):
        raise CommandError(f"{file} must contain a template or a list of templates")
    return entries
