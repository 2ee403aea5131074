"""Previews of what people can do with a lablet that exists: end it, move its end, or reset its lab."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from pydantic import ValidationError

from lcm.control_plane.bookings.protection import end_of_class_under_way, read_extension_limit, takes_room
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.lablets import lifecycle
from lcm.control_plane.lablets.service import max_lifetime_of
from lcm.control_plane.lablets.termination_preview import holder_of, lost_work, preview_termination
from lcm.core import clock
from lcm.model.booking.failed_seats import RETRY_WAITS
from lcm.model.change_preview import ChangePreview
from lcm.model.formatting import count_of, format_clock_time, format_instant, humanize_duration, humanize_until
from lcm.model.lablet.lifetime import latest_end
from lcm.model.lablet.requests import ExtendLabletRequest, LabletAction
from lcm.model.lablet.status import LabletStatus

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.context import ControlPlaneContext
    from lcm.model.lablet.lifetime import BookedUntil, MaxLifetime
    from lcm.model.lablet.record import Lablet
    from lcm.model.lablet.requests import PreviewLabletRequest
    from lcm.model.worker.record import Hold


async def preview_lablet_action(
    context: ControlPlaneContext, lablet: Lablet, request: PreviewLabletRequest, *, names_people: bool = True
) -> ChangePreview:
    """What the action would do now. Nothing is changed. A hold is by a person, whom not everybody may know."""
    now = clock.now()
    if request.action is LabletAction.EXTEND:
        return preview_extension(lablet, request, now, *await read_extension_bounds(context, lablet, now))
    worker_name, hold = await holder_of(context.store, lablet)
    if hold is not None and not names_people:
        hold = hold.model_copy(update={"by": "An operator"})
    if request.action is LabletAction.RESET:
        class_end = await end_of_class_under_way(context.store, lablet, now)
        return preview_reset(lablet, worker_name, hold, now, class_end)
    return preview_termination(lablet, worker_name, hold, now)


async def read_extension_bounds(
    context: ControlPlaneContext, lablet: Lablet, now: datetime
) -> tuple[MaxLifetime | None, BookedUntil]:
    """How long the lablet may last in all, and until when it may keep its worker because of classes."""
    limit = await max_lifetime_of(context.store, lablet, context.max_lablet_lifetime)
    read = partial(read_extension_limit, context.store, (await context.settings()).scaling, lablet, now)
    if await takes_room(context.store, lablet):
        return limit, await context.reads.run_alone(read)
    return limit, await read()


def preview_extension(
    lablet: Lablet,
    request: PreviewLabletRequest,
    now: datetime,
    max_lifetime: MaxLifetime | None,
    booked: BookedUntil = lifecycle.NOT_BOOKED,
) -> ChangePreview:
    """What the end would be."""
    action = LabletAction.EXTEND.value
    if request.minutes is None and request.ends_at is None:
        return _preview_limit(lablet, now, max_lifetime, booked)
    try:
        asked = ExtendLabletRequest(minutes=request.minutes, ends_at=request.ends_at)
        after = lifecycle.extend(lablet, asked, now, max_lifetime, booked)
    except (ProblemError, ValidationError) as error:
        return ChangePreview(action=action, changes=False, refusal=str(getattr(error, "detail", error)))
    if after is lablet:
        return ChangePreview(action=action, changes=False, effect="No change needed: it already ends then.")
    before_text, after_text = (_end_text(each) for each in (lablet, after))
    effect = f"It will end {after_text}."
    if after.expires_at is not None:
        effect = f"It will end {humanize_until(after.expires_at, now)}, at {format_clock_time(after.expires_at, now)}."
    return ChangePreview(action=action, change=f"ends {before_text} → {after_text}", effect=effect)


def preview_reset(
    lablet: Lablet, worker_name: str, hold: Hold | None, now: datetime, class_end: datetime | None = None
) -> ChangePreview:
    """What a reset would do, and what would be lost. `hold` is the hold of its worker or of the fleet."""
    action, worker_text = LabletAction.RESET.value, worker_name or "its worker"
    try:
        after = lifecycle.reset(lablet, now, class_end)
    except ProblemError as problem:
        return ChangePreview(action=action, changes=False, refusal=problem.detail)
    if after.status is LabletStatus.PENDING_SCHEDULING:
        return _preview_failed_seat(lablet, after, now)
    effect = (
        f"the lab on {worker_text} will be stopped, wiped and deleted; then a new one will be made from"
        f" {lablet.definition} on {worker_text}, and started. Its host, ports and end stay."
    )
    if hold is not None:
        effect = f"{hold.by} put {worker_text} or the fleet on hold. After the release, {effect}"
    else:
        effect = effect[0].upper() + effect[1:]
    change = f"{lablet.status} → {LabletStatus.INSTANTIATING}"
    losses = {what: text for what, text in lost_work(lablet, worker_text, now).items() if what != "Ports"}
    takes = "As long as its nodes need to stop and to boot again"
    return ChangePreview(action=action, change=change, effect=effect, takes=takes, losses=losses)


def _preview_failed_seat(lablet: Lablet, after: Lablet, now: datetime) -> ChangePreview:
    """What the reset of a failed seat would do. Its reservation was released, and its lab is gone or left behind."""
    assert after.ends_at is not None
    effect = (
        f"A worker of its class will be chosen, and a new lab made from {lablet.definition} there: host and ports may"
        " change. It waits while no worker of the class has room or while they are on hold. Its links stay valid."
        f" If it fails once more, it is made anew by itself, at most {count_of(len(RETRY_WAITS), 'time')}. It ends"
        f" with the class, at {format_clock_time(after.ends_at, now)}."
    )
    change = f"{lablet.status} → {after.status}"
    takes = "As long as its nodes need to boot"
    return ChangePreview(action=LabletAction.RESET.value, change=change, effect=effect, takes=takes)


def _preview_limit(
    lablet: Lablet, now: datetime, max_lifetime: MaxLifetime | None, booked: BookedUntil
) -> ChangePreview:
    """What an extension could do: the present end, and the latest one."""
    action = LabletAction.EXTEND.value
    try:
        lifecycle.extend(lablet, ExtendLabletRequest(minutes=1 / 60), now, max_lifetime, booked)
    except ProblemError as problem:
        return ChangePreview(action=action, changes=False, refusal=problem.detail)
    ends = [each for each in (latest_end(lablet, max_lifetime), booked.until) if each is not None]
    latest = min(ends, default=None)
    effect = f"It ends {_end_text(lablet)}."
    if latest is not None:
        effect += f" The latest end is {format_clock_time(latest, now)}."
    return ChangePreview(action=action, effect=effect)


def _end_text(lablet: Lablet) -> str:
    if lablet.expires_at is not None:
        return format_instant(lablet.expires_at)
    return f"{humanize_duration(timedelta(minutes=lablet.time_to_live_minutes or 0))} after it begins to run"
