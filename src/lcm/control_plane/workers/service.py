"""Operations on workers that people request."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pydantic_core import from_json

from lcm.control_plane.calendar.schedule_reads import boundary_override, read_schedules
from lcm.control_plane.errors import ProblemError
from lcm.control_plane.fleet.state_reads import read_controller_reports, read_fleet_state, read_leaders
from lcm.control_plane.fleet.templates import read_template
from lcm.control_plane.records.idempotency import run_idempotent
from lcm.control_plane.records.kinds import TEMPLATES, WORKER_HISTORY, WORKERS
from lcm.control_plane.secrets.worker_secrets import (
    CML_PASSWORD,
    CML_USERNAME,
    LICENSE_TOKEN,
    is_stored_secret,
    store_secrets,
)
from lcm.control_plane.teams.choice import add_to_named_team
from lcm.control_plane.workers import lifecycle
from lcm.control_plane.workers.decisions import read_decision
from lcm.control_plane.workers.imports import build_adopted
from lcm.core import clock
from lcm.model.audit import WorkerHistoryEntry
from lcm.model.fleet.plan import DecisionState, assess_decision, find_evaluator
from lcm.model.lablet.scheduling.block import WORKER_CONTROLLER
from lcm.model.problems import ProblemCode
from lcm.model.worker.explain import ExplainInput, explain
from lcm.model.worker.record import Worker
from lcm.model.worker.status import DesiredStatus, LicenseOperation, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from lcm.control_plane.auth.roles import Caller
    from lcm.control_plane.context import ControlPlaneContext
    from lcm.control_plane.records.idempotency import IdempotencyKey
    from lcm.control_plane.records.unit_of_work import Transaction
    from lcm.control_plane.store.port import DocumentPage, JournalEntry, Sort, StoredDocument, Where
    from lcm.model.audit import DecisionReport
    from lcm.model.worker.explain import Explanation
    from lcm.model.worker.requests import (
        AdoptWorkerRequest,
        CreateWorkerRequest,
        HoldRequest,
        LicenseRequest,
        UpdateWorkerRequest,
    )

KEEPING_COMMANDS = {"start": DesiredStatus.RUNNING, "stop": DesiredStatus.STOPPED}
"""Commands with which a person can say for how long the worker is to stay so, and what it is to be."""

DRAIN_COMMANDS = ("drain", "cancel-drain")
"""Commands that also say what the worker is to be; with a schedule they count until its next boundary."""

COMMANDS: dict[str, Callable[[Worker, Transaction, str | None], Worker]] = {
    "terminate": lambda worker, tx, _: lifecycle.terminate(worker, tx.now),
    "drain": lambda worker, tx, reason: lifecycle.drain(worker, tx.now, reason),
    "cancel-drain": lambda worker, tx, _: lifecycle.cancel_drain(worker, tx.now),
    "retry": lambda worker, tx, _: lifecycle.retry(worker, tx.now),
    "trust": lambda worker, tx, _: lifecycle.trust(worker, tx.now),
    "release": lambda worker, tx, _: lifecycle.release(worker, tx.now),
}


class WorkerService:
    """Reads and changes workers on behalf of people. Changes return the worker's JSON."""

    def __init__(self, context: ControlPlaneContext) -> None:
        self._context = context

    async def page(self, where: Where, sort: Sort, after: str | None, limit: int) -> DocumentPage:
        """A page of workers, undecoded."""
        return await self._context.store.find(WORKERS, where, sort=sort, after=after, limit=limit)

    async def get(self, worker_id: str) -> StoredDocument:
        """One worker, undecoded."""
        stored = await self._context.store.get(WORKERS, worker_id)
        if stored is None:
            raise ProblemError(ProblemCode.NOT_FOUND, f"there is no worker {worker_id}")
        return stored

    async def context(self, worker_id: str) -> bytes:
        """One worker with what a decision about it needs: a `WorkerContext` as JSON, without decoding the record."""
        store = self._context.store
        stored = await self.get(worker_id)
        worker = from_json(stored.body)
        pending, name = worker["status"] == WorkerStatus.PENDING.value, worker.get("template_name")
        template = await store.get(TEMPLATES, name) if pending and name else None
        parts = {
            b"worker": stored.body,
            b"fleet": (await read_fleet_state(store)).model_dump_json().encode(),
            b"settings": (await self._context.settings()).model_dump_json().encode(),
            b"template": b"null" if template is None else template.body,
        }
        return b"{" + b",".join(b'"%s":%s' % part for part in parts.items()) + b"}"

    async def history(self, worker_id: str, after: str | None, limit: int) -> Sequence[JournalEntry]:
        """A worker's status transitions, oldest first."""
        await self.get(worker_id)
        return await self._context.store.read_journal(
            topics=[WORKER_HISTORY], subjects=[worker_id], after=after, limit=limit
        )

    async def explain(self, worker_id: str) -> Explanation:
        """Why the worker is in its status, and what happens next."""
        return await self._context.small_reads.run_alone(partial(self._explain, worker_id))

    async def _explain(self, worker_id: str) -> Explanation:
        context = self._context
        worker = Worker.model_validate_json((await self.get(worker_id)).body)
        transitions = await context.store.read_journal(
            topics=[WORKER_HISTORY], subjects=[worker_id], newest_first=True, limit=1
        )
        decision, now = await read_decision(context.store, worker_id), clock.now()
        fleet = await read_fleet_state(context.store)
        inputs = ExplainInput(
            worker=worker,
            decision=decision,
            fleet=fleet,
            schedules=await read_schedules(context.store, fleet),
            settings=await context.settings(),
            last=WorkerHistoryEntry.model_validate_json(transitions[0].body) if transitions else None,
            now=now,
            stale=await self._staleness(worker, decision, now),
        )
        return explain(inputs)

    async def _staleness(self, worker: Worker, decision: DecisionReport | None, now: datetime) -> str:
        """Why the decision is not for the worker as it is now; empty if it is, or if no controller has reported."""
        store = self._context.store
        reports = await read_controller_reports(store)
        if decision is None or WORKER_CONTROLLER not in reports:
            return ""
        state, note = assess_decision(worker, decision, find_evaluator(await read_leaders(store), reports, now), now)
        return "" if state in (DecisionState.CURRENT, DecisionState.IN_PROGRESS) else note

    async def create(self, caller: Caller, request: CreateWorkerRequest, key: IdempotencyKey | None = None) -> bytes:
        region = self._context.region(request.aws_region)
        worker_id = clock.new_id("w")

        async def attempt(tx: Transaction) -> Worker:
            template = await read_template(tx.store, request.template_name)
            worker = lifecycle.build_worker(request, template, worker_id=worker_id, aws_region=region, now=tx.now)
            override = await boundary_override(tx.store, worker, worker.desired_status, caller.name, tx.now)
            worker = worker.model_copy(update={"override": override})
            await store_secrets(tx, self._context.secret_box, worker_id, _secrets_in(request))
            return tx.save_worker(worker, "created")

        return await self._run(caller, key, attempt)

    async def patch(
        self,
        caller: Caller,
        worker_id: str,
        request: UpdateWorkerRequest,
        if_match: int | None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Change the fields that people may edit."""

        async def attempt(tx: Transaction) -> Worker:
            worker = await tx.worker(worker_id, if_match=if_match)
            secrets, fields = _secrets_in(request), sorted(request.model_fields_set)
            after = lifecycle.apply_patch(worker, request, tx.now, await _team_in(tx, request))
            await store_secrets(tx, self._context.secret_box, worker_id, secrets)
            if after == worker and secrets:
                tx.audit("patched", worker_id, fields=fields)  # a secret was replaced, although the record is the same
            return tx.save_worker(after, "patched", fields=fields)

        return await self._run(caller, key, attempt)

    async def command(
        self,
        caller: Caller,
        worker_id: str,
        name: str,
        *,
        reason: str | None = None,
        release_license: bool = True,
        until: datetime | None = None,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Run a command. A repeated one changes nothing.

        Only a termination reads `release_license`; only `KEEPING_COMMANDS` read `until`.
        """

        async def attempt(tx: Transaction) -> Worker:
            worker = await tx.worker(worker_id, if_match=if_match)
            if name in KEEPING_COMMANDS:
                after = await self._start_or_stop(tx, worker, name, caller, reason, until)
                return tx.save_worker(after, name, reason or "", **_override_details(after))
            if name == "terminate" and not release_license:
                leaking = lifecycle.terminate(worker, tx.now, release_license=False)
                return tx.save_worker(leaking, "terminate", reason or "", release_license=False)
            after = COMMANDS[name](worker, tx, reason)
            if name in DRAIN_COMMANDS and after is not worker:
                override = await boundary_override(tx.store, worker, after.desired_status, caller.name, tx.now, reason)
                after = after if override is None else after.model_copy(update={"override": override})
            return tx.save_worker(after, name.replace("-", "_"), reason or "")

        return await self._run(caller, key, attempt)

    async def _start_or_stop(
        self, tx: Transaction, worker: Worker, name: str, caller: Caller, reason: str | None, until: datetime | None
    ) -> Worker:
        desired, override = KEEPING_COMMANDS[name], None
        if until is not None:
            override = lifecycle.make_override(desired, until, caller.name, tx.now, reason)
        else:
            override = await boundary_override(tx.store, worker, desired, caller.name, tx.now, reason)
        if desired is DesiredStatus.RUNNING:
            return lifecycle.start(worker, tx.now, override=override)
        return lifecycle.stop(worker, tx.now, reason, override=override)

    async def hold(
        self,
        caller: Caller,
        worker_id: str,
        request: HoldRequest,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Put a worker on hold: controllers stop changing it."""

        async def attempt(tx: Transaction) -> Worker:
            worker = await tx.worker(worker_id, if_match=if_match)
            return tx.save_worker(lifecycle.hold(worker, request, caller.name, tx.now), "hold", request.reason)

        return await self._run(caller, key, attempt)

    async def license(
        self,
        caller: Caller,
        worker_id: str,
        request: LicenseRequest,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Request a license operation. Deregistering also deletes the token."""

        async def attempt(tx: Transaction) -> Worker:
            worker = await tx.worker(worker_id, if_match=if_match)
            same = request.token is not None and await is_stored_secret(
                tx.store, self._context.secret_box, worker_id, LICENSE_TOKEN, request.token.get_secret_value()
            )
            after = lifecycle.apply_license_request(worker, request, caller.name, tx.now, same_token=same)
            secrets: dict[str, str | None] = {}
            if request.token is not None:
                secrets[LICENSE_TOKEN] = request.token.get_secret_value()
            elif request.operation is LicenseOperation.DEREGISTER and worker.has_license_token:
                secrets[LICENSE_TOKEN] = None
            await store_secrets(tx, self._context.secret_box, worker_id, secrets)
            return tx.save_worker(after, f"license_{request.operation.value}", request.reason or "")

        return await self._run(caller, key, attempt)

    async def adopt(
        self,
        caller: Caller,
        worker_id: str,
        request: AdoptWorkerRequest,
        if_match: int | None = None,
        key: IdempotencyKey | None = None,
    ) -> bytes:
        """Adopt an imported worker."""

        async def attempt(tx: Transaction) -> Worker:
            worker = await tx.worker(worker_id, if_match=if_match)
            after = await build_adopted(tx.store, worker, request, tx.now)
            if request.license_token is not None:
                token = request.license_token.get_secret_value()
                await store_secrets(tx, self._context.secret_box, worker_id, {LICENSE_TOKEN: token})
            return tx.save_worker(after, "adopted", schedulable=request.schedulable, template=after.template_name)

        return await self._run(caller, key, attempt)

    async def _run(
        self, caller: Caller, key: IdempotencyKey | None, attempt: Callable[[Transaction], Awaitable[Worker]]
    ) -> bytes:
        return await run_idempotent(self._context.unit_of_work, caller.actor, key, attempt)


def _override_details(worker: Worker) -> dict[str, str]:
    """What the audit says of the time for which a command counts."""
    until = None if worker.override is None else worker.override.until
    return {} if until is None else {"until": until.isoformat()}


def _secrets_in(request: CreateWorkerRequest | UpdateWorkerRequest) -> dict[str, str | None]:
    token, password = request.license_token, request.cml_password
    secrets = {
        LICENSE_TOKEN: None if token is None else token.get_secret_value(),
        CML_USERNAME: request.cml_username,
        CML_PASSWORD: None if password is None else password.get_secret_value(),
    }
    return {name: value for name, value in secrets.items() if name in request.model_fields_set}


async def _team_in(tx: Transaction, request: UpdateWorkerRequest) -> str | None:
    """The id of the team that a request dedicates the worker to; empty for none, None if it says nothing."""
    if "team" not in request.model_fields_set:
        return None
    return "" if request.team is None else await add_to_named_team(tx, request.team)
