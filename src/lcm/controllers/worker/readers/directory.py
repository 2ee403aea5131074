"""Which replicas read for the leader, and which of them reads which CML server.

Each replica has a key in etcd, bound to a lease: when the replica ends or is cut off, the key goes with the lease, and
the others get its servers. A replica that comes gets its part of each of the others.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import structlog

from lcm.controllers.worker.readers.messages import FORMAT
from lcm.core.controller.follower import Follower
from lcm.core.controller.lease import LeaseSession
from lcm.core.coordination import CoordinationError, EventKind
from lcm.core.hosting import HostedService, cancel_and_wait, keep_running

if TYPE_CHECKING:
    from collections.abc import Collection

    from lcm.core.coordination import Coordination, Listing, WatchEvent

log = structlog.get_logger(__name__)

READERS_PREFIX: Final = "/readers/worker-controller/"


@dataclass(frozen=True, slots=True)
class Reader:
    """A replica that reads for the leader, and where the others reach it."""

    instance_id: str
    url: str


def choose_reader(address: str, readers: Collection[Reader]) -> Reader | None:
    """The reader of a server. When readers come or go, only their own servers move."""
    return max(readers, key=lambda reader: _weight(address, reader.instance_id), default=None)


def _weight(address: str, instance_id: str) -> bytes:
    return blake2b(f"{instance_id} {address}".encode(), digest_size=8).digest()


class ReaderDirectory(HostedService):
    """Registers this replica, and follows which others there are.

    Without a URL of its own, this replica reads only for itself. While etcd cannot be reached, the last readers stay:
    one that does not respond is not used anyway. Entries are signed with `key`, which all replicas have: who can only
    write to etcd cannot have the leader send its token and the accounts of CML servers elsewhere.
    """

    def __init__(
        self,
        coordination: Coordination,
        own: Reader,
        *,
        key: bytes,
        lease_ttl: int,
        retry_seconds: float = 2.0,
    ) -> None:
        super().__init__("readers")
        self.own = own
        self._coordination = coordination
        self._key = key
        self._lease_ttl = lease_ttl
        self._retry_seconds = retry_seconds
        self._others: dict[str, Reader] = {}
        self._lease: LeaseSession | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def others(self) -> Collection[Reader]:
        """The other replicas that read, as far as is known."""
        return self._others.values()

    @property
    def is_registered(self) -> bool:
        """Whether this replica is a reader, and provably still known as one."""
        return self.lease_remaining() > 0.0

    def lease_remaining(self) -> float:
        """Seconds for which this replica is certainly known as a reader."""
        return 0.0 if self._lease is None else self._lease.remaining()

    async def start(self) -> None:
        follower = Follower(self._coordination, READERS_PREFIX, on_list=self._listed, on_change=self._changed)
        self._tasks = [self._spawn(keep_running("readers", follower.run), "follow")]
        if self.own.url:
            self._tasks.append(self._spawn(keep_running("reader registration", self._stay_registered), "register"))

    async def stop(self) -> None:
        await cancel_and_wait(self._tasks)
        if self._lease is not None:
            await self._lease.close()

    async def _stay_registered(self) -> None:
        while True:
            try:
                lease = await LeaseSession.open(self._coordination, self._lease_ttl)
                entry = {"url": self.own.url, "format": FORMAT, "signature": self._sign(self.own)}
                key, value = READERS_PREFIX + self.own.instance_id, json.dumps(entry).encode()
                await self._coordination.put(key, value, lease_id=lease.id)
            except CoordinationError as error:
                log.warning("this replica cannot be registered as a reader", error=str(error))
                await asyncio.sleep(self._retry_seconds)
                continue
            self._lease = lease
            log.info("registered as a reader", url=self.own.url)
            reason = await lease.keep()
            self._lease = None
            log.warning("no longer registered as a reader", reason=reason)

    def _listed(self, listing: Listing) -> None:
        for item in listing.items:
            self._put(item.key, item.value)

    def _changed(self, event: WatchEvent) -> None:
        if event.kind is EventKind.PUT:
            self._put(event.key, event.value)
        else:
            self._others.pop(event.key, None)

    def _put(self, key: str, value: bytes) -> None:
        """One unreadable entry concerns only itself."""
        instance_id = key.removeprefix(READERS_PREFIX)
        self._others.pop(key, None)
        try:
            content = json.loads(value)
            reader = Reader(instance_id, str(content["url"]))
            if instance_id == self.own.instance_id or content["format"] != FORMAT:
                return
            is_genuine = hmac.compare_digest(str(content["signature"]).encode(), self._sign(reader).encode())
        except (ValueError, TypeError, KeyError, RecursionError):
            log.warning("the entry of a reader cannot be read", reader=instance_id)
            return
        if is_genuine:
            self._others[key] = reader
        else:
            log.warning("the entry of a reader is not signed with our token", reader=instance_id, url=reader.url)

    def _sign(self, reader: Reader) -> str:
        return hmac.new(self._key, json.dumps([reader.instance_id, reader.url]).encode(), "sha256").hexdigest()
