"""The coordination port on etcd."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from lcm.coordination.etcd.calls import EtcdCaller, RetryPolicy
from lcm.coordination.etcd.errors import MessageTooLargeError
from lcm.coordination.etcd.messages import (
    COMPARE_EQUAL,
    COMPARE_MOD_REVISION,
    key_to_bytes,
    new_message,
    prefix_range,
    to_key_value,
)
from lcm.coordination.etcd.watch import WatchStream
from lcm.core.coordination import (
    NO_LEASE,
    CompactedError,
    CoordinationDeniedError,
    CoordinationUnavailableError,
    KeyValue,
    LeaseGrant,
    LeaseNotFoundError,
    Listing,
    PrefixState,
    SwapResult,
    WatchBatch,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.coordination.etcd.config import EtcdConfig
    from lcm.coordination.etcd.connection import Connection, Metadata
    from lcm.coordination.etcd.endpoints import Endpoint

KEYS_PER_PAGE = 1000

_MAX_LISTING_ATTEMPTS = 3


class EtcdCoordination:
    """A client of one etcd cluster. It connects on first use, inside the running loop."""

    def __init__(self, config: EtcdConfig) -> None:
        self._config = config
        self._caller = EtcdCaller(config)

    @property
    def description(self) -> str:
        return "etcd at " + ", ".join(address.text for address in self._config.addresses)

    @property
    def reconnects(self) -> int:
        """How many times a connection was made again."""
        return self._caller.endpoints.reconnects

    async def get(self, key: str) -> KeyValue | None:
        reply = await self._read(new_message("RangeRequest", key=key_to_bytes(key)))
        return to_key_value(reply.kvs[0]) if reply.kvs else None

    async def list_prefix(self, prefix: str) -> Listing:
        for _ in range(_MAX_LISTING_ATTEMPTS):
            try:
                return await self._list(prefix)
            except CompactedError:
                # The revision was compacted between two pages: start again at a newer one.
                continue
        raise CoordinationUnavailableError(
            f"{self.description}: listing {prefix} was interrupted by compaction each time"
        )

    async def probe(self, prefix: str) -> PrefixState:
        start, end = prefix_range(prefix)
        reply = await self._read(new_message("RangeRequest", key=start, range_end=end, count_only=True))
        return PrefixState(reply.header.cluster_id, reply.header.revision, reply.count)

    async def put(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> int:
        request = new_message("PutRequest", key=key_to_bytes(key), value=value, lease=lease_id)
        reply = await self._caller.unary("Put", request, repeat=RetryPolicy.NEVER, lease_id=lease_id)
        return int(reply.header.revision)

    async def put_if_absent(self, key: str, value: bytes, *, lease_id: int = NO_LEASE) -> SwapResult:
        return await self.compare_and_swap(key, value, mod_revision=0, lease_id=lease_id)

    async def compare_and_swap(
        self, key: str, value: bytes, *, mod_revision: int, lease_id: int = NO_LEASE
    ) -> SwapResult:
        name = key_to_bytes(key)
        put = new_message("RequestOp", request_put=new_message("PutRequest", key=name, value=value, lease=lease_id))
        read = new_message("RequestOp", request_range=new_message("RangeRequest", key=name))
        request = new_message(
            "TxnRequest", compare=[_compare_mod_revision(name, mod_revision)], success=[put, read], failure=[read]
        )
        reply = await self._caller.unary("Txn", request, repeat=RetryPolicy.NEVER, lease_id=lease_id)
        kvs = reply.responses[-1].response_range.kvs
        return SwapResult(reply.succeeded, to_key_value(kvs[0]) if kvs else None)

    async def delete(self, key: str, *, mod_revision: int | None = None) -> bool:
        name = key_to_bytes(key)
        delete = new_message("DeleteRangeRequest", key=name)
        if mod_revision is None:
            reply = await self._caller.unary("DeleteRange", delete, repeat=RetryPolicy.NEVER)
            return bool(reply.deleted)
        request = new_message(
            "TxnRequest",
            compare=[_compare_mod_revision(name, mod_revision)],
            success=[new_message("RequestOp", request_delete_range=delete)],
        )
        reply = await self._caller.unary("Txn", request, repeat=RetryPolicy.NEVER)
        return bool(reply.succeeded and reply.responses[0].response_delete_range.deleted)

    async def grant_lease(self, ttl: int) -> LeaseGrant:
        if ttl < 1:
            raise ValueError(f"a lease lasts at least 1 second, not {ttl}")
        reply = await self._caller.unary(
            "LeaseGrant", new_message("LeaseGrantRequest", TTL=ttl), repeat=RetryPolicy.NEVER
        )
        return LeaseGrant(reply.ID, float(reply.TTL))

    async def keep_alive(self, lease_id: int) -> float:
        request = new_message("LeaseKeepAliveRequest", ID=lease_id)
        reply = await self._caller.exchange("LeaseKeepAlive", request, lease_id=lease_id)
        if reply is None:
            raise CoordinationUnavailableError(f"{self.description}: the server ended a keepalive without a response")
        if reply.TTL <= 0:
            raise LeaseNotFoundError(lease_id)
        return float(reply.TTL)

    async def revoke_lease(self, lease_id: int) -> None:
        request = new_message("LeaseRevokeRequest", ID=lease_id)
        try:
            await self._caller.unary("LeaseRevoke", request, repeat=RetryPolicy.SAFE, lease_id=lease_id)
        except LeaseNotFoundError:
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
            await self._read(new_message("RangeRequest", key=b"lcm", count_only=True))
        except CoordinationDeniedError as denied:
            # etcd consults the quorum before it checks the permission to read this key.
            if "permission denied" not in str(denied):
                raise

    async def close(self) -> None:
        await self._caller.close()

    async def _read(self, request: Any) -> Any:
        return await self._caller.unary("Range", request, repeat=RetryPolicy.SAFE)

    async def _list(self, prefix: str) -> Listing:
        start, end = prefix_range(prefix)
        items: list[KeyValue] = []
        revision, limit = 0, KEYS_PER_PAGE
        while True:
            request = new_message("RangeRequest", key=start, range_end=end, limit=limit, revision=revision)
            try:
                page = await self._read(request)
            except MessageTooLargeError:
                if limit == 1:
                    raise
                limit = max(1, limit // 10)
                continue
            items.extend(map(to_key_value, page.kvs))
            # All further pages are read at the revision of the first one.
            revision = revision or page.header.revision
            if not page.more:
                return Listing(tuple(items), revision)
            start = page.kvs[-1].key + b"\0"

    async def _open_watch(self, key: bytes, range_end: bytes, revision: int) -> WatchStream:
        async def visit(endpoint: Endpoint, connection: Connection, metadata: Metadata, timeout: float) -> WatchStream:
            stream = WatchStream(endpoint, connection, metadata, self._config.liveness_interval)
            await stream.open(key, range_end, revision, timeout=timeout)
            return stream

        auth = self._caller.auth
        token = auth.token
        try:
            return await self._caller.visit(visit, repeat=RetryPolicy.SAFE)
        except CoordinationDeniedError:
            if not auth.enabled:
                raise
            # On a watch, servers report an expired token as "permission denied". A read tells the two apart, and
            # signs in.
            await self._read(new_message("RangeRequest", key=key, range_end=range_end, count_only=True))
            if auth.token == token:
                raise
        return await self._caller.visit(visit, repeat=RetryPolicy.SAFE)


def _compare_mod_revision(key: bytes, mod_revision: int) -> Any:
    return new_message("Compare", result=COMPARE_EQUAL, target=COMPARE_MOD_REVISION, key=key, mod_revision=mod_revision)
