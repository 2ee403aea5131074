"""How a controller says that it is, now and then while it leads, and what the control plane makes of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from lcm.model.base import WHOLE, Answer, Choice, Data, Flag, Moment, Text

EVERY_SECONDS = 15.0
"""How often a controller that leads reports."""
LATE_AFTER = timedelta(seconds=3 * EVERY_SECONDS)
_RESYNCS_MISSED = 4

Word = Annotated[Text, Field(min_length=1, max_length=100)]
Line = Annotated[Text, Field(max_length=500)]
Count = Annotated[int, Field(ge=0, le=2**53), WHOLE]
Seconds = Annotated[float, Field(ge=0, le=1e12)]
Outcomes = Annotated[dict[Word, Count], Field(max_length=50)]
Operations = Annotated[dict[Word, Outcomes], Field(max_length=200)]


class RegionReport(Data):
    """How it stands with one region that the controller looks after."""

    name: Word
    last_sweep_at: Moment | None = None
    complete: Flag = False
    instances: Count = 0
    breaker_open: Flag = False
    trouble: Line = ""


class LeakReport(Data):
    """An instance of ours that no worker needs."""

    instance_id: Word
    region: Word
    since: Moment
    reason: Line = ""


class ControllerReport(Data):
    """What a controller knows of itself. Counts are since its process began; what it does not have it leaves out."""

    instance_id: Word
    version: Word = "unknown"
    started_at: Moment | None = None
    queue_depth: Count = 0
    queue_delayed: Count = 0
    queue_wait_seconds: Seconds | None = Field(default=None, description="The mean of those served since last time.")
    in_progress: Count = 0
    resources: Count = Field(default=0, description="How many it looks after.")
    last_resync_at: Moment | None = Field(default=None, description="When all of them were last listed.")
    resync_seconds: Seconds | None = Field(default=None, description="How long that took.")
    resync_every_seconds: Seconds | None = None
    watching: Flag = Field(default=True, description="Whether it hears of changes as they happen.")
    calls: Annotated[dict[Word, Operations], Field(max_length=20)] = Field(
        default_factory=dict, description="By whom is called, such as aws, then by operation and outcome."
    )
    throttled: Annotated[dict[Word, Count], Field(max_length=20)] = Field(default_factory=dict)
    counters: Annotated[dict[Word, Count], Field(max_length=100)] = Field(default_factory=dict)
    regions: Annotated[tuple[RegionReport, ...], Field(max_length=100)] = ()
    leaks: Annotated[tuple[LeakReport, ...], Field(max_length=100)] = ()
    leaks_total: Count = 0


class Verdict(Choice):
    """What is to be thought of a controller."""

    HEALTHY = "healthy"
    LATE = "late"
    NONE = "none"


class ControllerSeen(Answer):
    """The last report of a controller, as it was taken."""

    controller: str
    term: int
    received_at: Moment
    report: ControllerReport


def judge(seen: ControllerSeen | None, now: datetime) -> tuple[Verdict, str]:
    """What a controller's last report says about it, in a word and in a sentence."""
    if seen is None:
        return Verdict.NONE, "it has never reported: nothing is known of it"
    silence = now - seen.received_at
    if silence > LATE_AFTER:
        return Verdict.LATE, f"it last reported {_long(silence)} ago; it should every {EVERY_SECONDS:g} seconds"
    report = seen.report
    every = timedelta(seconds=report.resync_every_seconds or 0.0)
    if every and report.last_resync_at is not None and now - report.last_resync_at > _RESYNCS_MISSED * every + silence:
        age = _long(now - report.last_resync_at)
        return Verdict.LATE, f"it last listed what it looks after {age} ago; it should every {_long(every)}"
    if not report.watching:
        return Verdict.HEALTHY, "it works, but hears of changes only by polling"
    return Verdict.HEALTHY, "it reports in time"


def _long(span: timedelta) -> str:
    seconds = max(0, round(span.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
