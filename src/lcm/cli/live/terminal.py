"""Full-screen terminal: single key input, the alternate screen, and restoration at the end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import termios
import tty
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END = "up", "down", "page up", "page down", "home", "end"
ENTER, ESCAPE, ERASE, TAB, RESIZED = "enter", "escape", "erase", "tab", "resized"
MOVES = frozenset({UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END})

_KEY_NAMES = {
    "\x1b[A": UP,
    "\x1bOA": UP,
    "\x1b[B": DOWN,
    "\x1bOB": DOWN,
    "\x1b[5~": PAGE_UP,
    "\x1b[6~": PAGE_DOWN,
    "\x1b[H": HOME,
    "\x1bOH": HOME,
    "\x1b[1~": HOME,
    "\x1b[F": END,
    "\x1bOF": END,
    "\x1b[4~": END,
    "\t": TAB,
    "\r": ENTER,
    "\n": ENTER,
    "\x7f": ERASE,
    "\b": ERASE,
    "\x1b": ESCAPE,
}
_UNSUPPORTED_KEY = re.compile(r"\x1b(?:\[[0-9;]*[ -/]*[@-~]|O.)")
_ENTER_SCREEN, _LEAVE_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def parse_keys(text: str) -> list[str]:
    """Parse pressed keys: letters, and names for other keys. Unknown keys are ignored."""
    keys = []
    while text:
        if text in ("\x1b[", "\x1bO"):
            break
        named = next((name for name in sorted(_KEY_NAMES, key=len, reverse=True) if text.startswith(name)), None)
        if named == "\x1b" and text[1:2] in ("[", "O"):
            unsupported = _UNSUPPORTED_KEY.match(text)
            text = text[unsupported.end() :] if unsupported else ""
            continue
        if named is not None:
            keys.append(_KEY_NAMES[named])
            text = text[len(named) :]
            continue
        if text[0].isprintable():
            keys.append(text[0])
        text = text[1:]
    return keys


class Terminal:
    """The screen and the keyboard."""

    def __init__(self) -> None:
        self.keys: asyncio.Queue[str] = asyncio.Queue()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        size = get_terminal_size()
        return size.columns, size.lines

    def draw(self, text: str) -> None:
        """Draw a whole screen at once, without flicker. Lines below the last row are dropped."""
        _, height = self.size
        lines = text.rstrip("\n").split("\n")[:height]
        sys.stdout.write(_HOME + f"{_CLEAR_LINE}\n".join(lines) + _CLEAR_LINE + _CLEAR_BELOW)
        sys.stdout.flush()

    def read(self) -> None:
        """Read pressed keys into the queue."""
        data = os.read(sys.stdin.fileno(), 1024)
        for key in parse_keys(data.decode(errors="ignore")):
            self.keys.put_nowait(key)


@contextmanager
def open_terminal() -> Iterator[Terminal]:
    """Switch to full-screen mode, and always restore the terminal. Ctrl-C still interrupts."""
    terminal = Terminal()
    loop = asyncio.get_running_loop()
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        sys.stdout.write(_ENTER_SCREEN)
        sys.stdout.flush()
        loop.add_reader(keyboard, terminal.read)
        loop.add_signal_handler(signal.SIGWINCH, lambda: terminal.keys.put_nowait(RESIZED))
        yield terminal
    finally:
        loop.remove_reader(keyboard)
        loop.remove_signal_handler(signal.SIGWINCH)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        sys.stdout.write(_LEAVE_SCREEN)
        sys.stdout.flush()
