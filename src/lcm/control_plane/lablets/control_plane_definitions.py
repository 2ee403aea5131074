"""What lablets are made from: versions that never change, and whether more lablets may be made from each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lcm.control_plane.errors import Refusal
from lcm.control_plane.lablets.definitions import check_topology
from lcm.control_plane.records.kinds import DEFINITIONS, TOPOLOGIES, definition_fields
from lcm.control_plane.store.port import Put, Sort, Where
from lcm.model.lablet.record import DefinitionSummary, LabletDefinition
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Change
    from lcm.control_plane.store.port import Page, Store
    from lcm.model.lablet.record import CreateDefinition

_NEWEST_FIRST = Sort("created_at", descending=True)
_CONTENT = ("description", "requirements", "time_to_live_minutes")


async def read_definition(store: Store, definition_id: str) -> LabletDefinition:
    """One version with its topology, by name@version."""
    summary = await read_summary(store, definition_id)
    stored = await store.get(TOPOLOGIES, definition_id)
    assert stored is not None, "both are written in one commit"
    return LabletDefinition(**dict(summary), topology=json.loads(stored.body))


async def read_summary(store: Store, definition_id: str) -> DefinitionSummary:
    """One version without its topology, by name@version."""
    stored = await store.get(DEFINITIONS, definition_id)
    if stored is None:
        raise unknown_definition(definition_id)
    return DefinitionSummary.model_validate_json(stored.body)


async def resolve_definition(store: Store, asked: str) -> DefinitionSummary:
    """The version that is named, or the newest that is enabled."""
    name, _, version = asked.partition("@")
    if version:
        return await read_summary(store, asked)
    enabled = Where(any_of={"name": [name], "enabled": [True]})
    newest = await store.find(DEFINITIONS, enabled, sort=_NEWEST_FIRST, limit=1)
    if newest.items:
        return DefinitionSummary.model_validate_json(newest.items[0].body)
    if (await versions(store, name, None, 1)).items:
        detail = f"no version of definition {name} is enabled; enable one, or add another version"
        raise Refusal(ProblemCode.NOT_POSSIBLE_NOW, detail)
    raise unknown_definition(name)


async def versions(store: Store, name: str, after: str | None, limit: int) -> Page:
    """The versions of a definition without their topologies, newest first."""
    named = Where(any_of={"name": [name]})
    return await store.find(DEFINITIONS, named, sort=_NEWEST_FIRST, after=after, limit=limit)


async def add_definition(change: Change, request: CreateDefinition, by: str) -> tuple[LabletDefinition, bool]:
    """A new version, or the one that is there already with the same content; says whether it is new."""
    definition_id = f"{request.name}@{request.version}"
    if await change.store.get(DEFINITIONS, definition_id) is not None:
        known = await read_definition(change.store, definition_id)
        if known.topology == request.topology and all(getattr(known, n) == getattr(request, n) for n in _CONTENT):
            return known, False
        detail = f"version: {definition_id} is there with other content, and a version never changes; choose another"
        raise Refusal(ProblemCode.NAME_TAKEN, detail, current={"definition": definition_id})
    await check_topology(request.topology, request.requirements.ports)
    summary = DefinitionSummary(
        id=definition_id,
        created_at=change.now,
        created_by=by,
        **{name: getattr(request, name) for name in ("name", "version", *_CONTENT)},
    )
    _put(change, summary, None)
    change.write(Put(TOPOLOGIES, definition_id, json.dumps(request.topology).encode(), None))
    change.audit("definition_created", definition_id)
    return LabletDefinition(**dict(summary), topology=request.topology), True


async def switch_definition(change: Change, definition_id: str, *, enabled: bool) -> LabletDefinition:
    """Let lablets be made from a version, or no more. Those that were made stay as they are."""
    stored = await change.store.get(DEFINITIONS, definition_id)
    known = await read_definition(change.store, definition_id)
    if stored is not None and known.enabled is not enabled:
        switched = DefinitionSummary.model_validate_json(stored.body).model_copy(update={"enabled": enabled})
        _put(change, switched, stored.revision)
        change.audit("definition_enabled" if enabled else "definition_disabled", definition_id)
    return known.model_copy(update={"enabled": enabled})


def _put(change: Change, summary: DefinitionSummary, revision: int | None) -> None:
    body = summary.model_dump_json().encode()
    change.write(Put(DEFINITIONS, summary.id, body, revision, definition_fields(summary)))


def unknown_definition(asked: str) -> Refusal:
    """That it is not there, and where to look."""
    detail = f"there is no definition {asked}; lcm definitions list shows those that are"
    return Refusal(ProblemCode.NOT_FOUND, detail)
