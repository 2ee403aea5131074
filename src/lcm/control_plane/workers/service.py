"""What people do with workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.control_plane.errors import PreconditionFailedError, ProblemError
from lcm.control_plane.fleet.service import read_fleet_state
from lcm.control_plane.fleet.templates import read_template
from lcm.control_plane.records.idempotency import run_idempotent
from lcm.control_plane.records.kinds import WORKER_HISTORY, WORKERS
from lcm.control_plane.secrets.worker_secrets import CML_PASSWORD, CML_USERNAME, LICENSE_TOKEN, store_secrets
from lcm.control_plane.workers import edit, lifecycle
from lcm.control_plane.workers import lifecycle as holding
from lcm.control_plane.workers.decisions import read_decision
from lcm.core import clock
from lcm.model.audit import WorkerHistoryEntry
from lcm.model.problems import ProblemCode
from lcm.model.worker.explain import ExplainInput, explain
from lcm.model.worker.record import Worker
from lcm.model.worker.status import LicenseOperation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import DocumentPage, JournalEntry, Sort, StoredDocument, Where
    from lcm.model.worker.explain import Explanation
    from lcm.model.worker.requests import CreateWorkerRequest, HoldRequest, LicenseRequest, UpdateWorkerRequest

COMMANDS: dict[str, Callable[[Worker, Transaction, str | None], Worker]] = {
    "start": lambda worker, change, _: lifecycle.start(worker, change.now),
    "stop": lambda worker, change, reason: lifecycle.stop(worker, change.now, reason),
    "terminate": lambda worker, change, _: lifecycle.terminate(worker, change.now),
    "drain": lambda worker, change, reason: lifecycle.drain(worker, change.now, reason),
    "cancel-drain": lambda worker, change, _: lifecycle.cancel_drain(worker, change.now),
    "retry": lambda worker, change, _: lifecycle.retry(worker, change.now),
    "release": lambda worker, change, _: holding.release(worker, change.now),
}


class WorkerService:
    """Reads and changes of workers on behalf of people. Changes answer with the worker's JSON."""

    def __init__(self, plane: ControlPlaneContext) -> None:
        self._plane = plane

    async def page(self, where: Where, sort: Sort, after: str | None, limit: int) -> DocumentPage:
        """Some workers, undecoded."""
        return await self._plane.store.find(WORKERS, where, sort=sort, after=after, limit=limit)

    async def get(self, worker_id: str) -> StoredDocument:
        """One worker, undecoded."""
        stored = await self._plane.store.get(WORKERS, worker_id)
        if stored is None:
            raise ProblemError(ProblemCode.NOT_FOUND, f"there is no worker {worker_id}")
        return stored

    async def history(self, worker_id: str, after: str | None, limit: int) -> Sequence[JournalEntry]:
        """A worker's steps, oldest first."""
        await self.get(worker_id)
        return await self._plane.store.journal(topics=[WORKER_HISTORY], subjects=[worker_id], after=after, limit=limit)

    async def explain(self, worker_id: str) -> Explanation:
        """Why it is as it is, and what happens next."""
        plane = self._plane
        worker = Worker.model_validate_json((await self.get(worker_id)).body)
        steps = await plane.store.journal(topics=[WORKER_HISTORY], subjects=[worker_id], newest_first=True, limit=1)
        known = ExplainInput(
            worker=worker,
            decision=await read_decision(plane.store, worker_id),
            fleet=await read_fleet_state(plane.store),
            settings=await plane.settings(),
            last=WorkerHistoryEntry.model_validate_json(steps[0].body) if steps else None,
            now=clock.now(),
        )
        return explain(known)

    async def create(self, caller: Caller, request: CreateWorkerRequest, key: IdempotencyKey | None = None) -> bytes:
        """A new worker."""
        region = self._plane.region(request.aws_region)
        worker_id = clock.new_id("w")

        async def attempt(change: Transaction) -> Worker:
            template = await read_template(change.store, request.template_name)
            worker = edit.build_worker(request, template, worker_id=worker_id, aws_region=region, now=change.now)
            await store_secrets(change, self._plane.box, worker_id, _secrets_in(request))
            return change.save(worker, "created")

        return await self._answering(caller, key, attempt)

    async def patch(self, caller: Caller, worker_id: str, request: UpdateWorkerRequest, if_match: int | None) -> bytes:
        """Change what people may change by hand."""

        async def attempt(change: Transaction) -> Worker:
            worker = await self._matching(change, worker_id, if_match)
            secrets, fields = _secrets_in(request), sorted(request.model_fields_set)
            after = edit.apply_patch(worker, request, change.now)
            await store_secrets(change, self._plane.box, worker_id, secrets)
            if after == worker and secrets:
                change.audit(
                    "patched", worker_id, fields=fields
                )  # the record looks the same, yet something was changed
            return change.save(after, "patched", fields=fields)

        return await self._answering(caller, None, attempt)

    async def command(
        self,
        caller: Caller,
        worker_id: str,
        name: str,
        *,
        reason: str | None = None,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """One of `COMMANDS`; asked again it changes nothing."""

        async def attempt(change: Transaction) -> Worker:
            worker = await self._matching(change, worker_id, if_match)
            return change.save(COMMANDS[name](worker, change, reason), name.replace("-", "_"), reason or "")

        return await self._answering(caller, key, attempt)

    async def hold(
        self,
        caller: Caller,
        worker_id: str,
        request: HoldRequest,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Stop all changes of a worker."""

        async def attempt(change: Transaction) -> Worker:
            worker = await self._matching(change, worker_id, if_match)
            return change.save(holding.hold(worker, request, caller.name, change.now), "hold", request.reason)

        return await self._answering(caller, key, attempt)

    async def license(
        self,
        caller: Caller,
        worker_id: str,
        request: LicenseRequest,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Ask for a licence operation; giving the licence back withdraws the token."""

        async def attempt(change: Transaction) -> Worker:
            worker = await self._matching(change, worker_id, if_match)
            after = edit.apply_license_request(worker, request, caller.name, change.now)
            secrets: dict[str, str | None] = {}
            if request.token is not None:
                secrets[LICENSE_TOKEN] = request.token.get_secret_value()
            elif request.operation is LicenseOperation.DEREGISTER and worker.has_license_token:
                secrets[LICENSE_TOKEN] = None
            await store_secrets(change, self._plane.box, worker_id, secrets)
            return change.save(after, f"license_{request.operation.value}", request.reason or "")

        return await self._answering(caller, key, attempt)

    async def _answering(
        self, caller: Caller, key: IdempotencyKey | None, attempt: Callable[[Transaction], Awaitable[Worker]]
    ) -> bytes:
        return await run_idempotent(self._plane.records, caller.actor, key, attempt)

    async def _matching(self, change: Transaction, worker_id: str, if_match: int | None) -> Worker:
        worker = await change.worker(worker_id)
        if if_match is not None and if_match != worker.version:
            raise PreconditionFailedError("worker", worker.version, if_match)
        return worker


def _secrets_in(request: CreateWorkerRequest | UpdateWorkerRequest) -> dict[str, str | None]:
    token, password = request.license_token, request.cml_password
    clear = {
        LICENSE_TOKEN: None if token is None else token.get_secret_value(),
        CML_USERNAME: request.cml_username,
        CML_PASSWORD: None if password is None else password.get_secret_value(),
    }
    return {name: value for name, value in clear.items() if name in request.model_fields_set}
