"""Workers and worker templates, for users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import (
    DEFAULT_PAGE_SIZE,
    Resource,
    api_path,
    encode_body,
    if_match,
    new_idempotency_key,
    query_params,
)
from lcm.client.responses import ApiRequest
from lcm.model.base import Page
from lcm.model.worker.record import Worker
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from datetime import datetime

    from pydantic import BaseModel

    from lcm.model.audit import WorkerHistoryEntry
    from lcm.model.change_preview import ChangePreview, PreviewTemplateRequest, PreviewWorkerRequest
    from lcm.model.worker.explain import Explanation
    from lcm.model.worker.metrics import MetricsSample
    from lcm.model.worker.requests import (
        AdoptWorkerRequest,
        CreateWorkerRequest,
        HoldRequest,
        LicenseRequest,
        UpdateWorkerRequest,
    )
    from lcm.model.worker.status import WorkerStatus


class Workers(Resource):
    """Workers. Commands send a new Idempotency-Key by default, so they survive a lost response.

    Models that only some methods need are imported there, so that listing workers starts fast.
    """

    def list(
        self,
        *,
        status: Iterable[WorkerStatus] = (),
        exclude_statuses: Iterable[WorkerStatus] = (),
        aws_region: Iterable[str] = (),
        template: Iterable[str] = (),
        q: str | None = None,
        sort: str | None = None,
        page_size: int = DEFAULT_PAGE_SIZE,
    ) -> AsyncIterator[Worker]:
        """Workers that match all filters."""
        query = query_params(
            status=status,
            exclude_statuses=exclude_statuses,
            aws_region=aws_region,
            template=template,
            q=q,
            sort=sort,
        )
        return self._pages("workers.list", api_path("workers"), Page[Worker], query, page_size)

    async def create(self, body: CreateWorkerRequest, *, key: str | None = None) -> Worker:
        """Create a worker."""
        call = ApiRequest(
            "workers.create",
            "POST",
            api_path("workers"),
            body=encode_body(body),
            idempotency_key=key or new_idempotency_key(),
        )
        return await self._send(call, Worker)

    async def preview_create(self, body: CreateWorkerRequest) -> ChangePreview:
        """What creating a worker would do. Nothing is changed."""
        from lcm.model.change_preview import ChangePreview

        call = ApiRequest("workers.preview-create", "POST", api_path("workers", "preview"), body=encode_body(body))
        return await self._send(call, ChangePreview)

    async def preview_adoption(self, worker_id: str, body: AdoptWorkerRequest) -> ChangePreview:
        """What adopting an imported worker would do. Nothing is changed."""
        from lcm.model.change_preview import ChangePreview

        path = api_path("workers", worker_id, "adopt", "preview")
        call = ApiRequest("workers.preview-adoption", "POST", path, body=encode_body(body))
        return await self._send(call, ChangePreview)

    async def preview_license(self, worker_id: str, body: LicenseRequest) -> ChangePreview:
        """What a license operation would do. Nothing is changed."""
        from lcm.model.change_preview import ChangePreview

        path = api_path("workers", worker_id, "license", "preview")
        call = ApiRequest("workers.preview-license", "POST", path, body=encode_body(body))
        return await self._send(call, ChangePreview)

    async def preview(self, worker_id: str, body: PreviewWorkerRequest) -> ChangePreview:
        """What an action would do. Nothing is changed."""
        from lcm.model.change_preview import ChangePreview

        path = api_path("workers", worker_id, "preview")
        return await self._send(ApiRequest("workers.preview", "POST", path, body=encode_body(body)), ChangePreview)

    async def get(self, worker_id: str) -> Worker:
        """One worker."""
        return await self._send(ApiRequest("workers.get", "GET", api_path("workers", worker_id)), Worker)

    async def patch(self, worker_id: str, body: UpdateWorkerRequest, *, version: int | None = None) -> Worker:
        """Change editable fields."""
        path = api_path("workers", worker_id)
        call = ApiRequest("workers.patch", "PATCH", path, body=encode_body(body), headers=if_match(version))
        return await self._send(call, Worker)

    async def delete(self, worker_id: str, *, version: int | None = None, key: str | None = None) -> Worker:
        """Request its termination. The record stays."""
        path = api_path("workers", worker_id)
        call = ApiRequest(
            "workers.delete", "DELETE", path, headers=if_match(version), idempotency_key=key or new_idempotency_key()
        )
        return await self._send(call, Worker)

    async def start(
        self,
        worker_id: str,
        reason: str | None = None,
        *,
        until: datetime | None = None,
        version: int | None = None,
        key: str | None = None,
    ) -> Worker:
        """Set desired status RUNNING, which policies leave so until a time; a running drain is cancelled."""
        return await self._start_or_stop(worker_id, "start", reason, until, version, key)

    async def stop(
        self,
        worker_id: str,
        reason: str | None = None,
        *,
        until: datetime | None = None,
        version: int | None = None,
        key: str | None = None,
    ) -> Worker:
        """Set desired status STOPPED, which policies leave so until a time, without waiting for lablets."""
        return await self._start_or_stop(worker_id, "stop", reason, until, version, key)

    async def _start_or_stop(
        self,
        worker_id: str,
        name: str,
        reason: str | None,
        until: datetime | None,
        version: int | None,
        key: str | None,
    ) -> Worker:
        from lcm.model.worker.requests import CommandRequest, StartStopRequest

        if until is None:  # as older control planes know it
            return await self._command(worker_id, name, CommandRequest(reason=reason), version, key)
        return await self._command(worker_id, name, StartStopRequest(reason=reason, until=until), version, key)

    async def terminate(
        self,
        worker_id: str,
        reason: str | None = None,
        *,
        release_license: bool = True,
        version: int | None = None,
        key: str | None = None,
    ) -> Worker:
        """Set desired status TERMINATED. Without `release_license` its license is leaked, also if sent later."""
        from lcm.model.worker.requests import CommandRequest, TerminateRequest

        body = CommandRequest(reason=reason)
        if not release_license:
            body = TerminateRequest(reason=reason, release_license=False)
        return await self._command(worker_id, "terminate", body, version, key)

    async def adopt(
        self, worker_id: str, body: AdoptWorkerRequest, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Adopt an imported worker."""
        return await self._command(worker_id, "adopt", body, version, key)

    async def drain(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Accept no new lablets, wait for the existing ones, then stop."""
        return await self._command_with_reason(worker_id, "drain", reason, version, key)

    async def cancel_drain(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Accept lablets again."""
        return await self._command_with_reason(worker_id, "cancel-drain", reason, version, key)

    async def retry(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Retry a failed worker."""
        return await self._command_with_reason(worker_id, "retry", reason, version, key)

    async def trust(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Accept the certificate that the worker's CML presents instead of the pinned one."""
        return await self._command_with_reason(worker_id, "trust", reason, version, key)

    async def hold(
        self, worker_id: str, body: HoldRequest, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Place a hold on the worker: it is not changed."""
        return await self._command(worker_id, "hold", body, version, key)

    async def release(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Release the hold."""
        return await self._command_with_reason(worker_id, "release", reason, version, key)

    async def license(
        self, worker_id: str, body: LicenseRequest, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Register or deregister a license."""
        return await self._command(worker_id, "license", body, version, key)

    def history(self, worker_id: str, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[WorkerHistoryEntry]:
        """Its history, oldest first."""
        from lcm.model.audit import WorkerHistoryEntry

        path = api_path("workers", worker_id, "history")
        return self._pages("workers.history", path, Page[WorkerHistoryEntry], {}, page_size)

    async def metrics(
        self, worker_id: str, *, since: datetime | None = None, limit: int | None = None
    ) -> tuple[MetricsSample, ...]:
        """Its metrics, oldest first; without `since` those of the last hour."""
        from lcm.model.worker.metrics import MetricsSample

        query = query_params(since=None if since is None else since.isoformat(), limit=limit)
        call = ApiRequest("workers.metrics", "GET", api_path("workers", worker_id, "metrics"), query)
        return (await self._send(call, Page[MetricsSample])).items

    async def explain(self, worker_id: str) -> Explanation:
        """The reasons for its status, and what happens next."""
        from lcm.model.worker.explain import Explanation

        return await self._send(
            ApiRequest("workers.explain", "GET", api_path("workers", worker_id, "explain")), Explanation
        )

    async def _command_with_reason(
        self, worker_id: str, name: str, reason: str | None, version: int | None, key: str | None
    ) -> Worker:
        from lcm.model.worker.requests import CommandRequest

        return await self._command(worker_id, name, CommandRequest(reason=reason), version, key)

    async def _command(
        self, worker_id: str, name: str, body: BaseModel, version: int | None, key: str | None
    ) -> Worker:
        call = ApiRequest(
            f"workers.{name}",
            "POST",
            api_path("workers", worker_id, name),
            body=encode_body(body),
            headers=if_match(version),
            idempotency_key=key or new_idempotency_key(),
        )
        return await self._send(call, Worker)


_TEMPLATES_PATH = "worker-templates"


class Templates(Resource):
    """Worker templates."""

    def list(self, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[WorkerTemplate]:
        """All templates."""
        return self._pages("templates.list", api_path(_TEMPLATES_PATH), Page[WorkerTemplate], {}, page_size)

    async def get(self, name: str) -> WorkerTemplate:
        """One template."""
        return await self._send(ApiRequest("templates.get", "GET", api_path(_TEMPLATES_PATH, name)), WorkerTemplate)

    async def put(self, template: WorkerTemplate) -> WorkerTemplate:
        """Create or change a template. Workers that were launched stay as they are."""
        call = ApiRequest("templates.put", "PUT", api_path(_TEMPLATES_PATH, template.name), body=encode_body(template))
        return await self._send(call, WorkerTemplate)

    async def enable(self, name: str) -> WorkerTemplate:
        """Allow new workers from it."""
        return await self._send(
            ApiRequest("templates.enable", "POST", api_path(_TEMPLATES_PATH, name, "enable")), WorkerTemplate
        )

    async def disable(self, name: str) -> WorkerTemplate:
        """Allow no new workers from it."""
        return await self._send(
            ApiRequest("templates.disable", "POST", api_path(_TEMPLATES_PATH, name, "disable")), WorkerTemplate
        )

    async def preview(self, name: str, body: PreviewTemplateRequest) -> ChangePreview:
        """What a change to a template would do. Nothing is changed."""
        from lcm.model.change_preview import ChangePreview

        path = api_path(_TEMPLATES_PATH, name, "preview")
        return await self._send(ApiRequest("templates.preview", "POST", path, body=encode_body(body)), ChangePreview)
