"""Tables that fit the terminal: cells are cut, and less important columns are left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from lcm.cli.output.durations import local_times

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
    cut down to `min_width`, or with `wrap` continues on the next line. With `distinct` it is cut where the cells of
    the column are alike, so that different cells stay different.
    """

    title: str
    cell: Callable[[T], str]
    priority: int = 0
    min_width: int | None = None
    style: Callable[[T], str] | None = None
    wide_only: bool = False
    align_right: bool = False
    wrap: bool = False
    distinct: bool = False


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


def shorten(texts: Sequence[str], width: int) -> list[str]:
    """Cut texts to a width, so that those that differ still do where that is possible.

    Names of a class often begin alike (`class-000-seat-17`), or end alike. A cut at the end is tried first, then
    cuts in the middle, then a window from where the texts begin to differ. The cut that keeps most texts apart wins.
    """
    distinct, shared = len(set(texts)), _shared_start(texts, width)
    best: list[str] = []
    for head in (width - 1, 2 * width // 3, width // 2, width // 3, *range(width - 2, -1, -1), None):
        cut = [_cut(text, head, width, shared) for text in texts]
        if len(set(cut)) > len(set(best)):
            best = cut
        if len(set(cut)) == distinct:
            break
    return best


def _cut(text: str, head: int | None, width: int, shared: int) -> str:
    """Cut out the middle, so that `head` characters stay at the start; with None, cut off both ends."""
    if len(text) <= width:
        return text
    if head is None:
        return f"…{text[shared : shared + width - 2]}…"
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _shared_start(texts: Sequence[str], width: int) -> int:
    """How many characters the texts that do not fit begin with in common."""
    long = [text for text in texts if len(text) > width]
    first, last = min(long, default=""), max(long, default="")
    return next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))


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

    cells = [[local_times(column.cell(row)).replace("\n", " ") or _EMPTY_CELL for column in columns] for row in rows]
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
    for number, width in widths.items():
        if columns[number].distinct and width < natural[number]:
            for line, short in zip(cells, shorten([line[number] for line in cells], width), strict=True):
                line[number] = short
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
