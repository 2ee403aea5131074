"""The topology of a lablet: its definition's, with the numbers of its ports in it."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from lcm.client.errors import NotFound
from lcm.controllers.lablet.observation import Recipe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lcm.model.lablet.record import Lablet, LabletDefinition

MOST_KEPT: Final = 16
_PLACE = re.compile(r"\$\{([A-Z][A-Z0-9_]{0,63})\}")


class DefinitionSource(Protocol):
    """Where definitions are kept: the control plane."""

    async def definition(self, definition_id: str) -> LabletDefinition:
        """One version of a definition; `NotFound` where there is none."""


def with_ports(topology: str, ports: Mapping[str, int]) -> str:
    """`${NAME}` stands for the number of a port. Any other `${…}` is the topology's own and stays."""

    def number(place: re.Match[str]) -> str:
        given = ports.get(place.group(1))
        return place.group(0) if given is None else str(given)

    return _PLACE.sub(number, topology)


class Topologies:
    """Topologies of definitions. A version never changes, so the last few are kept."""

    def __init__(self, source: DefinitionSource) -> None:
        self._source = source
        self._kept: OrderedDict[str, str] = OrderedDict()

    async def recipe(self, lablet: Lablet) -> Recipe:
        """What its lab is made of. Raises what the control plane's client raises, unless there is none."""
        topology = self._kept.get(lablet.definition)
        if topology is None:
            try:
                topology = (await self._source.definition(lablet.definition)).topology
            except NotFound:
                return Recipe(trouble=f"there is no definition {lablet.definition}", lasting=True)
            self._kept[lablet.definition] = topology
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(lablet.definition)
        return Recipe(with_ports(topology, lablet.ports))
