"""The live view: keys select, filter and act, and every change needs confirmation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from lcm.cli.live.board import Board
from lcm.cli.live.screen import headline
from lcm.cli.live.terminal import (
    DOWN,
    END,
    ENTER,
    ERASE,
    ESCAPE,
    HOME,
    PAGE_DOWN,
    PAGE_UP,
    RESIZED,
    TAB,
    UP,
    parse_keys,
)
from lcm.core import clock
from tests.support.records.lablet_records import a_lablet, a_ready_worker
from tests.support.records.workers import a_worker


@pytest.fixture
def board() -> Board:
    made = Board()
    for number, (name, status) in enumerate((("beta", "STOPPED"), ("alpha", "RUNNING"), ("old", "TERMINATED"))):
        made.update(a_worker(id=f"w-{number}", name=name, status=status))
    return made


def names(board: Board) -> list[str]:
    return [row.name for row in board.visible()]


def press(board: Board, *keys: str) -> None:
    for key in keys:
        assert board.handle_key(key) is None


def test_sorted_by_name_without_terminated_workers(board: Board) -> None:
    assert names(board) == ["alpha", "beta"]
    assert board.selected is not None
    assert board.selected.name == "alpha"


def test_problems_come_first(board: Board) -> None:
    fleet: tuple[tuple[str, dict[str, Any]], ...] = (
        ("healthy", {}),
        ("drifted", {"drifted": True}),
        ("failed", {"status": "FAILED"}),
        ("resting", {"status": "STOPPED", "desired_status": "STOPPED"}),
    )
    for number, (name, changes) in enumerate(fleet):
        board.update(a_ready_worker(id=f"w-p{number}", name=name, **changes))
    assert names(board) == ["failed", "drifted", "alpha", "beta", "healthy", "resting"]
    board.update(a_ready_worker(id="w-p2", name="failed", version=2))
    assert names(board)[0] == "drifted", "it works again"
    assert board.problems == (1, 0)


def test_pages_of_a_large_fleet() -> None:
    board = Board(page_size=20)
    for number in range(100):
        board.update(a_ready_worker(id=f"w-{number}", name=f"class-{number:03}"))
    press(board, PAGE_DOWN, PAGE_DOWN, DOWN)
    assert board.place == 41
    press(board, PAGE_UP)
    assert board.place == 21
    press(board, END, PAGE_DOWN)
    assert board.place == 99
    press(board, *[PAGE_UP] * 9)
    assert board.place == 0
    press(board, END, HOME)
    board.update(a_worker(id="w-x", name="zulu", status="FAILED"))
    assert board.selected is not None
    assert board.selected.name == "zulu", "at home the first row stays selected, whichever it is"


def test_lablets_have_a_view_of_their_own(board: Board) -> None:
    now = clock.now()
    old = now - timedelta(days=2)
    board.update_lablet(a_lablet(id="l-1", name="runs", status="RUNNING", worker_id="w-1", status_since=now))
    board.update_lablet(a_lablet(id="l-2", name="fails", status="FAILED", status_since=now, owner="bob"))
    board.update_lablet(a_lablet(id="l-3", name="failed-long-ago", status="FAILED", status_since=old))
    board.update_lablet(a_lablet(id="l-4", name="over", status="EXPIRED", status_since=now))
    assert names(board) == ["alpha", "beta"]
    press(board, TAB)
    assert names(board) == ["fails", "runs"]
    press(board, "s")
    assert board.prompt() == "", "workers are started, not lablets"
    action = board.handle_key(ENTER)
    assert action is not None
    assert (action.name, action.worker, action.lablet and action.lablet.name) == ("explain", None, "fails")
    press(board, "/", *"alpha", ENTER)
    assert names(board) == ["runs"], "the worker is searched too"
    press(board, ESCAPE, "/", *"expired", ENTER)
    assert names(board) == ["over"]
    board.update_lablet(a_lablet(id="l-4", name="older", status="RUNNING", version=0))
    assert board.lablets["l-4"].name == "over"
    assert "1 problem, 2 workers, 0 ready, 1 lablets" in headline("here", board)
    press(board, ESCAPE, TAB)
    assert names(board) == ["alpha", "beta"]


def test_up_and_down_stop_at_the_ends(board: Board) -> None:
    press(board, DOWN, DOWN, DOWN)
    assert board.selected is not None
    assert board.selected.name == "beta"
    press(board, UP, UP, UP)
    assert board.selected.name == "alpha"


def test_the_selection_stays_with_its_worker(board: Board) -> None:
    press(board, DOWN)
    board.update(a_worker(id="w-9", name="aardvark"))
    assert board.selected is not None
    assert board.selected.name == "beta"


def test_filtering(board: Board) -> None:
    press(board, "/", *"stopped eu")
    assert names(board) == ["beta"]
    press(board, ERASE, ERASE, ERASE, ENTER)
    assert (board.filter, board.editing_filter) == ("stopped", False)
    press(board, ESCAPE)
    assert names(board) == ["alpha", "beta"]
    press(board, "/", *"terminated", ESCAPE)
    assert board.filter == ""
    press(board, "/", *"terminated", ENTER)
    assert names(board) == ["old"]


@pytest.mark.parametrize(("key", "verb"), [("s", "start"), ("p", "stop"), ("d", "drain")])
def test_a_change_needs_confirmation(board: Board, key: str, verb: str) -> None:
    press(board, key)
    assert "alpha" in board.prompt()
    press(board, RESIZED)
    assert board.prompt()
    press(board, "y", ENTER)
    assert (board.prompt(), board.message) == ("", "No changes made.")
    press(board, key, *"alphx", ESCAPE)
    assert (board.prompt(), board.message) == ("", "No changes made.")
    press(board, key, *"alphx", ERASE, "a")
    action = board.handle_key(ENTER)
    assert action is not None
    assert (action.name, action.worker and action.worker.name) == (verb, "alpha")


def test_explaining_covers_the_list_until_a_key(board: Board) -> None:
    action = board.handle_key("e")
    assert action is not None
    assert action.name == "explain"
    board.overlay = "why"
    press(board, "x")
    assert board.overlay == ""


def test_quitting(board: Board) -> None:
    action = board.handle_key("q")
    assert action is not None
    assert action.name == "quit"


def test_an_older_event_changes_nothing(board: Board) -> None:
    board.update(a_worker(id="w-1", name="alpha", status="STOPPING", version=7))
    board.update(a_worker(id="w-1", name="alpha", status="RUNNING", version=6))
    assert board.workers["w-1"].status == "STOPPING"


def test_an_empty_board_survives_all_keys() -> None:
    board = Board()
    for key in (UP, DOWN, PAGE_DOWN, END, HOME, "s", "e", ENTER, TAB, "s", "e", END, TAB, "y", "n", ESCAPE, RESIZED):
        press(board, key)
    assert board.selected is None


def test_keys() -> None:
    assert parse_keys("a\x1b[A\x1b[Bq") == ["a", UP, DOWN, "q"]
    assert parse_keys("\r\x7f\x1b") == [ENTER, ERASE, ESCAPE]
    assert parse_keys("\x1b[5~\x1b[6~\x1b[H\x1bOF\t") == [PAGE_UP, PAGE_DOWN, HOME, END, TAB]
    assert parse_keys("\x1b[3~x\x1b[1;5Cy\x1bOPz") == ["x", "y", "z"], "Delete, Ctrl-Right and F1 leave nothing behind"
    assert parse_keys("\x1b[Cx") == ["x"], "a key that means nothing here"
    assert parse_keys("\x00\x01") == []
