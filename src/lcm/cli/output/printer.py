"""What a command writes: tables and sentences for people, data for programs."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from lcm.cli.output.tables import print_table
from lcm.cli.runtime.options import OutputFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pydantic import BaseModel
    from rich.console import Console, RenderableType

    from lcm.cli.output.tables import Column

T = TypeVar("T")
M = TypeVar("M", bound="BaseModel")

_UNLIMITED_WIDTH = 100_000
_STATUS_STYLES = {
    "RUNNING": "green",
    "FAILED": "bold red",
    "UNKNOWN": "magenta",
    "STOPPED": "dim",
    "TERMINATED": "dim",
    "TERMINATING": "red",
}


def status_style(status: str) -> str:
    """The colour of a status: green where all is well, red where somebody is needed, yellow on the way."""
    return _STATUS_STYLES.get(status, "yellow")


class Printer:
    """Standard output in the form that was asked for. Colours only on a terminal, and not with NO_COLOR."""

    def __init__(self, form: OutputFormat = OutputFormat.TABLE) -> None:
        self.form = form

    @property
    def for_people(self) -> bool:
        """Whether a person reads it."""
        return self.form in (OutputFormat.TABLE, OutputFormat.WIDE)

    @property
    def is_terminal(self) -> bool:
        """Whether it can be drawn on."""
        return sys.stdout.isatty()

    @property
    def room(self) -> int | None:
        """How many characters fit on a line; None: as many as there are."""
        return None if self.console.width == _UNLIMITED_WIDTH else self.console.width

    @cached_property
    def console(self) -> Console:
        """Where people read."""
        from rich.console import Console

        to_json_data = Console(highlight=False, markup=False, emoji=False)
        if to_json_data.is_terminal and self.form is not OutputFormat.WIDE:
            return to_json_data
        return Console(highlight=False, markup=False, emoji=False, width=_UNLIMITED_WIDTH)

    def say(self, text: str = "", style: str = "") -> None:
        """A line for people, wrapped at words on a terminal."""
        self.console.print(text, style=style or None)

    def facts(self, facts: Sequence[tuple[str, str]], *, indent: int = 2) -> None:
        """Names and what is to be said of each, one below the other; long ones go on below their beginning."""
        from rich.padding import Padding
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, style="bold")
        grid.add_column(overflow="fold")
        for name, text in facts:
            grid.add_row(name, Text(text))
        self.tidy(Padding(grid, (0, 0, 0, indent), expand=False))

    def table(self, columns: Sequence[Column[T]], rows: Sequence[T], *, chosen: int | None = None) -> None:
        """Rows under titles, as wide as the terminal at most."""
        kept = [column for column in columns if self.form is OutputFormat.WIDE or not column.wide]
        with self._tidy():
            print_table(self.console, kept, rows, self.room, chosen)

    def tidy(self, drawn: RenderableType) -> None:
        """Something that Rich draws."""
        with self._tidy():
            self.console.print(drawn)

    @contextmanager
    def _tidy(self) -> Iterator[None]:
        """No spaces at the ends of lines where somebody may compare or paste them."""
        if self.console.is_terminal:
            yield
            return
        with self.console.capture() as captured:
            yield
        lines = captured.get().rstrip("\n").split("\n")
        self.console.out("\n".join(line.rstrip() for line in lines), highlight=False)

    def data(self, value: Any) -> None:
        """For programs."""
        if self.form is OutputFormat.YAML:
            import yaml

            sys.stdout.write(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
        else:
            sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def many(self, items: Sequence[M], columns: Sequence[Column[M]], name: Callable[[M], str], none: str) -> None:
        """A list in the form that was asked for; `none` is what people read where it is empty."""
        if self.form is OutputFormat.NAME:
            sys.stdout.write("".join(f"{name(item)}\n" for item in items))
        elif not self.for_people:
            self.data([to_json_data(item) for item in items])
        elif items:
            self.table(columns, items)
        else:
            self.say(none)

    def one(self, item: M, name: str, show: Callable[[M], None]) -> None:
        """One thing in the form that was asked for; `show` writes it for people."""
        if self.form is OutputFormat.NAME:
            sys.stdout.write(f"{name}\n")
        elif self.for_people:
            show(item)
        else:
            self.data(to_json_data(item))


def to_json_data(item: BaseModel) -> Any:
    """Data of the contract as JSON has it."""
    return item.model_dump(mode="json", by_alias=True)
