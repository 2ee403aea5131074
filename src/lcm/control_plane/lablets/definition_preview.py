"""Previews of a new version of a definition, and of enabling or disabling one. Nothing is changed by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets.definitions import (
    find_same_definition,
    newest_enabled_definitions,
)
from lcm.control_plane.lablets.topology import check_topology
from lcm.control_plane.records.kinds import LABLETS
from lcm.control_plane.store.port import Where
from lcm.model.change_preview import ChangePreview, DefinitionAction
from lcm.model.formatting import count_with_verb
from lcm.model.lablet.status import FINAL_LABLET_STATUSES

if TYPE_CHECKING:
    from lcm.control_plane.store.port import Store
    from lcm.model.lablet.record import CreateDefinitionRequest, LabletDefinitionSummary

_CREATABLE = "Lablets can be created from it."


async def preview_new_definition(store: Store, request: CreateDefinitionRequest, team: str) -> ChangePreview:
    """What creating a version would do: whether it would be accepted, and which lablets would use it."""
    action = "create"
    try:
        if await find_same_definition(store, request, team) is not None:
            change = "exists with the same content"
            return ChangePreview(action=action, changes=False, change=change, effect="No change needed.")
        await check_topology(request.topology, request.requirements.ports)
    except ProblemError as error:
        return ChangePreview(action=action, refusal=error.detail, changes=False)
    before = await newest_enabled_definitions(store, request.name, team, limit=1)
    effects = [_CREATABLE, _default_text(request.name, before[0].reference if before else None)]
    lablets = await _count_lablets(store, {"definition_name": [request.name], "team": [team]})
    if lablets:
        effects.append(f"{count_with_verb(lablets, 'existing lablet')} unaffected.")
    return ChangePreview(action=action, change="is created", effect=" ".join(effects))


async def preview_definition_change(
    store: Store, definition: LabletDefinitionSummary, action: DefinitionAction
) -> ChangePreview:
    """What enabling or disabling a version would do."""
    enable = action is DefinitionAction.ENABLE
    before, after = ("enabled" if each else "disabled" for each in (definition.enabled, enable))
    if definition.enabled is enable:
        return ChangePreview(action=action, changes=False, change=after, effect="No change needed.")
    found = await newest_enabled_definitions(store, definition.name, definition.team, limit=2)
    if enable:
        effects = [_CREATABLE]
        if not found or definition.created_at > found[0].created_at:
            effects.append(_default_text(definition.name, found[0].reference if found else None))
    else:
        effects = [await _disabling_text(store, definition)]
        if found[0].id == definition.id:
            effects.append(_next_default_text(definition.name, found[1].reference if len(found) > 1 else None))
    return ChangePreview(action=action, change=f"{before} → {after}", effect=" ".join(effects))


def _default_text(name: str, before: str | None) -> str:
    """For lablets that are created without naming a version."""
    instead = f" instead of {before}" if before is not None else ""
    return f"It will be used for new lablets of {name} that name no version{instead}."


def _next_default_text(name: str, after: str | None) -> str:
    if after is None:
        return f"No version of {name} will be enabled: no lablet can be created from it."
    return f"New lablets of {name} that name no version will use {after}."


async def _disabling_text(store: Store, definition: LabletDefinitionSummary) -> str:
    lablets = await _count_lablets(store, {"definition": [definition.reference], "team": [definition.team]})
    existing = f"{count_with_verb(lablets, 'existing lablet')} unaffected" if lablets else "no current lablet uses it"
    return f"No new lablet will be created from this version; {existing}."


async def _count_lablets(store: Store, of: dict[str, list[str]]) -> int:
    current = Where(any_of=of, none_of={"status": sorted(FINAL_LABLET_STATUSES)})
    return sum(count for _, count, _ in await store.count_by(LABLETS, ["status"], current))
