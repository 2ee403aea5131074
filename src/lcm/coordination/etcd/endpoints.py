"""The servers of one cluster: which to try first, when to reconnect, and which are down."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from lcm.coordination.etcd.connection import Connection, dial
from lcm.coordination.etcd.errors import NotDoneError

if TYPE_CHECKING:
    from lcm.coordination.etcd.config import EndpointAddress, EtcdConfig

log = structlog.get_logger(__name__)

# Seconds between attempts to connect to an endpoint that is down, whatever the number of callers.
REDIAL_INTERVAL = 1.0


class Endpoint:
    """One server, and the one connection to it."""

    def __init__(self, address: EndpointAddress, config: EtcdConfig) -> None:
        self.address = address.text
        self.connections = 0
        self.down: bool = False
        self._config = config
        self._dial_to = address
        self._current: Connection | None = None
        self._dialling: asyncio.Task[Connection | NotDoneError] | None = None
        self._next_attempt = 0.0
        self._last_error = NotDoneError("not tried yet")
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def ready(self) -> bool:
        """Whether a call can be sent without connecting first."""
        return self._current is not None and self._current.ready

    async def connection(self, wait: float) -> Connection:
        """The connection, made within `wait` seconds if needed; `NotDoneError` at once if it is too early to dial."""
        current = self._current
        if current is not None:
            if current.ready:
                return current
            self._drop(current, "the server closed the connection")
        if self._dialling is None:
            self._begin_to_dial()
        dialling = self._dialling
        if dialling is None:
            self.failed(str(self._last_error))
            raise self._named(self._last_error)
        # Shared by all callers; one that is cancelled or times out does not end it for the others.
        await asyncio.wait({dialling}, timeout=wait)
        if not dialling.done():
            why = f"still connecting after {wait:.3g} s"
            self.failed(why)
            raise NotDoneError(self.describe(why))
        result = NotDoneError("closed") if dialling.cancelled() else dialling.result()
        if isinstance(result, NotDoneError):
            raise self._named(result)
        return result

    def replace(self, connection: Connection, why: str) -> None:
        """Give up a connection that no longer responds; the next call connects again."""
        self._drop(connection, why)
        self.failed(why)

    def responded(self) -> None:
        """A call was served."""
        if self.down:
            self.down = False
            log.info("etcd endpoint responds again", endpoint=self.address)

    def failed(self, why: str) -> None:
        """A call was not served; logged once, until a call is served again."""
        if not self.down:
            self.down = True
            log.warning("etcd endpoint does not respond", endpoint=self.address, error=why)

    def note_failed_dial(self, connection: Connection, why: str) -> None:
        """gRPC tried to connect for a call and failed: that counts as the attempt of this interval."""
        self._next_attempt = asyncio.get_running_loop().time() + REDIAL_INTERVAL
        self._drop(connection, why)

    def describe(self, why: str) -> str:
        """`why`, prefixed with the endpoint."""
        return f"etcd {self.address}: {why}"

    async def close(self) -> None:
        """End the streams, wait for running calls, and close."""
        self._closed = True
        if self._dialling is not None:
            self._dialling.cancel()
            await asyncio.wait({self._dialling})
        if self._current is not None:
            self._drop(self._current, "closed")
        if self._closing:
            await asyncio.wait(self._closing)

    def _begin_to_dial(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._closed:
            self._last_error = NotDoneError("closed")
        elif now >= self._next_attempt:
            self._next_attempt = now + REDIAL_INTERVAL
            self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> Connection | NotDoneError:
        try:
            self._current = await dial(self._dial_to, self._config)
        except NotDoneError as why:
            self._last_error = why
            self.failed(str(why))
            return why
        finally:
            self._dialling = None
        self.connections += 1
        return self._current

    def _drop(self, connection: Connection, why: str) -> None:
        # Several streams may report the same connection as dead: only the first report counts.
        if self._current is connection:
            self._current = None
            self._last_error = NotDoneError(why)
            connection.give_up(why)
            task = asyncio.get_running_loop().create_task(connection.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _named(self, error: NotDoneError) -> NotDoneError:
        return NotDoneError(self.describe(str(error)), denied=error.denied)


class Endpoints:
    """All servers of the cluster, in the order in which to try them."""

    def __init__(self, config: EtcdConfig) -> None:
        self._all = [Endpoint(address, config) for address in config.addresses]
        self._first = 0

    @property
    def reconnects(self) -> int:
        """How many connections were made beyond the first to each server."""
        return sum(max(0, endpoint.connections - 1) for endpoint in self._all)

    def in_order(self) -> list[Endpoint]:
        """Responding endpoints first, connected ones before others, then round robin."""
        rotated = self._all[self._first :] + self._all[: self._first]
        return sorted(rotated, key=lambda endpoint: (endpoint.down, not endpoint.ready))

    def avoid(self, endpoint: Endpoint) -> None:
        """Begin with the next one from now on."""
        if self._all[self._first] is endpoint:
            self._first = (self._first + 1) % len(self._all)

    async def close(self) -> None:
        """Close them all."""
        await asyncio.gather(*(endpoint.close() for endpoint in self._all))
