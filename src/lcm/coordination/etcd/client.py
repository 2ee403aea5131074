"""Coordination on etcd: the port's calls, put into etcd's."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from lcm.coordination.etcd.calls import Caller, Repeat
from lcm.coordination.etcd.errors import TooLarge
from lcm.coordination.etcd.etcd_watch import WatchStream
from lcm.coordination.etcd.keys import key_value, prefix_range, to_bytes
from lcm.coordination.etcd.messages import COMPARE_EQUAL, COMPARE_MOD_REVISION, new
from lcm.core.coordination import (
    NO_LEASE,
    Compacted,
    Denied,
    KeyValue,
    LeaseGrant,
    LeaseNotFound,
    Listing,
    Swap,
    Unavailable,
    WatchBatch,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.coordination.etcd.config import EtcdConfig
    from lcm.coordination.etcd.connection import Connection, Metadata
    from lcm.coordination.etcd.endpoints import Endpoint

KEYS_PER_PAGE = 1000

_LISTINGS_OUTRUN_BY_COMPACTION = 3


class EtcdCoordination:
    """A client of one etcd cluster. It connects when first used, inside the running loop."""

    def __init__(self, config: EtcdConfig) -> None:
        self._config = config
        self._caller = Caller(config)

    @property
    def description(self) -> str:
        return "etcd at " + ", ".join(address.text for address in self._config.addresses)

    @property
    def reconnects(self) -> int:
        """How many connections had to be made anew so far."""
        return self._caller.endpoints.reconnects

    async def get(self, key: str) -> KeyValue | None:
        reply = await self._read(new("RangeRequest", key=to_bytes(key)))
        return key_value(reply.kvs[0]) if reply.kvs else None

    async def list_prefix(self, prefix: str) -> Listing:
        for _ in range(_LISTINGS_OUTRUN_BY_COMPACTION):
            try:
                return await self._list(prefix)
            except Compacted:
                # Compaction passed our revision between two pages: begin again at a newer one.
                continue
        raise Unavailable(f"{self.description}: listing {prefix} was outrun by compaction each time")

    async def put(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> int:
        request = new("PutRequest", key=to_bytes(key), value=value, lease=lease_id)
        reply = await self._caller.unary("Put", request, repeat=Repeat.NEVER, lease_id=lease_id)
        return int(reply.header.revision)

    async def put_if_absent(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> Swap:
        return await self.compare_and_swap(key, value, mod_revision=0, lease_id=lease_id)

    async def compare_and_swap(self, key: str, value: bytes, *, mod_revision: int, lease_id: int = NO_LEASE) -> Swap:
        name = to_bytes(key)
        put = new("RequestOp", request_put=new("PutRequest", key=name, value=value, lease=lease_id))
        read = new("RequestOp", request_range=new("RangeRequest", key=name))
        request = new("TxnRequest", compare=[_unchanged_since(name, mod_revision)], success=[put, read], failure=[read])
        reply = await self._caller.unary("Txn", request, repeat=Repeat.NEVER, lease_id=lease_id)
        kvs = reply.responses[-1].response_range.kvs
        return Swap(reply.succeeded, key_value(kvs[0]) if kvs else None)

    async def delete(self, key: str, *, mod_revision: int | None = None) -> bool:
        name = to_bytes(key)
        delete = new("DeleteRangeRequest", key=name)
        if mod_revision is None:
            reply = await self._caller.unary("DeleteRange", delete, repeat=Repeat.NEVER)
            return bool(reply.deleted)
        request = new(
            "TxnRequest",
            compare=[_unchanged_since(name, mod_revision)],
            success=[new("RequestOp", request_delete_range=delete)],
        )
        reply = await self._caller.unary("Txn", request, repeat=Repeat.NEVER)
        return bool(reply.succeeded and reply.responses[0].response_delete_range.deleted)

    async def grant_lease(self, ttl: int) -> LeaseGrant:
        if ttl < 1:
            raise ValueError(f"a lease lasts at least 1 second, not {ttl}")
        reply = await self._caller.unary("LeaseGrant", new("LeaseGrantRequest", TTL=ttl), repeat=Repeat.NEVER)
        return LeaseGrant(reply.ID, float(reply.TTL))

    async def keep_alive(self, lease_id: int) -> float:
        request = new("LeaseKeepAliveRequest", ID=lease_id)
        reply = await self._caller.exchange("LeaseKeepAlive", request, lease_id=lease_id)
        if reply is None:
            raise Unavailable(f"{self.description}: the server ended a keepalive without an answer")
        if reply.TTL <= 0:
            raise LeaseNotFound(lease_id)
        return float(reply.TTL)

    async def revoke_lease(self, lease_id: int) -> None:
        request = new("LeaseRevokeRequest", ID=lease_id)
        try:
            await self._caller.unary("LeaseRevoke", request, repeat=Repeat.SAFE, lease_id=lease_id)
        except LeaseNotFound:
            return

    @asynccontextmanager
    async def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[AsyncIterator[WatchBatch]]:
        if from_revision < 1:
            raise ValueError(f"revisions start at 1, not {from_revision}")
        stream = await self._open_watch(*prefix_range(prefix), from_revision)
        try:
            yield stream
        finally:
            await stream.close()

    async def check(self) -> None:
        try:
            await self._read(new("RangeRequest", key=b"lcm", count_only=True))
        except Denied as denied:
            # The quorum has been asked before the permission to read this very key is looked up.
            if "permission denied" not in str(denied):
                raise

    async def close(self) -> None:
        await self._caller.close()

    async def _read(self, request: Any) -> Any:
        return await self._caller.unary("Range", request, repeat=Repeat.SAFE)

    async def _list(self, prefix: str) -> Listing:
        start, end = prefix_range(prefix)
        items: list[KeyValue] = []
        revision, limit = 0, KEYS_PER_PAGE
        while True:
            request = new("RangeRequest", key=start, range_end=end, limit=limit, revision=revision)
            try:
                page = await self._read(request)
            except TooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // 10)
                continue
            items.extend(map(key_value, page.kvs))
            # All further pages are read as of the first one's revision.
            revision = revision or page.header.revision
            if not page.more:
                return Listing(tuple(items), revision)
            start = page.kvs[-1].key + b"\0"

    async def _open_watch(self, key: bytes, range_end: bytes, revision: int) -> WatchStream:
        async def visit(endpoint: Endpoint, connection: Connection, metadata: Metadata, timeout: float) -> WatchStream:
            stream = WatchStream(endpoint, connection, metadata, self._config.liveness_interval)
            await stream.open(key, range_end, revision, timeout=timeout)
            return stream

        sign_in = self._caller.sign_in
        token = sign_in.token
        try:
            return await self._caller.visit(visit, repeat=Repeat.SAFE)
        except Denied:
            if not sign_in.possible:
                raise
            # Servers call a forgotten token "permission denied" on a watch. A read tells the two apart, and signs in.
            await self._read(new("RangeRequest", key=key, range_end=range_end, count_only=True))
            if sign_in.token == token:
                raise
        return await self._caller.visit(visit, repeat=Repeat.SAFE)


def _unchanged_since(key: bytes, mod_revision: int) -> Any:
    return new("Compare", result=COMPARE_EQUAL, target=COMPARE_MOD_REVISION, key=key, mod_revision=mod_revision)
