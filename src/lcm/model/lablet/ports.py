"""The ports of a worker that lablets may have, lowest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class PortRange:
    """From the first to the last, both included."""

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
        """How many are not taken."""
        return self.last - self.first + 1 - sum(port in self for port in taken)

    def give(self, names: Sequence[str], taken: Collection[int]) -> dict[str, int] | None:
        """A port for each name, the lowest free ones in the order of the names; None: there are too few."""
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
    """`20000-29999` as a range; ValueError where it is none."""
    first, dash, last = text.strip().partition("-")
    if not (dash and first.strip().isdecimal() and last.strip().isdecimal()):
        raise ValueError("must be two ports with a dash between them, such as 20000-29999")
    return PortRange(int(first), int(last))
