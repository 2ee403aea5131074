"""Whether a text can be the topology of a lab, found out without building what it describes."""

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


_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_DEPTH = 50
_MAX_PROBLEM_LENGTH = 200
_EVENTS_PER_YIELD = 1_000
"""How many steps of a text are read before others have their turn: some milliseconds."""

_PORT_REFERENCE = re.compile(r"\$\{([A-Z][A-Z0-9_]{0,63})\}")


async def check_topology(text: str, ports: Collection[str]) -> None:
    """Refuse what is no topology, or names a port that is not listed."""
    await _check_structure(text)
    unlisted = sorted(set(_PORT_REFERENCE.findall(text)) - set(ports))
    if unlisted:
        names = ", ".join(f"${{{name}}}" for name in unlisted[:5])
        listed = ", ".join(unlisted[:5])
        raise _invalid_topology(f"{names} is used, but requirements.ports does not list it: add {listed} there")


async def _check_structure(text: str) -> None:
    outline = _NodeCounter()
    try:
        for number, (depth, event) in enumerate(_parse_events(text), 1):
            outline.take(depth, event)
            if number % _EVENTS_PER_YIELD == 0:
                await asyncio.sleep(0)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())[:_MAX_PROBLEM_LENGTH]
        raise _invalid_topology(f"is not YAML: {problem}") from None
    if not outline.nodes:
        raise _invalid_topology("has no nodes: give a mapping with a list of nodes, as CML exports a lab")


def _parse_events(text: str) -> Iterator[tuple[int, yaml.Event]]:
    """The events of the text with their depth. Nothing is built: what unfolds to much more than it is cannot."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_YAML_LOADER):
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _invalid_topology("holds more than one document; give one")
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        yield depth, event
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise _invalid_topology(f"is nested deeper than {_MAX_DEPTH} levels")


class _NodeCounter:
    """How many mappings the list `nodes` of the outermost mapping has."""

    def __init__(self) -> None:
        self.nodes = 0
        self._key: str | None = None
        self._key_comes = True
        self._inside = False

    def take(self, depth: int, event: yaml.Event) -> None:
        """The next step of the text."""
        if not isinstance(event, yaml.NodeEvent) or depth > 2:
            return
        if depth == 0:
            if not isinstance(event, yaml.MappingStartEvent):
                raise _invalid_topology("must be a mapping with a list of nodes, as CML exports a lab")
        elif depth == 1:
            self._take_outermost(event)
        elif self._inside:
            if not isinstance(event, yaml.MappingStartEvent):
                raise _invalid_topology("each of its nodes must be a mapping")
            self.nodes += 1

    def _take_outermost(self, event: yaml.NodeEvent) -> None:
        if self._key_comes:
            self._key = event.value if isinstance(event, yaml.ScalarEvent) else None
            self._inside = False
        else:
            self._inside = self._key == "nodes"
            if self._inside and not isinstance(event, yaml.SequenceStartEvent):
                raise _invalid_topology("nodes must be a list")
        self._key_comes = not self._key_comes


def _invalid_topology(what: str) -> ProblemError:
    return ProblemError(ProblemCode.INVALID, f"topology: {what}")


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


async def resolve_definition(store: Store, asked: str) -> LabletDefinitionSummary:
    """The version that is named, or the newest that is enabled."""
    name, _, version = asked.partition("@")
    if version:
        return await read_definition_summary(store, asked)
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


async def add_definition(
    change: Transaction, request: CreateDefinitionRequest, by: str
) -> tuple[LabletDefinition, bool]:
    """A new version, or the one that is there already with the same content; says whether it is new."""
    definition_id = f"{request.name}@{request.version}"
    if await change.store.get(DEFINITIONS, definition_id) is not None:
        known = await read_definition(change.store, definition_id)
        if known.topology == request.topology and all(
            getattr(known, n) == getattr(request, n) for n in _CONTENT_FIELDS
        ):
            return known, False
        detail = f"version: {definition_id} is there with other content, and a version never changes; choose another"
        raise ProblemError(ProblemCode.NAME_TAKEN, detail, current={"definition": definition_id})
    await check_topology(request.topology, request.requirements.ports)
    summary = LabletDefinitionSummary(
        id=definition_id,
        created_at=change.now,
        created_by=by,
        **{name: getattr(request, name) for name in ("name", "version", *_CONTENT_FIELDS)},
    )
    _put_definition(change, summary, None)
    change.write(Put(TOPOLOGIES, definition_id, json.dumps(request.topology).encode(), None))
    change.audit("definition_created", definition_id)
    return LabletDefinition(**dict(summary), topology=request.topology), True


async def set_definition_enabled(change: Transaction, definition_id: str, *, enabled: bool) -> LabletDefinition:
    """Let lablets be made from a version, or no more. Those that were made stay as they are."""
    stored = await change.store.get(DEFINITIONS, definition_id)
    known = await read_definition(change.store, definition_id)
    if stored is not None and known.enabled is not enabled:
        switched = LabletDefinitionSummary.model_validate_json(stored.body).model_copy(update={"enabled": enabled})
        _put_definition(change, switched, stored.revision)
        change.audit("definition_enabled" if enabled else "definition_disabled", definition_id)
    return known.model_copy(update={"enabled": enabled})


def _put_definition(change: Transaction, summary: LabletDefinitionSummary, revision: int | None) -> None:
    body = summary.model_dump_json().encode()
    change.write(Put(DEFINITIONS, summary.id, body, revision, definition_fields(summary)))


def definition_not_found(asked: str) -> ProblemError:
    """That it is not there, and where to look."""
    detail = f"there is no definition {asked}; lcm definitions list shows those that are"
    return ProblemError(ProblemCode.NOT_FOUND, detail)
