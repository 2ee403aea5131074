"""Records as a newer version of LCM would write them: with fields and words that this version does not know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lcm.control_plane.records.kinds import LABLETS, WORKERS
from lcm.control_plane.store.port import Put

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Kind, Store

ADDED = {"added_by_newer": {"gpus": [1, 2]}}
FROZEN = {"type": "Frozen", "status": "Melting", "reason": "Newer", "message": "", "since": "2026-01-17T10:30:00Z"}


def upgraded(body: dict[str, Any], **words: str) -> dict[str, Any]:
    """The record with added fields, at all levels, and with these words."""
    after = {name: upgraded(value) if isinstance(value, dict) and value else value for name, value in body.items()}
    if "tags" in body:
        after |= {"tags": body["tags"], "conditions": [*body["conditions"], {**FROZEN, **ADDED}]}
    if "ports" in body and isinstance(body["ports"], dict):
        after["ports"] = body["ports"]
    return {**after, **ADDED, **words}


async def upgrade(store: Store, kind: Kind, record_id: str, **words: str) -> dict[str, Any]:
    """A newer control plane writes the record; returns its body."""
    stored = await store.get(kind, record_id)
    assert stored is not None
    body = upgraded(json.loads(stored.body), **words)
    fields: dict[str, Any] = dict.fromkeys(kind.fields)
    for name in set(kind.fields) & set(body):
        fields[name] = body[name]
    if kind in (WORKERS, LABLETS):
        fields |= {"urgency": 2, "attention": f"2 {body['name']}", "at_rest": False} if kind is WORKERS else {}
        fields |= {"urgency": 5, "attention": f"5 {body['name']}", "shown_until": "9999"} if kind is LABLETS else {}
    await store.commit(
        [Put(kind, record_id, json.dumps(body).encode(), stored.revision, fields, {"name": body["name"]})]
    )
    return body


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """What an older version has erased of what a newer one wrote."""
    if isinstance(before, dict) and isinstance(after, dict):
        gone = [f"{path}.{name}" for name in before if name == "added_by_newer" and after.get(name) != before[name]]
        shared = [
            each for name in before.keys() & after.keys() for each in lost(before[name], after[name], f"{path}.{name}")
        ]
        return gone + shared
    return []
