"""`lcm watch` in a narrow terminal, and without a connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from lcm.cli.live.board import Board
from lcm.cli.live.screen import draw
from lcm.cli.live.watch import _follow, _print_changes
from lcm.cli.output.printer import Printer
from lcm.core import clock
from tests.support.records.lablet_records import a_ready_worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    import pytest

    from lcm.cli.live.terminal import Terminal
    from lcm.cli.runtime.session import Session

URL = "http://127.0.0.1:19080"


def screen(board: Board, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of the screen."""
    monkeypatch.setenv("COLUMNS", str(width))
    drawn: list[str] = []
    session = SimpleNamespace(printer=Printer(), target=SimpleNamespace(url=URL))
    terminal = SimpleNamespace(size=(width, 12), draw=drawn.append)
    draw(cast("Session", session), board, cast("Terminal", terminal))
    return [line.rstrip() for line in drawn[0].splitlines()]


def a_board() -> Board:
    board = Board(leaked_instances=2)
    for number in range(20):
        board.update(a_ready_worker(id=f"w-{number}", name=f"class-{number:03}"))
    return board


def test_the_cost_is_whole_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cost without its end would be another cost."""
    cost = "plus 22 instances without a known price"
    narrow, wide = screen(a_board(), 80, monkeypatch), screen(a_board(), 130, monkeypatch)
    assert wide[0].endswith(f"{cost}   {URL}")
    assert " ".join(narrow[:2]).endswith(cost)
    assert [len(narrow), len(wide)] == [12, 12]
    assert all(len(line) <= 80 for line in narrow[:2])
    assert narrow[-1].startswith("q quit")


async def test_without_a_connection_the_screen_says_of_when_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    board, changed = a_board(), asyncio.Event()

    async def follow(*, on_connection: Callable[[bool], None], **_: Any) -> AsyncGenerator[Any, None]:
        for connected in (True, False, False, True):
            await asyncio.sleep(10)
            on_connection(connected)
        yield SimpleNamespace(is_reset=False, name="other")

    session = SimpleNamespace(client=SimpleNamespace(events=SimpleNamespace(follow=follow)))
    task = asyncio.create_task(_follow(cast("Session", session), board, changed))
    await asyncio.sleep(15)
    assert "No events" not in "\n".join(screen(board, 80, monkeypatch))
    await asyncio.sleep(6)
    lost_at = f"{clock.now():%H:%M}"
    assert changed.is_set()
    await asyncio.sleep(10)
    lines = screen(board, 80, monkeypatch)
    [notice] = [line for line in lines if line.startswith(f"No events since {lost_at}")]
    assert notice.endswith(": this may be out of date. Trying again.")
    assert len(lines) == 12
    await task
    assert "No events" not in "\n".join(screen(board, 80, monkeypatch))


async def test_in_a_pipe_a_lost_connection_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    async def follow(*, on_connection: Callable[[bool], None], **_: Any) -> AsyncGenerator[Any, None]:
        for connected in (True, False, False, True):
            on_connection(connected)
        yield SimpleNamespace(is_reset=False, name="other")

    async def no_workers(**_: Any) -> AsyncGenerator[Any, None]:
        for worker in list[Any]():
            yield worker

    client = SimpleNamespace(events=SimpleNamespace(follow=follow), workers=SimpleNamespace(list=no_workers))
    await _print_changes(cast("Session", SimpleNamespace(client=client)))
    lines = [line.partition(" UTC  ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["no connection; trying again", "connected again"]


def test_an_error_is_whole_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end says what to do."""
    board = a_board()
    board.message = f"no control plane responds at {URL} (from context local): start one with lcm up, or lcm login URL"
    lines = screen(board, 80, monkeypatch)
    assert "".join(lines[-3:-1]).replace(" ", "") == board.message.replace(" ", "")
    assert (len(lines), lines[-1][:6]) == (12, "q quit")
