"""Writes to a store until it is killed; prints what was acknowledged.

`python -m tests.support.real.store_writer sqlite FILE` or `… mongo URI DATABASE`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import structlog

from lcm.control_plane.store.port import RevisionConflictError, StoreUnavailableError
from tests.support.records.store_documents import KINDS, NOTES, encode, entry, note

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.control_plane.store.port import Store

T = TypeVar("T")

WRITERS = 32


def chosen_store(adapter: str, *where: str) -> Store:
    """The store that the arguments name."""
    if adapter == "sqlite":
        from lcm.control_plane.store.sqlite.store import SqliteStore

        return SqliteStore(Path(where[0]))
    from lcm.control_plane.store.mongo.store import MongoStore

    return MongoStore(where[0], where[1])


async def count_up(store: Store, writer: int, say: Callable[[int, int], None], until: int = sys.maxsize) -> None:
    """Write 1, 2, 3, … into one document, each with a journal entry, continuing from the stored number."""
    name = f"writer-{writer}"
    found = await store.get(NOTES, name)
    number = int(found.body) if found else 0
    while number < until:
        number += 1
        change = note(name, found.revision if found else None, body=number)
        await store.commit([change], entries=[entry(name, number)])
        say(writer, number)
        found = await store.get(NOTES, name)
        assert found is not None
        assert found.body == encode(number)


async def until_available(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until the store responds in time. The test that runs this has a bound."""
    while True:
        try:
            return await call()
        except (StoreUnavailableError, RevisionConflictError):  # a commit that timed out may still happen
            await asyncio.sleep(0.05)


async def persistently(store: Store, writer: int, say: Callable[[int, int], None], until: int = sys.maxsize) -> None:
    """Count up also when the store is too slow or gone for a while.

    `count_up` reads first, so that a commit of unknown outcome is never repeated; it is said once it is read.
    """

    async def go_on() -> None:
        found = await store.get(NOTES, f"writer-{writer}")
        if found is not None:
            say(writer, int(found.body))
        await count_up(store, writer, say, until)

    await until_available(go_on)


async def main(arguments: list[str]) -> None:
    # Standard output is for what was acknowledged: a warning of the store between the lines would be read as one.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    store = chosen_store(*arguments)
    await until_available(lambda: store.open(KINDS))
    # A single short write to a pipe is atomic.
    await asyncio.gather(
        *(persistently(store, writer, lambda who, what: _say(f"{who} {what}\n")) for writer in range(WRITERS))
    )


def _say(line: str) -> None:
    os.write(sys.stdout.fileno(), line.encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
