"""One pass over a worker, and how the cloud is called in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.cloud.spi import CloudProviderSPI
    from lcm.controllers.common.actions import Effect
    from lcm.controllers.worker.memory import WorkerMemory
    from lcm.controllers.worker.observe.observation import Observation
    from lcm.core.authorization import SendAuthorization
    from lcm.model.worker.record import Worker


@dataclass(slots=True)
class ReconcilePass:
    """One pass: the current worker, what is remembered of it, and when the leader's term began (boot-time clock)."""

    worker: Worker
    memory: WorkerMemory
    term_began: float
    authorization: SendAuthorization | None = None  # of the next call
    observed: Observation | None = None
    intent_stored: bool = False
    read_only: bool = True
    settled: bool = False  # whether the next pass does nothing, as far as is known
    outdated: bool = False  # whether this pass changed what was observed: a forecast needs a new observation


@dataclass(frozen=True, slots=True)
class CloudCalls:
    """How the cloud is called: `authorize` before reading what a call is based on, `effect` makes it.

    `track` polls its instance closely.
    """

    cloud: CloudProviderSPI
    authorize: Callable[[], SendAuthorization]
    effect: Effect
    track: Callable[[str, str], None]
