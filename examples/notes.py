"""A custom controller: it keeps the files of a folder in sync with the keys under /notes/.

Try: lcm up --controller examples.notes:NotesController; delete the file and the next poll restores it.
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
    """The desired content of a file; None: the file should not exist."""

    name: str
    text: bytes | None


class NotesController(WatchTriggeredHostedService[Note]):
    """Whatever triggered a pass, it compares the file with its desired content."""

    def __init__(self, runtime: ControllerRuntime) -> None:
        election, watch = runtime.election("notes"), runtime.watch("/notes/")
        super().__init__(runtime.coordination, election, watch, runtime.reconciliation)
        self.folder = runtime.data_dir / "notes"
        self.folder.mkdir(parents=True, exist_ok=True)

    async def announce_leadership(self, term: int) -> None:
        await self.coordination.put_if_absent("/notes/welcome", b"Delete this file: it comes back.\n")

    async def list_resources(self) -> Sequence[Note]:
        listing = await self.coordination.list_prefix("/notes/")
        desired = {name: item.value for item in listing.items if (name := self.parse_watch_key(item.key))}
        present = {path.name for path in self.folder.iterdir()}
        return [Note(name, desired.get(name)) for name in sorted(desired.keys() | present)]

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
