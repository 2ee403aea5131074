"""The fleet as a whole: summary, plan, holds, breakers, audit and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import PAGE, Group, Page, asked, encoded, path_to
from lcm.client.responses import Call
from lcm.model.answers import ResetLeadership
from lcm.model.audit import AuditEntry
from lcm.model.fleet.settings import FleetSettings, SettingsPatch
from lcm.model.fleet.state import FleetState, FleetSummary, PlannedWorker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from datetime import datetime

    from lcm.model.audit import ActorKind
    from lcm.model.fleet.activity_summary import Overnight
    from lcm.model.model_system import SystemHealth
    from lcm.model.worker.requests import HoldRequest


class Fleet(Group):
    """What concerns no single worker."""

    async def summary(self) -> FleetSummary:
        """Counts, capacity, cost, what is suspended and who leads."""
        return await self._ask(Call("fleet.summary", "GET", path_to("fleet")), FleetSummary)

    def plan(self, *, page_size: int = PAGE) -> AsyncIterator[PlannedWorker]:
        """What would be done now for each worker, and why."""
        return self._pages("fleet.plan", path_to("plan"), Page[PlannedWorker], {}, page_size)

    async def hold(self, body: HoldRequest) -> FleetState:
        """Stop all changes of all workers."""
        call = Call("fleet.hold", "POST", path_to("fleet", "hold"), body=encoded(body))
        return await self._ask(call, FleetState)

    async def release(self) -> FleetState:
        """Let changes go on."""
        return await self._ask(Call("fleet.release", "POST", path_to("fleet", "release")), FleetState)

    async def reset_breakers(self, region: str | None = None) -> FleetState:
        """Close the breakers, or that of one region."""
        call = Call("fleet.reset-breakers", "POST", path_to("fleet", "breaker", "reset"), asked(region=region))
        return await self._ask(call, FleetState)

    async def reset_leadership(self, controller: str) -> str:
        """Forget the newest term of a controller whose etcd was replaced."""
        call = Call("fleet.reset-leadership", "POST", path_to("leadership", controller, "reset"))
        return (await self._ask(call, ResetLeadership)).controller

    def audit(
        self,
        *,
        subject: Iterable[str] = (),
        actor: Iterable[str] = (),
        actor_kind: Iterable[ActorKind] = (),
        action: Iterable[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        q: str | None = None,
        newest_first: bool = True,
        page_size: int = PAGE,
    ) -> AsyncIterator[AuditEntry]:
        """Every decision and change: who, what, why, when; those that fit all filters."""
        query = asked(
            subject=subject,
            actor=actor,
            actor_kind=actor_kind,
            action=action,
            since=_moment(since),
            until=_moment(until),
            q=q,
            newest_first=newest_first,
        )
        return self._pages("fleet.audit", path_to("audit"), Page[AuditEntry], query, page_size)

    async def overnight(self, *, since: datetime | None = None, until: datetime | None = None) -> Overnight:
        """What automation and people did in a span of time, and what stops saved; by default the last 12 hours."""
        from lcm.model.fleet.activity_summary import Overnight

        query = asked(since=_moment(since), until=_moment(until))
        return await self._ask(Call("fleet.overnight", "GET", path_to("fleet", "overnight"), query), Overnight)

    async def system(self) -> SystemHealth:
        """The control plane, its controllers and what is suspended."""
        from lcm.model.model_system import SystemHealth

        return await self._ask(Call("fleet.system", "GET", path_to("system")), SystemHealth)

    async def settings(self) -> FleetSettings:
        """What counts now."""
        return await self._ask(Call("fleet.settings", "GET", path_to("settings")), FleetSettings)

    async def change_settings(self, body: SettingsPatch) -> FleetSettings:
        """Store values that beat the environment; null takes one back."""
        call = Call("fleet.change-settings", "PATCH", path_to("settings"), body=encoded(body))
        return await self._ask(call, FleetSettings)


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
