"""Lablet definitions: versions that never change, and whether they are enabled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets.topology import check_topology
from lcm.control_plane.records.kinds import (
    DEFINITIONS,
    TOPOLOGIES,
    definition_fields,
    definition_unique_keys,
    find_all,
    in_team,
)
from lcm.control_plane.records.readable import read_or_skip, readable_records
from lcm.control_plane.records.unit_of_work import OwnedBy
from lcm.control_plane.store.port import Put, Sort, Where
from lcm.core import clock
from lcm.model.lablet.record import LabletDefinition, LabletDefinitionSummary
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from lcm.control_plane.auth.roles import Scope
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import DocumentPage, FieldValue, Store
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


async def find_definition(
    store: Store, scope: Scope, name: str, version: str, team: str | None = None
) -> LabletDefinitionSummary:
    """A version that the caller may see. Without a team: the one that has none, else the only one with the name."""
    reference = f"{name}@{version}"
    in_teams: list[LabletDefinitionSummary] = []
    for each in _teams_to_search(scope, team):
        stored = await store.get_unique(DEFINITIONS, "name", in_team(each, reference))
        if stored is not None and scope.everything:
            return LabletDefinitionSummary.model_validate_json(stored.body)
        if stored is not None:
            in_teams.append(LabletDefinitionSummary.model_validate_json(stored.body))
    if in_teams:
        return _only(in_teams, reference)
    if scope.everything and team is None:
        found = [each async for each in _named(store, name) if each.version == version]
        return _only(found, reference)
    raise definition_not_found(reference)


async def resolve_definition(
    store: Store, reference: str, scope: Scope, team: str | None = None
) -> LabletDefinitionSummary:
    """The named version, or the newest enabled one; of the team if one is given, else as `find_definition`."""
    name, _, version = reference.partition("@")
    if version:
        return await find_definition(store, scope, name, version, team)
    for each in _teams_to_search(scope, team):
        if (found := await _newest_enabled(store, name, each)) is not None:
            return found
    if scope.everything and team is None:
        teams = {each.team: each async for each in _named(store, name)}
        return await _newest_enabled(store, name, _only(list(teams.values()), name).team) or _only([], name)
    raise definition_not_found(name)


def _teams_to_search(scope: Scope, team: str | None) -> Sequence[str]:
    """Where a version is looked for: a team first, then, for roles of the fleet, what has no team."""
    if team is None:
        return [""] if scope.everything else sorted(scope.teams)
    if scope.everything:
        return list(dict.fromkeys([team, ""]))
    return [team] if team in scope.teams else []


async def _newest_enabled(store: Store, name: str, team: str) -> LabletDefinitionSummary | None:
    """None if the team has no definition of this name; a problem if none of its versions is enabled."""
    newest = await newest_enabled_definitions(store, name, team, limit=1)
    if newest:
        return newest[0]
    if (await list_definition_versions(store, name, {"team": [team]}, None, 1)).items:
        detail = f"no version of definition {name} is enabled; enable one, or add another version"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    return None


async def _named(store: Store, name: str) -> AsyncIterator[LabletDefinitionSummary]:
    async for stored in find_all(store, DEFINITIONS, Where(any_of={"name": [name]})):
        if (found := read_or_skip(stored, LabletDefinitionSummary, "definition")) is not None:
            yield found


def _only(found: list[LabletDefinitionSummary], reference: str) -> LabletDefinitionSummary:
    if not found:
        raise definition_not_found(reference)
    if len(found) > 1:
        detail = f"{reference} is a definition of {len(found)} teams; name the team"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    return found[0]


async def newest_enabled_definitions(
    store: Store, name: str, team: str = "", *, limit: int
) -> list[LabletDefinitionSummary]:
    """The newest enabled versions of a team's definition. The first is used where no version is named."""
    enabled = Where(any_of={"name": [name], "enabled": [True], "team": [team]})
    page = await store.find(DEFINITIONS, enabled, sort=_NEWEST_FIRST, limit=limit)
    return readable_records(page.items, LabletDefinitionSummary, "definition")


async def find_same_definition(
    store: Store, request: CreateDefinitionRequest, team: str = ""
) -> LabletDefinition | None:
    """The team's version with the name, number and content of the request; None if there is no such version.

    One with other content is a problem: versions never change.
    """
    reference = f"{request.name}@{request.version}"
    stored = await store.get_unique(DEFINITIONS, "name", in_team(team, reference))
    if stored is None:
        return None
    existing = await read_definition(store, stored.id)
    same = all(getattr(existing, name) == getattr(request, name) for name in _CONTENT_FIELDS)
    if same and existing.topology == request.topology:
        return existing
    detail = f"version: {reference} exists with different content, and versions never change; choose another"
    raise ProblemError(ProblemCode.NAME_TAKEN, detail, current={"definition": reference})


async def list_definition_versions(
    store: Store, name: str, scoped: Mapping[str, Sequence[FieldValue]], after: str | None, limit: int
) -> DocumentPage:
    """The versions of a definition without their topologies, newest first."""
    named = Where(any_of={"name": [name], **scoped})
    return await store.find(DEFINITIONS, named, sort=_NEWEST_FIRST, after=after, limit=limit)


async def add_definition(
    tx: Transaction, request: CreateDefinitionRequest, by: str, team: str = ""
) -> tuple[LabletDefinition, bool]:
    """Add a version, or return the existing one with the same content; the flag says whether it is new."""
    existing = await find_same_definition(tx.store, request, team)
    if existing is not None:
        return existing, False
    await check_topology(request.topology, request.requirements.ports)
    reference = f"{request.name}@{request.version}"
    definition_id = in_team(team, reference)
    if await tx.store.get(DEFINITIONS, definition_id) is not None:
        # It was made here and is another team's now. Lablets know it by this id, so the new one gets another.
        definition_id = in_team(clock.new_id("d"), reference)
    summary = LabletDefinitionSummary(
        id=definition_id,
        team=team,
        created_at=tx.now,
        created_by=by,
        **{name: getattr(request, name) for name in ("name", "version", *_CONTENT_FIELDS)},
    )
    _put_definition(tx, summary, None)
    tx.stage(Put(TOPOLOGIES, definition_id, json.dumps(request.topology).encode(), None))
    tx.audit("definition_created", definition_id, about=OwnedBy(team))
    return LabletDefinition(**dict(summary), topology=request.topology), True


async def assign_definition(tx: Transaction, definition_id: str, team: str) -> LabletDefinition:
    """Give a version to a team, or to none. Lablets that exist are unaffected."""
    stored, existing = await tx.store.get(DEFINITIONS, definition_id), await read_definition(tx.store, definition_id)
    if stored is not None and existing.team != team:
        updated = LabletDefinitionSummary.model_validate_json(stored.body).model_copy(update={"team": team})
        _put_definition(tx, updated, stored.revision)
        tx.audit("definition_assigned", definition_id, about=OwnedBy(team), team=team, was=existing.team)
    return existing.model_copy(update={"team": team})


async def set_definition_enabled(tx: Transaction, definition_id: str, *, enabled: bool) -> LabletDefinition:
    """Allow or forbid new lablets from a version. Existing lablets are unaffected."""
    stored = await tx.store.get(DEFINITIONS, definition_id)
    existing = await read_definition(tx.store, definition_id)
    if stored is not None and existing.enabled is not enabled:
        updated = LabletDefinitionSummary.model_validate_json(stored.body).model_copy(update={"enabled": enabled})
        _put_definition(tx, updated, stored.revision)
        action = "definition_enabled" if enabled else "definition_disabled"
        tx.audit(action, definition_id, about=OwnedBy(existing.team))
    return existing.model_copy(update={"enabled": enabled})


def _put_definition(tx: Transaction, summary: LabletDefinitionSummary, revision: int | None) -> None:
    body = summary.model_dump_json().encode()
    fields, unique = definition_fields(summary), definition_unique_keys(summary)
    tx.stage(Put(DEFINITIONS, summary.id, body, revision, fields, unique))


def definition_not_found(reference: str) -> ProblemError:
    """The error for a definition that does not exist."""
    detail = f"there is no definition {reference}; lcm definitions list shows the existing ones"
    return ProblemError(ProblemCode.NOT_FOUND, detail)
