"""Tables that fit: columns that matter less go first, and what is still too long is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

T = TypeVar("T")

COLUMN_GAP = 2
_EMPTY_CELL = "-"


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column: what it shows, and how much it matters.

    Where there is no room those with the highest `rank` go first; 0 stays. A cell may be cut down to `least`,
    or with `wrap` goes on below.
    """

    title: str
    cell: Callable[[T], str]
    rank: int = 0
    least: int | None = None
    style: Callable[[T], str] | None = None
    wide: bool = False
    right: bool = False
    wrap: bool = False


def fit_columns(natural: Sequence[int], ranks: Sequence[int], least: Sequence[int], room: int) -> dict[int, int]:
    """Which columns are shown, and how wide. Cutting comes before leaving out."""
    shown = list(range(len(natural)))
    while True:
        gaps = COLUMN_GAP * (len(shown) - 1)
        narrowest = sum(min(natural[each], least[each]) for each in shown) + gaps
        droppable = [each for each in shown if ranks[each] > 0]
        if narrowest <= room or not droppable:
            return _shrink({each: natural[each] for each in shown}, least, room - gaps)
        shown.remove(max(droppable, key=lambda each: (ranks[each], each)))


def _shrink(widths: dict[int, int], least: Sequence[int], room: int) -> dict[int, int]:
    """The widest gives way first."""
    while sum(widths.values()) > room:
        able = [each for each in widths if widths[each] > least[each]]
        if not able:
            break
        widths[max(able, key=lambda each: (widths[each], each))] -= 1
    return widths


def print_table(
    console: Console, columns: Sequence[Column[T]], rows: Sequence[T], room: int | None, chosen: int | None = None
) -> None:
    """Write the table; `room` None: nothing is cut or left out. `chosen` is the row to be marked."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    cells = [[column.cell(row).replace("\n", " ") or _EMPTY_CELL for column in columns] for row in rows]
    natural = [
        max([len(column.title), *(cell_len(line[number]) for line in cells)]) for number, column in enumerate(columns)
    ]
    least = [
        width if column.least is None else max(column.least, len(column.title))
        for width, column in zip(natural, columns, strict=True)
    ]
    ranks = [column.rank for column in columns]
    widths = fit_columns(natural, ranks, least, room) if room is not None else dict(enumerate(natural))
    table = Table(box=None, pad_edge=False, padding=(0, COLUMN_GAP, 0, 0), header_style="bold", show_edge=False)
    last = max(widths)
    for number, width in widths.items():
        column = columns[number]
        # The last one needs no spaces after it: they would be copied along.
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            min_width=None if number == last and not column.right else width,
            max_width=width,
            no_wrap=not column.wrap,
            overflow="ellipsis",
        )
    for place, (row, line) in enumerate(zip(rows, cells, strict=True)):
        shown = [
            Text(line[number], style=style(row) if (style := columns[number].style) is not None else "")
            for number in widths
        ]
        table.add_row(*shown, style="reverse" if place == chosen else None)
    console.print(table, crop=False, soft_wrap=room is None)
