"""A minimal HTTP client: it must cost next to nothing, as the server is measured."""

from __future__ import annotations

import asyncio

_LARGEST = 16 * 1024 * 1024  # a response is read at once: a smaller buffer would pause the socket


def head(method: str, path: str, token: str, *, length: int = 0, headers: str = "") -> bytes:
    """The head of a request on a keep-alive connection. Each of `headers` ends with CRLF."""
    body = f"Content-Type: application/json\r\nContent-Length: {length}\r\n" if length else ""
    text = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n{headers}{body}\r\n"
    return text.encode()


class Connection:
    """A keep-alive connection; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader = reader
        self._writer = writer
        self._token = token

    @classmethod
    async def to(cls, port: int, token: str) -> Connection:
        """Open a connection."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=_LARGEST), token)

    async def ask(self, method: str, path: str, body: bytes = b"", *, headers: str = "") -> bytes:
        """Send a request and return the response body; the status must be a success."""
        self._writer.write(head(method, path, self._token, length=len(body), headers=headers) + body)
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.lower().startswith(b"content-length:"))
        answer = await self._reader.readexactly(length)
        assert status.split()[1].startswith(b"2"), (status, answer)
        return answer

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()
        await self._writer.wait_closed()
