"""The other replicas that read for the leader: which of them respond, and the connections to them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog
from prometheus_client import REGISTRY, CollectorRegistry, Gauge

from lcm.cml.pollers import RESPONSE_MARGIN
from lcm.controllers.worker.readers.remote_reader import ReaderUnavailableError
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.controllers.worker.readers.directory import Reader, ReaderDirectory
    from lcm.controllers.worker.readers.messages import AnyRequest, ReadResult
    from lcm.controllers.worker.readers.remote_reader import RemoteReader

log = structlog.get_logger(__name__)

AVOID_SECONDS: Final = 10.0
"""How long a reader that did not respond is not used: its part is read by the others."""


class ReaderPool:
    """Sends reads to other replicas. One that does not respond is not used for a while."""

    def __init__(
        self,
        directory: ReaderDirectory,
        connect: Callable[[Reader], RemoteReader],
        *,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        self._directory = directory
        self._connect = connect
        self._remote: dict[Reader, RemoteReader] = {}
        self._avoided: dict[Reader, float] = {}  # until when
        Gauge("lcm_cml_readers", "Replicas that read CML servers, this one included", registry=registry).set_function(
            lambda: len(self.usable())
        )

    @property
    def own(self) -> Reader:
        """This replica."""
        return self._directory.own

    def usable(self) -> list[Reader]:
        """This replica, and the others that respond."""
        now = clock.boottime()
        self._avoided = {reader: until for reader, until in self._avoided.items() if until > now}
        return [self.own, *(reader for reader in self._directory.others if reader not in self._avoided)]

    async def read(self, reader: Reader, request: AnyRequest) -> ReadResult:
        """Read through another replica; raises `ReaderUnavailableError` if it does not respond."""
        try:
            async with asyncio.timeout(request.seconds + RESPONSE_MARGIN):
                return await self._remote_reader(reader).read(request)
        except ReaderUnavailableError as error:
            self._avoid(reader, str(error))
            raise
        except TimeoutError:
            self._avoid(reader, "no result in time")
            raise ReaderUnavailableError("no result in time") from None

    async def close(self) -> None:
        """End all exchanges with other replicas."""
        await asyncio.gather(*(remote.close() for remote in self._remote.values()))

    def _remote_reader(self, reader: Reader) -> RemoteReader:
        remote = self._remote.get(reader)
        if remote is None:
            # What is in progress at replicas that have left ends by itself.
            self._remote = {each: known for each, known in self._remote.items() if each in self._directory.others}
            remote = self._remote[reader] = self._connect(reader)
        return remote

    def _avoid(self, reader: Reader, reason: str) -> None:
        if reader not in self._avoided:
            log.warning("a reader does not respond; others read its part", reader=reader.instance_id, reason=reason)
        self._avoided[reader] = clock.boottime() + AVOID_SECONDS
