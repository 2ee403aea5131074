"""Lablet definitions: versions that never change, whether they are enabled, and the check of their topologies.

A topology is checked as a stream of YAML events, without building what it describes.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

import yaml

from lcm.control_plane.errors import ProblemError
from lcm.control_plane.records.kinds import DEFINITIONS, TOPOLOGIES, definition_fields
from lcm.control_plane.store.port import Put, Sort, Where
from lcm.model.lablet.record import LabletDefinition, LabletDefinitionSummary
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import DocumentPage, Store
    from lcm.model.lablet.record import CreateDefinitionRequest


_NEWEST_FIRST = Sort("created_at", descending=True)
_CONTENT_FIELDS = ("description", "requirements", "time_to_live_minutes")
_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_DEPTH = 50
_MAX_PROBLEM_LENGTH = 200
_EVENTS_PER_YIELD = 1_000
"""YAML events that are read before other tasks of the loop run: a few milliseconds."""

_PORT_REFERENCE = re.compile(r"\$\{([A-Z][A-Z0-9_]{0,63})\}")


async def check_topology(text: str, ports: Collection[str]) -> None:
    """Reject text that is not a topology, or that uses a port that is not listed."""
    await _check_structure(text)
    unlisted = sorted(set(_PORT_REFERENCE.findall(text)) - set(ports))
    if unlisted:
        names = ", ".join(f"${{{name}}}" for name in unlisted[:5])
        listed = ", ".join(unlisted[:5])
        raise _invalid_topology(f"{names} is used but not listed in requirements.ports; add {listed} there")


async def _check_structure(text: str) -> None:
    counter = _NodeCounter()
    try:
        for number, (depth, event) in enumerate(_parse_events(text), 1):
            counter.handle(depth, event)
            if number % _EVENTS_PER_YIELD == 0:
                await asyncio.sleep(0)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())[:_MAX_PROBLEM_LENGTH]
        raise _invalid_topology(f"is not YAML: {problem}") from None
    if not counter.nodes:
        raise _invalid_topology("has no nodes; pass a mapping with a list of nodes, as CML exports a lab")


def _parse_events(text: str) -> Iterator[tuple[int, yaml.Event]]:
    """The YAML events with their depth. Nothing is built, so a text that expands to a huge document does no harm."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_YAML_LOADER):
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _invalid_topology("has more than one YAML document; pass one")
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        yield depth, event
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise _invalid_topology(f"is nested deeper than {_MAX_DEPTH} levels")


class _NodeCounter:
    """Counts the mappings in the list `nodes` of the outermost mapping."""

    def __init__(self) -> None:
        self.nodes = 0
        self._key: str | None = None
        self._expects_key = True
        self._in_nodes = False

    def handle(self, depth: int, event: yaml.Event) -> None:
        """Handle the next event."""
        if not isinstance(event, yaml.NodeEvent) or depth > 2:
            return
        if depth == 0:
            if not isinstance(event, yaml.MappingStartEvent):
                raise _invalid_topology("must be a mapping with a list of nodes, as CML exports a lab")
        elif depth == 1:
            self._handle_outermost(event)
        elif self._in_nodes:
            if not isinstance(event, yaml.MappingStartEvent):
                raise _invalid_topology("each node must be a mapping")
            self.nodes += 1

    def _handle_outermost(self, event: yaml.NodeEvent) -> None:
        if self._expects_key:
            self._key = event.value if isinstance(event, yaml.ScalarEvent) else None
            self._in_nodes = False
        else:
            self._in_nodes = self._key == "nodes"
            if self._in_nodes and not isinstance(event, yaml.SequenceStartEvent):
                raise _invalid_topology("nodes must be a list")
        self._expects_key = not self._expects_key


def _invalid_topology(what: str) -> ProblemError:
    return ProblemError(ProblemCode.INVALID, f"topology: {what}")


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
    enabled = Where(any_of={"name": [name], "enabled": [True]})
    newest = await store.find(DEFINITIONS, enabled, sort=_NEWEST_FIRST, limit=1)
    if newest.items:
        return LabletDefinitionSummary.model_validate_json(newest.items[0].body)
    if (await list_definition_versions(store, name, None, 1)).items:
        detail = f"no version of definition {name} is enabled; enable one, or add another version"
        raise ProblemError(ProblemCode.NOT_POSSIBLE_NOW, detail)
    raise definition_not_found(name)


async def list_definition_versions(store: Store, name: str, after: str | None, limit: int) -> DocumentPage:
    """The versions of a definition without their topologies, newest first."""
    named = Where(any_of={"name": [name]})
    return await store.find(DEFINITIONS, named, sort=_NEWEST_FIRST, after=after, limit=limit)


async def add_definition(tx: Transaction, request: CreateDefinitionRequest, by: str) -> tuple[LabletDefinition, bool]:
    """Add a version, or return the existing one with the same content; the flag says whether it is new."""
    definition_id = f"{request.name}@{request.version}"
    if await tx.store.get(DEFINITIONS, definition_id) is not None:
        existing = await read_definition(tx.store, definition_id)
        if existing.topology == request.topology and all(
            getattr(existing, n) == getattr(request, n) for n in _CONTENT_FIELDS
        ):
            return existing, False
        detail = f"version: {definition_id} exists with different content, and versions never change; choose another"
        raise ProblemError(ProblemCode.NAME_TAKEN, detail, current={"definition": definition_id})
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
