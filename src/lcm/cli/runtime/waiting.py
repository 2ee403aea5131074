"""Waiting for workers and lablets, with progress on standard error and the reason if a goal cannot be reached."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from lcm.cli.errors import CommandError, UsageError
from lcm.cli.output.durations import format_duration, format_elapsed
from lcm.cli.output.lablet_views import lablet_notes, lablet_status_text
from lcm.cli.output.worker_views import worker_status_text
from lcm.cli.runtime.lookup import find_lablet, find_worker
from lcm.client.errors import ServiceUnavailableError, UnreachableError
from lcm.core import clock
from lcm.model.booking.failed_seats import retry_at
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

    from lcm.cli.runtime.session import Session
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker


READY, LICENSE = "ready", "license"
_POLL_SECONDS = 1.0
_TERMINAL_STATUSES = ("FAILED", "TERMINATED")


@dataclass(frozen=True, slots=True)
class WorkerGoal:
    """The goal of a wait: `ready`, `license`, or a status."""

    name: str

    def is_met(self, worker: Worker) -> bool:
        """Whether the worker meets the goal."""
        if self.name == READY:
            return worker.ready
        if self.name == LICENSE:
            return worker.license_status == "registered"
        return worker.status.value == self.name

    def wait_failure(self, worker: Worker) -> str:
        """Why the goal cannot be reached without intervention; empty while it can."""
        if worker.status.value in _TERMINAL_STATUSES and worker.status.value != self.name:
            expected = worker.desired_status == "TERMINATED" and self.name == "TERMINATED"
            return "" if expected else f"{worker.name} is {worker.status}"
        if self.name == LICENSE and worker.license_status == "failed":
            return f"CML rejected the license of {worker.name}"
        if self.name == READY and worker.desired_status != "RUNNING":
            return f"the desired state of {worker.name} is {worker.desired_status}"
        return ""


def parse_goal(text: str) -> WorkerGoal:
    """Parse `--for`, in any case; accepts the spellings license and licence."""
    from lcm.model.worker.status import WorkerStatus

    plain = text.strip().lower()
    if plain in (READY, LICENSE):
        return WorkerGoal(plain)
    if plain in ("licence", "licensed", "licenced"):  # other spellings of license
        return WorkerGoal(LICENSE)
    try:
        return WorkerGoal(WorkerStatus(plain).value)
    except ValueError:
        statuses = ", ".join(status.value.lower() for status in WorkerStatus)
        raise UsageError(f"--for {text!r}: must be ready, license, or one of {statuses}") from None


def progress_line(worker: Worker, elapsed: timedelta, goal: WorkerGoal) -> str:
    """Elapsed time, status and conditions, on one line."""
    unmet = [f"{each.type.value}={each.status.value}" for each in worker.conditions if each.status != "True"]
    details = f" ({', '.join(unmet)})" if unmet else ""
    return f"{format_elapsed(elapsed)}  {worker.name}  {worker_status_text(worker)}{details}  waiting for {goal.name}"


class NamedResource(Protocol):
    """A resource with an id and a name."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def name(self) -> str:
        """Its name."""


ResourceT = TypeVar("ResourceT", bound=NamedResource)


@dataclass(frozen=True, slots=True)
class WaitTarget(Generic[ResourceT]):
    """How to fetch, judge and describe the resource that is waited for."""

    fetch: Callable[[str], Awaitable[ResourceT]]
    is_met: Callable[[ResourceT], bool]
    failure: Callable[[ResourceT], str]
    progress: Callable[[ResourceT, timedelta], str]
    explain: Callable[[ResourceT], Awaitable[str]]
    goal: str


async def wait_until(
    session: Session, item: ResourceT, target: WaitTarget[ResourceT], timeout: timedelta
) -> tuple[ResourceT, timedelta]:
    """The resource once it meets the goal, and the elapsed time. Raises `CommandError` with an explanation."""
    began, line = clock.now(), _ProgressLine()
    while not target.is_met(item):
        elapsed = clock.now() - began
        why = target.failure(item)
        if not why and elapsed >= timeout:
            why = f"{item.name} is not {target.goal} after {format_duration(timeout)}"
        if why:
            line.end()
            raise CommandError(f"{why}\n{await target.explain(item)}")
        line.show(target.progress(item, elapsed))
        await asyncio.sleep(_POLL_SECONDS)
        try:
            item = await target.fetch(item.id)
        except (UnreachableError, ServiceUnavailableError):
            line.show(f"{format_elapsed(elapsed)}  {session.target.url} does not respond; retrying")
    line.end()
    return item, clock.now() - began


async def wait_for_worker(session: Session, name: str, goal: WorkerGoal, timeout: timedelta) -> None:
    """Wait until the worker meets the goal. Raises `CommandError` with an explanation."""

    async def explain(worker: Worker) -> str:
        return (await session.client.workers.explain(worker.id)).summary

    target = WaitTarget(
        fetch=session.client.workers.get,
        is_met=goal.is_met,
        failure=goal.wait_failure,
        progress=lambda worker, elapsed: progress_line(worker, elapsed, goal),
        explain=explain,
        goal=goal.name,
    )
    worker, elapsed = await wait_until(session, await find_worker(session.client, name), target, timeout)
    done = _done_message(goal, worker, elapsed)
    session.printer.item(worker, worker.name, lambda _: session.printer.line(done))


def _done_message(goal: WorkerGoal, worker: Worker, elapsed: timedelta) -> str:
    became = {READY: "is ready", LICENSE: "is licensed"}.get(goal.name, f"is {goal.name}")
    where = f" at {worker.public_ip}" if goal.name == READY and worker.public_ip else ""
    return f"{worker.name} {became}{where} after {format_duration(elapsed)}."


class _ProgressLine:
    """Progress on standard error: updated in place on a terminal, else one line per new state."""

    def __init__(self) -> None:
        self._moves = sys.stderr.isatty()
        self._before = ""

    def show(self, text: str) -> None:
        state = text.split("  ", 1)[-1]
        if self._moves:
            from shutil import get_terminal_size

            room = get_terminal_size().columns - 1
            cut = text if len(text) <= room else text[: room - 1] + "…"
            sys.stderr.write(f"\r\x1b[2K{cut}")
        elif state != self._before:
            sys.stderr.write(f"{text}\n")
        self._before = state
        sys.stderr.flush()

    def end(self) -> None:
        if self._moves and self._before:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


async def wait_for_lablet(session: Session, name: str, goal: LabletStatus, timeout: timedelta) -> None:
    """Wait until the lablet has the status. Raises `CommandError` with the latest message."""
    target = WaitTarget(
        fetch=session.client.lablets.get,
        is_met=lambda lablet: lablet.status is goal,
        failure=lambda lablet: lablet_wait_failure(lablet, goal),
        progress=lambda lablet, elapsed: _lablet_progress_line(lablet, elapsed, goal),
        explain=_explain_lablet,
        goal=goal.value,
    )
    lablet, elapsed = await wait_until(session, await find_lablet(session.client, name), target, timeout)
    done = f"{lablet.name} is {lablet.status} after {format_duration(elapsed)}."
    session.printer.item(lablet, lablet.name, lambda _: session.printer.line(done))


def lablet_wait_failure(lablet: Lablet, goal: LabletStatus) -> str:
    """Why the goal cannot be reached without intervention; empty while it can."""
    if retry_at(lablet) is not None and goal not in FINAL_LABLET_STATUSES:
        return ""  # it is made anew
    if lablet.status in FINAL_LABLET_STATUSES:
        return f"{lablet.name} is {lablet.status}"
    ends_otherwise = goal in FINAL_LABLET_STATUSES and lablet.ending is not None and lablet.ending is not goal
    if lablet.wanted and not ends_otherwise:
        return ""
    if goal is LabletStatus.STOPPING or (goal in FINAL_LABLET_STATUSES and not ends_otherwise):
        return ""
    return f"{lablet.name} ends as {lablet.ending or LabletStatus.TERMINATED}"


def _lablet_progress_line(lablet: Lablet, elapsed: timedelta, goal: LabletStatus) -> str:
    notes = lablet_notes(lablet)
    suffix = f" ({notes})" if notes else ""
    return f"{format_elapsed(elapsed)}  {lablet.name}  {lablet_status_text(lablet)}{suffix}  waiting for {goal}"


async def _explain_lablet(lablet: Lablet) -> str:
    notes = lablet_notes(lablet)
    hint = f"lcm lablets history {lablet.name} shows its history"
    return f"{notes}\n{hint}" if notes else hint
