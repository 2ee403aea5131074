"""Commands that change workers. Each shows what happens next; with --dry-run, what would happen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.errors import CommandError, UsageError
from lcm.cli.runtime.command import command
from lcm.cli.runtime.completion import complete_templates
from lcm.cli.runtime.forecast import forecast_action, forecast_edit, forecast_license, forecast_lines
from lcm.cli.runtime.options import (
    ReasonOption,
    RequiredReasonOption,
    UntilOption,
    WorkerArgument,
    YesOption,
    parse_tags,
    validate,
)
from lcm.cli.runtime.session import Session, confirm, confirm_by_name, require_terminal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.model.worker.record import Hold, Worker

LEAKING_TERMINATION = "terminate --leak-license"
_WAIT_GOALS = {"start": "ready", "stop": "stopped", "drain": "stopped", "terminate": "terminated", "retry": "ready"}

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
CmlUsernameOption = Annotated[
    str | None, typer.Option("--cml-username", metavar="NAME", help="User name with which LCM signs in to its CML.")
]
CmlPasswordFileOption = Annotated[
    str | None, typer.Option("--cml-password-file", metavar="FILE", help="File with the password of that user.")
]
LeakLicenseOption = Annotated[
    bool, typer.Option("--leak-license", help="Do not deregister its license: faster, but Cisco will still count it.")
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


def register(app: typer.Typer) -> None:
    """Add the commands to `lcm workers`."""
    command(app, "create", mutates=True)(create_worker)
    command(app, "edit", mutates=True)(edit_worker)
    command(app, "start", mutates=True)(start_worker)
    command(app, "stop", mutates=True)(stop_worker)
    command(app, "drain", mutates=True)(drain_worker)
    command(app, "cancel-drain", mutates=True)(cancel_drain)
    command(app, "retry", mutates=True)(retry_worker)
    command(app, "trust", mutates=True)(trust_worker)
    command(app, "terminate", mutates=True)(terminate_worker)
    command(app, "adopt", mutates=True)(adopt_worker)
    command(app, "hold", mutates=True)(hold_worker)
    command(app, "release", mutates=True)(release_worker)
    command(app, "license", mutates=True)(license_worker)


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
    _print_result(
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
    license_token_file: LicenseTokenFileOption = None,
    cml_username: CmlUsernameOption = None,
    cml_password_file: CmlPasswordFileOption = None,
) -> None:
    """Change the name, the tags or the options of a worker. What is not given stays as it is."""
    from lcm.cli.runtime.lookup import find_worker
    from lcm.cli.runtime.target import read_secret_file
    from lcm.model.worker.requests import UpdateWorkerRequest

    worker = await find_worker(session.client, name)
    given: dict[str, object | None] = {
        "name": new_name,
        "tags": _edited_tags(worker, tag or [], remove_tag or []) if tag or remove_tag else None,
        "idle_detection_enabled": idle_detection,
        "lost_instance_policy": if_lost,
        "license_token": None if license_token_file is None else _read_license_token(license_token_file),
        "cml_username": cml_username,
        "cml_password": None
        if cml_password_file is None
        else read_secret_file("--cml-password-file", cml_password_file),
    }
    fields = {field: value for field, value in given.items() if value is not None}
    if not fields:
        raise UsageError("nothing to change: give at least one option; lcm workers edit --help lists them")
    body = validate(UpdateWorkerRequest, fields)
    if session.dry_run:
        await forecast_edit(session, worker, body)
    changed = await session.client.workers.patch(worker.id, body, version=worker.version)
    same = changed.version == worker.version
    _print_result(session, changed, f"{changed.name} {'is up to date; no change needed' if same else 'updated'}.")


def _edited_tags(worker: Worker, added: list[str], removed: list[str]) -> dict[str, str]:
    missing = [key for key in removed if key not in worker.tags]
    if missing:
        raise UsageError(f"--remove-tag {missing[0]!r}: {worker.name} has no such tag")
    return {key: value for key, value in worker.tags.items() if key not in removed} | parse_tags(added)


async def start_worker(session: Session, name: WorkerArgument, reason: ReasonOption = None) -> None:
    """Start a worker. A drain in progress is cancelled."""
    await _find_and_send(session, name, "start", reason)


async def stop_worker(session: Session, name: WorkerArgument, reason: ReasonOption = None) -> None:
    """Stop a worker without waiting for its labs. `drain` waits."""
    await _find_and_send(session, name, "stop", reason)


async def drain_worker(session: Session, name: WorkerArgument, reason: ReasonOption = None) -> None:
    """Drain a worker: accept no new lablets, wait for the existing ones to end, then stop."""
    await _find_and_send(session, name, "drain", reason)


async def cancel_drain(session: Session, name: WorkerArgument, reason: ReasonOption = None) -> None:
    """Cancel a drain: the worker accepts lablets again."""
    await _find_and_send(session, name, "cancel-drain", reason)


async def retry_worker(session: Session, name: WorkerArgument, reason: ReasonOption = None) -> None:
    """Retry a FAILED worker."""
    await _find_and_send(session, name, "retry", reason)


async def release_worker(session: Session, name: WorkerArgument, reason: ReasonOption = None) -> None:
    """Release a hold: controllers change the worker again."""
    await _find_and_send(session, name, "release", reason)


async def terminate_worker(
    session: Session,
    name: WorkerArgument,
    reason: ReasonOption = None,
    yes: YesOption = False,
    leak_license: LeakLicenseOption = False,
) -> None:
    """Terminate a worker and its instance permanently. Shows what will be lost and asks for confirmation.

    A registered license is deregistered first; a stopped instance is started once more for that. --leak-license skips
    this, also while it is under way.
    """
    from lcm.cli.output.worker_views import show_termination_losses
    from lcm.cli.runtime.lookup import find_worker

    worker = await find_worker(session.client, name)
    if not yes and not session.dry_run and worker.desired_status != "TERMINATED":
        require_terminal()
        await show_termination_losses(session, worker, release_license=not leak_license)
        if not confirm_by_name(f"Terminate {worker.name} permanently?", worker.name):
            raise CommandError("no changes made")
    await _send(session, worker, LEAKING_TERMINATION if leak_license else "terminate", reason)


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
    from lcm.cli.runtime.options import validate
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
    _print_result(session, adopted, about if preview.changes else f"{adopted.name} is already adopted like this.")


async def trust_worker(
    session: Session, name: WorkerArgument, reason: ReasonOption = None, yes: YesOption = False
) -> None:
    """Accept the new certificate of a worker whose CML was reinstalled. Shows it and asks for confirmation."""
    from lcm.cli.runtime.lookup import find_worker

    worker = await find_worker(session.client, name)
    presented = worker.cml_certificate_presented
    if not yes and not session.dry_run and presented is not None:
        require_terminal()
        question = f"{worker.name} presents the certificate with SHA-256 {presented}. Send passwords to this server?"
        if not confirm(question):
            raise CommandError("no changes made")
    await _send(session, worker, "trust", reason)


async def hold_worker(
    session: Session, name: WorkerArgument, reason: RequiredReasonOption, until: UntilOption = None
) -> None:
    """Hold a worker: controllers change nothing on it. It is still observed and explained."""
    from lcm.cli.output.durations import format_hold_end, parse_time
    from lcm.cli.runtime.lookup import find_worker
    from lcm.core import clock
    from lcm.model.change_preview import WorkerAction
    from lcm.model.worker.requests import HoldRequest

    worker = await find_worker(session.client, name)
    fields: dict[str, object] = {"reason": reason}
    if until is not None:
        fields["until"] = parse_time(until, clock.now(), "--until")
    body = validate(HoldRequest, fields)
    if session.dry_run:
        await forecast_action(session, worker, WorkerAction.HOLD)
    held = await session.client.workers.hold(worker.id, body)
    end = format_hold_end(None if held.hold is None else held.hold.until)
    _print_result(session, held, f"{held.name} is on hold {end}.\nTo release it: lcm workers release {held.name}")


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
        session.forecast = forecast_license(worker, body)
    updated = await session.client.workers.license(worker.id, body)
    hint = f"\nWait for it: lcm workers wait {updated.name} --for license" if registers else ""
    _print_result(
        session,
        updated,
        f"{updated.name}: license {'registration' if registers else 'deregistration'} requested.{hint}",
    )


async def _find_and_send(session: Session, name: str, verb: str, reason: str | None) -> None:
    from lcm.cli.runtime.lookup import find_worker

    await _send(session, await find_worker(session.client, name), verb, reason)


async def _send(session: Session, worker: Worker, verb: str, reason: str | None) -> None:
    """Preview a dry run, send the command, and print the result."""
    from lcm.cli.runtime.waiting import parse_goal
    from lcm.model.change_preview import WorkerAction

    if session.dry_run:
        action = WorkerAction.TERMINATE if verb == LEAKING_TERMINATION else WorkerAction(verb)
        await forecast_action(session, worker, action, release_license=verb != LEAKING_TERMINATION)
    changed = await command_call(session, verb)(worker.id, reason)
    same = changed.version == worker.version
    hint = _WAIT_GOALS.get(verb)
    line = f"{changed.name} is {changed.status}, desired state {changed.desired_status}."
    if same:
        line += " No change needed."
    else:
        fleet_hold = (await session.client.fleet.summary()).hold if session.printer.for_people else None
        line += f" Next: {_next_step(changed, fleet_hold)}."
        if hint is not None and not parse_goal(hint).is_met(changed):
            line += f"\nWait for it: lcm workers wait {changed.name} --for {hint}"
    _print_result(session, changed, line)


def command_call(session: Session, verb: str) -> Callable[[str, str | None], Awaitable[Worker]]:
    """The client method for a command."""
    workers = session.client.workers
    calls: dict[str, Callable[[str, str | None], Awaitable[Worker]]] = {
        "start": workers.start,
        "stop": workers.stop,
        "drain": workers.drain,
        "cancel-drain": workers.cancel_drain,
        "retry": workers.retry,
        "trust": workers.trust,
        "terminate": workers.terminate,
        LEAKING_TERMINATION: lambda worker_id, reason: workers.terminate(worker_id, reason, release_license=False),
        "release": workers.release,
    }
    return calls[verb]


def _next_step(worker: Worker, fleet_hold: Hold | None) -> str:
    from lcm.core import clock
    from lcm.model.worker.next_step import next_step_of

    step = next_step_of(worker)
    clause = "it keeps running" if worker.ready and worker.desired_status == "RUNNING" else step.clause
    for hold, remedy in ((worker.hold, f"lcm workers release {worker.name}"), (fleet_hold, "lcm fleet release")):
        if hold is not None and hold.active(clock.now()) and not step.is_settled:
            return f"after the release of the hold ({remedy}), {clause}"
    return clause


def _print_result(session: Session, worker: Worker, text: str) -> None:
    session.printer.item(worker, worker.name, lambda _: session.printer.line(text))


def _read_license_token(path: str) -> str:
    from lcm.cli.runtime.target import read_secret_file

    return read_secret_file("--license-token-file", path)
