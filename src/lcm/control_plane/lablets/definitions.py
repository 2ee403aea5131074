"""Lablet definitions: versions that never change, and whether they are enabled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets.topology import check_topology
from lcm.control_plane.records.kinds import DEFINITIONS, TOPOLOGIES, definition_fields
from lcm.control_plane.store.port import Put, Sort, Where
from lcm.model.lablet.record import LabletDefinition, LabletDefinitionSummary
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import DocumentPage, Store
    from lcm.model.lablet.record import CreateDefinitionRequest


_NEWEST_FIRST = Sort("created_at", descending=True)
_CONTENT_FIELDS = ("description", "requirements", "time_to_live_minutes")


async def read_definition(store: Store, definition_id: str) -> LabletDefinition:
    """One version with its topology, by name@version."""
    summary = await read_definition_summary(store, definition_id)
    stored = await store.get(TOPOLOGIES, definition_id)
    assert stored is not None, "both are written in one commit"
    return LabletDefinition(**dict(summary), topology=json.loads(stored.body))


async def read_definition_summary(store: Store, definition_id: str) -> LabletDefinitionSummary:
    """One version without its topology, by name@version."""
    stored = await store.get(DEFINITIONS, definition_id)
    if stored is None:
        raise definition_not_found(definition_id)
    return LabletDefinitionSummary.model_validate_json(stored.body)


async def resolve_definition(store: Store, reference: str) -> LabletDefinitionSummary:
    """The named version, or the newest enabled one."""
    name, _, version = reference.partition("@")
    if version:
        return await read_definition_summary(store, reference)
    newest = await newest_enabled_definitions(store, name, limit=1)
    if newest:
        return newest[0]
    if (await list_definition_versions(store, name, None, 1)).items:
        detail = f"no version of definition {name} is enabled; enable one, or add another version"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    raise definition_not_found(name)


async def newest_enabled_definitions(store: Store, name: str, *, limit: int) -> list[LabletDefinitionSummary]:
    """The newest enabled versions of a definition. The first is used where no version is named."""
    enabled = Where(any_of={"name": [name], "enabled": [True]})
    page = await store.find(DEFINITIONS, enabled, sort=_NEWEST_FIRST, limit=limit)
    return [LabletDefinitionSummary.model_validate_json(stored.body) for stored in page.items]


async def find_same_definition(store: Store, request: CreateDefinitionRequest) -> LabletDefinition | None:
    """The version with the name, the number and the content of the request; None if there is no such version.

    One with other content is a problem: versions never change.
    """
    definition_id = f"{request.name}@{request.version}"
    if await store.get(DEFINITIONS, definition_id) is None:
        return None
    existing = await read_definition(store, definition_id)
    same = all(getattr(existing, name) == getattr(request, name) for name in _CONTENT_FIELDS)
    if same and existing.topology == request.topology:
        return existing
    detail = f"version: {definition_id} exists with different content, and versions never change; choose another"
    raise ProblemError(ProblemCode.NAME_TAKEN, detail, current={"definition": definition_id})


async def list_definition_versions(store: Store, name: str, after: str | None, limit: int) -> DocumentPage:
    """The versions of a definition without their topologies, newest first."""
    named = Where(any_of={"name": [name]})
    return await store.find(DEFINITIONS, named, sort=_NEWEST_FIRST, after=after, limit=limit)


async def add_definition(tx: Transaction, request: CreateDefinitionRequest, by: str) -> tuple[LabletDefinition, bool]:
    """Add a version, or return the existing one with the same content; the flag says whether it is new."""
    definition_id = f"{request.name}@{request.version}"
    existing = await find_same_definition(tx.store, request)
    if existing is not None:
        return existing, False
    await check_topology(request.topology, request.requirements.ports)
    summary = LabletDefinitionSummary(
        id=definition_id,
        created_at=tx.now,
        created_by=by,
        **{name: getattr(request, name) for name in ("name", "version", *_CONTENT_FIELDS)},
    )
    _put_definition(tx, summary, None)
    tx.stage(Put(TOPOLOGIES, definition_id, json.dumps(request.topology).encode(), None))
    tx.audit("definition_created", definition_id)
    return LabletDefinition(**dict(summary), topology=request.topology), True


async def set_definition_enabled(tx: Transaction, definition_id: str, *, enabled: bool) -> LabletDefinition:
    """Allow or forbid new lablets from a version. Existing lablets are unaffected."""
    stored = await tx.store.get(DEFINITIONS, definition_id)
    existing = await read_definition(tx.store, definition_id)
    if stored is not None and existing.enabled is not enabled:
        updated = LabletDefinitionSummary.model_validate_json(stored.body).model_copy(update={"enabled": enabled})
        _put_definition(tx, updated, stored.revision)
        tx.audit("definition_enabled" if enabled else "definition_disabled", definition_id)
    return existing.model_copy(update={"enabled": enabled})


def _put_definition(tx: Transaction, summary: LabletDefinitionSummary, revision: int | None) -> None:
    body = summary.model_dump_json().encode()
    tx.stage(Put(DEFINITIONS, summary.id, body, revision, definition_fields(summary)))


def definition_not_found(reference: str) -> ProblemError:
    """The error for a definition that does not exist."""
    detail = f"there is no definition {reference}; lcm definitions list shows the existing ones"
    return ProblemError(ProblemCode.NOT_FOUND, detail)
