"""Which open transactions of MongoDB are taken for abandoned."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any, cast

import structlog
from pymongo.errors import AutoReconnect, OperationFailure

from lcm.control_plane.store.mongo.abandoned import AbandonedTransactions

if TYPE_CHECKING:
    from pymongo.errors import PyMongoError

    from lcm.control_plane.store.mongo.database import Database

SECOND = 1_000_000


class FakeMongoDB:
    """Lists what a test says, and remembers what was ended."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.error: PyMongoError | None = None
        self.looks = 0
        self.ended: list[uuid.UUID] = []
        self.client = self
        self.name = "lcm"

    def get_database(self, *_: object, **__: object) -> FakeMongoDB:
        return self

    async def aggregate(self, _: object) -> FakeMongoDB:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self

    async def to_list(self) -> list[dict[str, Any]]:
        return self.rows

    async def command(self, name: str, sessions: list[dict[str, uuid.UUID]]) -> None:
        assert name == "killSessions"
        self.ended += [each["id"] for each in sessions]


def idle(session: uuid.UUID, *, opened: float, active: int = 900, number: int = 1) -> dict[str, Any]:
    """As $currentOp lists a transaction that was begun so many seconds ago."""
    return {
        "lsid": {"id": session},
        "client": "10.0.0.1:1",
        "transaction": {
            "parameters": {"txnNumber": number},
            "timeActiveMicros": active,
            "timeOpenMicros": int(opened * SECOND),
        },
    }


def looking(server: FakeMongoDB) -> AbandonedTransactions:
    return AbandonedTransactions(cast("Database", server))


async def test_only_a_transaction_in_which_nothing_happened_for_three_seconds_is_ended() -> None:
    server = FakeMongoDB()
    transactions = looking(server)
    dead, slow, reused = (uuid.uuid4() for _ in range(3))
    for second in range(4):
        server.rows = [
            idle(dead, opened=50 + second),
            idle(slow, opened=50 + second, active=900 + second),  # long, but its statements come
            idle(reused, opened=0.5, number=second),  # one short transaction after the other
        ]
        await transactions.end()
        assert server.ended == ([dead] if second == 3 else [])


async def test_a_transaction_that_went_on_meanwhile_is_idle_anew() -> None:
    server = FakeMongoDB()
    transactions = looking(server)
    session = uuid.uuid4()
    for opened, active in ((1, 100), (3, 100), (4, 200), (6, 200)):
        server.rows = [idle(session, opened=opened, active=active)]
        await transactions.end()
    assert server.ended == []
    server.rows = [idle(session, opened=7, active=200)]
    await transactions.end()
    assert server.ended == [session]


async def test_a_failed_look_is_repeated_and_a_denied_one_is_said_once() -> None:
    server = FakeMongoDB()
    transactions = looking(server)
    for server.error in (AutoReconnect("gone"), OperationFailure("stepping down", 189)):
        await transactions.end()
    assert server.looks == 2
    server.error = OperationFailure("not authorized on admin", 13)
    with structlog.testing.capture_logs() as lines:
        await transactions.end()
        await transactions.end()
    assert server.looks == 3
    assert [line["log_level"] for line in lines] == ["warning"]
    assert "transactionLifetimeLimitSeconds" in lines[0]["event"]


async def test_it_looks_while_a_store_opens_and_no_longer() -> None:
    server = FakeMongoDB()
    async with looking(server).watched():
        while server.looks < 2:
            await asyncio.sleep(0.1)
    looks = server.looks
    await asyncio.sleep(5)
    assert server.looks == looks
