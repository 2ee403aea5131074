"""How a controller says that it is, now and then while it leads, and what the control plane makes of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from lcm.model.base import (
    WHOLE_NUMBER,
    CaseInsensitiveEnum,
    LenientModel,
    SingleLineText,
    StrictBool,
    StrictModel,
    UtcDatetime,
)
from lcm.model.fleet.state import Breaker
from lcm.model.worker.record import Hold

REPORT_INTERVAL_SECONDS = 15.0
"""How often a controller that leads reports."""
LATE_AFTER = timedelta(seconds=3 * REPORT_INTERVAL_SECONDS)
_MAX_MISSED_RESYNCS = 4

ShortText = Annotated[SingleLineText, Field(min_length=1, max_length=100)]
MessageText = Annotated[SingleLineText, Field(max_length=500)]
NonNegativeInt = Annotated[int, Field(ge=0, le=2**53), WHOLE_NUMBER]
NonNegativeSeconds = Annotated[float, Field(ge=0, le=1e12)]
CountByOutcome = Annotated[dict[ShortText, NonNegativeInt], Field(max_length=50)]
OutcomesByOperation = Annotated[dict[ShortText, CountByOutcome], Field(max_length=200)]


class RegionReport(StrictModel):
    """How it stands with one region that the controller looks after."""

    name: ShortText
    last_sweep_at: UtcDatetime | None = None
    complete: StrictBool = False
    instances: NonNegativeInt = 0
    breaker_open: StrictBool = False
    trouble: MessageText = ""


class LeakedInstanceReport(StrictModel):
    """An instance of ours that no worker needs."""

    instance_id: ShortText
    region: ShortText
    since: UtcDatetime
    reason: MessageText = ""


class ControllerReport(StrictModel):
    """What a controller knows of itself. Counts are since its process began; what it does not have it leaves out."""

    instance_id: ShortText
    version: ShortText = "unknown"
    started_at: UtcDatetime | None = None
    queue_depth: NonNegativeInt = 0
    queue_delayed: NonNegativeInt = 0
    queue_wait_seconds: NonNegativeSeconds | None = Field(
        default=None, description="The mean of those served since last time."
    )
    in_progress: NonNegativeInt = 0
    resources: NonNegativeInt = Field(default=0, description="How many it looks after.")
    last_resync_at: UtcDatetime | None = Field(default=None, description="When all of them were last listed.")
    resync_seconds: NonNegativeSeconds | None = Field(default=None, description="How long that took.")
    resync_every_seconds: NonNegativeSeconds | None = None
    watching: StrictBool = Field(default=True, description="Whether it hears of changes as they happen.")
    calls: Annotated[dict[ShortText, OutcomesByOperation], Field(max_length=20)] = Field(
        default_factory=dict, description="By whom is called, such as aws, then by operation and outcome."
    )
    throttled: Annotated[dict[ShortText, NonNegativeInt], Field(max_length=20)] = Field(default_factory=dict)
    counters: Annotated[dict[ShortText, NonNegativeInt], Field(max_length=100)] = Field(default_factory=dict)
    regions: Annotated[tuple[RegionReport, ...], Field(max_length=100)] = ()
    leaks: Annotated[tuple[LeakedInstanceReport, ...], Field(max_length=100)] = ()
    leaks_total: NonNegativeInt = 0


class ControllerVerdict(CaseInsensitiveEnum):
    """What is to be thought of a controller."""

    HEALTHY = "healthy"
    LATE = "late"
    NONE = "none"


class ReceivedControllerReport(LenientModel):
    """The last report of a controller, as it was taken."""

    controller: str
    term: int
    received_at: UtcDatetime
    report: ControllerReport


def assess_controller(seen: ReceivedControllerReport | None, now: datetime) -> tuple[ControllerVerdict, str]:
    """What a controller's last report says about it, in a word and in a sentence."""
    if seen is None:
        return ControllerVerdict.NONE, "it has never reported: nothing is known of it"
    silence = now - seen.received_at
    if silence > LATE_AFTER:
        return (
            ControllerVerdict.LATE,
            f"it last reported {_format_age(silence)} ago; it should every {REPORT_INTERVAL_SECONDS:g} seconds",
        )
    report = seen.report
    every = timedelta(seconds=report.resync_every_seconds or 0.0)
    if (
        every
        and report.last_resync_at is not None
        and now - report.last_resync_at > _MAX_MISSED_RESYNCS * every + silence
    ):
        age = _format_age(now - report.last_resync_at)
        return (
            ControllerVerdict.LATE,
            f"it last listed what it looks after {age} ago; it should every {_format_age(every)}",
        )
    if not report.watching:
        return ControllerVerdict.HEALTHY, "it works, but hears of changes only by polling"
    return ControllerVerdict.HEALTHY, "it reports in time"


def _format_age(span: timedelta) -> str:
    seconds = max(0, round(span.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


class MirrorHealth(LenientModel):
    """How far the mirror in coordination is behind the records."""

    lag_seconds: float = 0.0
    pending: int = 0
    written: int = 0
    deleted: int = 0
    mended: int = 0
    failed: int = 0
    comparisons: int = 0
    trouble: str = ""


class StreamHealth(LenientModel):
    """Who listens to the event stream, and how that goes."""

    clients: int = 0
    opened: int = 0
    cut_off: int = 0
    resets: int = 0
    events: int = 0


class ControlPlaneHealth(LenientModel):
    """The control plane that answered."""

    version: str = "unknown"
    installation_id: str = ""
    store: str = ""
    coordination: str = ""
    regions: tuple[str, ...] = ()
    started_at: UtcDatetime
    uptime_seconds: float = 0.0
    mirror: MirrorHealth | None = None
    stream: StreamHealth = StreamHealth()


class ControllerHealth(LenientModel):
    """A controller: since when it leads, what it last said, and what is to be thought of that."""

    name: str
    verdict: ControllerVerdict
    said: str
    term: int | None = None
    leads_since: UtcDatetime | None = None
    startup_sweep_done: bool = False
    reported_at: UtcDatetime | None = None
    age_seconds: float | None = None
    report: ControllerReport | None = None


class SystemHealth(LenientModel):
    """Everything about the manager itself."""

    plane: ControlPlaneHealth
    controllers: tuple[ControllerHealth, ...] = ()
    hold: Hold | None = None
    held_workers: int = 0
    breakers: tuple[Breaker, ...] = ()
    leaks: tuple[LeakedInstanceReport, ...] = ()
    leaks_total: int = Field(default=0, description="How many leaked instances there are; `leaks` has some of them.")
