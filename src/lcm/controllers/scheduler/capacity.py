"""What is left on a worker, or on one that is only planned, after what was planned so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.model.lablet.placement import score, shortage, too_few_ports, with_lablet

if TYPE_CHECKING:
    from lcm.model.lablet.ports import PortRange
    from lcm.model.lablet.record import Requirements
    from lcm.model.worker.allocation import Allocation
    from lcm.model.worker.template import Capacity


@dataclass(slots=True)
class Room:
    """In the course of one plan it only gets fuller: what did not fit once need not be tried again."""

    capacity: Capacity
    taken: Allocation

    @property
    def score(self) -> float:
        """How full it is: the fullest that fits is the best."""
        return score(self.capacity, self.taken)

    def fits(self, requirements: Requirements, ports: PortRange) -> bool:
        """Whether there is enough left of everything."""
        return self.lacks(requirements, ports) is None

    def lacks(self, requirements: Requirements, ports: PortRange) -> str | None:
        """What there is not enough of."""
        return shortage(self.capacity, self.taken, requirements) or too_few_ports(self.taken, requirements, ports)

    def take(self, requirements: Requirements, ports: PortRange) -> None:
        """Plan one more lablet. Whoever reserves gives it its ports; here only their count matters."""
        numbers = ports.give(requirements.ports, self.taken.ports)
        assert numbers is not None, "too few ports: ask whether it fits first"
        self.taken = with_lablet(self.taken, requirements, numbers.values())
