"""One watch stream: its messages become batches in order, without gaps or repeats, until the stream ends."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
from grpc.aio import AioRpcError

from lcm.coordination.etcd.errors import FailureKind, NotDoneError, classify_error, describe_error
from lcm.coordination.etcd.messages import EVENT_DELETE, key_to_text, new_message
from lcm.core.coordination import (
    CompactedError,
    CoordinationDeniedError,
    CoordinationError,
    EventKind,
    WatchBatch,
    WatchEvent,
    WatchLostError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lcm.coordination.etcd.connection import Connection, Metadata
    from lcm.coordination.etcd.endpoints import Endpoint


_DENIED_REASONS = (
    "permission denied",
    "PermissionDenied",
    "Unauthenticated",
    "invalid auth token",
    "user name is empty",
)


def raise_if_cancelled(message: Any, describe: Callable[[str], str]) -> None:
    """Raise the error for a watch that the server cancelled."""
    if not message.canceled:
        return
    if message.compact_revision:
        raise CompactedError(message.compact_revision)
    reason = message.cancel_reason or "no reason given"
    if any(words in reason for words in _DENIED_REASONS):
        raise CoordinationDeniedError(describe(f"watch denied: {reason}"))
    raise WatchLostError(describe(f"the server cancelled the watch: {reason}"))


class WatchCursor:
    """The next revision to deliver. It never goes back, and only messages of this watch advance it."""

    def __init__(self, next_revision: int) -> None:
        self._next = next_revision
        self._watch_id: int | None = None
        self._fragments: list[WatchEvent] = []

    def created(self, watch_id: int) -> None:
        """The server assigned this id to the watch."""
        self._watch_id = watch_id

    def take(self, message: Any) -> WatchBatch | None:
        """The batch that this message completes, if any."""
        # Responses to a progress request carry no watch id, and old servers send them ahead of older events.
        if message.watch_id != self._watch_id:
            return None
        if not message.events and not self._fragments and not message.fragment:
            return self._progress(message.header.revision)
        self._fragments.extend(
            _to_watch_event(event) for event in message.events if event.kv.mod_revision >= self._next
        )
        if message.fragment:
            return None
        events, self._fragments = tuple(self._fragments), []
        if not events:
            return None
        # The header's revision may be ahead of the events in the message, so it is not used here.
        self._next = events[-1].revision + 1
        return WatchBatch(events, events[-1].revision)

    def _progress(self, revision: int) -> WatchBatch | None:
        if revision + 1 < self._next:
            return None
        self._next = revision + 1
        return WatchBatch((), revision)


def _to_watch_event(event: Any) -> WatchEvent:
    kind = EventKind.DELETE if event.type == EVENT_DELETE else EventKind.PUT
    return WatchEvent(kind, key_to_text(event.kv.key), event.kv.value, event.kv.mod_revision)


# Batches buffered for a slow reader; beyond that we stop reading, and flow control makes the server wait.
_MAX_BUFFERED_BATCHES = 16

# After so many probes in a row without a response the stream counts as dead.
_MAX_UNANSWERED_PROBES = 3

_UNREACHABLE_CODES = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


class WatchStream:
    """One watch on one connection. Iterating yields its batches; it ends only with an exception.

    Two tasks of its own do all waiting on gRPC: gRPC reports a stream that we cancel as a cancellation of the task that
    waits for it, and that must never be the caller's task.
    """

    def __init__(self, endpoint: Endpoint, connection: Connection, metadata: Metadata, interval: float) -> None:
        self._endpoint = endpoint
        self._connection = connection
        self._metadata = metadata
        self._interval = interval
        self._opened = asyncio.Event()
        self._batch_arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._batches: deque[WatchBatch] = deque()
        self._unanswered = 0
        self._end: Exception | None = None
        self._reader: asyncio.Task[None] | None = None
        self._prober: asyncio.Task[None] | None = None

    async def open(self, key: bytes, range_end: bytes, revision: int, *, timeout: float) -> None:
        """Start the watch and wait for the server's confirmation."""
        create = new_message(
            "WatchCreateRequest",
            key=key,
            range_end=range_end,
            start_revision=revision,
            progress_notify=True,
            fragment=True,
        )
        loop = asyncio.get_running_loop()
        started = loop.time()
        self._reader = loop.create_task(self._read(create, revision))
        try:
            async with asyncio.timeout(timeout):
                await self._opened.wait()
        except TimeoutError:
            await self.close()
            raise self._unanswered_since(started) from None
        except BaseException:
            await self.close()
            raise
        if self._end is not None:
            await self.close()
            # Before the first batch this only means that this endpoint does not serve the watch: another may.
            raise NotDoneError(str(self._end)) if isinstance(self._end, WatchLostError) else self._end

    async def close(self) -> None:
        """End the stream here and on the server."""
        tasks = [task for task in (self._reader, self._prober) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    def __aiter__(self) -> AsyncIterator[WatchBatch]:
        return self

    async def __anext__(self) -> WatchBatch:
        while not self._batches:
            if self._end is not None:
                raise self._to_port_error(self._end)
            self._batch_arrived.clear()
            await self._batch_arrived.wait()
        self._has_room.set()
        return self._batches.popleft()

    async def _read(self, create: Any, revision: int) -> None:
        try:
            call = self._connection.stream("Watch", metadata=self._metadata, on_loss=self._cut)
        except NotDoneError as lost:
            self._end = lost
            self._opened.set()
            return
        cursor = WatchCursor(revision)
        try:
            # If the call has already ended, reading reports why.
            with suppress(asyncio.InvalidStateError):
                await call.write(new_message("WatchRequest", create_request=create))
            while True:
                message = await call.read()
                if message is grpc.aio.EOF:
                    raise WatchLostError(self._endpoint.describe("the server ended the watch"))
                self._unanswered = 0
                self._connection.record_received()
                # Before `created`: a denied watch is both created and cancelled.
                raise_if_cancelled(message, self._endpoint.describe)
                if message.created:
                    cursor.created(message.watch_id)
                    self._prober = asyncio.get_running_loop().create_task(self._probe(call, create.key))
                    self._opened.set()
                elif batch := cursor.take(message):
                    await self._hand_over(batch)
        except asyncio.CancelledError:
            self._end = WatchLostError(self._endpoint.describe(self._connection.lost or "the watch was closed"))
        except (AioRpcError, CoordinationError) as end:
            self._end = end
        finally:
            self._finish(call)

    async def _hand_over(self, batch: WatchBatch) -> None:
        while len(self._batches) >= _MAX_BUFFERED_BATCHES:
            self._has_room.clear()
            await self._has_room.wait()
        self._batches.append(batch)
        self._batch_arrived.set()

    def _finish(self, call: Any) -> None:
        # Cancelling notifies the server at once, and it drops its side of the watch.
        call.cancel()
        self._connection.release(self._cut)
        if self._prober is not None:
            self._prober.cancel()
        # Whatever happened, no caller may be left waiting.
        self._end = self._end or WatchLostError(self._endpoint.describe("the watch failed"))
        self._opened.set()
        self._batch_arrived.set()

    def _cut(self) -> None:
        """The connection was given up."""
        if self._reader is not None:
            self._reader.cancel()

    async def _probe(self, call: Any, key: bytes) -> None:
        """Make the server respond periodically; if it does not, give up the connection."""
        loop = asyncio.get_running_loop()
        while True:
            tick = loop.time() + self._interval
            if self._unanswered:
                await self._probe_by_read(key)
            await asyncio.sleep(tick - loop.time())
            if not self._has_room.is_set():
                # The silence is ours: our reader is behind.
                self._unanswered = 0
            elif self._unanswered >= _MAX_UNANSWERED_PROBES or not await self._request_progress(call):
                silence = loop.time() - self._connection.last_received_at
                self._endpoint.replace(self._connection, f"silent for {silence:.3g} s")
                return

    async def _request_progress(self, call: Any) -> bool:
        self._unanswered += 1
        try:
            async with asyncio.timeout(self._interval):
                await call.write(new_message("WatchRequest", progress_request=new_message("WatchProgressRequest")))
        except TimeoutError:
            return False
        except (AioRpcError, asyncio.InvalidStateError):
            # The stream has ended; the reader reports why.
            return True
        return True

    async def _probe_by_read(self, key: bytes) -> None:
        """Probe with a read of the server's local data.

        Newer servers do not respond to a progress request while a watch is before its first revision, as every watch
        from a fresh listing is until the next write.
        """
        request = new_message("RangeRequest", key=key, serializable=True, count_only=True)
        try:
            await self._connection.unary("Range", request, metadata=self._metadata, timeout=self._interval)
        except NotDoneError:
            return
        except AioRpcError as error:
            if error.code() in _UNREACHABLE_CODES:
                return
        self._unanswered = 0

    def _unanswered_since(self, started: float) -> NotDoneError:
        why = "no response to a watch in time"
        if self._connection.last_received_at < started:
            self._endpoint.replace(self._connection, why)
        else:
            self._endpoint.failed(why)
        return NotDoneError(self._endpoint.describe(why))

    def _to_port_error(self, end: Exception) -> Exception:
        if not isinstance(end, AioRpcError):
            return end
        text = self._endpoint.describe(describe_error(end))
        return CoordinationDeniedError(text) if classify_error(end) is FailureKind.DENIED else WatchLostError(text)
