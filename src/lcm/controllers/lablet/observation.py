"""What was seen of a lablet's lab when it was decided what to do with it, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.model.lablet.record import NodeEndpoint
    from lcm.model.worker.record import Worker

LAB_DEFINED: Final = "DEFINED_ON_CORE"
LAB_STARTED: Final = "STARTED"
LAB_STOPPED: Final = "STOPPED"


class Visibility(Enum):
    """How much is known of the lab. Only ABSENT allows to conclude that there is none."""

    NO_LOOK = "no look"  # nobody could look, or did not have to
    SEEN = "seen"
    ABSENT = "absent"  # the server answered, and has no such lab


@dataclass(frozen=True, slots=True)
class LabObservation:
    """What CML shows of the lab. What was not asked is None."""

    visibility: Visibility
    id: str | None = None
    state: str = ""
    nodes: int | None = None  # how many it consists of
    booted: int | None = None  # how many of them are up
    converged: bool | None = None
    endpoints: tuple[NodeEndpoint, ...] | None = None
    trouble: str = ""

    @property
    def up(self) -> bool:
        """Whether nothing is on its way and every node has booted."""
        return self.nodes == 0 or (self.converged is True and self.nodes is not None and self.booted == self.nodes)

    @property
    def progress(self) -> str:
        """How far it is, in words."""
        if self.state != LAB_STARTED or self.nodes is None or self.booted is None:
            return f"the lab is {self.state}"
        return f"{self.booted} of {self.nodes} nodes have booted"


@dataclass(frozen=True, slots=True)
class ResolvedTopology:
    """What the lab would be made of, or why that cannot be told. Lasting: trying again changes nothing."""

    topology: str = ""
    trouble: str = ""
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a decision is made from besides the lablet, the policy and the time."""

    worker: Worker | None  # None: there is no such worker
    lab: LabObservation = LabObservation(Visibility.NO_LOOK)
    recipe: ResolvedTopology | None = None
    unready_since: datetime | None = None  # since when the worker cannot be used, as far as is known
    import_may_complete: bool = False  # whether an import whose answer nobody heard may still make a lab
    refusal: str = ""  # what CML said last to a call of ours, as long as nothing has worked since
    recent_operations: frozenset[str] = frozenset()  # calls that CML took a moment ago and may still be busy with
