"""Ends transactions that a killed control plane left open: they would keep all others from writing for a minute.

MongoDB notices that a client is gone, and yet keeps its transaction for `transactionLifetimeLimitSeconds`. A user may
list and end sessions of its own, so this needs no privilege beyond those on the database.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from prometheus_client import Counter
from pymongo import ReadPreference
from pymongo.errors import OperationFailure, PyMongoError

from lcm.control_plane.store.mongo.database import ACCESS_DENIED_CODES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.control_plane.store.mongo.database import Database

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0  # a write that waits longer looks why, and again as often

# A control plane that lives pauses for milliseconds between the statements of a transaction. If it was suspended for
# longer, it finds its transaction gone and repeats it.
_IDLE_MICROS = 3_000_000

_NOT_ALLOWED_CODES = (*ACCESS_DENIED_CODES, 59, 115)  # CommandNotFound, CommandNotSupported: some hosted services

ENDED = Counter("lcm_store_abandoned_transactions", "Transactions left open in MongoDB that this process ended")


def application_name(database: str) -> str:
    """How MongoDB calls the connections of control planes on this database. Of sessions it tells no database."""
    return f"lcm {database}"


@dataclass(frozen=True, slots=True)
class _OpenTransaction:
    """A transaction in which no statement runs at the moment, with times as the server measures them."""

    session_id: Any
    number: int
    active_micros: int
    open_micros: int
    client: str

    def idle_micros(self, before: _OpenTransaction | None) -> int:
        """For how long it certainly was idle: no statement ran in it since it was seen before."""
        if before is None or (before.number, before.active_micros) != (self.number, self.active_micros):
            return 0
        return self.open_micros - before.open_micros


class AbandonedTransactions:
    """Remembers idle transactions from one look to the next, and ends those in which nothing happens any more."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._admin = database.client.get_database("admin", read_preference=ReadPreference.PRIMARY)
        self._idle: dict[Any, _OpenTransaction] = {}
        self._denied = False

    async def end(self) -> None:
        """Look once. What fails is left to the next look: the waiting write reports the problem of the server."""
        if self._denied:
            return
        try:
            await self._look()
        except PyMongoError as error:
            if isinstance(error, OperationFailure) and error.code in _NOT_ALLOWED_CODES:
                self._denied = True
                log.warning(
                    "MongoDB does not let this user end its own sessions: after a control plane is killed, writes may"
                    " wait for transactionLifetimeLimitSeconds",
                    error=str(error)[:300],
                )

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look again and again while the body runs."""
        finished = asyncio.Event()
        task = asyncio.create_task(self._watch(finished), name=f"store-sessions {self._database.name}")
        try:
            yield
        finally:
            finished.set()  # the driver may swallow the cancellation
            task.cancel()
            await asyncio.wait([task])

    async def _watch(self, finished: asyncio.Event) -> None:
        while not finished.is_set():
            await asyncio.sleep(LOOK_SECONDS)
            await self.end()

    async def _look(self) -> None:
        seen: dict[Any, _OpenTransaction] = {}
        for each in await self._idle_transactions():
            before = self._idle.get(each.session_id)
            idle = each.idle_micros(before)
            if idle >= _IDLE_MICROS:
                await self._kill(each, idle)
            else:
                seen[each.session_id] = before if idle and before else each
        self._idle = seen

    async def _idle_transactions(self) -> list[_OpenTransaction]:
        """Those of this user on this database. A statement that runs makes its session no idle one."""
        cursor = await self._admin.aggregate(
            [
                {"$currentOp": {"allUsers": False, "idleSessions": True, "idleConnections": False}},
                {
                    "$match": {
                        "type": "idleSession",
                        "appName": application_name(self._database.name),
                        "transaction.parameters.txnNumber": {"$type": "number"},
                        "transaction.timeActiveMicros": {"$type": "number"},
                        "transaction.timeOpenMicros": {"$type": "number"},
                    }
                },
                {"$project": {"lsid": 1, "transaction": 1, "client": 1}},
            ]
        )
        return [_read_row(row) for row in await cursor.to_list()]

    async def _kill(self, each: _OpenTransaction, idle: int) -> None:
        await self._admin.command("killSessions", [{"id": each.session_id}])
        ENDED.inc()
        log.warning(
            "ended a transaction that a control plane had left open, which kept all others from writing",
            client=each.client,
            idle_seconds=round(idle / 1e6, 1),
            open_seconds=round(each.open_micros / 1e6, 1),
        )


def _read_row(row: dict[str, Any]) -> _OpenTransaction:
    transaction = row["transaction"]
    return _OpenTransaction(
        row["lsid"]["id"],
        int(transaction["parameters"]["txnNumber"]),
        int(transaction["timeActiveMicros"]),
        int(transaction["timeOpenMicros"]),
        str(row.get("client", "")),
    )
