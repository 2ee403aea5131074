"""Workers, as people ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import (
    DEFAULT_PAGE_SIZE,
    Page,
    Resource,
    api_path,
    encode_body,
    if_match,
    new_idempotency_key,
    query_params,
)
from lcm.client.responses import ApiRequest
from lcm.model.worker.record import Worker
from lcm.model.worker.template import WorkerTemplate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from datetime import datetime

    from pydantic import BaseModel

    from lcm.model.audit import WorkerHistoryEntry
    from lcm.model.worker.explain import Explanation
    from lcm.model.worker.metrics import MetricsSample
    from lcm.model.worker.requests import CreateWorkerRequest, HoldRequest, LicenseRequest, UpdateWorkerRequest
    from lcm.model.worker.status import WorkerStatus


class Workers(Resource):
    """Commands send a fresh Idempotency-Key unless given one, so they survive a lost answer.

    What only some methods need is imported by them: to list workers is quick.
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
        """Workers that fit all filters."""
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
        """A new worker."""
        call = ApiRequest(
            "workers.create",
            "POST",
            api_path("workers"),
            body=encode_body(body),
            idempotency_key=key or new_idempotency_key(),
        )
        return await self._ask(call, Worker)

    async def get(self, worker_id: str) -> Worker:
        """One worker."""
        return await self._ask(ApiRequest("workers.get", "GET", api_path("workers", worker_id)), Worker)

    async def patch(self, worker_id: str, body: UpdateWorkerRequest, *, version: int | None = None) -> Worker:
        """Change what may be changed by hand."""
        path = api_path("workers", worker_id)
        call = ApiRequest("workers.patch", "PATCH", path, body=encode_body(body), headers=if_match(version))
        return await self._ask(call, Worker)

    async def delete(self, worker_id: str, *, version: int | None = None, key: str | None = None) -> Worker:
        """Want it terminated. The record stays."""
        path = api_path("workers", worker_id)
        call = ApiRequest(
            "workers.delete", "DELETE", path, headers=if_match(version), idempotency_key=key or new_idempotency_key()
        )
        return await self._ask(call, Worker)

    async def start(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Want it running; a drain under way is cancelled."""
        return await self._command_with_reason(worker_id, "start", reason, version, key)

    async def stop(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Want it stopped, without waiting for lablets."""
        return await self._command_with_reason(worker_id, "stop", reason, version, key)

    async def terminate(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Want it gone for good."""
        return await self._command_with_reason(worker_id, "terminate", reason, version, key)

    async def drain(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Take no new lablets, wait for those there, then stop."""
        return await self._command_with_reason(worker_id, "drain", reason, version, key)

    async def cancel_drain(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Take lablets again."""
        return await self._command_with_reason(worker_id, "cancel-drain", reason, version, key)

    async def retry(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Try a failed worker again."""
        return await self._command_with_reason(worker_id, "retry", reason, version, key)

    async def hold(
        self, worker_id: str, body: HoldRequest, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Stop all changes of this worker."""
        return await self._command(worker_id, "hold", body, version, key)

    async def release(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Let changes go on after a hold."""
        return await self._command_with_reason(worker_id, "release", reason, version, key)

    async def license(
        self, worker_id: str, body: LicenseRequest, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Register a licence, or give it back."""
        return await self._command(worker_id, "license", body, version, key)

    def history(self, worker_id: str, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[WorkerHistoryEntry]:
        """Its steps so far, oldest first."""
        from lcm.model.audit import WorkerHistoryEntry

        path = api_path("workers", worker_id, "history")
        return self._pages("workers.history", path, Page[WorkerHistoryEntry], {}, page_size)

    async def metrics(
        self, worker_id: str, *, since: datetime | None = None, limit: int | None = None
    ) -> tuple[MetricsSample, ...]:
        """Its figures, oldest first; without `since` those of the last hour."""
        from lcm.model.worker.metrics import MetricsSample

        query = query_params(since=None if since is None else since.isoformat(), limit=limit)
        call = ApiRequest("workers.metrics", "GET", api_path("workers", worker_id, "metrics"), query)
        return (await self._ask(call, Page[MetricsSample])).items

    async def explain(self, worker_id: str) -> Explanation:
        """Why it is as it is, and what happens next."""
        from lcm.model.worker.explain import Explanation

        return await self._ask(
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
        return await self._ask(call, Worker)


_TEMPLATES_PATH = "worker-templates"


class Templates(Resource):
    """What workers can be made from."""

    def list(self, *, page_size: int = DEFAULT_PAGE_SIZE) -> AsyncIterator[WorkerTemplate]:
        """All templates."""
        return self._pages("templates.list", api_path(_TEMPLATES_PATH), Page[WorkerTemplate], {}, page_size)

    async def get(self, name: str) -> WorkerTemplate:
        """One template."""
        return await self._ask(ApiRequest("templates.get", "GET", api_path(_TEMPLATES_PATH, name)), WorkerTemplate)

    async def put(self, template: WorkerTemplate) -> WorkerTemplate:
        """Make or change a template. Workers that were made from it stay as they are."""
        call = ApiRequest("templates.put", "PUT", api_path(_TEMPLATES_PATH, template.name), body=encode_body(template))
        return await self._ask(call, WorkerTemplate)

    async def enable(self, name: str) -> WorkerTemplate:
        """Let workers be made from it."""
        return await self._ask(
            ApiRequest("templates.enable", "POST", api_path(_TEMPLATES_PATH, name, "enable")), WorkerTemplate
        )

    async def disable(self, name: str) -> WorkerTemplate:
        """Let no more workers be made from it."""
        return await self._ask(
            ApiRequest("templates.disable", "POST", api_path(_TEMPLATES_PATH, name, "disable")), WorkerTemplate
        )
