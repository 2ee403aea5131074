"""The ports of a worker: the range from which lablets get theirs, lowest first, and placeholders for them in texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_MAX_PORT = 65_535
_PORT_PLACEHOLDER = re.compile(r"\$\{([A-Z][A-Z0-9_]{0,63})\}")


@dataclass(frozen=True, slots=True)
class PortRange:
    """A range of ports; first and last are included."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if not 1 <= self.first <= self.last <= _MAX_PORT:
            raise ValueError(f"must be two ports, the lower one first, such as 20000-29999, not {self}")

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last

    def count_free(self, taken: Collection[int]) -> int:
        """Return the number of free ports."""
        return self.last - self.first + 1 - sum(port in self for port in taken)

    def allocate(self, names: Sequence[str], taken: Collection[int]) -> dict[str, int] | None:
        """Return a port for each name, the lowest free ports in the order of the names; None if there are too few."""
        numbers: dict[str, int] = {}
        used = set(taken)
        port = self.first
        for name in names:
            while port in used:
                port += 1
            if port > self.last:
                return None
            numbers[name] = port
            port += 1
        return numbers


DEFAULT_PORTS = PortRange(20_000, 29_999)


def parse_port_range(text: str) -> PortRange:
    """Parse a range such as `20000-29999`; ValueError if it is invalid."""
    first, dash, last = text.strip().partition("-")
    if not (dash and first.strip().isdecimal() and last.strip().isdecimal()):
        raise ValueError("must be two ports separated by a dash, such as 20000-29999")
    return PortRange(int(first), int(last))


def substitute_ports(text: str, ports: Mapping[str, int]) -> str:
    """Replace `${NAME}` by the number of the port. Any other `${…}` belongs to the text and stays."""

    def number(placeholder: re.Match[str]) -> str:
        port = ports.get(placeholder.group(1))
        return placeholder.group(0) if port is None else str(port)

    return _PORT_PLACEHOLDER.sub(number, text)
