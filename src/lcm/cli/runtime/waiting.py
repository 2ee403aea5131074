"""Waiting for a worker: a line that moves on a terminal, a line a change elsewhere, and why if it will not be."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from lcm.cli.errors import CommandError, WrongUsage
from lcm.cli.output.durations import short, ticking
from lcm.cli.output.worker_views import status_words
from lcm.cli.runtime.lookup import find_worker
from lcm.client.errors import Unavailable, Unreachable
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

    from lcm.cli.runtime.session import Session
    from lcm.model.worker.record import Worker

READY, LICENSE = "ready", "license"
_EVERY = 1.0
_FAILED_TOO = ("FAILED", "TERMINATED")


@dataclass(frozen=True, slots=True)
class Goal:
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
        if worker.status.value in _FAILED_TOO and worker.status.value != self.what:
            wanted = worker.desired_status == "TERMINATED" and self.what == "TERMINATED"
            return "" if wanted else f"{worker.name} is {worker.status}"
        if self.what == LICENSE and worker.license_status == "failed":
            return f"CML refused the licence of {worker.name}"
        if self.what == READY and worker.desired_status != "RUNNING":
            return f"{worker.name} is wanted {worker.desired_status}"
        return ""


def goal_of(text: str) -> Goal:
    """What `--for` names, in any case; both spellings of licence."""
    from lcm.model.worker.status import WorkerStatus

    plain = text.strip().lower()
    if plain in (READY, LICENSE):
        return Goal(plain)
    if plain in ("licence", "licensed", "licenced"):
        return Goal(LICENSE)
    try:
        return Goal(WorkerStatus(plain).value)
    except ValueError:
        statuses = ", ".join(status.value.lower() for status in WorkerStatus)
        raise WrongUsage(f"--for {text!r}: must be ready, license, or one of {statuses}") from None


def progress(worker: Worker, elapsed: timedelta, goal: Goal) -> str:
    """Status, conditions and the clock, on one line."""
    said = [f"{each.type.value}={each.status.value}" for each in worker.conditions if each.status != "True"]
    waits = f" ({', '.join(said)})" if said else ""
    return f"{ticking(elapsed)}  {worker.name}  {status_words(worker)}{waits}  waiting for {goal.what}"


class Named(Protocol):
    """Something with a name that can be looked at again by its id."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def name(self) -> str:
        """Its name."""


N = TypeVar("N", bound=Named)


@dataclass(frozen=True, slots=True)
class Watched(Generic[N]):
    """What is waited for with one kind of thing, and how it is told."""

    look: Callable[[str], Awaitable[N]]
    met: Callable[[N], bool]
    hopeless: Callable[[N], str]
    progress: Callable[[N, timedelta], str]
    explain: Callable[[N], Awaitable[str]]
    goal: str


async def wait_until(session: Session, item: N, watched: Watched[N], patience: timedelta) -> tuple[N, timedelta]:
    """It as it is once it is so, and how long that took; else `CommandError` with the explanation."""
    began, line = clock.now(), _Line()
    while not watched.met(item):
        elapsed = clock.now() - began
        why = watched.hopeless(item)
        if not why and elapsed >= patience:
            why = f"{item.name} is not {watched.goal} after {short(patience)}"
        if why:
            line.end()
            raise CommandError(f"{why}\n{await watched.explain(item)}")
        line.show(watched.progress(item, elapsed))
        await asyncio.sleep(_EVERY)
        try:
            item = await watched.look(item.id)
        except (Unreachable, Unavailable):
            line.show(f"{ticking(elapsed)}  {session.reach.url} does not answer; still trying")
    line.end()
    return item, clock.now() - began


async def wait_for(session: Session, name: str, goal: Goal, patience: timedelta) -> None:
    """Return when it is so; else `CommandError` with the explanation."""

    async def explain(worker: Worker) -> str:
        return (await session.client.workers.explain(worker.id)).summary

    watched = Watched(
        look=session.client.workers.get,
        met=goal.met,
        hopeless=goal.hopeless,
        progress=lambda worker, elapsed: progress(worker, elapsed, goal),
        explain=explain,
        goal=goal.what,
    )
    worker, elapsed = await wait_until(session, await find_worker(session.client, name), watched, patience)
    done = _done(goal, worker, elapsed)
    session.screen.one(worker, worker.name, lambda _: session.screen.say(done))


def _done(goal: Goal, worker: Worker, elapsed: timedelta) -> str:
    became = {READY: "is ready", LICENSE: "has its licence"}.get(goal.what, f"is {goal.what}")
    where = f" at {worker.public_ip}" if goal.what == READY and worker.public_ip else ""
    return f"{worker.name} {became}{where} after {short(elapsed)}."


class _Line:
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
