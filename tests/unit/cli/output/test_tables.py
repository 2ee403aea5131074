"""Tables fit: the least important columns are dropped first, and cut cells are marked."""

from __future__ import annotations

from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lcm.cli.output.tables import COLUMN_GAP, Column, fit_columns, print_table, shorten


def test_all_is_shown_where_there_is_room() -> None:
    assert fit_columns([5, 7, 9], [0, 1, 2], [5, 7, 9], 25) == {0: 5, 1: 7, 2: 9}


def test_the_least_important_goes_first() -> None:
    assert fit_columns([5, 7, 9], [0, 2, 1], [5, 7, 9], 24) == {0: 5, 2: 9}


def test_cutting_comes_before_leaving_out() -> None:
    assert fit_columns([5, 40], [0, 1], [5, 10], 30) == {0: 5, 1: 23}


def test_what_must_stay_stays_even_where_it_does_not_fit() -> None:
    assert fit_columns([30, 30], [0, 0], [30, 30], 10) == {0: 30, 1: 30}


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 5), st.integers(1, 60)), min_size=1), st.integers(1, 200))
def test_it_fits_or_only_the_indispensable_is_left(columns: list[tuple[int, int, int]], room: int) -> None:
    natural, priorities, least = ([each[part] for each in columns] for part in range(3))
    widths = fit_columns(natural, priorities, least, room)
    total = sum(widths.values()) + COLUMN_GAP * (len(widths) - 1)
    assert total <= room or all(priorities[each] == 0 for each in widths)
    assert all(priorities[each] > 0 for each in range(len(columns)) if each not in widths)
    assert all(min(natural[each], least[each]) <= width <= natural[each] for each, width in widths.items())


@pytest.mark.parametrize("room", [12, 20, 40, None])
def test_a_printed_line_is_no_longer_than_the_room(room: int | None) -> None:
    out = StringIO()
    console = Console(file=out, width=room or 1000, highlight=False)
    columns: list[Column[str]] = [
        Column("NAME", lambda row: row, min_width=6),
        Column("TWICE", lambda row: row * 2, priority=1, min_width=5),
        Column("UPPER", lambda row: row.upper(), priority=2),
    ]
    print_table(console, columns, ["alphabetically", "b", "日本語のラボ"], room)
    from rich.cells import cell_len

    lines = out.getvalue().splitlines()
    assert len(lines) == 4
    if room is None:
        assert "alphabeticallyalphabetically" in lines[1]
    else:
        assert all(cell_len(line.rstrip()) <= room for line in lines)
        assert "…" in out.getvalue()


def test_brackets_are_text_and_a_missing_cell_is_a_dash() -> None:
    out = StringIO()
    print_table(Console(file=out, width=80), [Column("A", str)], ["[red]", "", "a\nb"], 80)
    assert [line.strip() for line in out.getvalue().splitlines()] == ["A", "[red]", "-", "a b"]


@pytest.mark.parametrize(
    ("names", "width", "cut"),
    [
        (["alpha", "beta"], 12, ["alpha", "beta"]),
        (["class-000-seat-17", "class-000-seat-18"], 12, ["class-00…-17", "class-00…-18"]),
        (["eu-metal-of-the-first-course", "us-metal-of-the-first-course"], 12, ["eu-metal-of…", "us-metal-of…"]),
        (["a" * 30 + "1" + "b" * 30, "a" * 30 + "2" + "b" * 30], 12, ["…1bbbbbbbbb…", "…2bbbbbbbbb…"]),
        (["short", "class-000-seat-17", "class-000-seat-17"], 12, ["short", "class-000-s…", "class-000-s…"]),
    ],
)
def test_names_are_cut_where_they_are_alike(names: list[str], width: int, cut: list[str]) -> None:
    assert shorten(names, width) == cut


def test_a_whole_class_stays_distinguishable_at_80_columns() -> None:
    names = [f"class-{course:03}-seat-{seat:02}-of-the-data-center-course" for course in (0, 1) for seat in range(20)]
    columns: list[Column[str]] = [
        Column("NAME", lambda name: name, min_width=12, distinct=True),
        Column("STATUS", lambda _: "PENDING_SCHEDULING"),
        Column("NOTES", lambda _: "no worker has enough memory for it, and none may be launched", min_width=16),
    ]
    output = StringIO()
    print_table(Console(file=output, width=80), columns, names, 80)
    lines = output.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert len({line.split()[0] for line in lines[1:]}) == len(names)
