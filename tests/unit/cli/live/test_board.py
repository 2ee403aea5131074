"""The live view: keys select, filter and act, and every change needs confirmation."""

from __future__ import annotations

import pytest

from lcm.cli.live.board import Board
from lcm.cli.live.terminal import DOWN, ENTER, ERASE, ESCAPE, RESIZED, UP, parse_keys
from tests.support.records.workers import a_worker


@pytest.fixture
def board() -> Board:
    made = Board()
    for number, (name, status) in enumerate((("beta", "STOPPED"), ("alpha", "RUNNING"), ("old", "TERMINATED"))):
        made.update(a_worker(id=f"w-{number}", name=name, status=status))
    return made


def names(board: Board) -> list[str]:
    return [worker.name for worker in board.visible()]


def press(board: Board, *keys: str) -> None:
    for key in keys:
        assert board.handle_key(key) is None


def test_sorted_by_name_without_terminated_workers(board: Board) -> None:
    assert names(board) == ["alpha", "beta"]
    assert board.selected is not None
    assert board.selected.name == "alpha"


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
    for key in (UP, DOWN, "s", "e", ENTER, "y", "n", ESCAPE, RESIZED):
        press(board, key)
    assert board.selected is None


def test_keys() -> None:
    assert parse_keys("a\x1b[A\x1b[Bq") == ["a", UP, DOWN, "q"]
    assert parse_keys("\r\x7f\x1b") == [ENTER, ERASE, ESCAPE]
    assert parse_keys("\x1b[Cx") == ["x"], "a key that means nothing here"
    assert parse_keys("\x00\x01") == []
