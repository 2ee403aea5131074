"""Lablets and what they are made from, as people ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import PAGE, Group, Page, asked, encoded, fresh_key, matching, path_to
from lcm.client.responses import Call
from lcm.model.lablet.record import DefinitionSummary, Lablet, LabletDefinition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from lcm.model.audit import LabletHistoryEntry
    from lcm.model.lablet.preview import LabletPreview
    from lcm.model.lablet.record import CreateDefinition, CreateLablet
    from lcm.model.lablet.status import LabletStatus

_ROOM = "lablet-definitions"


class Lablets(Group):
    """Lablets. Changes send a fresh Idempotency-Key unless given one, so they survive a lost answer."""

    def list(
        self,
        *,
        status: Iterable[LabletStatus] = (),
        exclude_statuses: Iterable[LabletStatus] = (),
        owner: Iterable[str] = (),
        worker: Iterable[str] = (),
        definition: Iterable[str] = (),
        q: str | None = None,
        sort: str | None = None,
        page_size: int = PAGE,
    ) -> AsyncIterator[Lablet]:
        """Lablets that fit all filters."""
        query = asked(
            status=status,
            exclude_statuses=exclude_statuses,
            owner=owner,
            worker=worker,
            definition=definition,
            q=q,
            sort=sort,
        )
        return self._pages("lablets.list", path_to("lablets"), Page[Lablet], query, page_size)

    async def create(self, body: CreateLablet, *, key: str | None = None) -> Lablet:
        """A new lablet."""
        call = Call(
            "lablets.create", "POST", path_to("lablets"), body=encoded(body), idempotency_key=key or fresh_key()
        )
        return await self._ask(call, Lablet)

    async def get(self, lablet_id: str) -> Lablet:
        """One lablet."""
        return await self._ask(Call("lablets.get", "GET", path_to("lablets", lablet_id)), Lablet)

    async def terminate(
        self, lablet_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Lablet:
        """Want it ended."""
        from lcm.model.worker.requests import Because

        call = Call(
            "lablets.terminate",
            "POST",
            path_to("lablets", lablet_id, "terminate"),
            body=encoded(Because(reason=reason)),
            headers=matching(version),
            idempotency_key=key or fresh_key(),
        )
        return await self._ask(call, Lablet)

    async def delete(self, lablet_id: str, *, version: int | None = None, key: str | None = None) -> Lablet:
        """Want it ended. The record stays."""
        path = path_to("lablets", lablet_id)
        call = Call("lablets.delete", "DELETE", path, headers=matching(version), idempotency_key=key or fresh_key())
        return await self._ask(call, Lablet)

    def history(self, lablet_id: str, *, page_size: int = PAGE) -> AsyncIterator[LabletHistoryEntry]:
        """Its steps so far, oldest first."""
        from lcm.model.audit import LabletHistoryEntry

        path = path_to("lablets", lablet_id, "history")
        return self._pages("lablets.history", path, Page[LabletHistoryEntry], {}, page_size)

    async def preview(self, body: CreateLablet) -> LabletPreview:
        """What would become of it, without making it."""
        from lcm.model.lablet.preview import LabletPreview

        call = Call("lablets.preview", "POST", path_to("lablets", "preview"), body=encoded(body))
        return await self._ask(call, LabletPreview)


class Definitions(Group):
    """What lablets are made from. A version never changes."""

    def list(self, *, q: str | None = None, page_size: int = PAGE) -> AsyncIterator[DefinitionSummary]:
        """All versions of all definitions."""
        return self._pages("definitions.list", path_to(_ROOM), Page[DefinitionSummary], asked(q=q), page_size)

    def versions(self, name: str, *, page_size: int = PAGE) -> AsyncIterator[DefinitionSummary]:
        """All versions of one, newest first."""
        return self._pages("definitions.versions", path_to(_ROOM, name), Page[DefinitionSummary], {}, page_size)

    async def get(self, name: str, version: str) -> LabletDefinition:
        """One version."""
        return await self._ask(Call("definitions.get", "GET", path_to(_ROOM, name, version)), LabletDefinition)

    async def create(self, body: CreateDefinition, *, key: str | None = None) -> LabletDefinition:
        """A new version; the same content again is the same answer."""
        call = Call(
            "definitions.create", "POST", path_to(_ROOM), body=encoded(body), idempotency_key=key or fresh_key()
        )
        return await self._ask(call, LabletDefinition)

    async def enable(self, name: str, version: str) -> LabletDefinition:
        """Let lablets be made from it."""
        return await self._switch(name, version, "enable")

    async def disable(self, name: str, version: str) -> LabletDefinition:
        """Let no more lablets be made from it."""
        return await self._switch(name, version, "disable")

    async def _switch(self, name: str, version: str, how: str) -> LabletDefinition:
        call = Call(f"definitions.{how}", "POST", path_to(_ROOM, name, version, how))
        return await self._ask(call, LabletDefinition)
