"""Notices that the rules of a time zone have changed: the boundaries of its schedules move, which is audited."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from lcm.control_plane.calendar.schedule_reads import read_schedule, read_schedules
from lcm.control_plane.calendar.schedules import schedule_put
from lcm.control_plane.fleet.state_reads import read_fleet_state
from lcm.model.audit import Actor, ActorKind
from lcm.model.calendar.zones import describe_changed_rules, read_zone_rules

if TYPE_CHECKING:
    from datetime import datetime

    from lcm.control_plane.records.unit_of_work import Transaction, UnitOfWork
    from lcm.model.calendar.schedule import Schedule
    from lcm.model.calendar.zones import ZoneRules

ZONE_RULES: Final = Actor(kind=ActorKind.POLICY, name="time-zones")
_REFRESH_AFTER: Final = timedelta(days=30)
log = structlog.get_logger(__name__)


async def check_zone_rules(unit_of_work: UnitOfWork, now: datetime) -> int:
    """Compare what is recorded of each schedule's zone with what this host knows; returns how many have changed."""
    store, changed = unit_of_work.store, 0
    rules: dict[str, ZoneRules] = {}  # reading them takes milliseconds: once for each zone
    for schedule in await read_schedules(store, await read_fleet_state(store)):
        if schedule.timetable is None:
            continue  # this host does not know the zone
        if schedule.zone not in rules:
            rules[schedule.zone] = read_zone_rules(schedule.zone, now)
            await asyncio.sleep(0)
        if _needs_refresh(schedule, rules[schedule.zone]):
            changed += await unit_of_work.run(ZONE_RULES, partial(_refresh, schedule_id=schedule.id))
    return changed


def _needs_refresh(schedule: Schedule, rules: ZoneRules) -> bool:
    before = schedule.zone_rules
    if before is None or before.zone != schedule.zone:
        return True
    return describe_changed_rules(before, rules) is not None or rules.until - before.until > _REFRESH_AFTER


async def _refresh(tx: Transaction, schedule_id: str) -> bool:
    schedule, revision = await read_schedule(tx.store, schedule_id)
    rules, before = read_zone_rules(schedule.zone, tx.now), schedule.zone_rules
    change = None if before is None or before.zone != schedule.zone else describe_changed_rules(before, rules)
    tx.stage(schedule_put(schedule.model_copy(update={"zone_rules": rules}), revision))
    if change is None:
        return False
    log.warning("the rules of a time zone have changed", schedule=schedule.name, zone=schedule.zone, change=change)
    tx.audit("zone_rules_changed", schedule_id, change, name=schedule.name, zone=schedule.zone)
    return True
