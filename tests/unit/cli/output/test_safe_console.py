"""Texts of others cannot control the terminal."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from lcm.cli.errors import print_error
from lcm.cli.output.printer import Printer
from lcm.cli.output.safe_console import SafeConsole
from lcm.cli.output.tables import Column
from lcm.cli.runtime.options import OutputFormat

if TYPE_CHECKING:
    import pytest

EVIL = "a\x1b[2Jb\x9b31mc\x07\u202ed"
CONTROLS = "\x1b\x9b\x07\u202e"


@dataclass
class Row:
    name: str


def shows(printer: Printer) -> None:
    printer.line(EVIL)
    printer.details([("reason", EVIL)])
    printer.table([Column("NAME", lambda row: row.name)], [Row(EVIL)])


def test_output_for_people_escapes_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    shows(Printer())
    text = capsys.readouterr().out
    assert not set(text) & set(CONTROLS)
    assert text.count("a\\x1b[2Jb") == 3


def test_a_terminal_gets_colours_but_no_codes_of_others() -> None:
    screen = io.StringIO()
    console = SafeConsole(file=screen, force_terminal=True, color_system="standard", width=200)
    console.print(Text(f"x {EVIL}", style="green"))
    text = screen.getvalue()
    assert text.startswith("\x1b[32m"), "its own codes stay"
    assert "\x1b[2J" not in text
    assert "\\x1b[2J" in text


def test_data_is_the_same_and_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    Printer(OutputFormat.JSON).data({"reason": EVIL, "name": "ä"})
    text = capsys.readouterr().out
    assert json.loads(text) == {"reason": EVIL, "name": "ä"}
    assert not set(text) & set(CONTROLS)
    Printer(OutputFormat.YAML).data({"reason": EVIL})
    assert not set(capsys.readouterr().out) & set(CONTROLS)


def test_errors_escape_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(EVIL, 1)
    assert not set(capsys.readouterr().err) & set(CONTROLS)
