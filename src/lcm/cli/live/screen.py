"""The screen of `lcm watch`: the headline, a page of workers or lablets, and the keys."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, cast

from lcm.cli.live.board import HELP, WORKERS
from lcm.cli.output.lablet_views import lablet_columns
from lcm.cli.output.worker_views import worker_columns
from lcm.core import clock
from lcm.model.lablet.status import FINAL_LABLET_STATUSES
from lcm.model.worker.cost import fleet_cost

if TYPE_CHECKING:
    from lcm.cli.live.board import Board
    from lcm.cli.live.terminal import Terminal
    from lcm.cli.runtime.session import Session
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker

_HEADER_LINES, _FOOTER_LINES = 2, 2  # above and below the rows, without the headline and the message
_NOTHING = {
    True: "No workers. Create one: lcm workers create NAME --template small",
    False: "No lablets. Create one: lcm lablets create DEFINITION",
}


def draw(session: Session, board: Board, terminal: Terminal) -> None:
    """Draw the whole screen."""
    if board.overlay:
        terminal.draw(board.overlay)
        return
    printer = session.printer
    width, height = terminal.size
    # Whole, on as many lines as it takes: a prompt ends with what is being typed, an error with what to do.
    bottom = wrap(board.prompt() or board.message or _position(board), width, drop_whitespace=False) or [""]
    top = [headline(session.target.url, board)]
    if len(top[0]) > width:
        top = wrap(headline("", board), width)  # whole as well: a cost without its end would be another cost
    room = max(1, height - len(top) - _HEADER_LINES - _FOOTER_LINES - len(bottom))
    board.page_size = room
    with printer.console.capture() as page:
        for line in top:
            printer.line(line, style="bold")
        printer.line(_one_line(_connection_notice(board), width), style="bold red")
        _draw_rows(session, board, room)
        printer.line()
        for line in bottom:
            printer.line(line, style="bold yellow")
        typing = f"/{board.filter}▏  Enter applies it, Esc clears it"
        printer.line(_one_line(typing if board.editing_filter else HELP[board.view], width), style="dim")
    terminal.draw(page.get())


def _one_line(text: str, width: int) -> str:
    """Cut to the width: a second line would push the last one off the screen."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _draw_rows(session: Session, board: Board, room: int) -> None:
    rows, place = board.visible(), board.place
    first = max(0, min(place - room // 2, len(rows) - room))
    shown = rows[first : first + room]
    workers = board.view == WORKERS
    if not rows:
        session.printer.line(f"No matching {board.view}." if board.filter else _NOTHING[workers])
    elif workers:
        session.printer.table(worker_columns(clock.now()), cast("list[Worker]", shown), selected=place - first)
    else:
        lablets = cast("list[Lablet]", shown)
        session.printer.table(lablet_columns(clock.now(), board.workers), lablets, selected=place - first)


def _connection_notice(board: Board) -> str:
    if board.lost_at is None:
        return ""
    return f"No events since {board.lost_at:%H:%M:%S} UTC: this may be out of date. Trying again."


def _position(board: Board) -> str:
    """Which of the rows is selected, if they do not all fit."""
    total = len(board.visible())
    return f"{board.place + 1:,} of {total:,}" if total > board.page_size else ""


def headline(url: str, board: Board) -> str:
    """The fleet in numbers, problems first, and the control plane."""
    active = [worker for worker in board.workers.values() if worker.status != "TERMINATED"]
    ready = sum(worker.ready for worker in active)
    lablets = sum(each.status not in FINAL_LABLET_STATUSES for each in board.lablets.values())
    problems = sum(board.problems)
    parts = [
        f"{len(active):,} workers, {ready:,} ready",
        f"{lablets:,} lablets",
        str(fleet_cost(active, board.leaked_instances)),
    ]
    if problems:
        parts.insert(0, f"{problems:,} problem{'' if problems == 1 else 's'}")
    filter_text = f"   filter: {board.filter}" if board.filter and not board.editing_filter else ""
    return f"{', '.join(parts)}{filter_text}   {url}"
