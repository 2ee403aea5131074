"""Registering licences and giving them back: calls that take longer than a pass, one at a time per worker.

What a call brought is only told here. Whether a licence is registered is what CML says of it afterwards.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from lcm.client.errors import ClientError
from lcm.cml.errors import CMLAuthenticationError, CMLError, CMLInvalidRequestError, CMLOutcomeUnknownError
from lcm.cml.licensing import REGISTRATION_SETTLE_TIME
from lcm.cml.types import DeregistrationResult
from lcm.controllers.worker.observe.observation import LicenseTaskState
from lcm.core import clock
from lcm.core.hosting import cancel_and_wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from pydantic import SecretStr

    from lcm.cml.spi import CMLSystemSPI
    from lcm.cml.types import Credentials
    from lcm.controllers.common.accounts import CmlAccounts
    from lcm.model.worker.record import Worker


log = structlog.get_logger(__name__)

MAX_CONCURRENT: Final = 200
RETRY_AFTER: Final = 10.0


class LicenseTokenSource(Protocol):
    """Where licence tokens are kept: the control plane."""

    async def license_token(self, worker_id: str) -> SecretStr:
        """A worker's licence token."""


class LicenseListener(Protocol):
    """Who remembers what CML said of licences, and must hear when that is outdated."""

    def registration_requested(self, worker_id: str) -> None:
        """A registration was just asked for."""

    def license_released(self, worker_id: str) -> None:
        """The licence was just given back."""


@dataclass(slots=True, eq=False)
class _LicenseTask:
    """What was last done with the licence of one worker's instance."""

    worker_id: str
    instance_id: str | None
    state: LicenseTaskState = LicenseTaskState.NONE
    failure: str = ""
    asked_at: datetime | None = None
    failed_at: float = float("-inf")
    task: asyncio.Task[None] | None = None


class LicenseTasks:
    """One task per worker. `on_end` hears the id of a worker whose task has ended."""

    def __init__(
        self,
        cml: CMLSystemSPI,
        accounts: CmlAccounts,
        internal: LicenseTokenSource,
        address_of: Callable[[Worker], str | None],
        *,
        on_end: Callable[[str], None] = lambda _worker_id: None,
        notes: LicenseListener | None = None,
        at_once: int = MAX_CONCURRENT,
    ) -> None:
        self.on_end = on_end
        self._cml = cml
        self._accounts = accounts
        self._internal = internal
        self._address_of = address_of
        self._notes = notes
        self._slots = asyncio.Semaphore(at_once)
        self._errands: dict[str, _LicenseTask] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # What is under way, and what came of it. A task of another instance than the one asked for is forgotten.

    def state(self, worker_id: str, instance_id: str | None = None) -> LicenseTaskState:
        """How far the last task is. A registration that CML took leaves no state: CML tells what comes of it."""
        errand = self._of(worker_id, instance_id)
        return LicenseTaskState.NONE if errand is None else errand.state

    def failure(self, worker_id: str, instance_id: str | None = None) -> str:
        """Why the last task failed, or why nobody knows what came of it; empty when it went well."""
        errand = self._of(worker_id, instance_id)
        return "" if errand is None else errand.failure

    def asked_at(self, worker_id: str, instance_id: str | None = None) -> datetime | None:
        """When registration was last asked for: when the task began, and once it called CML, when the call ended."""
        errand = self._of(worker_id, instance_id)
        return None if errand is None else errand.asked_at

    # Doing

    def register(self, worker: Worker, *, reregister: bool = False) -> None:
        """Ask CML to register with the worker's token. Nothing happens while a task runs or has failed just now."""

        async def call(address: str, account: Credentials, errand: _LicenseTask) -> None:
            await self._register(address, account, errand, reregister=reregister)

        errand = self._begin(worker, "register", call)
        if errand is not None:
            errand.asked_at = clock.now()

    def release(self, worker: Worker) -> None:
        """Give the licence back. Nothing happens while a task runs or has failed just now: later it is tried again."""
        self._begin(worker, "release", self._release)

    def forget(self, worker_id: str) -> None:
        """The worker, or its instance, is no more. A call that was sent goes on at the server."""
        errand = self._errands.pop(worker_id, None)
        if errand is not None and errand.task is not None:
            errand.task.cancel()

    async def stop(self) -> None:
        """End all tasks and forget all: whoever leads meanwhile may do otherwise.

        Calls that were sent go on at the servers. That is in order: the next leader looks what came of them.
        """
        self._errands.clear()
        await cancel_and_wait(list(self._tasks))

    def _of(self, worker_id: str, instance_id: str | None) -> _LicenseTask | None:
        errand = self._errands.get(worker_id)
        if errand is not None and instance_id is not None and errand.instance_id != instance_id:
            self.forget(worker_id)
            return None
        return errand

    def _begin(
        self, worker: Worker, what: str, call: Callable[[str, Credentials, _LicenseTask], Awaitable[None]]
    ) -> _LicenseTask | None:
        errand = self._of(worker.id, worker.instance_id)
        if errand is None:
            errand = self._errands[worker.id] = _LicenseTask(worker.id, worker.instance_id)
        elif errand.state is LicenseTaskState.RUNNING or clock.boottime() - errand.failed_at < RETRY_AFTER:
            return None
        errand.state, errand.failure = LicenseTaskState.RUNNING, ""
        task = asyncio.create_task(self._run(worker, errand, what, call), name=f"licence-{what}:{worker.id}")
        errand.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return errand

    async def _run(
        self,
        worker: Worker,
        errand: _LicenseTask,
        what: str,
        call: Callable[[str, Credentials, _LicenseTask], Awaitable[None]],
    ) -> None:
        try:
            async with self._slots:
                address = self._address_of(worker)
                if address is None:
                    self._fail(errand, None, "the worker has no address")
                else:
                    await call(address, await self._accounts.get(worker.id), errand)
        except (CMLError, ClientError) as error:
            self._fail(errand, error, str(error))
        except Exception as error:  # noqa: BLE001 - a task has nobody to tell but its own record
            # Only its kind: whatever else it says may hold the token.
            self._fail(errand, error, f"unexpected {type(error).__name__}")
        if self._errands.get(worker.id) is not errand:
            return  # forgotten meanwhile; a call may end with an answer although it was cancelled
        errand.task = None
        log.info("licence task ended", worker_id=worker.id, what=what, state=errand.state.value, why=errand.failure)
        self.on_end(worker.id)

    async def _register(self, address: str, account: Credentials, errand: _LicenseTask, *, reregister: bool) -> None:
        token = await self._internal.license_token(errand.worker_id)
        self._note_asked(errand)
        try:
            await self._cml.register_license(address, account, token.get_secret_value(), reregister=reregister)
        except CMLOutcomeUnknownError as error:
            # It may have happened. Asking again is for those who have seen that it did not.
            errand.failure = mask_secret(str(error), token)
        except CMLError as error:
            self._fail(errand, error, mask_secret(str(error), token))
            return
        self._note_asked(errand)
        errand.state = LicenseTaskState.NONE

    async def _release(self, address: str, account: Credentials, errand: _LicenseTask) -> None:
        settling = _is_settling(errand)
        try:
            outcome = await self._cml.deregister_license(address, account)
        finally:
            if self._notes is not None and self._errands.get(errand.worker_id) is errand:
                self._notes.license_released(errand.worker_id)  # also after an error: it may have happened
        if outcome is DeregistrationResult.WAS_NOT_REGISTERED and settling:
            self._fail(errand, None, "a registration was asked for a moment ago and may still begin")
            return
        errand.asked_at = None
        errand.state = (
            LicenseTaskState.LEAKED if outcome is DeregistrationResult.LOCAL_ONLY else LicenseTaskState.RELEASED
        )

    def _note_asked(self, errand: _LicenseTask) -> None:
        errand.asked_at = clock.now()
        if self._notes is not None and self._errands.get(errand.worker_id) is errand:
            self._notes.registration_requested(errand.worker_id)

    def _fail(self, errand: _LicenseTask, error: Exception | None, why: str) -> None:
        errand.state = (
            LicenseTaskState.REFUSED if isinstance(error, CMLInvalidRequestError) else LicenseTaskState.FAILED
        )
        errand.failure, errand.failed_at = why, clock.boottime()
        if isinstance(error, CMLAuthenticationError):
            self._accounts.drop(errand.worker_id)  # it may have been changed: the next task asks for it anew


def _is_settling(errand: _LicenseTask) -> bool:
    """Whether CML may not yet show a registration that it has taken."""
    return errand.asked_at is not None and clock.now() - errand.asked_at < REGISTRATION_SETTLE_TIME


MASK: Final = "***"
_MIN_REVEALING_LENGTH: Final = 4


def mask_secret(text: str, secret: SecretStr) -> str:
    """The text with the secret masked, also where the text was cut off within it."""
    clear = secret.get_secret_value()
    if not clear:
        return text
    whole = text.replace(clear, MASK)
    body = whole.rstrip("…")
    for length in range(min(len(clear) - 1, len(body)), _MIN_REVEALING_LENGTH - 1, -1):
        if body.endswith(clear[:length]):
            return body[:-length] + MASK
    return whole
