"""Waiting for a lablet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.cli.output.durations import short, ticking
from lcm.cli.output.lablet_views import lablet_notes, lablet_status_words
from lcm.cli.runtime.lookup import find_lablet
from lcm.cli.runtime.waiting import Watched, wait_until
from lcm.model.lablet.status import FINAL, LabletStatus

if TYPE_CHECKING:
    from datetime import timedelta

    from lcm.cli.runtime.session import Session
    from lcm.model.lablet.record import Lablet


async def wait_for_lablet(session: Session, name: str, goal: LabletStatus, patience: timedelta) -> None:
    """Return when it is so; else `CommandError` with what is known of it."""
    watched = Watched(
        look=session.client.lablets.get,
        met=lambda lablet: lablet.status is goal,
        hopeless=lambda lablet: hopeless(lablet, goal),
        progress=lambda lablet, elapsed: _progress(lablet, elapsed, goal),
        explain=_explain,
        goal=goal.value,
    )
    lablet, elapsed = await wait_until(session, await find_lablet(session.client, name), watched, patience)
    done = f"{lablet.name} is {lablet.status} after {short(elapsed)}."
    session.screen.one(lablet, lablet.name, lambda _: session.screen.say(done))


def hopeless(lablet: Lablet, goal: LabletStatus) -> str:
    """Why it will not be so by itself; empty while it may."""
    if lablet.status in FINAL:
        return f"{lablet.name} is {lablet.status}"
    ends_otherwise = goal in FINAL and lablet.ending is not None and lablet.ending is not goal
    if lablet.wanted and not ends_otherwise:
        return ""
    if goal is LabletStatus.STOPPING or (goal in FINAL and not ends_otherwise):
        return ""
    return f"{lablet.name} is to end as {lablet.ending or LabletStatus.TERMINATED}"


def _progress(lablet: Lablet, elapsed: timedelta, goal: LabletStatus) -> str:
    notes = lablet_notes(lablet)
    said = f" ({notes})" if notes else ""
    return f"{ticking(elapsed)}  {lablet.name}  {lablet_status_words(lablet)}{said}  waiting for {goal}"


async def _explain(lablet: Lablet) -> str:
    notes = lablet_notes(lablet)
    look = f"lcm lablets history {lablet.name} shows how it came"
    return f"{notes}\n{look}" if notes else look
