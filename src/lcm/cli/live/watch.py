"""`lcm watch`: the fleet live, from the event stream."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from lcm.cli.runtime.command import command
from lcm.cli.runtime.options import make_command_group
from lcm.cli.runtime.session import Session

if TYPE_CHECKING:
    from lcm.cli.live.board import Board, BoardAction
    from lcm.cli.live.terminal import Terminal
    from lcm.client import Event

app = make_command_group("The fleet live, with keys to act on it.")

_REDRAW_SECONDS = 1.0  # seconds: how old things are moves too
_FIRST_REFRESH, _REFRESH_SECONDS = 1.0, 60.0
_HEADER_LINES, _FOOTER_LINES = 2, 3  # lines above and below the workers


@command(app, patient=True)
async def watch(session: Session) -> None:
    """The fleet live. On a terminal it is drawn in place and keys act on it; elsewhere each change is a line.

    Keys: q quit, / filter, up and down choose, s start, p stop (pause), d drain, e explain. A change asks first.
    """
    if session.screen.is_terminal and sys.stdin.isatty() and session.screen.for_people:
        await _watch_on_terminal(session)
    else:
        await _print_changes(session)


# On a terminal


async def _watch_on_terminal(session: Session) -> None:
    from lcm.cli.live.board import Board
    from lcm.cli.live.terminal import open_terminal

    board = Board()
    await _read_all(session, board)
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
    """Draw, then wait for a key, a change or the next second."""
    from lcm.cli.live.board import QUIT

    key: asyncio.Task[str] = asyncio.create_task(terminal.keys.get())
    try:
        while True:
            _draw(session, board, terminal)
            changed.clear()
            change = asyncio.create_task(changed.wait())
            await asyncio.wait([key, change, following], timeout=_REDRAW_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            change.cancel()
            if following.done():
                following.result()
            if key.done():
                wish = board.press(key.result())
                key = asyncio.create_task(terminal.keys.get())
                if wish is not None and wish.what == QUIT:
                    return
                if wish is not None:
                    await _perform(session, board, wish)
    finally:
        key.cancel()


async def _perform(session: Session, board: Board, wish: BoardAction) -> None:
    """Do what was wished; a refusal is said on the screen, in the server's words."""
    from lcm.cli.commands.worker_actions import command_call
    from lcm.cli.live.board import EXPLAIN
    from lcm.cli.runtime.client_factory import describe_error
    from lcm.client import ClientError

    assert wish.worker is not None
    try:
        if wish.what == EXPLAIN:
            board.text = await _explanation_text(session, wish)
        else:
            worker = await command_call(session, wish.what)(wish.worker.id, None)
            board.put(worker)
            board.message = f"{worker.name} is wanted {worker.desired_status}."
    except ClientError as error:
        board.message = describe_error(error, session.reach) or str(error)


async def _explanation_text(session: Session, wish: BoardAction) -> str:
    from lcm.cli.output.worker_views import show_explanation

    assert wish.worker is not None
    told = await session.client.workers.explain(wish.worker.id)
    with session.screen.console.capture() as page:
        show_explanation(session.screen, wish.worker.name, told)
        session.screen.say("\nAny key goes back.", style="dim")
    return page.get()


def _draw(session: Session, board: Board, terminal: Terminal) -> None:
    from lcm.cli.live.board import HELP
    from lcm.cli.output.worker_views import worker_columns
    from lcm.core import clock

    if board.text:
        terminal.draw(board.text)
        return
    screen, rows = session.screen, board.visible()
    selected = board.selected
    place = next((number for number, worker in enumerate(rows) if selected and worker.id == selected.id), 0)
    room = max(1, terminal.size[1] - _HEADER_LINES - _FOOTER_LINES - 1)
    first = max(0, min(place - room // 2, len(rows) - room))
    with screen.console.capture() as page:
        screen.say(_headline(session, board), style="bold")
        screen.say()
        if rows:
            screen.table(worker_columns(clock.now()), rows[first : first + room], chosen=place - first)
        else:
            screen.say(
                "No worker fits." if board.filter else "No workers. Make one: lcm workers create NAME --template small"
            )
        screen.say()
        screen.say(board.question() or board.message, style="bold yellow")
        screen.say(f"/{board.filter}▏  Enter keeps it, Esc clears it" if board.typing else HELP, style="dim")
    terminal.draw(page.get())


def _headline(session: Session, board: Board) -> str:
    living = [worker for worker in board.workers.values() if worker.status != "TERMINATED"]
    ready = sum(worker.ready for worker in living)
    cost = sum(worker.cost_per_hour_usd or 0 for worker in living if worker.status in ("RUNNING", "DRAINING"))
    shown = f"   filter: {board.filter}" if board.filter and not board.typing else ""
    return f"{session.reach.url}   {len(living)} workers, {ready} ready, ${cost:.2f} an hour{shown}"


async def _read_all(session: Session, board: Board) -> None:
    found = {worker.id: worker async for worker in session.client.workers.list(page_size=500)}
    for worker in found.values():
        board.put(worker)


async def _refresh_periodically(session: Session, board: Board, changed: asyncio.Event) -> None:
    """What happened between the first look and the stream is seen by a second one; later ones are a safety net."""
    from lcm.client import ClientError

    pause = _FIRST_REFRESH
    while True:
        await asyncio.sleep(pause)
        with suppress(ClientError):  # the stream says what is wrong
            await _read_all(session, board)
        changed.set()
        pause = _REFRESH_SECONDS


async def _follow(session: Session, board: Board, changed: asyncio.Event) -> None:
    """Keep the picture as it is there. After events were missed it is read again."""
    from lcm.model.worker.record import Worker

    async with aclosing(session.client.events.follow(topic=["worker"])) as events:
        async for event in events:
            if event.is_reset:
                await _read_all(session, board)
            elif event.name == "worker":
                board.put(Worker.model_validate(event.data))
            changed.set()


# Elsewhere


async def _print_changes(session: Session) -> None:
    """A line a step, or with -o json an object a line, from now on."""
    import json

    names = {worker.id: worker.name async for worker in session.client.workers.list(page_size=500)}
    async with aclosing(session.client.events.follow(topic=["worker", "history"])) as events:
        async for event in events:
            if event.is_reset:
                names = {worker.id: worker.name async for worker in session.client.workers.list(page_size=500)}
            elif event.name == "worker":
                names[event.data["id"]] = event.data["name"]
            elif event.name == "history" and session.screen.for_people:
                await _print_step(session, names, event)
            elif event.name == "history":
                sys.stdout.write(json.dumps({**event.data, "name": names.get(event.data["worker_id"])}) + "\n")
            sys.stdout.flush()


async def _print_step(session: Session, names: dict[str, str], event: Event) -> None:
    from lcm.model.audit import WorkerHistoryEntry

    step = WorkerHistoryEntry.model_validate(event.data)
    if step.worker_id not in names:
        names[step.worker_id] = (await session.client.workers.get(step.worker_id)).name
    came = f"{step.from_status} → {step.to_status}" if step.from_status else f"new: {step.to_status}"
    why = f": {step.reason}" if step.reason else ""
    sys.stdout.write(f"{step.at:%H:%M:%S} UTC  {names[step.worker_id]}  {came}  by {step.actor.name}{why}\n")
