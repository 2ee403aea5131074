"""Commands that create, edit, adopt and license workers. With --dry-run they show what would happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.errors import UsageError
from lcm.cli.runtime.completion import complete_templates
from lcm.cli.runtime.forecast import forecast_edit, forecast_lines
from lcm.cli.runtime.options import ReasonOption, WorkerArgument, parse_tags, validate
from lcm.cli.runtime.session import Session

if TYPE_CHECKING:
    from lcm.model.worker.record import Worker

TemplateOption = Annotated[
    str,
    typer.Option("--template", "-t", metavar="NAME", help="Template of the worker.", autocompletion=complete_templates),
]
RegionOption = Annotated[
    str | None, typer.Option("--region", metavar="REGION", help="Region. Default: the default region of the fleet.")
]
TagsOption = Annotated[list[str] | None, typer.Option("--tag", metavar="KEY=VALUE", help="Tag; repeatable.")]
StoppedOption = Annotated[
    bool, typer.Option("--stopped", help="Create it stopped: no instance is launched until it is started.")
]
IfLostOption = Annotated[
    str, typer.Option("--if-lost", metavar="terminate|replace", help="What to do if its instance is lost.")
]
NoIdleDetectionOption = Annotated[bool, typer.Option("--no-idle-detection", help="Never stop it for being idle.")]
LicenseTokenFileOption = Annotated[
    str | None, typer.Option("--license-token-file", metavar="FILE", help="File with the CML license token.")
]
NewNameOption = Annotated[str | None, typer.Option("--name", metavar="NAME", help="New name.")]
RemoveTagsOption = Annotated[
    list[str] | None, typer.Option("--remove-tag", metavar="KEY", help="Tag to remove; repeatable.")
]
IdleDetectionOption = Annotated[
    bool | None, typer.Option("--idle-detection/--no-idle-detection", help="Whether it is stopped when idle.")
]
NewIfLostOption = Annotated[
    str | None, typer.Option("--if-lost", metavar="terminate|replace", help="What to do if its instance is lost.")
]
TeamOption = Annotated[
    str | None,
    typer.Option("--team", metavar="TEAM", help="Dedicate it to a team: it takes no other team's lablets."),
]
NoTeamOption = Annotated[bool, typer.Option("--no-team", help="Dedicate it to no team: it takes lablets of all.")]
CmlUsernameOption = Annotated[
    str | None, typer.Option("--cml-username", metavar="NAME", help="User name with which LCM signs in to its CML.")
]
CmlPasswordFileOption = Annotated[
    str | None, typer.Option("--cml-password-file", metavar="FILE", help="File with the password of that user.")
]
AdoptTemplateOption = Annotated[
    str | None,
    typer.Option(
        "--template",
        "-t",
        metavar="NAME",
        help="Its template. Default: the one with its instance type.",
        autocompletion=complete_templates,
    ),
]
SchedulableOption = Annotated[
    bool, typer.Option("--schedulable/--not-schedulable", help="Whether lablets may be placed on it.")
]
OperationArgument = Annotated[str, typer.Argument(metavar="register|deregister", help="License operation.")]


async def create_worker(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name.")],
    template: TemplateOption,
    region: RegionOption = None,
    tag: TagsOption = None,
    stopped: StoppedOption = False,
    if_lost: IfLostOption = "terminate",
    no_idle_detection: NoIdleDetectionOption = False,
    license_token_file: LicenseTokenFileOption = None,
) -> None:
    """Create a worker. A controller then launches its instance."""
    from lcm.cli.runtime.lookup import find_template
    from lcm.model.worker.requests import CreateWorkerRequest

    chosen = await find_template(session.client, template)
    fields: dict[str, object] = {"name": name, "template_name": chosen.name}
    if region is not None:
        fields["aws_region"] = region
    if tag:
        fields["tags"] = parse_tags(tag)
    if stopped:
        fields["desired_status"] = "STOPPED"
    if if_lost != "terminate":
        fields["lost_instance_policy"] = if_lost
    if no_idle_detection:
        fields["idle_detection_enabled"] = False
    if license_token_file is not None:
        fields["license_token"] = _read_license_token(license_token_file)
    body = validate(CreateWorkerRequest, fields)
    if session.dry_run:
        session.forecast = forecast_lines(name, await session.client.workers.preview_create(body))
    created = await session.client.workers.create(body)
    hint = "" if stopped else f"\nWait for it: lcm workers wait {created.name} --for ready"
    print_result(
        session,
        created,
        f"{created.name} created in {created.aws_region}; desired state {created.desired_status}.{hint}",
    )


async def edit_worker(
    session: Session,
    name: WorkerArgument,
    new_name: NewNameOption = None,
    tag: TagsOption = None,
    remove_tag: RemoveTagsOption = None,
    idle_detection: IdleDetectionOption = None,
    if_lost: NewIfLostOption = None,
    team: TeamOption = None,
    no_team: NoTeamOption = False,
    license_token_file: LicenseTokenFileOption = None,
    cml_username: CmlUsernameOption = None,
    cml_password_file: CmlPasswordFileOption = None,
) -> None:
    """Change the name, the tags or the options of a worker. What is not given stays as it is."""
    from lcm.cli.runtime.lookup import find_worker
    from lcm.cli.runtime.target import read_secret_file
    from lcm.model.worker.requests import UpdateWorkerRequest

    if no_team and team is not None:
        raise UsageError("give only one of --team and --no-team")
    worker = await find_worker(session.client, name)
    given: dict[str, object | None] = {
        "name": new_name,
        "tags": _edited_tags(worker, tag or [], remove_tag or []) if tag or remove_tag else None,
        "idle_detection_enabled": idle_detection,
        "lost_instance_policy": if_lost,
        "team": team,
        "license_token": None if license_token_file is None else _read_license_token(license_token_file),
        "cml_username": cml_username,
        "cml_password": None
        if cml_password_file is None
        else read_secret_file("--cml-password-file", cml_password_file),
    }
    fields = {field: value for field, value in given.items() if value is not None}
    if no_team:
        fields["team"] = None
    if not fields:
        raise UsageError("nothing to change: give at least one option; lcm workers edit --help lists them")
    body = validate(UpdateWorkerRequest, fields)
    if session.dry_run:
        await forecast_edit(session, worker, body)
    changed = await session.client.workers.patch(worker.id, body, version=worker.version)
    same = changed.version == worker.version
    print_result(session, changed, f"{changed.name} {'is up to date; no change needed' if same else 'updated'}.")


def _edited_tags(worker: Worker, added: list[str], removed: list[str]) -> dict[str, str]:
    missing = [key for key in removed if key not in worker.tags]
    if missing:
        raise UsageError(f"--remove-tag {missing[0]!r}: {worker.name} has no such tag")
    return {key: value for key, value in worker.tags.items() if key not in removed} | parse_tags(added)


async def adopt_worker(
    session: Session,
    name: WorkerArgument,
    template: AdoptTemplateOption = None,
    schedulable: SchedulableOption = True,
    idle_detection: IdleDetectionOption = None,
    license_token_file: LicenseTokenFileOption = None,
) -> None:
    """Adopt an imported worker: it gets a template and takes lablets, unless you pass --not-schedulable."""
    from lcm.cli.runtime.lookup import find_worker
    from lcm.model.worker.requests import AdoptWorkerRequest

    fields: dict[str, object] = {"schedulable": schedulable}
    if template is not None:
        fields["template_name"] = template
    if idle_detection is not None:
        fields["idle_detection_enabled"] = idle_detection
    if license_token_file is not None:
        fields["license_token"] = _read_license_token(license_token_file)
    body = validate(AdoptWorkerRequest, fields)
    worker = await find_worker(session.client, name)
    preview = await session.client.workers.preview_adoption(worker.id, body)
    if session.dry_run:
        session.forecast = forecast_lines(worker.name, preview)
    adopted = await session.client.workers.adopt(worker.id, body)
    about = f"{adopted.name} adopted: template {adopted.template_name or 'none'}. {preview.effect}"
    print_result(
        session, adopted, about if preview.changes else f"{adopted.name} is already adopted; no change needed."
    )


async def license_worker(
    session: Session,
    name: WorkerArgument,
    operation: OperationArgument,
    license_token_file: LicenseTokenFileOption = None,
    reason: ReasonOption = None,
) -> None:
    """Register or deregister the CML license of a worker."""
    from lcm.cli.runtime.lookup import find_worker
    from lcm.model.worker.requests import LicenseRequest

    fields: dict[str, object] = {"operation": operation}
    if license_token_file is not None:
        fields["token"] = _read_license_token(license_token_file)
    if reason is not None:
        fields["reason"] = reason
    body = validate(LicenseRequest, fields)
    worker = await find_worker(session.client, name)
    registers = body.operation == "register"
    if session.dry_run:
        session.forecast = forecast_lines(worker.name, await session.client.workers.preview_license(worker.id, body))
    updated = await session.client.workers.license(worker.id, body)
    hint = f"\nWait for it: lcm workers wait {updated.name} --for license" if registers else ""
    print_result(
        session,
        updated,
        f"{updated.name}: license {'registration' if registers else 'deregistration'} requested.{hint}",
    )


def print_result(session: Session, worker: Worker, text: str) -> None:
    session.printer.item(worker, worker.name, lambda _: session.printer.line(text))


def _read_license_token(path: str) -> str:
    from lcm.cli.runtime.target import read_secret_file

    return read_secret_file("--license-token-file", path)
