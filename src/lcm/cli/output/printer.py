"""Output of commands: tables and sentences for people, JSON and YAML for programs."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from lcm.cli.output.durations import local_times
from lcm.cli.output.tables import print_table
from lcm.cli.runtime.options import OutputFormat
from lcm.core.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pydantic import BaseModel
    from rich.console import Console, RenderableType

    from lcm.cli.output.tables import Column

T = TypeVar("T")
M = TypeVar("M", bound="BaseModel")

_UNLIMITED_WIDTH = 100_000
_TONE_STYLES = {"healthy": "green", "failed": "bold red", "unknown": "magenta", "inactive": "dim", "ending": "red"}


def status_style(status: str) -> str:
    """The colour of a status: green is healthy, red needs attention, yellow is in progress."""
    from lcm.model.worker.status import STATUSES, WorkerStatus

    if status not in WorkerStatus.__members__:
        return "yellow"
    return _TONE_STYLES.get(STATUSES[WorkerStatus(status)].tone.value, "yellow")


class Printer:
    """Writes to standard output in the requested format. Colours only on a terminal, and not with NO_COLOR."""

    def __init__(self, output_format: OutputFormat = OutputFormat.TABLE) -> None:
        self.format = output_format

    @property
    def for_people(self) -> bool:
        """Whether the output is for people."""
        return self.format in (OutputFormat.TABLE, OutputFormat.WIDE)

    @property
    def is_terminal(self) -> bool:
        """Whether standard output is a terminal."""
        return sys.stdout.isatty()

    @property
    def width(self) -> int | None:
        """The width of a line in characters; None if unlimited."""
        return None if self.console.width == _UNLIMITED_WIDTH else self.console.width

    @cached_property
    def console(self) -> Console:
        """The Rich console for output to people."""
        from lcm.cli.output.safe_console import SafeConsole

        console = SafeConsole(highlight=False, markup=False, emoji=False)
        if console.is_terminal and self.format is not OutputFormat.WIDE:
            return console
        return SafeConsole(highlight=False, markup=False, emoji=False, width=_UNLIMITED_WIDTH)

    def line(self, text: str = "", style: str = "") -> None:
        """Print a line for people, wrapped at words on a terminal. Its times are in the local zone."""
        self.console.print(local_times(text), style=style or None)

    def details(self, details: Sequence[tuple[str, str]], *, indent: int = 2) -> None:
        """Print names and values, one pair per line; long values are indented below their beginning."""
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, style="bold")
        grid.add_column(overflow="fold")
        for name, text in details:
            grid.add_row(name, Text(local_times(text)))
        self.renderable(Padding(grid, (0, 0, 0, indent), expand=False))

    def table(self, columns: Sequence[Column[T]], rows: Sequence[T], *, selected: int | None = None) -> None:
        """Print a table, at most as wide as the terminal."""
        shown = [column for column in columns if self.format is OutputFormat.WIDE or not column.wide_only]
        with self._without_trailing_spaces():
            print_table(self.console, shown, rows, self.width, selected)

    def renderable(self, renderable: RenderableType) -> None:
        """Print a Rich renderable."""
        with self._without_trailing_spaces():
            self.console.print(renderable)

    @contextmanager
    def _without_trailing_spaces(self) -> Iterator[None]:
        """Strip trailing spaces where the output is not a terminal, so that it can be compared and pasted."""
        if self.console.is_terminal:
            yield
            return
        with self.console.capture() as captured:
            yield
        lines = captured.get().rstrip("\n").split("\n")
        self.console.out("\n".join(line.rstrip() for line in lines), highlight=False)

    def data(self, value: Any) -> None:
        """Print data for programs, as YAML or JSON."""
        if self.format is OutputFormat.YAML:
            import yaml

            text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
            if not text.replace("\n", "").isprintable():
                text = yaml.safe_dump(value, sort_keys=False)  # with escapes for all but ASCII
            sys.stdout.write(text)
        else:
            # JSON escapes the characters below 32 by itself; the others are escaped the same way.
            sys.stdout.write(escape_for_json(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")

    def items(self, items: Sequence[M], columns: Sequence[Column[M]], name: Callable[[M], str], none: str) -> None:
        """Print a list in the requested format; `none` is the text for people if it is empty."""
        if self.format is OutputFormat.NAME:
            sys.stdout.write("".join(f"{escape_unprintable(name(item))}\n" for item in items))
        elif not self.for_people:
            self.data([to_json_data(item) for item in items])
        elif items:
            self.table(columns, items)
        else:
            self.line(none)

    def item(self, item: M, name: str, show: Callable[[M], None]) -> None:
        """Print one item in the requested format; `show` prints it for people."""
        if self.format is OutputFormat.NAME:
            sys.stdout.write(f"{escape_unprintable(name)}\n")
        elif self.for_people:
            show(item)
        else:
            self.data(to_json_data(item))


def escape_for_json(text: str) -> str:
    """JSON with escapes for what a terminal would act on: C1 controls, direction marks, and the like."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def to_json_data(item: BaseModel) -> Any:
    """The JSON data of a model."""
    return item.model_dump(mode="json", by_alias=True)
