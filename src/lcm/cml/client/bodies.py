"""What is kept of a response while it is received: all of it up to a limit, or only both ends of a long list."""

from __future__ import annotations

from collections import deque
from typing import Protocol


class TooLongError(Exception):
    """The response is longer than allowed; the message says how long it may be."""


class BodyBuffer(Protocol):
    """Collects the body of one response in bounded memory."""

    def add(self, chunk: bytes) -> None:
        """The next piece; raises TooLongError beyond the limit."""

    def first_bytes(self) -> bytes:
        """The beginning of the body, or all of it if it was kept."""


class WholeBody:
    """The whole body, of at most `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._body = bytearray()

    def add(self, chunk: bytes) -> None:
        self._body += chunk
        if len(self._body) > self._max_bytes:
            raise TooLongError(f"the response is longer than {self._max_bytes // 1024} KiB")

    def first_bytes(self) -> bytes:
        return bytes(self._body)


class BodyEnds:
    """The first and the last bytes of a body; what is between them is dropped."""

    def __init__(self, head_bytes: int, tail_bytes: int, max_bytes: int) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._max_bytes = max_bytes
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_length = 0
        self.received = 0

    def add(self, chunk: bytes) -> None:
        self.received += len(chunk)
        if self.received > self._max_bytes:
            raise TooLongError(f"the response is longer than {self._max_bytes // 1024**2} MiB")
        missing = self._head_bytes - len(self._head)
        if missing > 0:
            self._head += chunk[:missing]
            chunk = chunk[missing:]
        if chunk:
            self._tail.append(chunk)
            self._tail_length += len(chunk)
            while self._tail_length - len(self._tail[0]) >= self._tail_bytes:
                self._tail_length -= len(self._tail.popleft())

    def first_bytes(self) -> bytes:
        return bytes(self._head)

    @property
    def last_bytes(self) -> bytes:
        """What was kept after the first bytes."""
        return b"".join(self._tail)

    @property
    def kept_bytes(self) -> int:
        """How much was kept."""
        return len(self._head) + self._tail_length

    @property
    def complete(self) -> bool:
        """Whether nothing was dropped."""
        return self.kept_bytes == self.received
