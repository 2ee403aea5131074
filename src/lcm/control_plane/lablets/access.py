"""How to reach a lablet, from its record, its worker and the tags of its topology."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

from lcm.control_plane.lablets.topology import read_tagged_nodes
from lcm.control_plane.records.kinds import TOPOLOGIES, WORKERS
from lcm.control_plane.records.readable import read_or_skip
from lcm.model.lablet.access import describe_access, forwards_port
from lcm.model.worker.record import Worker

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store
    from lcm.model.lablet.access import LabletAccess
    from lcm.model.lablet.record import Lablet

MAX_CACHED_DEFINITIONS: Final = 64
_NodeTags: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]


class LabletAccessReader:
    """Describes how lablets are reached. The tags of the latest definitions are cached: a version never changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tags: OrderedDict[str, _NodeTags] = OrderedDict()

    async def read(self, lablet: Lablet) -> LabletAccess:
        """How to reach one lablet now."""
        worker = await self._worker(lablet.worker_id)
        return describe_access(lablet, worker, await self._node_tags(lablet.topology_id))

    async def _worker(self, worker_id: str | None) -> Worker | None:
        stored = None if worker_id is None else await self._store.get(WORKERS, worker_id)
        return None if stored is None else read_or_skip(stored, Worker, "worker")

    async def _node_tags(self, definition_id: str) -> _NodeTags:
        if (cached := self._tags.get(definition_id)) is None:
            stored = await self._store.get(TOPOLOGIES, definition_id)
            if stored is None:
                return ()
            nodes = await read_tagged_nodes(json.loads(stored.body))
            cached = tuple((node.label, tuple(filter(forwards_port, node.tags))) for node in nodes)
            self._tags[definition_id] = cached
            if len(self._tags) > MAX_CACHED_DEFINITIONS:
                self._tags.popitem(last=False)
        self._tags.move_to_end(definition_id)
        return cached
