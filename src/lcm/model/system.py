"""Reports of controllers, and the health of the control plane and its controllers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from lcm.model.base import (
    WHOLE_NUMBER,
    CaseInsensitiveEnum,
    LenientModel,
    SingleLineText,
    StrictBool,
    UtcDatetime,
)
from lcm.model.fleet.state import Breaker
from lcm.model.worker.record import Hold

if TYPE_CHECKING:
    from collections.abc import Sequence

REPORT_INTERVAL_SECONDS = 15.0
"""How often a leading controller reports."""
BLIND_AFTER = timedelta(seconds=60)
"""A region that could not be read for so long is reported; a single sweep may fail."""
LATE_AFTER = timedelta(seconds=3 * REPORT_INTERVAL_SECONDS)
_MAX_MISSED_RESYNCS = 4

ShortText = Annotated[SingleLineText, Field(min_length=1, max_length=100)]
MessageText = Annotated[SingleLineText, Field(max_length=500)]
NonNegativeInt = Annotated[int, Field(ge=0, le=2**53), WHOLE_NUMBER]
NonNegativeSeconds = Annotated[float, Field(ge=0, le=1e12)]
CountByOutcome = Annotated[dict[ShortText, NonNegativeInt], Field(max_length=50)]
OutcomesByOperation = Annotated[dict[ShortText, CountByOutcome], Field(max_length=200)]


class RegionReport(LenientModel):
    """The state of one region that the controller manages."""

    name: ShortText
    last_sweep_at: UtcDatetime | None = None
    complete: StrictBool = False
    instances: NonNegativeInt = 0
    breaker_open: StrictBool = False
    blind_seconds: NonNegativeSeconds = Field(
        default=0.0, description="For how long no sweep of the region has been complete; 0 if the last one was."
    )
    trouble: MessageText = ""


MAX_LEAKS = 100
"""How many leaked instances a report lists."""


class LeakedInstanceReport(LenientModel):
    """An instance of this installation that belongs to no worker."""

    instance_id: ShortText
    region: ShortText
    since: UtcDatetime
    reason: MessageText = ""


class PlannedImport(LenientModel):
    """An instance that discovery will import."""

    instance_id: ShortText
    region: ShortText
    name: MessageText = ""


class PlannedLoss(LenientModel):
    """A worker that discovery will mark as lost, because its instance is gone."""

    worker_id: ShortText
    name: MessageText = ""


class DiscoveryPlan(LenientModel):
    """What the next scan will do if nothing changes until then."""

    next_scan_at: UtcDatetime | None = None
    on_hold: StrictBool = Field(default=False, description="Whether it waits for the end of the fleet's hold.")
    imports: Annotated[tuple[PlannedImport, ...], Field(max_length=100)] = ()
    imports_total: NonNegativeInt = 0
    losses: Annotated[tuple[PlannedLoss, ...], Field(max_length=100)] = ()
    losses_total: NonNegativeInt = 0


class ControllerReport(LenientModel):
    """A controller's report about itself. Counters start with its process; unavailable values are left out."""

    instance_id: ShortText
    version: ShortText = "unknown"
    started_at: UtcDatetime | None = None
    queue_depth: NonNegativeInt = 0
    queue_delayed: NonNegativeInt = 0
    queue_wait_seconds: NonNegativeSeconds | None = Field(
        default=None, description="Mean queue wait of the items processed since the last report."
    )
    in_progress: NonNegativeInt = 0
    resources: NonNegativeInt = Field(default=0, description="Number of managed resources.")
    last_resync_at: UtcDatetime | None = Field(default=None, description="When all resources were last listed.")
    resync_seconds: NonNegativeSeconds | None = Field(default=None, description="Duration of the last resync.")
    resync_every_seconds: NonNegativeSeconds | None = None
    watching: StrictBool = Field(
        default=True, description="Whether it receives changes from a watch; otherwise it polls."
    )
    calls: Annotated[dict[ShortText, OutcomesByOperation], Field(max_length=20)] = Field(
        default_factory=dict, description="Number of calls by service (such as aws), operation and outcome."
    )
    throttled: Annotated[dict[ShortText, NonNegativeInt], Field(max_length=20)] = Field(default_factory=dict)
    counters: Annotated[dict[ShortText, NonNegativeInt], Field(max_length=100)] = Field(default_factory=dict)
    regions: Annotated[tuple[RegionReport, ...], Field(max_length=100)] = ()
    leaks: Annotated[tuple[LeakedInstanceReport, ...], Field(max_length=MAX_LEAKS)] = Field(
        default=(), description="Ordered by region and instance; the first of them, if there are more."
    )
    leaks_total: NonNegativeInt = 0
    scanned_regions: Annotated[tuple[ShortText, ...], Field(max_length=100)] | None = Field(
        default=None,
        description="The regions that this leader has scanned for leaks; null means all. The report says nothing about "
        "other regions.",
    )
    discovery: DiscoveryPlan | None = None


def with_leaks_before(
    report: ControllerReport, before: Sequence[LeakedInstanceReport], total_before: int = 0
) -> ControllerReport:
    """The report, and of the leaks before it those of which it does not say whether they are gone.

    A new leader scans a few seconds after its first report. Of a list that was cut, nothing is known behind its end.
    Leaks that are known stay in the list rather than new ones, so that they do not take turns in it. Those that an
    earlier report only counted may be in any region, and are counted until the last one has been scanned.
    """
    listed = {leak.instance_id for leak in report.leaks}
    managed = {region.name for region in report.regions}
    end = max(map(_leak_order, report.leaks)) if report.leaks_total > len(report.leaks) > 0 else None
    already_listed, unscanned, behind_end = [], [], []
    for leak in before:
        if leak.instance_id in listed:
            already_listed.append(leak.instance_id)
        elif report.scanned_regions is not None and leak.region not in report.scanned_regions:
            unscanned += [leak] if leak.region in managed else []
        elif end is not None and _leak_order(leak) > end:
            behind_end.append(leak)
    kept = [*(leak for leak in report.leaks if leak.instance_id in already_listed), *unscanned, *behind_end]
    kept = [*kept, *(leak for leak in report.leaks if leak.instance_id not in already_listed)][:MAX_LEAKS]
    total = max(report.leaks_total + len(unscanned), len(kept))
    if report.scanned_regions is not None and managed.difference(report.scanned_regions):
        total = max(total, min(total_before, total + total_before - len(before)))
    return report.model_copy(update={"leaks": tuple(sorted(kept, key=_leak_order)), "leaks_total": total})


def _leak_order(leak: LeakedInstanceReport) -> tuple[str, str]:
    return leak.region, leak.instance_id


class ControllerVerdict(CaseInsensitiveEnum):
    """The health of a controller, judged by its last report."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    LATE = "late"
    NONE = "none"


class ReceivedControllerReport(LenientModel):
    """The last report of a controller, as the control plane received it."""

    controller: str
    term: int
    received_at: UtcDatetime
    report: ControllerReport


def assess_controller(received: ReceivedControllerReport | None, now: datetime) -> tuple[ControllerVerdict, str]:
    """Judge a controller by its last report; the second value explains the verdict."""
    if received is None:
        return ControllerVerdict.NONE, "it has never reported"
    silence = now - received.received_at
    if silence > LATE_AFTER:
        return (
            ControllerVerdict.LATE,
            f"it last reported {_format_age(silence)} ago; expected every {REPORT_INTERVAL_SECONDS:g} seconds",
        )
    report = received.report
    every = timedelta(seconds=report.resync_every_seconds or 0.0)
    if (
        every
        and report.last_resync_at is not None
        and now - report.last_resync_at > _MAX_MISSED_RESYNCS * every + silence
    ):
        age = _format_age(now - report.last_resync_at)
        return (
            ControllerVerdict.LATE,
            f"its last full resync was {age} ago; expected every {_format_age(every)}",
        )
    blind = [region for region in report.regions if region.blind_seconds >= BLIND_AFTER.total_seconds()]
    if blind:
        names = ", ".join(region.name for region in blind)
        since = _format_age(timedelta(seconds=max(region.blind_seconds for region in blind)))
        return (
            ControllerVerdict.DEGRADED,
            f"it has not been able to read EC2 in {names} for {since}: {blind[0].trouble}",
        )
    if not report.watching:
        return ControllerVerdict.HEALTHY, "it is reporting, but its watch is down and it only polls for changes"
    return ControllerVerdict.HEALTHY, "reporting normally"


def _format_age(span: timedelta) -> str:
    seconds = max(0, round(span.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


class MirrorHealth(LenientModel):
    """How far the mirror in the coordination service lags behind the records."""

    lag_seconds: float = 0.0
    pending: int = 0
    written: int = 0
    deleted: int = 0
    mended: int = 0
    failed: int = 0
    comparisons: int = 0
    replacements: int = 0
    trouble: str = ""


class StreamHealth(LenientModel):
    """The clients of the event stream."""

    clients: int = 0
    opened: int = 0
    cut_off: int = 0
    resets: int = 0
    events: int = 0


class NotificationHealth(LenientModel):
    """The sender of notifications in the control plane that answered the request."""

    sending: bool = Field(default=False, description="Whether this control plane sends; of several, one does.")
    subscriptions: int = 0
    lag_seconds: float = Field(default=0.0, description="Age of the oldest alert that waits for its delivery.")
    trouble: str = ""


class ControlPlaneHealth(LenientModel):
    """The control plane process that answered the request."""

    version: str = "unknown"
    installation_id: str = ""
    store: str = ""
    coordination: str = ""
    regions: tuple[str, ...] = ()
    started_at: UtcDatetime
    uptime_seconds: float = 0.0
    mirror: MirrorHealth | None = None
    stream: StreamHealth = StreamHealth()
    notifications: NotificationHealth | None = None
    clock_problem: str = Field(default="", description="Which clocks jumped or disagree; empty if none.")


class ControllerHealth(LenientModel):
    """A controller: its leadership term, its last report and its health."""

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
    """The health of the control plane and its controllers, and everything that is suspended."""

    plane: ControlPlaneHealth
    controllers: tuple[ControllerHealth, ...] = ()
    hold: Hold | None = None
    held_workers: int = 0
    breakers: tuple[Breaker, ...] = ()
    leaks: tuple[LeakedInstanceReport, ...] = ()
    leaks_total: int = Field(default=0, description="Number of leaked instances; `leaks` may list only some of them.")
