"""Alerts about LCM itself, in virtual time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from lcm.control_plane.notifications.lease import AlwaysHeld
from lcm.control_plane.notifications.system_alerts import SystemAlerts
from lcm.control_plane.records.kinds import OPEN_ALERTS
from lcm.control_plane.store.port import Put
from lcm.core import clock
from lcm.model.system import ControllerHealth, ControllerVerdict
from tests.support.virtual.notifications import notification_world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lcm.control_plane.notifications.lease import SenderLease
    from tests.support.network.webhook_receiver import Receiver
    from tests.support.virtual.notifications import NotificationWorld


class SuspendableAlerts(SystemAlerts):
    """Alerts of a process that may be suspended."""

    is_suspended = False

    async def check(self) -> None:
        if not self.is_suspended:
            await super().check()


class Lcm:
    """What the alerts look at: controllers that report, mirrors and the store."""

    alerts: SuspendableAlerts
    make: Callable[[], SuspendableAlerts]

    def __init__(self) -> None:
        self.reported_at = clock.now()
        self.mirror: list[str] = []
        self.store: list[str] = []

    async def health(self) -> Any:
        said = ControllerHealth(
            name="worker-controller", verdict=ControllerVerdict.LATE, said="it is silent", reported_at=self.reported_at
        )
        never = ControllerHealth(name="lablet-controller", verdict=ControllerVerdict.NONE, said="never")
        return SimpleNamespace(controllers=(said, never))

    def degradation(self) -> list[str]:
        return self.mirror


class SwitchedLease(AlwaysHeld):
    """A lease that another control plane may hold."""

    is_ours = True

    async def acquire(self) -> bool:
        return self.is_ours

    def is_held(self) -> bool:
        return self.is_ours


@asynccontextmanager
async def checked(lease: SenderLease | None = None) -> AsyncIterator[tuple[NotificationWorld, Receiver, Lcm]]:
    async with notification_world() as world:
        receiver, _ = await world.subscribe()
        sender = await world.start_sender(lease)
        await world.until(lambda: sender.status().sending)
        lcm = Lcm()
        parts = cast("Any", lcm)
        lcm.make = lambda: SuspendableAlerts(world.context, parts, [parts], sender, lambda: lcm.store)
        lcm.alerts = lcm.make()
        await lcm.alerts.start()
        try:
            yield world, receiver, lcm
        finally:
            await lcm.alerts.stop()


def told(receiver: Receiver) -> list[tuple[str, str, str]]:
    return [(each["type"], each["state"], each["subject"]["id"]) for each in receiver.alerts]


async def test_a_silent_controller_is_raised_once_and_resolved_when_it_reports() -> None:
    async with checked() as (world, receiver, lcm):
        await world.until(lambda: bool(receiver.messages), seconds=200)
        assert (clock.now() - lcm.reported_at).total_seconds() >= 120
        await _minutes(10)
        lcm.reported_at = clock.now()
        await _minutes(1)
        subject = "worker-controller"
        assert told(receiver) == [("no_leader", "raised", subject), ("no_leader", "resolved", subject)]
        assert (await world.store.find(OPEN_ALERTS)).items == []


async def test_a_report_from_before_the_start_says_nothing_about_who_leads_now() -> None:
    """Everything was down over the weekend: the controller starts half a minute after the control plane."""
    async with checked() as (world, receiver, lcm):
        lcm.reported_at = clock.now() - timedelta(days=2)
        await asyncio.sleep(30)
        await _seconds(300, lcm)
        assert told(receiver) == []
        assert (await world.store.find(OPEN_ALERTS)).items == []


async def test_a_controller_that_never_comes_back_after_a_restart_of_everything_is_raised() -> None:
    async with checked() as (_, receiver, lcm):
        lcm.reported_at = clock.now() - timedelta(days=2)
        await _minutes(3)
        assert told(receiver) == [("no_leader", "raised", "worker-controller")]


async def test_while_the_process_was_suspended_or_the_store_was_away_no_report_could_come() -> None:
    async with checked() as (world, receiver, lcm):
        await _seconds(60, lcm)
        lcm.alerts.is_suspended = True
        await _minutes(30)
        lcm.alerts.is_suspended = False
        await asyncio.sleep(20)
        await _seconds(60, lcm)
        lcm.store = ["store: it takes no writes"]
        await asyncio.sleep(150)
        lcm.store = []
        await asyncio.sleep(20)
        await _seconds(60, lcm)
        assert [each for each in told(receiver) if each[0] == "no_leader"] == []
        assert (await world.store.find(OPEN_ALERTS)).items == []


async def test_a_clock_that_jumps_ahead_is_no_silence() -> None:
    """Reports carry the clock of the control plane that received them."""
    async with checked() as (_, receiver, lcm):
        for _ in range(60):
            lcm.reported_at = clock.now() - timedelta(hours=1)
            await asyncio.sleep(5)
        assert told(receiver) == []


async def test_an_alert_stays_open_when_the_control_plane_starts_anew_while_nobody_leads() -> None:
    async with checked() as (world, receiver, lcm):
        await _minutes(3)
        raised = [("no_leader", "raised", "worker-controller")]
        assert told(receiver) == raised
        await lcm.alerts.stop()
        lcm.alerts = lcm.make()
        await lcm.alerts.start()
        await _minutes(5)
        assert told(receiver) == raised
        (stored,) = (await world.store.find(OPEN_ALERTS)).items
        await world.store.commit([Put(OPEN_ALERTS, stored.id, b"null", stored.revision)])  # it is resolved all the same
        await _seconds(60, lcm)
        assert told(receiver) == [*raised, ("no_leader", "resolved", "worker-controller")]


async def test_a_mirror_that_lags_for_a_minute_is_raised_and_a_short_blip_is_not() -> None:
    async with checked() as (_, receiver, lcm):
        for seconds in (20, 300):
            lcm.mirror = ["coordination: etcd is away"]
            await _seconds(seconds, lcm)
            lcm.mirror = []
            await _seconds(60, lcm)
        expected = [("mirror_degraded", "raised", "coordination"), ("mirror_degraded", "resolved", "coordination")]
        assert told(receiver) == expected


async def test_an_outage_of_the_store_is_reported_when_it_is_over() -> None:
    async with checked() as (_, receiver, lcm):
        lcm.store = ["store: it takes no writes"]
        await _seconds(90, lcm)
        assert told(receiver) == []
        lcm.store = []
        await _seconds(60, lcm)
        assert told(receiver) == [("store_degraded", "raised", "store"), ("store_degraded", "resolved", "store")]
        assert "took no writes for" in receiver.alerts[0]["detail"]


async def test_an_outage_that_another_control_plane_has_reported_is_not_news_an_hour_later() -> None:
    """All control planes see it; the one that sends reports it."""
    lease = SwitchedLease()
    async with checked(lease) as (_, receiver, lcm):
        lease.is_ours = False
        lcm.store = ["store: it takes no writes"]
        await _seconds(90, lcm)
        lcm.store = []
        await _seconds(3600, lcm)
        lease.is_ours = True
        await _seconds(120, lcm)
        assert told(receiver) == []


async def _minutes(count: int) -> None:
    await asyncio.sleep(60 * count)


async def _seconds(count: float, lcm: Lcm) -> None:
    """Time passes while the controller reports."""
    for _ in range(int(count / 5)):
        lcm.reported_at = clock.now()
        await asyncio.sleep(5)
