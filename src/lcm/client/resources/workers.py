"""Workers, as people ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import PAGE, Group, Page, asked, encoded, fresh_key, matching, path_to
from lcm.client.responses import Call
from lcm.model.worker.record import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from datetime import datetime

    from pydantic import BaseModel

    from lcm.model.audit import HistoryEntry
    from lcm.model.worker.explain import Explanation
    from lcm.model.worker.metrics import MetricsSample
    from lcm.model.worker.requests import CreateWorker, HoldRequest, LicenseRequest, PatchWorker
    from lcm.model.worker.status import WorkerStatus


class Workers(Group):
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
        page_size: int = PAGE,
    ) -> AsyncIterator[Worker]:
        """Workers that fit all filters."""
        query = asked(
            status=status,
            exclude_statuses=exclude_statuses,
            aws_region=aws_region,
            template=template,
            q=q,
            sort=sort,
        )
        return self._pages("workers.list", path_to("workers"), Page[Worker], query, page_size)

    async def create(self, body: CreateWorker, *, key: str | None = None) -> Worker:
        """A new worker."""
        call = Call(
            "workers.create", "POST", path_to("workers"), body=encoded(body), idempotency_key=key or fresh_key()
        )
        return await self._ask(call, Worker)

    async def get(self, worker_id: str) -> Worker:
        """One worker."""
        return await self._ask(Call("workers.get", "GET", path_to("workers", worker_id)), Worker)

    async def patch(self, worker_id: str, body: PatchWorker, *, version: int | None = None) -> Worker:
        """Change what may be changed by hand."""
        path = path_to("workers", worker_id)
        call = Call("workers.patch", "PATCH", path, body=encoded(body), headers=matching(version))
        return await self._ask(call, Worker)

    async def delete(self, worker_id: str, *, version: int | None = None, key: str | None = None) -> Worker:
        """Want it terminated. The record stays."""
        path = path_to("workers", worker_id)
        call = Call("workers.delete", "DELETE", path, headers=matching(version), idempotency_key=key or fresh_key())
        return await self._ask(call, Worker)

    async def start(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Want it running; a drain under way is cancelled."""
        return await self._because(worker_id, "start", reason, version, key)

    async def stop(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Want it stopped, without waiting for lablets."""
        return await self._because(worker_id, "stop", reason, version, key)

    async def terminate(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Want it gone for good."""
        return await self._because(worker_id, "terminate", reason, version, key)

    async def drain(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Take no new lablets, wait for those there, then stop."""
        return await self._because(worker_id, "drain", reason, version, key)

    async def cancel_drain(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Take lablets again."""
        return await self._because(worker_id, "cancel-drain", reason, version, key)

    async def retry(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Try a failed worker again."""
        return await self._because(worker_id, "retry", reason, version, key)

    async def hold(
        self, worker_id: str, body: HoldRequest, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Stop all changes of this worker."""
        return await self._command(worker_id, "hold", body, version, key)

    async def release(
        self, worker_id: str, reason: str | None = None, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Let changes go on after a hold."""
        return await self._because(worker_id, "release", reason, version, key)

    async def license(
        self, worker_id: str, body: LicenseRequest, *, version: int | None = None, key: str | None = None
    ) -> Worker:
        """Register a licence, or give it back."""
        return await self._command(worker_id, "license", body, version, key)

    def history(self, worker_id: str, *, page_size: int = PAGE) -> AsyncIterator[HistoryEntry]:
        """Its steps so far, oldest first."""
        from lcm.model.audit import HistoryEntry

        path = path_to("workers", worker_id, "history")
        return self._pages("workers.history", path, Page[HistoryEntry], {}, page_size)

    async def metrics(
        self, worker_id: str, *, since: datetime | None = None, limit: int | None = None
    ) -> tuple[MetricsSample, ...]:
        """Its figures, oldest first; without `since` those of the last hour."""
        from lcm.model.worker.metrics import MetricsSample

        query = asked(since=None if since is None else since.isoformat(), limit=limit)
        call = Call("workers.metrics", "GET", path_to("workers", worker_id, "metrics"), query)
        return (await self._ask(call, Page[MetricsSample])).items

    async def explain(self, worker_id: str) -> Explanation:
        """Why it is as it is, and what happens next."""
        from lcm.model.worker.explain import Explanation

        return await self._ask(Call("workers.explain", "GET", path_to("workers", worker_id, "explain")), Explanation)

    async def _because(
        self, worker_id: str, name: str, reason: str | None, version: int | None, key: str | None
    ) -> Worker:
        from lcm.model.worker.requests import Because

        return await self._command(worker_id, name, Because(reason=reason), version, key)

    async def _command(
        self, worker_id: str, name: str, body: BaseModel, version: int | None, key: str | None
    ) -> Worker:
        call = Call(
            f"workers.{name}",
            "POST",
            path_to("workers", worker_id, name),
            body=encoded(body),
            headers=matching(version),
            idempotency_key=key or fresh_key(),
        )
        return await self._ask(call, Worker)
