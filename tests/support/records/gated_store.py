"""A store in memory that lags, fails and loses responses on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.store.memory.store import MemoryStore
from lcm.control_plane.store.port import StoreUnavailableError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from lcm.control_plane.store.memory.store import MemoryDisk
    from lcm.control_plane.store.port import Delete, Guard, Kind, NewJournalEntry, Put, StoredDocument


class GatedStore(MemoryStore):
    """A store whose next read can be delayed after it is done, whose next commits fail, or whose responses are lost."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        super().__init__(disk)
        self.gate: asyncio.Event | None = None
        self.failures: list[Exception] = []
        self.loses_responses = False

    async def get(self, kind: Kind, document_id: str) -> StoredDocument | None:
        stored = await super().get(kind, document_id)
        await self._wait()
        return stored

    async def get_many(self, kind: Kind, document_ids: Sequence[str]) -> Mapping[str, StoredDocument]:
        stored = await super().get_many(kind, document_ids)
        await self._wait()
        return stored

    async def commit(
        self, writes: Sequence[Put | Delete], *, entries: Sequence[NewJournalEntry] = (), guards: Sequence[Guard] = ()
    ) -> Sequence[str]:
        if self.failures:
            raise self.failures.pop(0)
        cursors = await super().commit(writes, entries=entries, guards=guards)
        if self.loses_responses:
            raise StoreUnavailableError("the response was lost")
        return cursors

    async def _wait(self) -> None:
        if self.gate is not None:
            gate, self.gate = self.gate, None
            await gate.wait()
