"""Tables that fit the terminal: cells are cut, and less important columns are left out."""

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
    """One column: its title, its cells and its priority.

    If space is limited, columns with the highest `priority` are left out first; 0 is always shown. A cell may be
    cut down to `min_width`, or with `wrap` continues on the next line.
    """

    title: str
    cell: Callable[[T], str]
    priority: int = 0
    min_width: int | None = None
    style: Callable[[T], str] | None = None
    wide_only: bool = False
    align_right: bool = False
    wrap: bool = False


def fit_columns(
    natural: Sequence[int], priorities: Sequence[int], min_widths: Sequence[int], max_width: int
) -> dict[int, int]:
    """The shown columns and their widths. Cells are cut before columns are left out."""
    shown = list(range(len(natural)))
    while True:
        gaps = COLUMN_GAP * (len(shown) - 1)
        narrowest = sum(min(natural[each], min_widths[each]) for each in shown) + gaps
        droppable = [each for each in shown if priorities[each] > 0]
        if narrowest <= max_width or not droppable:
            return _shrink({each: natural[each] for each in shown}, min_widths, max_width - gaps)
        shown.remove(max(droppable, key=lambda each: (priorities[each], each)))


def _shrink(widths: dict[int, int], min_widths: Sequence[int], max_width: int) -> dict[int, int]:
    """Shrink the widest column first."""
    while sum(widths.values()) > max_width:
        able = [each for each in widths if widths[each] > min_widths[each]]
        if not able:
            break
        widths[max(able, key=lambda each: (widths[each], each))] -= 1
    return widths


def print_table(
    console: Console,
    columns: Sequence[Column[T]],
    rows: Sequence[T],
    max_width: int | None,
    selected: int | None = None,
) -> None:
    """Print the table. With `max_width` None nothing is cut or left out. The row `selected` is highlighted."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    cells = [[column.cell(row).replace("\n", " ") or _EMPTY_CELL for column in columns] for row in rows]
    natural = [
        max([len(column.title), *(cell_len(line[number]) for line in cells)]) for number, column in enumerate(columns)
    ]
    min_widths = [
        width if column.min_width is None else max(column.min_width, len(column.title))
        for width, column in zip(natural, columns, strict=True)
    ]
    priorities = [column.priority for column in columns]
    widths = dict(enumerate(natural))
    if max_width is not None:
        widths = fit_columns(natural, priorities, min_widths, max_width)
    table = Table(box=None, pad_edge=False, padding=(0, COLUMN_GAP, 0, 0), header_style="bold", show_edge=False)
    last = max(widths)
    for number, width in widths.items():
        column = columns[number]
        # The last column gets no padding: it would be copied along.
        table.add_column(
            column.title,
            justify="right" if column.align_right else "left",
            min_width=None if number == last and not column.align_right else width,
            max_width=width,
            no_wrap=not column.wrap,
            overflow="ellipsis",
        )
    for place, (row, line) in enumerate(zip(rows, cells, strict=True)):
        shown = [
            Text(line[number], style=style(row) if (style := columns[number].style) is not None else "")
            for number in widths
        ]
        table.add_row(*shown, style="reverse" if place == selected else None)
    console.print(table, crop=False, soft_wrap=max_width is None)
