"""Templates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import PAGE, Group, Page, encoded, path_to
from lcm.client.responses import Call
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_ROOM = "worker-templates"


class Templates(Group):
    """What workers can be made from."""

    def list(self, *, page_size: int = PAGE) -> AsyncIterator[WorkerTemplate]:
        """All templates."""
        return self._pages("templates.list", path_to(_ROOM), Page[WorkerTemplate], {}, page_size)

    async def get(self, name: str) -> WorkerTemplate:
        """One template."""
        return await self._ask(Call("templates.get", "GET", path_to(_ROOM, name)), WorkerTemplate)

    async def put(self, template: WorkerTemplate) -> WorkerTemplate:
        """Make or change a template. Workers that were made from it stay as they are."""
        call = Call("templates.put", "PUT", path_to(_ROOM, template.name), body=encoded(template))
        return await self._ask(call, WorkerTemplate)

    async def enable(self, name: str) -> WorkerTemplate:
        """Let workers be made from it."""
        return await self._ask(Call("templates.enable", "POST", path_to(_ROOM, name, "enable")), WorkerTemplate)

    async def disable(self, name: str) -> WorkerTemplate:
        """Let no more workers be made from it."""
        return await self._ask(Call("templates.disable", "POST", path_to(_ROOM, name, "disable")), WorkerTemplate)
