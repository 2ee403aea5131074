"""A store in memory that lags, fails and loses answers when told to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.store.memory import MemoryStore
from lcm.control_plane.store.port import StoreUnavailable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from lcm.control_plane.store.memory import MemoryDisk
    from lcm.control_plane.store.port import Delete, Entry, Guard, Kind, Put, Stored


class GatedStore(MemoryStore):
    """A store whose next read can be held back once done, whose next commits fail, or whose answers are lost."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        super().__init__(disk)
        self.gate: asyncio.Event | None = None
        self.failures: list[Exception] = []
        self.loses_answers = False

    async def get(self, kind: Kind, document_id: str) -> Stored | None:
        stored = await super().get(kind, document_id)
        if self.gate is not None:
            gate, self.gate = self.gate, None
            await gate.wait()
        return stored

    async def commit(
        self, writes: Sequence[Put | Delete], *, entries: Sequence[Entry] = (), guards: Sequence[Guard] = ()
    ) -> Sequence[str]:
        if self.failures:
            raise self.failures.pop(0)
        cursors = await super().commit(writes, entries=entries, guards=guards)
        if self.loses_answers:
            raise StoreUnavailable("the answer was lost")
        return cursors
