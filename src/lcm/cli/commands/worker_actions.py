"""What people want of workers: each command says what follows, and with --dry-run what would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lcm.cli.errors import CommandError, UsageError
from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import ReasonOption, RequiredReasonOption, UntilOption, WorkerArgument, YesOption, validate
from lcm.cli.runtime.session import Session, confirm, require_terminal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from lcm.model.worker.record import Worker

_WAIT_GOALS = {"start": "ready", "stop": "stopped", "drain": "stopped", "terminate": "terminated", "retry": "ready"}

TemplateOption = Annotated[str, typer.Option("--template", "-t", metavar="NAME", help="What it is made from.")]
RegionOption = Annotated[str | None, typer.Option("--region", help="Where; without it, where workers usually are.")]
TagsOption = Annotated[list[str] | None, typer.Option("--tag", metavar="KEY=VALUE", help="A tag; repeat it for more.")]
StoppedOption = Annotated[bool, typer.Option("--stopped", help="Launch nothing until somebody starts it.")]
IfLostOption = Annotated[
    str, typer.Option("--if-lost", metavar="terminate|replace", help="What becomes of it when its instance is gone.")
]
NoIdleDetectionOption = Annotated[
    bool, typer.Option("--no-idle-detection", help="Never pause it because nobody uses it.")
]
LicenseTokenFileOption = Annotated[
    str | None, typer.Option("--license-token-file", metavar="FILE", help="A file with the token of its CML licence.")
]
OperationArgument = Annotated[
    str, typer.Argument(metavar="register|deregister", help="What is to be done with the licence.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to `lcm workers`."""
    command(app, "create", changes=True)(create_worker)
    command(app, "start", changes=True)(start_worker)
    command(app, "stop", changes=True)(stop_worker)
    command(app, "drain", changes=True)(drain_worker)
    command(app, "cancel-drain", changes=True)(cancel_drain)
    command(app, "retry", changes=True)(retry_worker)
    command(app, "terminate", changes=True)(terminate_worker)
    command(app, "hold", changes=True)(hold_worker)
    command(app, "release", changes=True)(release_worker)
    command(app, "license", changes=True)(license_worker)


async def create_worker(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is to be called.")],
    template: TemplateOption,
    region: RegionOption = None,
    tag: TagsOption = None,
    stopped: StoppedOption = False,
    if_lost: IfLostOption = "terminate",
    no_idle_detection: NoIdleDetectionOption = False,
    license_token_file: LicenseTokenFileOption = None,
) -> None:
    """A new worker. It is launched as soon as a controller sees it."""
    from lcm.cli.runtime.lookup import find_template
    from lcm.model.worker.requests import CreateWorkerRequest

    chosen = await find_template(session.client, template)
    facts: dict[str, object] = {"name": name, "template_name": chosen.name}
    if region is not None:
        facts["aws_region"] = region
    if tag:
        facts["tags"] = _parse_tags(tag)
    if stopped:
        facts["desired_status"] = "STOPPED"
    if if_lost != "terminate":
        facts["lost_instance_policy"] = if_lost
    if no_idle_detection:
        facts["idle_detection_enabled"] = False
    if license_token_file is not None:
        facts["license_token"] = _read_license_token(license_token_file)
    then = "nothing is launched until it is started" if stopped else f"a {chosen.instance_type} is launched"
    session.forecast = [("then", f"{then} (${chosen.cost_per_hour_usd:g} an hour while it runs)")]
    made = await session.client.workers.create(validate(CreateWorkerRequest, facts))
    hint = "" if stopped else f"\nWait for it: lcm workers wait {made.name} --for ready"
    _print_result(session, made, f"{made.name} is created in {made.aws_region}, wanted {made.desired_status}.{hint}")


async def start_worker(session: Session, name: WorkerArgument, reason: ReasonOption = None) -> None:
    """Want a worker running; a drain under way is cancelled."""
    await _find_and_send(session, name, "start", reason)


async def stop_worker(session: Session, name: WorkerArgument, reason: ReasonOption = None) -> None:
    """Want a worker stopped, without waiting for what runs on it. `drain_worker` waits."""
    await _find_and_send(session, name, "stop", reason)


async def drain_worker(session: Session, name: WorkerArgument, reason: ReasonOption = None) -> None:
    """Take no new lablets, wait for those there, then stop."""
    await _find_and_send(session, name, "drain", reason)


async def cancel_drain(session: Session, name: WorkerArgument, reason: ReasonOption = None) -> None:
    """Let a draining worker take lablets again."""
    await _find_and_send(session, name, "cancel-drain", reason)


async def retry_worker(session: Session, name: WorkerArgument, reason: ReasonOption = None) -> None:
    """Try a FAILED worker again."""
    await _find_and_send(session, name, "retry", reason)


async def release_worker(session: Session, name: WorkerArgument, reason: ReasonOption = None) -> None:
    """Let changes of a worker go on after a hold."""
    await _find_and_send(session, name, "release", reason)


async def terminate_worker(
    session: Session, name: WorkerArgument, reason: ReasonOption = None, yes: YesOption = False
) -> None:
    """End a worker and its instance for good. It asks first, and says what will be lost."""
    from lcm.cli.output.worker_views import show_termination_losses
    from lcm.cli.runtime.lookup import find_worker

    worker = await find_worker(session.client, name)
    if not yes and not session.dry_run and worker.desired_status != "TERMINATED":
        require_terminal()
        await show_termination_losses(session, worker)
        if not confirm(f"Terminate {worker.name} for good?"):
            raise CommandError("nothing was changed")
    await _send(session, worker, "terminate", reason)


async def hold_worker(
    session: Session, name: WorkerArgument, reason: RequiredReasonOption, until: UntilOption = None
) -> None:
    """Stop all changes of a worker; looking at it and explaining it go on."""
    from lcm.cli.output.durations import format_hold_end, parse_time
    from lcm.cli.runtime.lookup import find_worker
    from lcm.control_plane.workers import lifecycle
    from lcm.core import clock
    from lcm.model.worker.requests import HoldRequest

    worker = await find_worker(session.client, name)
    facts: dict[str, object] = {"reason": reason}
    if until is not None:
        facts["until"] = parse_time(until, clock.now(), "--until")
    body = validate(HoldRequest, facts)
    session.forecast = _forecast(worker, lambda now: lifecycle.hold(worker, body, "you", now), session.dry_run)
    held = await session.client.workers.hold(worker.id, body)
    end = format_hold_end(None if held.hold is None else held.hold.until)
    _print_result(session, held, f"{held.name} is on hold, {end}.\nLet it go on: lcm workers release {held.name}")


async def license_worker(
    session: Session,
    name: WorkerArgument,
    operation: OperationArgument,
    license_token_file: LicenseTokenFileOption = None,
    reason: ReasonOption = None,
) -> None:
    """Register a worker's CML licence, or give it back."""
    from lcm.cli.runtime.lookup import find_worker
    from lcm.model.worker.requests import LicenseRequest

    facts: dict[str, object] = {"operation": operation}
    if license_token_file is not None:
        facts["token"] = _read_license_token(license_token_file)
    if reason is not None:
        facts["reason"] = reason
    body = validate(LicenseRequest, facts)
    worker = await find_worker(session.client, name)
    registers = body.operation == "register"
    then = "CML is asked to register" if registers else "the licence is given back, and its token is withdrawn"
    session.forecast = [(worker.name, f"licence {worker.license_status}"), ("then", then)]
    asked = await session.client.workers.license(worker.id, body)
    hint = f"\nWait for it: lcm workers wait {asked.name} --for license" if registers else ""
    _print_result(
        session, asked, f"{asked.name}: the licence is to be {'registered' if registers else 'given back'}.{hint}"
    )


async def _find_and_send(session: Session, name: str, verb: str, reason: str | None) -> None:
    from lcm.cli.runtime.lookup import find_worker

    await _send(session, await find_worker(session.client, name), verb, reason)


async def _send(session: Session, worker: Worker, verb: str, reason: str | None) -> None:
    """Foretell, send, and tell."""
    from lcm.cli.runtime.waiting import parse_goal

    if session.dry_run:
        session.forecast = _forecast(worker, _local_rule(worker, verb, reason), dry=True)
        told = await session.client.workers.explain(worker.id)
        session.forecast.append(("now", told.summary))
    changed = await command_call(session, verb)(worker.id, reason)
    same = changed.version == worker.version
    hint = _WAIT_GOALS.get(verb)
    line = f"{changed.name} is {changed.status}, wanted {changed.desired_status}."
    if same:
        line += " That was so before: nothing was changed."
    else:
        line += f" {_next_step(changed)}"
        if hint is not None and not parse_goal(hint).met(changed):
            line += f"\nWait for it: lcm workers wait {changed.name} --for {hint}"
    _print_result(session, changed, line)


def command_call(session: Session, verb: str) -> Callable[[str, str | None], Awaitable[Worker]]:
    """The call behind a verb."""
    workers = session.client.workers
    calls: dict[str, Callable[[str, str | None], Awaitable[Worker]]] = {
        "start": workers.start,
        "stop": workers.stop,
        "drain": workers.drain,
        "cancel-drain": workers.cancel_drain,
        "retry": workers.retry,
        "terminate": workers.terminate,
        "release": workers.release,
    }
    return calls[verb]


def _local_rule(worker: Worker, verb: str, reason: str | None) -> Callable[[datetime], Worker]:
    """What the control plane makes of the worker, by its own rules."""
    from lcm.control_plane.workers import lifecycle

    rules: dict[str, Callable[[datetime], Worker]] = {
        "start": lambda now: lifecycle.start(worker, now),
        "stop": lambda now: lifecycle.stop(worker, now, reason),
        "drain": lambda now: lifecycle.drain(worker, now, reason),
        "cancel-drain": lambda now: lifecycle.cancel_drain(worker, now),
        "retry": lambda now: lifecycle.retry(worker, now),
        "terminate": lambda now: lifecycle.terminate(worker, now),
        "release": lambda now: lifecycle.release(worker, now),
    }
    return rules[verb]


def _forecast(worker: Worker, rule: Callable[[datetime], Worker], dry: bool) -> list[tuple[str, str]]:
    """What would become of it; a refusal is told as the control plane would tell it."""
    if not dry:
        return []
    from lcm.control_plane.errors import ProblemError
    from lcm.core import clock
    from lcm.model.worker.status import IllegalWorkerTransitionError

    try:
        after = rule(clock.now())
    except (ProblemError, IllegalWorkerTransitionError) as error:
        raise CommandError(f"this would be refused: {error}") from None
    was = f"{worker.status}, wanted {worker.desired_status}"
    becomes = f"{after.status}, wanted {after.desired_status}"
    step = f"{was} → {becomes}" if becomes != was else f"{was}, as before"
    return [(worker.name, step), ("then", _next_step(after))]


def _next_step(worker: Worker) -> str:
    from lcm.model.worker.next_step import next_step_of

    clause = next_step_of(worker).clause
    if worker.ready:
        clause = "it goes on running"
    held = worker.hold is not None and not next_step_of(worker).rests
    return f"After the hold, {clause}." if held else f"{clause[0].upper()}{clause[1:]}."


def _print_result(session: Session, worker: Worker, text: str) -> None:
    session.screen.one(worker, worker.name, lambda _: session.screen.say(text))


def _parse_tags(pairs: list[str]) -> dict[str, str]:
    tags = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"--tag {pair!r}: must be KEY=VALUE")
        tags[key] = value
    return tags


def _read_license_token(path: str) -> str:
    from lcm.cli.runtime.target import read_secret_file

    return read_secret_file("--license-token-file", path)
