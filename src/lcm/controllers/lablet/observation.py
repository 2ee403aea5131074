"""What was observed about a lablet's lab, as plain data for the decision."""

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
    """How much is known about the lab. Only ABSENT means that the lab does not exist."""

    NOT_OBSERVED = "not observed"  # CML could not be queried, or did not have to be
    SEEN = "seen"
    ABSENT = "absent"  # the server responded and does not have the lab


@dataclass(frozen=True, slots=True)
class LabObservation:
    """The lab as CML reports it. Values that were not queried are None."""

    visibility: Visibility
    id: str | None = None
    state: str = ""
    nodes: int | None = None  # number of nodes
    booted: int | None = None  # number of booted nodes
    converged: bool | None = None
    endpoints: tuple[NodeEndpoint, ...] | None = None
    error: str = ""

    @property
    def up(self) -> bool:
        """Whether the lab has converged and all nodes have booted."""
        return self.nodes == 0 or (self.converged is True and self.nodes is not None and self.booted == self.nodes)

    @property
    def progress(self) -> str:
        """The progress, as text."""
        if self.state != LAB_STARTED or self.nodes is None or self.booted is None:
            return f"the lab is {self.state}"
        return f"{self.booted} of {self.nodes} nodes have booted"


@dataclass(frozen=True, slots=True)
class ResolvedTopology:
    """The topology for the lab, or why it is not available. `is_permanent`: a retry would fail again."""

    text: str = ""
    error: str = ""
    is_permanent: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """The input of a decision besides the lablet, the policy and the time."""

    worker: Worker | None  # None if the worker does not exist
    lab: LabObservation = LabObservation(Visibility.NOT_OBSERVED)
    leftover: LabObservation | None = None  # a lab on this worker that the lablet has left behind
    topology: ResolvedTopology | None = None
    unready_since: datetime | None = None  # since when the worker is not ready, as far as known
    unknown_since: datetime | None = None  # since when its record has words that only a newer version knows
    import_may_complete: bool = False  # whether an import with a lost response may still create a lab
    last_error: str = ""  # the last error of CML, unless an operation has succeeded since
    recent_operations: frozenset[str] = frozenset()  # operations that CML accepted recently and may still be executing
