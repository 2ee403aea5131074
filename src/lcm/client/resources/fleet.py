"""The fleet as a whole: summary, plan, holds, breakers, audit and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import DEFAULT_PAGE_SIZE, Resource, api_path, encode_body, query_params
from lcm.client.responses import ApiRequest
from lcm.model.audit import AuditEntry
from lcm.model.base import Page
from lcm.model.fleet.plan import FleetPlan, PlannedWorker
from lcm.model.fleet.settings import FleetSettings, FleetSettingsPatch
from lcm.model.fleet.settings_preview import SettingsPreview
from lcm.model.fleet.state import FleetState, FleetSummary, LeadershipReset

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from datetime import datetime

    from lcm.model.audit import ActorKind
    from lcm.model.change_preview import ChangePreview
    from lcm.model.fleet.activity_summary import ActivitySummary
    from lcm.model.fleet.history import FleetHistory, HistoryRange
    from lcm.model.system import SystemHealth
    from lcm.model.worker.requests import HoldRequest


class Fleet(Resource):
    """The fleet as a whole."""

    async def summary(self) -> FleetSummary:
        """Counts, capacity, cost, suspended automation and leaders."""
        return await self._send(ApiRequest("fleet.summary", "GET", api_path("fleet")), FleetSummary)

    async def history(self, history_range: HistoryRange = "24h") -> FleetHistory:
        """The fleet over time."""
        from lcm.model.fleet.history import FleetHistory

        call = ApiRequest("fleet.history", "GET", api_path("fleet", "history"), query_params(range=history_range))
        return await self._send(call, FleetHistory)

    def plan(self, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[PlannedWorker]:
        """The planned actions for each worker, and why."""
        return self._pages("fleet.plan", api_path("plan"), Page[PlannedWorker], {}, page_size)

    async def plan_overview(self) -> FleetPlan:
        """The first page of the plan, with the parts that do not belong to one worker."""
        return await self._send(ApiRequest("fleet.plan", "GET", api_path("plan")), FleetPlan)

    async def hold(self, body: HoldRequest) -> FleetState:
        """Place a hold on the fleet: no worker is changed."""
        call = ApiRequest("fleet.hold", "POST", api_path("fleet", "hold"), body=encode_body(body))
        return await self._send(call, FleetState)

    async def release(self) -> FleetState:
        """Release the hold."""
        return await self._send(ApiRequest("fleet.release", "POST", api_path("fleet", "release")), FleetState)

    async def reset_breakers(self, region: str | None = None) -> FleetState:
        """Close all breakers, or that of one region."""
        call = ApiRequest(
            "fleet.reset-breakers", "POST", api_path("fleet", "breaker", "reset"), query_params(region=region)
        )
        return await self._send(call, FleetState)

    async def reset_leadership(self, controller: str) -> str:
        """Reset the newest term of a controller after its etcd was replaced."""
        call = ApiRequest("fleet.reset-leadership", "POST", api_path("leadership", controller, "reset"))
        return (await self._send(call, LeadershipReset)).controller

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
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> AsyncIterator[AuditEntry]:
        """Audit entries that match all filters."""
        query = query_params(
            subject=subject,
            actor=actor,
            actor_kind=actor_kind,
            action=action,
            since=_isoformat(since),
            until=_isoformat(until),
            q=q,
            newest_first=newest_first,
        )
        return self._pages("fleet.audit", api_path("audit"), Page[AuditEntry], query, page_size)

    async def overnight(self, *, since: datetime | None = None, until: datetime | None = None) -> ActivitySummary:
        """What automation and users did in a period, and what stops saved; by default the last 12 hours."""
        from lcm.model.fleet.activity_summary import ActivitySummary

        query = query_params(since=_isoformat(since), until=_isoformat(until))
        return await self._send(
            ApiRequest("fleet.overnight", "GET", api_path("fleet", "overnight"), query), ActivitySummary
        )

    async def system(self) -> SystemHealth:
        """The health of the control plane and its controllers, and suspended automation."""
        from lcm.model.system import SystemHealth

        return await self._send(ApiRequest("fleet.system", "GET", api_path("system")), SystemHealth)

    async def settings(self) -> FleetSettings:
        """The effective settings."""
        return await self._send(ApiRequest("fleet.settings", "GET", api_path("settings")), FleetSettings)

    async def preview_release(self) -> ChangePreview:
        """What happens when the hold of the fleet ends. Nothing is changed."""
        from lcm.model.change_preview import ChangePreview

        path = api_path("fleet", "release", "preview")
        return await self._send(ApiRequest("fleet.preview-release", "POST", path), ChangePreview)

    async def preview_hold(self, body: HoldRequest) -> ChangePreview:
        """What a hold of the fleet would stop. Nothing is changed."""
        from lcm.model.change_preview import ChangePreview

        path = api_path("fleet", "hold", "preview")
        return await self._send(ApiRequest("fleet.preview-hold", "POST", path, body=encode_body(body)), ChangePreview)

    async def preview_breaker_reset(self, region: str | None = None) -> ChangePreview:
        """What closing all breakers, or that of one region, would do. Nothing is changed."""
        from lcm.model.change_preview import ChangePreview

        path = api_path("fleet", "breaker", "reset", "preview")
        call = ApiRequest("fleet.preview-breaker-reset", "POST", path, query_params(region=region))
        return await self._send(call, ChangePreview)

    async def preview_leadership_reset(self, controller: str) -> ChangePreview:
        """What resetting the newest term of a controller would do. Nothing is changed."""
        from lcm.model.change_preview import ChangePreview

        path = api_path("leadership", controller, "reset", "preview")
        return await self._send(ApiRequest("fleet.preview-leadership-reset", "POST", path), ChangePreview)

    async def preview_settings(self, body: FleetSettingsPatch) -> SettingsPreview:
        """What a change of settings would do. Nothing is stored."""
        call = ApiRequest("fleet.preview-settings", "POST", api_path("settings", "preview"), body=encode_body(body))
        return await self._send(call, SettingsPreview)

    async def change_settings(self, body: FleetSettingsPatch) -> FleetSettings:
        """Store values that override the startup configuration; null resets one."""
        call = ApiRequest("fleet.change-settings", "PATCH", api_path("settings"), body=encode_body(body))
        return await self._send(call, FleetSettings)


def _isoformat(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
