"""Registers and deregisters licenses: calls that take longer than a pass, one at a time per worker.

A task reports only the result of its call. Whether a license is registered is what CML reports afterwards. Its call is
sent under the authorization of the pass that started the task; if that has expired, a later pass starts another task.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from lcm.client.errors import ClientError
from lcm.cml.errors import CMLAuthenticationError, CMLError, CMLInvalidRequestError, CMLOutcomeUnknownError
from lcm.cml.types import REGISTRATION_SETTLE_TIME, DeregistrationResult
from lcm.controllers.worker.observe.observation import LicenseTaskState
from lcm.core import clock
from lcm.core.authorization import NotAuthorizedError
from lcm.core.hosting import cancel_and_wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pydantic import SecretStr

    from lcm.cml.spi import CMLSystemSPI
    from lcm.cml.types import Credentials
    from lcm.controllers.common.accounts import CmlAccounts
    from lcm.model.worker.record import Worker


log = structlog.get_logger(__name__)

MAX_CONCURRENT: Final = 200
RETRY_AFTER: Final = 10.0


class LicenseTokenSource(Protocol):
    """Where license tokens are stored: the control plane."""

    async def license_token(self, worker_id: str) -> SecretStr:
        """A worker's license token."""


class LicenseListener(Protocol):
    """Keeps what CML reported about licenses, and is notified when that is outdated."""

    def registration_requested(self, worker_id: str) -> None:
        """A registration was just requested."""

    def license_released(self, worker_id: str) -> None:
        """The license was just deregistered."""


@dataclass(slots=True, eq=False)
class _LicenseTask:
    """The last task for the license of one worker's instance."""

    worker_id: str
    instance_id: str | None
    state: LicenseTaskState = LicenseTaskState.NONE
    error: str = ""
    requested_at: float | None = None  # boot time
    failed_at: float = float("-inf")
    asyncio_task: asyncio.Task[None] | None = None


class LicenseTasks:
    """One task per worker. `on_end` is called with the id of a worker whose task has ended."""

    def __init__(
        self,
        cml: CMLSystemSPI,
        accounts: CmlAccounts,
        internal: LicenseTokenSource,
        address_of: Callable[[Worker], str | None],
        *,
        on_end: Callable[[str], None] = lambda _worker_id: None,
        listener: LicenseListener | None = None,
        max_concurrent: int = MAX_CONCURRENT,
    ) -> None:
        self.on_end = on_end
        self._cml = cml
        self._accounts = accounts
        self._internal = internal
        self._address_of = address_of
        self._listener = listener
        self._slots = asyncio.Semaphore(max_concurrent)
        self._tasks_by_worker: dict[str, _LicenseTask] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # The last task of a worker. A task of another instance than the given one is dropped.

    def state(self, worker_id: str, instance_id: str | None = None) -> LicenseTaskState:
        """The state of the last task. An accepted registration leaves no state: CML reports its outcome."""
        task = self._of(worker_id, instance_id)
        return LicenseTaskState.NONE if task is None else task.state

    def error(self, worker_id: str, instance_id: str | None = None) -> str:
        """Why the last task failed or has an unknown outcome; empty on success."""
        task = self._of(worker_id, instance_id)
        return "" if task is None else task.error

    def requested_at(self, worker_id: str, instance_id: str | None = None) -> float | None:
        """When registration was last requested: when the task began, and after its call to CML, when the call ended."""
        task = self._of(worker_id, instance_id)
        return None if task is None else task.requested_at

    # Tasks

    def register(self, worker: Worker, *, reregister: bool = False) -> None:
        """Register with the worker's token. Does nothing while a task runs or shortly after one failed."""

        async def call(address: str, account: Credentials, task: _LicenseTask) -> None:
            await self._register(address, account, task, reregister=reregister)

        task = self._start(worker, "register", call)
        if task is not None:
            task.requested_at = clock.boottime()

    def deregister(self, worker: Worker) -> None:
        """Deregister the license. Does nothing while a task runs or shortly after one failed; a later pass retries."""
        self._start(worker, "deregister", self._deregister)

    def forget(self, worker_id: str) -> None:
        """Drop the task of a worker or instance that no longer exists. A call that was sent continues at the server."""
        task = self._tasks_by_worker.pop(worker_id, None)
        if task is not None and task.asyncio_task is not None:
            task.asyncio_task.cancel()

    async def stop(self) -> None:
        """Cancel and drop all tasks: another leader may decide otherwise.

        Calls that were sent continue at the servers; the next leader reads their outcome.
        """
        self._tasks_by_worker.clear()
        await cancel_and_wait(list(self._tasks))

    def _of(self, worker_id: str, instance_id: str | None) -> _LicenseTask | None:
        task = self._tasks_by_worker.get(worker_id)
        if task is not None and instance_id is not None and task.instance_id != instance_id:
            self.forget(worker_id)
            return None
        return task

    def _start(
        self, worker: Worker, what: str, call: Callable[[str, Credentials, _LicenseTask], Awaitable[None]]
    ) -> _LicenseTask | None:
        task = self._of(worker.id, worker.instance_id)
        if task is None:
            task = self._tasks_by_worker[worker.id] = _LicenseTask(worker.id, worker.instance_id)
        elif task.state is LicenseTaskState.RUNNING or clock.boottime() - task.failed_at < RETRY_AFTER:
            return None
        task.state, task.error = LicenseTaskState.RUNNING, ""
        asyncio_task = asyncio.create_task(self._run(worker, task, what, call), name=f"license-{what}:{worker.id}")
        task.asyncio_task = asyncio_task
        self._tasks.add(asyncio_task)
        asyncio_task.add_done_callback(self._tasks.discard)
        return task

    async def _run(
        self,
        worker: Worker,
        task: _LicenseTask,
        what: str,
        call: Callable[[str, Credentials, _LicenseTask], Awaitable[None]],
    ) -> None:
        try:
            async with self._slots:
                address = self._address_of(worker)
                if address is None:
                    self._fail(task, None, "the worker has no address")
                else:
                    await call(address, await self._accounts.get(worker), task)
        except (CMLError, ClientError, NotAuthorizedError) as error:
            self._fail(task, error, str(error))
        except Exception as error:  # noqa: BLE001 - a task reports errors through its state
            # Only its type: the text may contain the token.
            self._fail(task, error, f"unexpected {type(error).__name__}")
        if self._tasks_by_worker.get(worker.id) is not task:
            return  # dropped meanwhile; a cancelled call may still end with a response
        task.asyncio_task = None
        log.info("license task ended", worker_id=worker.id, what=what, state=task.state.value, why=task.error)
        self.on_end(worker.id)

    async def _register(self, address: str, account: Credentials, task: _LicenseTask, *, reregister: bool) -> None:
        token = await self._internal.license_token(task.worker_id)
        self._registration_requested(task)
        try:
            await self._cml.register_license(address, account, token.get_secret_value(), reregister=reregister)
        except CMLOutcomeUnknownError as error:
            # The request may have taken effect: retry only after CML has shown that it did not.
            task.error = mask_secret(str(error), token)
        except CMLError as error:
            self._fail(task, error, mask_secret(str(error), token))
            return
        self._registration_requested(task)
        task.state = LicenseTaskState.NONE

    async def _deregister(self, address: str, account: Credentials, task: _LicenseTask) -> None:
        settling = _is_settling(task)
        try:
            outcome = await self._cml.deregister_license(address, account)
        finally:
            if self._listener is not None and self._tasks_by_worker.get(task.worker_id) is task:
                self._listener.license_released(
                    task.worker_id
                )  # also after an error: the request may have taken effect
        if outcome is DeregistrationResult.WAS_NOT_REGISTERED and settling:
            self._fail(task, None, "a registration was requested a moment ago and may still start")
            return
        task.requested_at = None
        task.state = (
            LicenseTaskState.LEAKED if outcome is DeregistrationResult.LOCAL_ONLY else LicenseTaskState.RELEASED
        )

    def _registration_requested(self, task: _LicenseTask) -> None:
        task.requested_at = clock.boottime()
        if self._listener is not None and self._tasks_by_worker.get(task.worker_id) is task:
            self._listener.registration_requested(task.worker_id)

    def _fail(self, task: _LicenseTask, error: Exception | None, why: str) -> None:
        task.state = LicenseTaskState.REFUSED if isinstance(error, CMLInvalidRequestError) else LicenseTaskState.FAILED
        task.error, task.failed_at = why, clock.boottime()
        if isinstance(error, CMLAuthenticationError):
            self._accounts.drop(task.worker_id)  # it may have been changed: the next task reads it again


def _is_settling(task: _LicenseTask) -> bool:
    """Whether CML may have accepted a registration that it does not report yet."""
    settle = REGISTRATION_SETTLE_TIME.total_seconds()
    return task.requested_at is not None and clock.boottime() - task.requested_at < settle


MASK: Final = "***"
_MIN_REVEALING_LENGTH: Final = 4


def mask_secret(text: str, secret: SecretStr) -> str:
    """Mask the secret, also where the text ends within it: a server may quote what it was sent."""
    clear = secret.get_secret_value()
    if not clear:
        return text
    whole = text.replace(clear, MASK)
    body = whole.rstrip("…")
    for length in range(min(len(clear) - 1, len(body)), _MIN_REVEALING_LENGTH - 1, -1):
        if body.endswith(clear[:length]):
            return body[:-length] + MASK
    return whole
