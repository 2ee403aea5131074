"""A controller of one's own: it keeps the files of a folder as the keys under /notes/ say.

Try: lcm up --controller examples.notes:NotesController; delete the file and see it come back with the next poll.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.core.controller.reconciliation import ReconciliationResult
from lcm.core.controller.watch import WatchTriggeredHostedService

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.wiring.controllers import ControllerRuntime


@dataclass(frozen=True)
class Note:
    """What a file should contain; None: it should not be there."""

    name: str
    text: bytes | None


class NotesController(WatchTriggeredHostedService[Note]):
    """Whatever woke it, it compares what is there with what is wanted."""

    def __init__(self, runtime: ControllerRuntime) -> None:
        election, watch = runtime.election("notes"), runtime.watch("/notes/")
        super().__init__(runtime.coordination, election, watch, runtime.reconciliation)
        self.folder = runtime.data_dir / "notes"
        self.folder.mkdir(parents=True, exist_ok=True)

    async def announce_leadership(self, term: int) -> None:
        await self.coordination.put_if_absent("/notes/welcome", b"Delete this file: it comes back.\n")

    async def list_resources(self) -> Sequence[Note]:
        listing = await self.coordination.list_prefix("/notes/")
        wanted = {name: item.value for item in listing.items if (name := self.parse_watch_key(item.key))}
        present = {path.name for path in self.folder.iterdir()}
        return [Note(name, wanted.get(name)) for name in sorted(wanted.keys() | present)]

    async def fetch_single_resource(self, resource_id: str) -> Note | None:
        item = await self.coordination.get(f"/notes/{resource_id}")
        return Note(resource_id, item.value if item else None)

    async def reconcile_resource(self, resource: Note) -> ReconciliationResult:
        path = self.folder / resource.name
        if resource.text is None:
            path.unlink(missing_ok=True)
        elif not path.exists() or path.read_bytes() != resource.text:
            path.write_bytes(resource.text)
        return ReconciliationResult.success()

    def get_resource_id(self, resource: Note) -> str:
        return resource.name
