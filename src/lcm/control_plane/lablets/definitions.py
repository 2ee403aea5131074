"""Whether a text can be the topology of a lab, found out without building what it describes."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import yaml

from lcm.control_plane.errors import Refusal
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 50
_LONGEST_PROBLEM = 200
_AT_ONCE = 1_000
"""How many steps of a text are read before others have their turn: some milliseconds."""

_PORT = re.compile(r"\$\{([A-Z][A-Z0-9_]{0,63})\}")


async def check_topology(text: str, ports: Collection[str]) -> None:
    """Refuse what is no topology, or names a port that is not listed."""
    await _check_structure(text)
    unlisted = sorted(set(_PORT.findall(text)) - set(ports))
    if unlisted:
        names = ", ".join(f"${{{name}}}" for name in unlisted[:5])
        listed = ", ".join(unlisted[:5])
        raise _wrong(f"{names} is used, but requirements.ports does not list it: add {listed} there")


async def _check_structure(text: str) -> None:
    outline = _Outline()
    try:
        for number, (depth, event) in enumerate(_steps(text), 1):
            outline.take(depth, event)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())[:_LONGEST_PROBLEM]
        raise _wrong(f"is not YAML: {problem}") from None
    if not outline.nodes:
        raise _wrong("has no nodes: give a mapping with a list of nodes, as CML exports a lab")


def _steps(text: str) -> Iterator[tuple[int, yaml.Event]]:
    """The events of the text with their depth. Nothing is built: what unfolds to much more than it is cannot."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _wrong("holds more than one document; give one")
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        yield depth, event
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEEPEST:
                raise _wrong(f"is nested deeper than {_DEEPEST} levels")


class _Outline:
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
                raise _wrong("must be a mapping with a list of nodes, as CML exports a lab")
        elif depth == 1:
            self._take_outermost(event)
        elif self._inside:
            if not isinstance(event, yaml.MappingStartEvent):
                raise _wrong("each of its nodes must be a mapping")
            self.nodes += 1

    def _take_outermost(self, event: yaml.NodeEvent) -> None:
        if self._key_comes:
            self._key = event.value if isinstance(event, yaml.ScalarEvent) else None
            self._inside = False
        else:
            self._inside = self._key == "nodes"
            if self._inside and not isinstance(event, yaml.SequenceStartEvent):
                raise _wrong("nodes must be a list")
        self._key_comes = not self._key_comes


def _wrong(what: str) -> Refusal:
    return Refusal(ProblemCode.INVALID, f"topology: {what}")
