"""Asking workers' CML servers how they are, on behalf of everybody, and remembering what they said.

A look asks first what anybody may ask; only a server that says it is ready is signed in to. Each question fails alone:
what failed is unknown, and the trouble is told in words.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from lcm.client.errors import ClientError
from lcm.cml.errors import CMLAuthenticationError, CMLError
from lcm.controllers.worker.observe.activity import activity_events
from lcm.controllers.worker.observe.cml_state import CmlQueryResult, CmlServerState
from lcm.controllers.worker.observe.observation import CmlObservation
from lcm.core import clock
from lcm.core.singleflight import Singleflight

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.cml.spi import CMLSystemSPI
    from lcm.cml.types import Credentials, SystemStats
    from lcm.controllers.common.accounts import CmlAccounts
    from lcm.model.worker.idle import ActivityEvent
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

MAX_CONCURRENT: Final = 50
QUERY_TIMEOUT: Final = 45.0
DEFINITIONS_TIMEOUT: Final = 10.0
_NO_ADDRESS: Final = "it has no address to ask at"


class CmlMonitor:
    """What the servers said last. Only addresses that `address_of` gives for a worker are dialled."""

    def __init__(
        self,
        cml: CMLSystemSPI,
        accounts: CmlAccounts,
        address_of: Callable[[Worker], str | None],
        *,
        dedicated: bool = False,
        at_once: int = MAX_CONCURRENT,
        look_seconds: float = QUERY_TIMEOUT,
    ) -> None:
        self._cml = cml
        self._accounts = accounts
        self._address_of = address_of
        self._slots = asyncio.Semaphore(at_once)
        self._look_seconds = look_seconds
        self._dedicated = dedicated  # whether our account is used by nobody else, so that its events say nothing
        self._known: dict[str, CmlServerState] = {}
        self._holders: dict[str, str] = {}  # which worker is known under an address
        self._looks: Singleflight[CmlServerState, None] = Singleflight()

    # What is remembered

    def sight(self, worker: Worker) -> CmlObservation:
        """What its CML said last; nobody is asked."""
        memory = self._memory(worker)
        return CmlObservation() if memory is None else memory.sight

    def stats(self, worker: Worker) -> SystemStats | None:
        """The figures of the last look, as far as it brought any."""
        memory = self._memory(worker)
        return None if memory is None else memory.stats

    def license_age(self, worker: Worker) -> float | None:
        """Seconds since its CML last told of the licence; None: that is not known."""
        memory = self._memory(worker)
        return None if memory is None else memory.license_age

    def registration_requested(self, worker_id: str) -> None:
        """A registration was just asked for: for a while CML may still tell how it was before."""
        memory = self._known.get(worker_id)
        if memory is not None:
            memory.registration_requested()

    def license_released(self, worker_id: str) -> None:
        """The licence was just given back: what CML told of it before does not count."""
        memory = self._known.get(worker_id)
        if memory is not None:
            memory.license_released()

    def forget(self, worker_id: str) -> None:
        """The worker is no more."""
        memory = self._known.pop(worker_id, None)
        if memory is not None:
            self._leave(memory)
        self._accounts.drop(worker_id)

    # Asking

    async def look(self, worker: Worker, *, max_age: float, licence: bool) -> CmlObservation:
        """What its CML says, asked at most `max_age` seconds ago; a failed look counts like any other.

        There is one look at a time: who asks meanwhile shares it, unless it began too long ago.
        """
        memory = self._memory(worker)
        if memory is None:
            return CmlObservation()
        if memory.address is None:
            return CmlObservation(trouble=_NO_ADDRESS)
        earliest, address = clock.boottime() - max_age, memory.address
        # The look under way may have begun too early, or without the licence: then the next one is waited for.
        while self._current(memory) and not memory.fresh(earliest, licence=licence):
            if not self._looks.under_way(memory):
                memory.querying_license = licence
            await self._looks.ask(memory, lambda: self._look(memory, address), f"cml-look:{worker.id}")
        return memory.sight

    async def activity(self, worker: Worker) -> tuple[ActivityEvent, ...] | None:
        """The newest events on its CML, oldest first; None: they could not be fetched, which says nothing."""
        memory = self._memory(worker)
        if memory is None or memory.address is None:
            return None
        account: Credentials | None = None
        try:
            async with self._slots, asyncio.timeout(self._look_seconds):
                account = await self._accounts.get(worker.id)
                found = await self._cml.get_activity_events(memory.address, account, None)
                if self._dedicated and memory.own_user_id is None:
                    memory.own_user_id = await self._cml.get_own_user_id(memory.address, account)
        except TimeoutError:
            self._activity_unavailable(memory, self._timeout_error)
            return None
        except (CMLError, ClientError) as error:
            self._account_refused(memory, account, error)
            self._activity_unavailable(memory, str(error))
            return None
        memory.activity_error = ""
        return activity_events(found.events, memory.own_user_id)

    def _activity_unavailable(self, memory: CmlServerState, trouble: str) -> None:
        if not memory.activity_error:
            log.warning("telemetry cannot be fetched", worker_id=memory.worker_id, error=trouble)
        memory.activity_error = trouble

    async def _look(self, memory: CmlServerState, address: str) -> None:
        async with self._slots:
            if not self._current(memory):
                return
            found = CmlQueryResult(license_requested=memory.querying_license)
            try:
                async with asyncio.timeout(self._look_seconds):
                    await self._ask(memory, address, found)
            except TimeoutError:
                found.troubles.append(self._timeout_error)
            memory.take(found)

    async def _ask(self, memory: CmlServerState, address: str, found: CmlQueryResult) -> None:
        try:
            found.information = await self._cml.get_system_information(address)
        except CMLError as error:
            found.troubles.append(error.cause)
            return
        if not found.information.ready:
            return
        try:
            account = await self._accounts.get(memory.worker_id)
        except ClientError as error:
            found.troubles.append(f"the account to sign in with is not known: {error}")
            return
        if not self._current(memory):
            return
        # Side by side, so that a question without an answer does not take the other's time.
        async with asyncio.TaskGroup() as questions:
            questions.create_task(self._ask_stats(memory, address, account, found))
            if found.license_requested:
                questions.create_task(self._ask_licence(memory, address, account, found))
            if memory.definitions_due(found.information.version):
                questions.create_task(self._ask_definitions(memory, address, account, found))

    async def _ask_stats(
        self, memory: CmlServerState, address: str, account: Credentials, found: CmlQueryResult
    ) -> None:
        try:
            found.stats = await self._cml.get_system_stats(address, account)
        except CMLError as error:
            self._account_refused(memory, account, error)
            found.troubles.append(f"statistics: {error.cause}")

    async def _ask_definitions(
        self, memory: CmlServerState, address: str, account: Credentials, found: CmlQueryResult
    ) -> None:
        """What was known of them stays when they cannot be read, and the server is no less ready for it."""
        try:
            async with asyncio.timeout(DEFINITIONS_TIMEOUT):
                found.definitions = await self._cml.get_node_definitions(address, account)
        except (CMLError, TimeoutError) as error:
            self._account_refused(memory, account, error)
            log.info("node definitions cannot be read", worker_id=memory.worker_id, error=str(error) or "too slow")

    async def _ask_licence(
        self, memory: CmlServerState, address: str, account: Credentials, found: CmlQueryResult
    ) -> None:
        found.license_call_began, found.license_epoch = clock.boottime(), memory.license_epoch
        try:
            found.licence = await self._cml.get_license(address, account)
        except CMLError as error:
            self._account_refused(memory, account, error)
            found.troubles.append(f"licence: {error.cause}")

    def _account_refused(self, memory: CmlServerState, account: Credentials | None, error: Exception) -> None:
        """An account that CML refuses may have been changed: it is asked for anew, but only once for each account."""
        if isinstance(error, CMLAuthenticationError) and account is not None and account != memory.refused:
            memory.refused = account
            self._accounts.drop(memory.worker_id)

    @property
    def _timeout_error(self) -> str:
        return f"no whole answer within {self._look_seconds:g} s"

    # Whom a memory is of

    def _memory(self, worker: Worker) -> CmlServerState | None:
        """What is known of this very server; None for a record that is older than one already seen.

        Lists lag behind: by an old record the address of a machine would be dialled that is another's by now.
        """
        known = self._known.get(worker.id)
        address = None if worker.instance_id is None else self._address_of(worker)
        if known is not None:
            if (known.instance_id, known.address) == (worker.instance_id, address):
                known.record_version = max(known.record_version, worker.version)
                return known
            if worker.version < known.record_version:
                return None
            self._leave(known)
        memory = self._known[worker.id] = CmlServerState(worker.id, worker.instance_id, address, worker.version)
        if address is not None:
            if address in self._holders:
                self._cml.forget(address)  # another worker was there before
            self._holders[address] = worker.id
        return memory

    def _current(self, memory: CmlServerState) -> bool:
        """Whether the worker is still that instance under that address; it may have changed while we waited."""
        return self._known.get(memory.worker_id) is memory

    def _leave(self, memory: CmlServerState) -> None:
        """Nothing of the sessions with a server may reach whoever has its address next."""
        if memory.address is not None and self._holders.get(memory.address) == memory.worker_id:
            del self._holders[memory.address]
            self._cml.forget(memory.address)
