"""Writes to a store until it is killed; prints what was acknowledged.

`python -m tests.support.real.store_writer sqlite FILE` or `… mongo URI DATABASE`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.records.store_documents import KINDS, NOTES, encode, entry, note

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.control_plane.store.port import Store

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


async def main(arguments: list[str]) -> None:
    store = chosen_store(*arguments)
    await store.open(KINDS)
    # A single short write to a pipe is atomic.
    await asyncio.gather(
        *(count_up(store, writer, lambda who, what: _say(f"{who} {what}\n")) for writer in range(WRITERS))
    )


def _say(line: str) -> None:
    os.write(sys.stdout.fileno(), line.encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
