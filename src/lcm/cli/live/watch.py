"""`lcm watch`: a live view of the fleet, from the event stream."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import make_command_group
from lcm.cli.runtime.session import Session
from lcm.core import clock
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from lcm.cli.live.board import Board, BoardAction
    from lcm.cli.live.terminal import Terminal
    from lcm.client import Event

app = make_command_group("Live view of the fleet, with keys for actions.")

_REDRAW_SECONDS = 1.0  # ages on the screen change too
_FIRST_REFRESH, _REFRESH_SECONDS = 1.0, 60.0
_ENDED_LABLETS = (LabletStatus.TERMINATED, LabletStatus.EXPIRED)


@command(app, retry=True)
async def watch(session: Session) -> None:
    """Live view of the fleet: drawn in place with keys for actions on a terminal, one line per change elsewhere.

    Problems come first. Keys: q quit, / filter, arrows, PageUp, PageDown, Home and End select, Tab shows lablets or
    workers, s start, p stop (pause), d drain, e explain. Changes ask for the name.
    """
    if session.printer.is_terminal and sys.stdin.isatty() and session.printer.for_people:
        await _watch_on_terminal(session)
    else:
        await _print_changes(session)


# On a terminal


async def _watch_on_terminal(session: Session) -> None:
    from lcm.cli.live.board import Board
    from lcm.cli.live.terminal import open_terminal

    board = Board()
    await read_all(session, board)
    changed = asyncio.Event()
    with open_terminal() as terminal:
        following = asyncio.create_task(_follow(session, board, changed))
        looking = asyncio.create_task(_refresh_periodically(session, board, changed))
        try:
            await _handle_keys(session, board, terminal, following, changed)
        finally:
            following.cancel()
            looking.cancel()
            await asyncio.wait([following, looking])


async def _handle_keys(
    session: Session, board: Board, terminal: Terminal, following: asyncio.Task[None], changed: asyncio.Event
) -> None:
    """Draw, then wait for a key, an event or the next tick."""
    from lcm.cli.live.board import QUIT
    from lcm.cli.live.screen import draw

    key: asyncio.Task[str] = asyncio.create_task(terminal.keys.get())
    try:
        while True:
            draw(session, board, terminal)
            changed.clear()
            change = asyncio.create_task(changed.wait())
            await asyncio.wait([key, change, following], timeout=_REDRAW_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            change.cancel()
            if following.done():
                following.result()
            if key.done():
                action = board.handle_key(key.result())
                key = asyncio.create_task(terminal.keys.get())
                if action is not None and action.name == QUIT:
                    return
                if action is not None:
                    await _perform(session, board, action)
    finally:
        key.cancel()


async def _perform(session: Session, board: Board, action: BoardAction) -> None:
    """Perform the action; an error is shown on the screen in the server's words."""
    from lcm.cli.commands.worker.actions import command_call
    from lcm.cli.live.board import EXPLAIN
    from lcm.cli.runtime.client_factory import describe_error
    from lcm.client import ClientError

    try:
        if action.name == EXPLAIN:
            board.overlay = await _explanation_text(session, action)
        elif action.worker is not None:
            worker = await command_call(session, action.name)(action.worker.id, None)
            board.update(worker)
            board.message = f"Desired state of {worker.name}: {worker.desired_status}."
    except ClientError as error:
        board.message = describe_error(error, session.target) or str(error)


async def _explanation_text(session: Session, action: BoardAction) -> str:
    from lcm.cli.output.lablet_views import show_lablet
    from lcm.cli.output.worker_views import show_explanation

    lablet, worker = action.lablet, action.worker
    access = None if lablet is None else await session.client.lablets.access(lablet.id)
    explanation = None if worker is None else await session.client.workers.explain(worker.id)
    with session.printer.console.capture() as page:
        if lablet is not None:
            show_lablet(session.printer, lablet, access)
        if worker is not None and explanation is not None:
            show_explanation(session.printer, worker.name, explanation)
        session.printer.line("\nPress any key to go back.", style="dim")
    return page.get()


async def read_all(session: Session, board: Board) -> None:
    """Read all that the board shows."""
    workers = {worker.id: worker async for worker in session.client.workers.list(page_size=500)}
    for worker in workers.values():
        board.update(worker)
    current = session.client.lablets.list(exclude_statuses=_ENDED_LABLETS, page_size=500)
    lablets = [lablet async for lablet in current]
    for lablet in lablets:
        board.update_lablet(lablet)
    board.leaked_instances = (await session.client.fleet.summary()).leaked_instances  # no event announces them


async def _refresh_periodically(session: Session, board: Board, changed: asyncio.Event) -> None:
    """Read everything again: soon, for events between the first read and the stream; later, as a safety net."""
    from lcm.client import ClientError

    pause = _FIRST_REFRESH
    while True:
        await asyncio.sleep(pause)
        with suppress(ClientError):  # the event stream reports the error
            await read_all(session, board)
        changed.set()
        pause = _REFRESH_SECONDS


async def _follow(session: Session, board: Board, changed: asyncio.Event) -> None:
    """Apply events to the board. After missed events, read everything again."""
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

    def on_connection(connected: bool) -> None:
        if connected == (board.lost_at is not None):
            board.lost_at = None if connected else clock.now()
            changed.set()

    topics = ["worker", "lablet"]
    async with aclosing(session.client.events.follow(topic=topics, on_connection=on_connection)) as events:
        async for event in events:
            if event.is_reset:
                await read_all(session, board)
            elif event.name == "worker":
                board.update(Worker.model_validate(event.data))
            elif event.name == "lablet":
                board.update_lablet(Lablet.model_validate(event.data))
            changed.set()


# Elsewhere


async def _print_changes(session: Session) -> None:
    """Print one line per status change, or with -o json one object per line. What is lost is said on stderr."""
    import json

    lost = False

    def on_connection(connected: bool) -> None:
        nonlocal lost
        if connected == lost:
            lost = not connected
            state = "connected again" if connected else "no connection; trying again"
            sys.stderr.write(f"lcm: {clock.now():%H:%M:%S} UTC  {state}\n")

    names = {worker.id: worker.name async for worker in session.client.workers.list(page_size=500)}
    topics = ["worker", "history"]
    async with aclosing(session.client.events.follow(topic=topics, on_connection=on_connection)) as events:
        async for event in events:
            if event.is_reset:
                names = {worker.id: worker.name async for worker in session.client.workers.list(page_size=500)}
            elif event.name == "worker":
                names[event.data["id"]] = event.data["name"]
            elif event.name == "history" and session.printer.for_people:
                await _print_step(session, names, event)
            elif event.name == "history":
                sys.stdout.write(json.dumps({**event.data, "name": names.get(event.data["worker_id"])}) + "\n")
            sys.stdout.flush()


async def _print_step(session: Session, names: dict[str, str], event: Event) -> None:
    from lcm.cli.output.durations import zone_name
    from lcm.model.audit import WorkerHistoryEntry

    step = WorkerHistoryEntry.model_validate(event.data)
    if step.worker_id not in names:
        names[step.worker_id] = (await session.client.workers.get(step.worker_id)).name
    came = f"{step.from_status} → {step.to_status}" if step.from_status else f"new: {step.to_status}"
    why = f": {step.reason}" if step.reason else ""
    at = f"{step.at.astimezone():%H:%M:%S} {zone_name(step.at)}"
    sys.stdout.write(f"{at}  {names[step.worker_id]}  {came}  by {step.actor.name}{why}\n")
