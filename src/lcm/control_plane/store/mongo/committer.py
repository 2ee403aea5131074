"""The only task of a process that commits. Waiting commits share one transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import pymongo
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from lcm.control_plane.store.mongo.abandoned import LOOK_SECONDS
from lcm.control_plane.store.mongo.batch import CommitBatch
from lcm.control_plane.store.mongo.database import translate_error
from lcm.control_plane.store.port import StoreError, StoreUnavailableError
from lcm.core.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pymongo.asynchronous.client_session import AsyncClientSession

    from lcm.control_plane.store.adapter_rules import Commit
    from lcm.control_plane.store.mongo.abandoned import AbandonedTransactions
    from lcm.control_plane.store.mongo.database import Database

MAX_BATCH = 64

# Spreads out control planes that collide on the head document.
_BACKOFF = Backoff(base=0.005, multiplier=2.0, max_delay=0.5, jitter=0.8)

_INTERRUPTED = 11601  # another control plane took this one for dead and ended its session


class _Job(NamedTuple):
    commit: Commit
    future: asyncio.Future[Sequence[str]]


class Committer:
    """Runs commits in order, up to 64 in one transaction, one transaction at a time."""

    def __init__(
        self,
        database: Database,
        timeout: float,
        on_commit: Callable[[AsyncClientSession], None],
        abandoned: AbandonedTransactions,
    ) -> None:
        self._database = database
        self._abandoned = abandoned
        self._timeout = timeout
        self._on_commit = on_commit
        self._jobs: asyncio.Queue[_Job | None] = asyncio.Queue()
        self._closed = False
        self._task = asyncio.create_task(self._serve(), name=f"store-committer {database.name}")

    async def commit(self, commit: Commit) -> Sequence[str]:
        """Queue a commit and wait until it is durable."""
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        future: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait(_Job(commit, future))
        return await future

    async def close(self) -> None:
        """Finish the waiting commits."""
        if not self._closed:
            self._closed = True
            self._jobs.put_nowait(None)
        await asyncio.wait([self._task])

    async def _serve(self) -> None:
        running = True
        while running:
            batch, running = await self._next_batch()
            # Skip commits whose callers have given up.
            waiting = [job for job in batch if not job.future.done()]
            if waiting:
                outcomes = await self._perform([job.commit for job in waiting])
                for job, outcome in zip(waiting, outcomes, strict=True):
                    _resolve_future(job, outcome)

    async def _next_batch(self) -> tuple[list[_Job], bool]:
        batch: list[_Job] = []
        job = await self._jobs.get()
        while job is not None:
            batch.append(job)
            if len(batch) == MAX_BATCH or self._jobs.empty():
                return batch, True
            job = self._jobs.get_nowait()
        return batch, False

    async def _perform(self, commits: Sequence[Commit]) -> Sequence[Any]:
        try:
            with pymongo.timeout(self._timeout):
                return await self._until_done(commits)
        except PyMongoError as error:
            return [translate_error(error)] * len(commits)
        except Exception as error:  # noqa: BLE001 - the callers get it; the task must go on
            return [error] * len(commits)

    async def _until_done(self, commits: Sequence[Commit]) -> Sequence[Any]:
        """Retry a transaction that certainly did not happen, until the driver's timeout.

        While it waits for another one, look whether that is one nobody will finish.
        """
        retries = 0
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        while True:
            try:
                async with self._database.client.start_session(causal_consistency=True) as session:
                    return await self._transact(session, commits)
            except PyMongoError as error:
                if not _did_not_happen(error) or error.timeout:
                    raise
            if loop.time() - looked_at >= LOOK_SECONDS:
                await self._abandoned.end()
                looked_at = loop.time()
            await asyncio.sleep(_BACKOFF.delay(retries))
            retries += 1

    async def _transact(self, session: AsyncClientSession, commits: Sequence[Commit]) -> Sequence[Any]:
        await session.start_transaction(ReadConcern("snapshot"), WriteConcern("majority"))
        try:
            outcomes = await CommitBatch(commits).run(self._database, session)
            if all(isinstance(outcome, StoreError) for outcome in outcomes):
                await session.abort_transaction()
                return outcomes
        except BaseException:
            await session.abort_transaction()
            raise
        await self._finish(session)
        self._on_commit(session)
        return outcomes

    async def _finish(self, session: AsyncClientSession) -> None:
        """Commit, and retry while the outcome is unknown: MongoDB remembers the outcome of a transaction."""
        retries = 0
        while True:
            try:
                await session.commit_transaction()
                return
            except PyMongoError as error:
                if not _may_have_happened(error) or error.timeout:
                    raise
            await asyncio.sleep(_BACKOFF.delay(retries))
            retries += 1


def _did_not_happen(error: PyMongoError) -> bool:
    """Whether the transaction was aborted, or will be: an interruption of its last step does not get here."""
    return error.has_error_label("TransientTransactionError") or _is_interruption(error)


def _may_have_happened(error: PyMongoError) -> bool:
    return error.has_error_label("UnknownTransactionCommitResult") or _is_interruption(error)


def _is_interruption(error: PyMongoError) -> bool:
    return isinstance(error, OperationFailure) and error.code == _INTERRUPTED


def _resolve_future(job: _Job, outcome: Any) -> None:
    if job.future.done():
        return
    if isinstance(outcome, Exception):
        job.future.set_exception(outcome)
    else:
        job.future.set_result(outcome)
