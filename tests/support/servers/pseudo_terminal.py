"""A command in a pseudo-terminal, for typed input and visible output."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from typing import TYPE_CHECKING

from tests.support.servers.forked_lcm import fork_server

if TYPE_CHECKING:
    from collections.abc import Mapping

PATIENCE = 180.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>]")
_SCREEN_START = re.compile(r"\x1b\[H")


class PseudoTerminal:
    """One `lcm` command with its own terminal."""

    def __init__(self, *arguments: str, env: Mapping[str, str], columns: int = 100, lines: int = 30) -> None:
        self.raw = ""
        self._read_to = 0
        self._master, self._own_end = pty.openpty()
        self.resize(columns, lines)
        name = os.ttyname(self._own_end)
        self._process = fork_server().start(arguments, {**env, "TERM": "xterm-256color"}, terminal=name)
        self.pid = self._process.pid

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    @property
    def text(self) -> str:
        """All output, without colors and cursor movements."""
        return _CONTROL.sub("", self.raw).replace("\r\n", "\n")

    @property
    def picture(self) -> str:
        """The screen since it was last drawn from the top."""
        return _CONTROL.sub("", _SCREEN_START.split(self.raw)[-1]).replace("\r\n", "\n")

    def expect(self, words: str, patience: float = PATIENCE) -> str:
        """Wait until a text appears after the text of the previous wait."""
        deadline = time.monotonic() + patience
        while True:
            place = self.text.find(words, self._read_to)
            if place >= 0:
                self._read_to = place + len(words)
                return self.text
            assert time.monotonic() < deadline, f"{words!r} was not shown; there was:\n{self.text[-3000:]}"
            if not self._take(0.1) and self.ended:
                assert words in self.text[self._read_to :], f"it ended without {words!r}:\n{self.text[-3000:]}"

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def end(self, patience: float = PATIENCE) -> int:
        """Wait until it exits; returns the exit code."""
        deadline = time.monotonic() + patience
        while not self.ended:
            assert time.monotonic() < deadline, f"it does not end:\n{self.text[-3000:]}"
            self._take(0.05)
        while self._take(0.05):
            pass
        return self._process.wait(patience)

    def close(self) -> None:
        """End the process in any state."""
        if not self.ended:
            self._process.send_signal(signal.SIGKILL)
            self.end()
        os.close(self._master)
        os.close(self._own_end)

    def _take(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # the other side is closed
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)
