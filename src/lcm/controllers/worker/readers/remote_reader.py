"""The leader's connection to another replica that reads for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from lcm.controllers.worker.readers.messages import InvalidMessageError, check_result, decode_result, encode_requests
from lcm.controllers.worker.readers.routes import READ_PATH, SIGN_OF_LIFE_SECONDS
from lcm.core.hosting import cancel_and_wait
from lcm.http.transport import HttpRequest, HttpTransportError

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from lcm.controllers.worker.readers.directory import Reader
    from lcm.controllers.worker.readers.messages import AnyRequest, ReadResult
    from lcm.http.transport import HttpResponse, HttpTransport

log = structlog.get_logger(__name__)

CONNECT_SECONDS: Final = 3.0
SILENCE_SECONDS: Final = 3 * SIGN_OF_LIFE_SECONDS
"""A reader that was silent for longer counts as lost: it sends a sign of life every two seconds."""
GATHER_SECONDS: Final = 0.02
MAX_BATCH: Final = 50
_MAX_LINE_BYTES: Final = 16 * 1024 * 1024


class ReaderUnavailableError(Exception):
    """The reader did not read what it was sent. Another one can."""


class RemoteReader:
    """Sends reads to one replica, some together; each result is used as soon as it is there."""

    def __init__(self, reader: Reader, http: HttpTransport, authorization: str, tls: ssl.SSLContext | None) -> None:
        self.reader = reader
        self._http = http
        self._headers = {"Authorization": authorization, "Content-Type": "application/json", "User-Agent": "lcm"}
        self._tls = tls
        self._number = 0
        self._gathered: list[AnyRequest] = []
        self._timer: asyncio.TimerHandle | None = None
        self._pending: dict[int, tuple[AnyRequest, asyncio.Future[ReadResult]]] = {}
        self._exchanges: set[asyncio.Task[None]] = set()

    async def read(self, request: AnyRequest) -> ReadResult:
        """The result of one read; raises `ReaderUnavailableError` if the replica is lost before it came."""
        self._number += 1
        request = replace(request, number=self._number)
        result: asyncio.Future[ReadResult] = asyncio.get_running_loop().create_future()
        self._pending[request.number] = request, result
        self._gathered.append(request)
        if len(self._gathered) >= MAX_BATCH:
            self._send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GATHER_SECONDS, self._send)
        try:
            return await result
        finally:
            del self._pending[request.number]

    async def close(self) -> None:
        """End all exchanges; reads that wait are unavailable."""
        if self._timer is not None:
            self._timer.cancel()
        self._fail(list(self._pending), "this replica stops")
        await cancel_and_wait(list(self._exchanges))

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Nobody waits any more for those whose caller has gone.
        requests = [request for request in self._gathered if request.number in self._pending]
        self._gathered = []
        if requests:
            task = asyncio.create_task(self._exchange(requests), name=f"reader:{self.reader.instance_id}")
            self._exchanges.add(task)
            task.add_done_callback(self._exchanges.discard)

    async def _exchange(self, requests: list[AnyRequest]) -> None:
        numbers = [request.number for request in requests]
        reason = "it ended its response early"
        try:
            response = await self._http.send(
                HttpRequest(
                    "POST",
                    self.reader.url.rstrip("/") + READ_PATH,
                    self._headers,
                    encode_requests(requests),
                    connect_seconds=CONNECT_SECONDS,
                    read_seconds=SILENCE_SECONDS,
                    tls=self._tls,
                )
            )
            try:
                if response.status == 200:
                    async for line in _lines(response):
                        self._take(decode_result(line))
                else:
                    reason = f"HTTP {response.status}"
            finally:
                await response.aclose()
        except (HttpTransportError, InvalidMessageError, OSError) as error:
            reason = f"{type(error).__name__}: {error}"
        finally:
            self._fail(numbers, reason)

    def _take(self, result: ReadResult) -> None:
        request, waiting = self._pending.get(result.number, (None, None))
        if request is not None and waiting is not None and not waiting.done():
            check_result(request, result)
            waiting.set_result(result)

    def _fail(self, numbers: list[int], reason: str) -> None:
        for number in numbers:
            _, waiting = self._pending.get(number, (None, None))
            if waiting is not None and not waiting.done():
                waiting.set_exception(ReaderUnavailableError(reason))


async def _lines(response: HttpResponse) -> AsyncIterator[bytes]:
    """The lines of a response, without the signs of life."""
    rest = bytearray()
    async for chunk in response.chunks():
        rest += chunk
        *lines, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        if len(rest) > _MAX_LINE_BYTES:
            raise InvalidMessageError(f"a line is longer than {_MAX_LINE_BYTES} bytes")
        for line in lines:
            if line:
                yield line
