"""Commands that change workers. Each shows what happens next; with --dry-run, what would happen."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.commands.worker.edit import adopt_worker, create_worker, edit_worker, license_worker, print_result
from lcm.cli.errors import CommandError
from lcm.cli.runtime.command import command
from lcm.cli.runtime.forecast import forecast_action, forecast_lines
from lcm.cli.runtime.options import (
    ReasonOption,
    RequiredReasonOption,
    UntilOption,
    WorkerArgument,
    YesOption,
    validate,
)
from lcm.cli.runtime.session import Session, confirm, confirm_by_name, require_terminal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from lcm.model.worker.record import Hold, Worker

LEAKING_TERMINATION = "terminate --leak-license"
_WAIT_GOALS = {"start": "ready", "stop": "stopped", "drain": "stopped", "terminate": "terminated", "retry": "ready"}

KeepUntilOption = Annotated[
    str | None,
    typer.Option("--until", metavar="WHEN", help="Until when policies leave it so: 2h, or 2026-01-17T10:30Z."),
]
LeakLicenseOption = Annotated[
    bool, typer.Option("--leak-license", help="Do not deregister its license: faster, but Cisco will still count it.")
]


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


async def start_worker(
    session: Session, name: WorkerArgument, reason: ReasonOption = None, until: KeepUntilOption = None
) -> None:
    """Start a worker. A drain in progress is cancelled. With --until, policies do not stop it before that time."""
    await _find_and_send(session, name, "start", reason, until)


async def stop_worker(
    session: Session, name: WorkerArgument, reason: ReasonOption = None, until: KeepUntilOption = None
) -> None:
    """Stop a worker without waiting for its labs. `drain` waits. With --until, policies do not start it before."""
    await _find_and_send(session, name, "stop", reason, until)


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
    from lcm.cli.runtime.lookup import find_worker
    from lcm.model.change_preview import PreviewWorkerRequest, WorkerAction

    worker = await find_worker(session.client, name)
    if not yes and not session.dry_run and worker.desired_status != "TERMINATED":
        require_terminal()
        body = PreviewWorkerRequest(action=WorkerAction.TERMINATE, release_license=not leak_license)
        preview = await session.client.workers.preview(worker.id, body)
        session.printer.details(forecast_lines(worker.name, preview), indent=0)
        if not confirm_by_name(f"Terminate {worker.name} permanently?", worker.name):
            raise CommandError("no changes made")
    await _send(session, worker, LEAKING_TERMINATION if leak_license else "terminate", reason)


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
    print_result(session, held, f"{held.name} is on hold {end}.\nTo release it: lcm workers release {held.name}")


async def _find_and_send(session: Session, name: str, verb: str, reason: str | None, until: str | None = None) -> None:
    from lcm.cli.output.durations import parse_time
    from lcm.cli.runtime.lookup import find_worker
    from lcm.core import clock

    end = None if until is None else parse_time(until, clock.now(), "--until")
    await _send(session, await find_worker(session.client, name), verb, reason, end)


async def _send(session: Session, worker: Worker, verb: str, reason: str | None, until: datetime | None = None) -> None:
    """Preview a dry run, send the command, and print the result."""
    from lcm.cli.output.durations import format_time_with_zone
    from lcm.cli.runtime.waiting import parse_goal
    from lcm.model.change_preview import WorkerAction

    if session.dry_run:
        action = WorkerAction.TERMINATE if verb == LEAKING_TERMINATION else WorkerAction(verb)
        await forecast_action(session, worker, action, release_license=verb != LEAKING_TERMINATION, until=until)
    changed = await command_call(session, verb, until)(worker.id, reason)
    same = changed.version == worker.version
    hint = _WAIT_GOALS.get(verb)
    line = f"{changed.name} is {changed.status}, desired state {changed.desired_status}."
    if same:
        line += " No change needed."
    else:
        fleet_hold = (await session.client.fleet.summary()).hold if session.printer.for_people else None
        line += f" Next: {_next_step(changed, fleet_hold)}."
        if changed.override is not None and changed.override.until is not None:
            line += f" Policies will not change that until {format_time_with_zone(changed.override.until)}."
        if hint is not None and not parse_goal(hint).is_met(changed):
            line += f"\nWait for it: lcm workers wait {changed.name} --for {hint}"
    print_result(session, changed, line)


def command_call(
    session: Session, verb: str, until: datetime | None = None
) -> Callable[[str, str | None], Awaitable[Worker]]:
    """The client method for a command."""
    workers = session.client.workers
    calls: dict[str, Callable[[str, str | None], Awaitable[Worker]]] = {
        "start": partial(workers.start, until=until),
        "stop": partial(workers.stop, until=until),
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
