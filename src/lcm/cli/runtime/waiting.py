"""Waiting for a worker: a line that moves on a terminal, a line a change elsewhere, and why if it will not be."""

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
    """What is waited for: `ready`, `license`, or a status."""

    what: str

    def met(self, worker: Worker) -> bool:
        """Whether it is so."""
        if self.what == READY:
            return worker.ready
        if self.what == LICENSE:
            return worker.license_status == "registered"
        return worker.status.value == self.what

    def hopeless(self, worker: Worker) -> str:
        """Why it will not be so by itself; empty while it may."""
        if worker.status.value in _TERMINAL_STATUSES and worker.status.value != self.what:
            wanted = worker.desired_status == "TERMINATED" and self.what == "TERMINATED"
            return "" if wanted else f"{worker.name} is {worker.status}"
        if self.what == LICENSE and worker.license_status == "failed":
            return f"CML refused the licence of {worker.name}"
        if self.what == READY and worker.desired_status != "RUNNING":
            return f"{worker.name} is wanted {worker.desired_status}"
        return ""


def parse_goal(text: str) -> WorkerGoal:
    """What `--for` names, in any case; both spellings of licence."""
    from lcm.model.worker.status import WorkerStatus

    plain = text.strip().lower()
    if plain in (READY, LICENSE):
        return WorkerGoal(plain)
    if plain in ("licence", "licensed", "licenced"):
        return WorkerGoal(LICENSE)
    try:
        return WorkerGoal(WorkerStatus(plain).value)
    except ValueError:
        statuses = ", ".join(status.value.lower() for status in WorkerStatus)
        raise UsageError(f"--for {text!r}: must be ready, license, or one of {statuses}") from None


def progress_line(worker: Worker, elapsed: timedelta, goal: WorkerGoal) -> str:
    """Status, conditions and the clock, on one line."""
    said = [f"{each.type.value}={each.status.value}" for each in worker.conditions if each.status != "True"]
    waits = f" ({', '.join(said)})" if said else ""
    return f"{format_elapsed(elapsed)}  {worker.name}  {worker_status_text(worker)}{waits}  waiting for {goal.what}"


class NamedResource(Protocol):
    """Something with a name that can be looked at again by its id."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def name(self) -> str:
        """Its name."""


ResourceT = TypeVar("ResourceT", bound=NamedResource)


@dataclass(frozen=True, slots=True)
class WaitTarget(Generic[ResourceT]):
    """What is waited for with one kind of thing, and how it is told."""

    look: Callable[[str], Awaitable[ResourceT]]
    met: Callable[[ResourceT], bool]
    hopeless: Callable[[ResourceT], str]
    progress_line: Callable[[ResourceT, timedelta], str]
    explain: Callable[[ResourceT], Awaitable[str]]
    goal: str


async def wait_until(
    session: Session, item: ResourceT, watched: WaitTarget[ResourceT], patience: timedelta
) -> tuple[ResourceT, timedelta]:
    """It as it is once it is so, and how long that took; else `CommandError` with the explanation."""
    began, line = clock.now(), _ProgressLine()
    while not watched.met(item):
        elapsed = clock.now() - began
        why = watched.hopeless(item)
        if not why and elapsed >= patience:
            why = f"{item.name} is not {watched.goal} after {format_duration(patience)}"
        if why:
            line.end()
            raise CommandError(f"{why}\n{await watched.explain(item)}")
        line.show(watched.progress_line(item, elapsed))
        await asyncio.sleep(_POLL_SECONDS)
        try:
            item = await watched.look(item.id)
        except (UnreachableError, ServiceUnavailableError):
            line.show(f"{format_elapsed(elapsed)}  {session.reach.url} does not answer; still trying")
    line.end()
    return item, clock.now() - began


async def wait_for_worker(session: Session, name: str, goal: WorkerGoal, patience: timedelta) -> None:
    """Return when it is so; else `CommandError` with the explanation."""

    async def explain(worker: Worker) -> str:
        return (await session.client.workers.explain(worker.id)).summary

    watched = WaitTarget(
        look=session.client.workers.get,
        met=goal.met,
        hopeless=goal.hopeless,
        progress_line=lambda worker, elapsed: progress_line(worker, elapsed, goal),
        explain=explain,
        goal=goal.what,
    )
    worker, elapsed = await wait_until(session, await find_worker(session.client, name), watched, patience)
    done = _done_message(goal, worker, elapsed)
    session.screen.one(worker, worker.name, lambda _: session.screen.say(done))


def _done_message(goal: WorkerGoal, worker: Worker, elapsed: timedelta) -> str:
    became = {READY: "is ready", LICENSE: "has its licence"}.get(goal.what, f"is {goal.what}")
    where = f" at {worker.public_ip}" if goal.what == READY and worker.public_ip else ""
    return f"{worker.name} {became}{where} after {format_duration(elapsed)}."


class _ProgressLine:
    """One line on standard error: it moves on a terminal; elsewhere each new state is a line of its own."""

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


async def wait_for_lablet(session: Session, name: str, goal: LabletStatus, patience: timedelta) -> None:
    """Return when it is so; else `CommandError` with what is known of it."""
    watched = WaitTarget(
        look=session.client.lablets.get,
        met=lambda lablet: lablet.status is goal,
        hopeless=lambda lablet: lablet_wait_failure(lablet, goal),
        progress_line=lambda lablet, elapsed: _lablet_progress_line(lablet, elapsed, goal),
        explain=_explain_lablet,
        goal=goal.value,
    )
    lablet, elapsed = await wait_until(session, await find_lablet(session.client, name), watched, patience)
    done = f"{lablet.name} is {lablet.status} after {format_duration(elapsed)}."
    session.screen.one(lablet, lablet.name, lambda _: session.screen.say(done))


def lablet_wait_failure(lablet: Lablet, goal: LabletStatus) -> str:
    """Why it will not be so by itself; empty while it may."""
    if lablet.status in FINAL_LABLET_STATUSES:
        return f"{lablet.name} is {lablet.status}"
    ends_otherwise = goal in FINAL_LABLET_STATUSES and lablet.ending is not None and lablet.ending is not goal
    if lablet.wanted and not ends_otherwise:
        return ""
    if goal is LabletStatus.STOPPING or (goal in FINAL_LABLET_STATUSES and not ends_otherwise):
        return ""
    return f"{lablet.name} is to end as {lablet.ending or LabletStatus.TERMINATED}"


def _lablet_progress_line(lablet: Lablet, elapsed: timedelta, goal: LabletStatus) -> str:
    notes = lablet_notes(lablet)
    said = f" ({notes})" if notes else ""
    return f"{format_elapsed(elapsed)}  {lablet.name}  {lablet_status_text(lablet)}{said}  waiting for {goal}"


async def _explain_lablet(lablet: Lablet) -> str:
    notes = lablet_notes(lablet)
    look = f"lcm lablets history {lablet.name} shows how it came"
    return f"{notes}\n{look}" if notes else look
