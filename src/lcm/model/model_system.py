"""Whether the manager itself is well: the control plane, its controllers, and what is suspended."""

from __future__ import annotations

from pydantic import Field

from lcm.model.base import Answer, Moment
from lcm.model.fleet.state import Breaker
from lcm.model.system import ControllerReport, LeakReport, Verdict
from lcm.model.worker.record import Hold


class MirrorHealth(Answer):
    """How far the mirror in coordination is behind the records."""

    lag_seconds: float = 0.0
    pending: int = 0
    written: int = 0
    deleted: int = 0
    mended: int = 0
    failed: int = 0
    comparisons: int = 0
    trouble: str = ""


class StreamHealth(Answer):
    """Who listens to the event stream, and how that goes."""

    clients: int = 0
    opened: int = 0
    cut_off: int = 0
    resets: int = 0
    events: int = 0


class PlaneHealth(Answer):
    """The control plane that answered."""

    version: str = "unknown"
    installation_id: str = ""
    store: str = ""
    coordination: str = ""
    regions: tuple[str, ...] = ()
    started_at: Moment
    uptime_seconds: float = 0.0
    mirror: MirrorHealth | None = None
    stream: StreamHealth = StreamHealth()


class ControllerHealth(Answer):
    """A controller: since when it leads, what it last said, and what is to be thought of that."""

    name: str
    verdict: Verdict
    said: str
    term: int | None = None
    leads_since: Moment | None = None
    startup_sweep_done: bool = False
    reported_at: Moment | None = None
    age_seconds: float | None = None
    report: ControllerReport | None = None


class SystemHealth(Answer):
    """Everything about the manager itself."""

    plane: PlaneHealth
    controllers: tuple[ControllerHealth, ...] = ()
    hold: Hold | None = None
    held_workers: int = 0
    breakers: tuple[Breaker, ...] = ()
    leaks: tuple[LeakReport, ...] = ()
    leaks_total: int = Field(default=0, description="How many leaked instances there are; `leaks` has some of them.")
