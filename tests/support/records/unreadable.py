"""Records as no version could have written them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.store.port import Put

if TYPE_CHECKING:
    from lcm.control_plane.store.port import FieldValue, Kind, Store


async def make_unreadable(store: Store, kind: Kind, record_id: str, **fields: FieldValue) -> None:
    """Replace a record, or add one; `fields` are those that it is found by."""
    stored = await store.get(kind, record_id)
    found_by = {**dict.fromkeys(kind.fields), **fields}
    revision = None if stored is None else stored.revision
    await store.commit([Put(kind, record_id, b'{"name": ["broken"]}', revision, found_by)])
