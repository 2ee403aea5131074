"""One connection to one etcd server: connecting, calling and closing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
from grpc.aio import AioRpcError

from lcm.coordination.etcd.errors import NotDoneError, describe_error, is_certificate_error
from lcm.coordination.etcd.messages import message_class, new_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lcm.coordination.etcd.config import EndpointAddress, EtcdConfig

Metadata = Sequence[tuple[str, str]]

MAX_MESSAGE_BYTES = 64 * 1024 * 1024

# A channel makes one attempt to connect: we schedule the next one, not gRPC.
_NO_AUTOMATIC_RECONNECT_MS = 3_600_000

_CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # etcd treats pings on an idle connection as an attack and closes it after the third.
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # Without this a dead peer is detected only after a minute, whatever the keepalive timeout is.
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # gRPC would repeat a write whose outcome is unknown.
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.initial_reconnect_backoff_ms", _NO_AUTOMATIC_RECONNECT_MS),
    ("grpc.min_reconnect_backoff_ms", _NO_AUTOMATIC_RECONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", _NO_AUTOMATIC_RECONNECT_MS),
)

_UNARY_METHODS = {
    "Range": "/etcdserverpb.KV/Range",
    "Put": "/etcdserverpb.KV/Put",
    "DeleteRange": "/etcdserverpb.KV/DeleteRange",
    "Txn": "/etcdserverpb.KV/Txn",
    "LeaseGrant": "/etcdserverpb.Lease/LeaseGrant",
    "LeaseRevoke": "/etcdserverpb.Lease/LeaseRevoke",
    "Authenticate": "/etcdserverpb.Auth/Authenticate",
}
_STREAM_METHODS = {
    "LeaseKeepAlive": "/etcdserverpb.Lease/LeaseKeepAlive",
    "Watch": "/etcdserverpb.Watch/Watch",
}


class Connection:
    """A channel that was ready once. Calls are started only while it still is."""

    def __init__(self, address: str, channel: grpc.aio.Channel) -> None:
        self.lost: str | None = None
        self._address = address
        self.last_received_at = asyncio.get_running_loop().time()
        self._channel = channel
        self._methods: dict[str, Any] = {}
        self._calls = 0
        self._unused = asyncio.Event()
        self._unused.set()
        self._on_loss: dict[Callable[[], object], None] = {}

    @property
    def ready(self) -> bool:
        """Whether a call started now would be sent at once."""
        return self.lost is None and self._channel.get_state() is grpc.ChannelConnectivity.READY

    async def unary(self, method: str, request: Any, *, metadata: Metadata, timeout: float) -> Any:
        """One request, one reply; `AioRpcError` as gRPC raises it."""
        self._begin_call()
        try:
            reply = await self._method(method)(request, metadata=metadata, timeout=timeout, wait_for_ready=False)
        finally:
            self._end_call()
        self.record_received()
        return reply

    async def exchange(self, method: str, request: Any, *, metadata: Metadata, timeout: float) -> Any:
        """One request and one reply of a streaming method; None if the stream ended without a reply."""
        self._begin_call()
        call = self._method(method)(metadata=metadata, timeout=timeout, wait_for_ready=False)
        try:
            # If the call has already ended, reading reports why.
            with suppress(asyncio.InvalidStateError):
                await call.write(request)
            reply = await call.read()
        finally:
            call.cancel()
            self._end_call()
        self.record_received()
        return None if reply is grpc.aio.EOF else reply

    def stream(self, method: str, *, metadata: Metadata, on_loss: Callable[[], object]) -> Any:
        """An open-ended stream; `on_loss` is called if the connection is given up. Call `release` when done."""
        self._begin_call()
        self._on_loss[on_loss] = None
        return self._method(method)(metadata=metadata, wait_for_ready=False)

    def release(self, on_loss: Callable[[], object]) -> None:
        """The stream opened with `on_loss` has ended."""
        del self._on_loss[on_loss]
        self._end_call()

    def record_received(self) -> None:
        """Record that something was received from the server."""
        self.last_received_at = asyncio.get_running_loop().time()

    def give_up(self, why: str) -> None:
        """Start no more calls and end the streams; `close` closes the channel."""
        if self.lost is None:
            self.lost = why
            for on_loss in list(self._on_loss):
                on_loss()

    async def close(self) -> None:
        """Let running calls end or meet their deadlines, then close.

        Closing at once would cancel the calls, and gRPC reports that to their callers as their own cancellation.
        """
        await self._unused.wait()
        await self._channel.close()

    def _begin_call(self) -> None:
        # Given up after the caller got it: a new call would delay the closing, a stream would prevent it.
        if self.lost is not None:
            raise NotDoneError(f"etcd {self._address}: {self.lost}")
        self._calls += 1
        self._unused.clear()

    def _end_call(self) -> None:
        self._calls -= 1
        if self._calls == 0:
            self._unused.set()

    def _method(self, name: str) -> Any:
        if name not in self._methods:
            make: Any = self._channel.unary_unary if name in _UNARY_METHODS else self._channel.stream_stream
            self._methods[name] = make(
                _UNARY_METHODS.get(name) or _STREAM_METHODS[name],
                request_serializer=message_class(f"{name}Request").SerializeToString,
                response_deserializer=message_class(f"{name}Response").FromString,
            )
        return self._methods[name]


async def dial(address: EndpointAddress, config: EtcdConfig) -> Connection:
    """Make exactly one attempt to connect; raises `NotDoneError` with the reason if it fails."""
    channel = _new_channel(address, config)
    try:
        async with asyncio.timeout(config.call_timeout):
            await _wait_until_ready(channel, tls=address.tls)
    except TimeoutError:
        await channel.close()
        raise NotDoneError(f"connecting took longer than {config.call_timeout:g} s") from None
    except BaseException:
        await channel.close()
        raise
    return Connection(address.text, channel)


async def _wait_until_ready(channel: grpc.aio.Channel, *, tls: bool) -> None:
    state = channel.get_state(try_to_connect=True)
    attempted = False
    while state is not grpc.ChannelConnectivity.READY:
        # Idle after the attempt: it connected and was closed. Continuing would be a second attempt.
        if attempted and state is not grpc.ChannelConnectivity.CONNECTING:
            raise await _connect_error(channel, state, tls=tls)
        await channel.wait_for_state_change(state)
        attempted = True
        state = channel.get_state()


async def _connect_error(channel: grpc.aio.Channel, state: grpc.ChannelConnectivity, *, tls: bool) -> NotDoneError:
    """gRPC reports the reason only to a call: make one, which fails at once without being sent."""
    closed = NotDoneError("the server closed the connection")
    if state is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
        return closed
    probe = channel.unary_unary(
        _UNARY_METHODS["Range"],
        request_serializer=message_class("RangeRequest").SerializeToString,
        response_deserializer=message_class("RangeResponse").FromString,
    )
    try:
        await probe(new_message("RangeRequest"), timeout=1.0, wait_for_ready=False)
    except AioRpcError as error:
        why = describe_error(error)
        # A server that requires TLS closes a plain-text connection.
        hint = " (does it require TLS?)" if why == str(closed) and not tls else ""
        return NotDoneError(why + hint, denied=is_certificate_error(error))
    return closed


def _new_channel(address: EndpointAddress, config: EtcdConfig) -> grpc.aio.Channel:
    target = f"dns:///{address.text}"
    if not address.tls:
        return grpc.aio.insecure_channel(target, options=_CHANNEL_OPTIONS)
    # Read for every connection, so that renewed certificates are used without a restart.
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_read_file("CA", config.ca_file),
        private_key=_read_file("client key", config.key_file),
        certificate_chain=_read_file("client certificate", config.cert_file),
    )
    return grpc.aio.secure_channel(target, credentials, options=_CHANNEL_OPTIONS)


def _read_file(what: str, path: Path | None) -> bytes | None:
    try:
        return path.read_bytes() if path else None
    except OSError as error:
        raise NotDoneError(f"cannot read the {what} file {path}: {error.strerror}", denied=True) from error
