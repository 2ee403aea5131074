"""The text format of server-sent events: bytes in, however they are cut, and events out."""

from __future__ import annotations

from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"


class TooLong(Exception):
    """An event is longer than anybody would send."""


@dataclass(frozen=True, slots=True)
class Message:
    """One block of the stream: an event, or only a new place in it.

    `id` is the last one given, by this block or one before it; `placed` says whether it was this block.
    """

    id: str | None
    event: str
    data: str | None
    placed: bool = False


class Parser:
    """Reads one connection. `retry` is after how many seconds the server wants to be asked again, once it said so."""

    def __init__(self, largest: int = 1024 * 1024, last_id: str | None = None) -> None:
        self.retry: float | None = None
        self._largest = largest
        self._rest = bytearray()
        self._began = False
        self._after_cr = False
        self._id = last_id
        self._placed = False
        self._event = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[Message]:
        """What is complete with this chunk. A block that the connection ends in the middle of never happened."""
        found = []
        for line in self._lines(chunk):
            if line:
                self._field(line)
            else:
                found.append(self._dispatch())
        return found

    def forget(self) -> None:
        """The last id means nothing any more."""
        self._id = None

    def _lines(self, chunk: bytes) -> list[bytes]:
        """Complete lines; they end with CR, LF or both, and a chunk may end between the two."""
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        self._rest += chunk
        if not self._began:
            if len(self._rest) < len(_BOM) and _BOM.startswith(self._rest):
                return []
            self._began = True
            self._rest[:] = self._rest.removeprefix(_BOM)
        if b"\n" not in chunk and b"\r" not in chunk and len(self._rest) <= self._largest:
            return []
        self._after_cr = self._rest.endswith(b"\r")
        *lines, rest = bytes(self._rest).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        if len(rest) > self._largest:
            raise TooLong(f"a line is longer than {self._largest} bytes")
        self._rest = bytearray(rest)
        return lines

    def _field(self, line: bytes) -> None:
        self._size += len(line)
        if self._size > self._largest:
            raise TooLong(f"an event is longer than {self._largest} bytes")
        name, _, value = line.decode(errors="replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id, self._placed = value or None, True
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry = int(value) / 1000

    def _dispatch(self) -> Message:
        data = "\n".join(self._data) if self._data else None
        message = Message(self._id, self._event or "message", data, self._placed)
        self._placed, self._event, self._data, self._size = False, "", [], 0
        return message
