"""The topologies of definitions: whether a text is one, and the tags of its nodes.

A topology is read as a stream of YAML events, without building what it describes.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml

from lcm.control_plane.errors import ProblemError
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_TOPOLOGY_NODES = 10_000
_MAX_DEPTH = 50
_MAX_PROBLEM_LENGTH = 200
_EVENTS_PER_YIELD = 1_000
"""YAML events that are read before other tasks of the loop run: a few milliseconds."""

_PORT_REFERENCE = re.compile(r"\$\{([A-Z][A-Z0-9_]{0,63})\}")
_MAX_LABEL_LENGTH = 128


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
    if counter.nodes > MAX_TOPOLOGY_NODES:
        raise _invalid_topology(f"has {counter.nodes} nodes; at most {MAX_TOPOLOGY_NODES} are allowed")
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
        if getattr(event, "anchor", None) is not None:
            # Aliases, too, name an anchor. Whoever builds the document later would build it many times over.
            raise _invalid_topology("uses YAML anchors or aliases (& and *); write the values out")
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


@dataclass(slots=True)
class TaggedNode:
    """A node of a topology and its tags, with `${NAME}` where a port number will be."""

    label: str = ""
    tags: list[str] = field(default_factory=list)


async def read_tagged_nodes(text: str) -> tuple[TaggedNode, ...]:
    """The nodes that have tags, in the order of the topology. Text that is not a topology has none."""
    reader = _TagReader()
    try:
        for number, (depth, event) in enumerate(_parse_events(text), 1):
            reader.handle(depth, event)
            if number % _EVENTS_PER_YIELD == 0:
                await asyncio.sleep(0)
    except (yaml.YAMLError, ProblemError):
        return ()
    return tuple(node for node in reader.nodes if node.tags and node.label)


class _TagReader:
    """Collects `label` (or else `id`) and `tags` of each mapping in the list `nodes` of the outermost mapping."""

    def __init__(self) -> None:
        self.nodes: list[TaggedNode] = []
        self._outer = _KeyTracker()
        self._inner = _KeyTracker()

    def handle(self, depth: int, event: yaml.Event) -> None:
        """Handle the next event."""
        if not isinstance(event, yaml.NodeEvent):
            return
        text = event.value if isinstance(event, yaml.ScalarEvent) else None
        if depth == 1:
            self._outer.handle(text)
        elif self._outer.key != "nodes":
            return
        elif depth == 2:
            self._inner = _KeyTracker()
            self.nodes.append(TaggedNode())
        elif depth == 3:
            self._inner.handle(text)
            if self._inner.is_value and text is not None and self._inner.key in ("id", "label"):
                node = self.nodes[-1]
                if self._inner.key == "label" or not node.label:
                    node.label = text[:_MAX_LABEL_LENGTH]
        elif depth == 4 and self._inner.key == "tags" and text is not None:
            self.nodes[-1].tags.append(text)


class _KeyTracker:
    """Tells the keys of a mapping from their values."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.is_value = True

    def handle(self, text: str | None) -> None:
        """Handle the next key or value of the mapping."""
        self.is_value = not self.is_value
        if not self.is_value:
            self.key = text
