"""Queries the CML servers of workers, for all parts of the controller, and keeps their last responses.

A query first reads what needs no account; only a server that reports ready is signed in to. While it is ready, most
queries read nothing but its statistics. Each part of a query fails alone: its value is then unknown, and the error is
kept as text.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from lcm.client.errors import ClientError
from lcm.cml.errors import (
    CMLAuthenticationError,
    CMLCertificateChangedError,
    CMLError,
    CMLPollerError,
    CMLUnauthorizedError,
)
from lcm.cml.reading import INFORMATION_SHARE, ServerQuery
from lcm.controllers.common.accounts import NotAdoptedError
from lcm.controllers.worker.observe.activity import ClockUnusableError, activity_events
from lcm.controllers.worker.observe.cml_state import CmlQueryResult, CmlServerState, ServerOwner
from lcm.controllers.worker.observe.observation import NO_EVENTS, CmlObservation
from lcm.controllers.worker.observe.query_slots import QuerySlots
from lcm.core import clock
from lcm.core.singleflight import Singleflight

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.cml.reading import ServerReading
    from lcm.cml.spi import CMLSystemSPI
    from lcm.cml.types import Credentials, SystemStats
    from lcm.controllers.common.accounts import CmlAccounts
    from lcm.model.worker.idle import ActivityEvent
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)

MAX_CONCURRENT: Final = 200
MAX_ACTIVITY_READS: Final = 50
SLOW_SECONDS: Final = 5.0
"""A server whose query took longer uses slots of its own for the next one."""
QUERY_TIMEOUT: Final = 45.0
ACTIVITY_TIMEOUT: Final = 150.0
"""Seconds for a read of the activity events: long enough for a list of a million, with a sign-in before it."""
_NO_ADDRESS: Final = "the worker has no address"


class CmlMonitor:
    """The last responses of all servers. Only the address that `address_of` returns for a worker is called."""

    def __init__(
        self,
        cml: CMLSystemSPI,
        accounts: CmlAccounts,
        address_of: Callable[[Worker], str | None],
        *,
        dedicated: bool = False,
        max_concurrent: int = MAX_CONCURRENT,
        query_timeout: float = QUERY_TIMEOUT,
        on_ready_changed: Callable[[str], None] = lambda _worker_id: None,
    ) -> None:
        self._cml = cml
        self._accounts = accounts
        self._address_of = address_of
        self._slots = QuerySlots(max_concurrent)
        self._query_timeout = query_timeout
        self._on_ready_changed = on_ready_changed
        # Long reads must not delay other queries, and each may take a mebibyte.
        self._activity_slots = asyncio.Semaphore(min(max_concurrent, MAX_ACTIVITY_READS))
        self._dedicated = dedicated  # whether only LCM uses the account, so that its events are not user activity
        self._states: dict[str, CmlServerState] = {}
        self._worker_by_address: dict[str, str] = {}  # the worker that has an address
        self._queries: Singleflight[CmlServerState, None] = Singleflight()

    # State

    def last_observation(self, worker: Worker) -> CmlObservation:
        """The result of the last query; sends no request."""
        state = self._state(worker)
        return CmlObservation() if state is None else state.observation

    def stats(self, worker: Worker) -> SystemStats | None:
        """The system statistics of the last query, if it returned any."""
        state = self._state(worker)
        return None if state is None else state.stats

    def is_slow(self, worker_id: str) -> bool:
        """Whether the query of this worker's server takes long, or the last one did."""
        state = self._states.get(worker_id)
        return state is not None and state.is_slow

    def license_age(self, worker: Worker) -> float | None:
        """Seconds since CML last reported the license; None if that is unknown."""
        state = self._state(worker)
        return None if state is None else state.license_age

    def registration_requested(self, worker_id: str) -> None:
        """A registration was just requested: for a while CML may still report the state before it."""
        state = self._states.get(worker_id)
        if state is not None:
            state.registration_requested()

    def license_released(self, worker_id: str) -> None:
        """The license was just deregistered: earlier responses no longer count."""
        state = self._states.get(worker_id)
        if state is not None:
            state.license_released()

    def forget(self, worker_id: str) -> None:
        """Drop the state of a worker that no longer exists."""
        state = self._states.pop(worker_id, None)
        if state is not None:
            self._leave(state)
        self._accounts.drop(worker_id)

    # Queries

    async def query(
        self, worker: Worker, *, max_age: float, with_license: bool, on_slow: Callable[[], None] = lambda: None
    ) -> CmlObservation:
        """The result of a query that is at most `max_age` seconds old; a failed query counts like any other.

        There is one query at a time per worker: concurrent callers share it, unless it began too long ago. `on_slow` is
        called when it takes long: it then no longer keeps a slot from other queries.
        """
        state = self._state(worker)
        if state is None:
            return CmlObservation()
        if state.address is None:
            return CmlObservation(error=_NO_ADDRESS)
        earliest, address = clock.boottime() - max_age, state.address
        # The query in flight may have begun too early, or without the license: then wait for the next one.
        while self._current(state) and not state.fresh(earliest, with_license=with_license):
            if not self._queries.in_flight(state):
                state.querying_license = with_license
            if state.is_slow:
                on_slow()
            state.on_slow.append(on_slow)
            try:
                await self._queries.run(state, lambda: self._query(state, address), f"cml-query:{worker.id}")
            finally:
                state.on_slow.remove(on_slow)
        return state.observation

    async def activity(self, worker: Worker) -> tuple[ActivityEvent, ...] | None:
        """The newest activity events, oldest first; None if they could not be fetched, which proves nothing."""
        state = self._state(worker)
        if state is None or state.address is None:
            return None
        account: Credentials | None = None
        try:
            async with self._activity_slots, asyncio.timeout(ACTIVITY_TIMEOUT):
                account = await self._accounts.get(worker)
                result = await self._cml.get_activity_events(state.address, account)
                if self._dedicated and state.own_user_id is None:
                    state.own_user_id = await self._cml.get_own_user_id(state.address, account)
        except TimeoutError:
            self._activity_unavailable(state, f"no complete response within {ACTIVITY_TIMEOUT:g} s")
            return None
        except (CMLError, ClientError) as error:
            self._account_refused(state, account, error)
            self._activity_unavailable(state, str(error))
            return None
        try:
            events = activity_events(result.events, state.zone, clock.now(), state.own_user_id)
        except ClockUnusableError as error:
            self._activity_unavailable(state, str(error))
            return None
        if events:
            state.activity_error = ""
        else:
            self._activity_unavailable(state, NO_EVENTS)
        return events

    def _activity_unavailable(self, state: CmlServerState, error: str) -> None:
        if not state.activity_error:
            log.warning("activity events cannot be fetched", worker_id=state.worker_id, error=error)
        state.activity_error = error

    async def _query(self, state: CmlServerState, address: str) -> None:
        async with self._slots.slot(is_slow=state.is_slow, on_slow=state.becomes_slow):
            if not self._current(state):
                return
            loop = asyncio.get_running_loop()
            began = loop.time()
            result = CmlQueryResult(license_requested=state.querying_license)
            try:
                await self._read_server(state, address, result, began + self._query_timeout)
            except CMLPollerError as error:
                result.is_unknown = True
                result.errors.append(error.cause)
            was_ready = state.ready
            state.update(result)
            state.is_slow = loop.time() - began >= SLOW_SECONDS
            if was_ready is not None and was_ready != state.ready:
                self._on_ready_changed(state.worker_id)  # it may have no pass of its own for long

    async def _read_server(self, state: CmlServerState, address: str, result: CmlQueryResult, deadline: float) -> None:
        """Read without an account first, unless the server is known to be ready."""
        if state.ready is not True and not await self._read_information(state, address, result, deadline):
            return
        # A control plane that is slow must not use up the time in which the server can say that it is ready.
        kept = self._query_timeout * INFORMATION_SHARE if result.information is None else 0.0
        account = await self._account(state, result, deadline - kept)
        if account is None:
            if result.information is None:
                await self._read_information(state, address, result, deadline)
            return
        if not self._current(state):
            return
        version = state.version if result.information is None else result.information.version
        query = ServerQuery(
            address,
            account,
            information=result.information is None and state.information_due,
            information_on_failure=result.information is None,
            labs=state.labs_due,
            nodes_before=state.nodes_when_counted,
            license=result.license_requested,
            health=state.kvm_due(),
            definitions=state.definitions_due(version or ""),
            instance_id=state.instance_id or "",
        )
        result.license_epoch = state.license_epoch
        reading = await self._read(query, result, deadline)
        if reading is None:
            return
        result.still_ready = reading.information is None and reading.stats is not None
        if query.information or reading.stats is None:
            self._take_information(reading, result)
        if result.is_ready:
            self._take_parts(state, account, reading, result)
        if reading.timed_out:
            result.errors.append(self._timeout_error)

    async def _read_information(
        self, state: CmlServerState, address: str, result: CmlQueryResult, deadline: float
    ) -> bool:
        """Read what needs no account; returns whether the server is ready, and still that of this worker."""
        reading = await self._read(ServerQuery(address, instance_id=state.instance_id or ""), result, deadline)
        if reading is None:
            return False
        self._take_information(reading, result)
        if reading.timed_out:
            result.errors.append(self._timeout_error)
        if result.information is None or not result.information.ready or not self._current(state):
            return False
        if state.certificate is None and result.information.certificate is not None:
            # Not earlier: a server that still boots may present another certificate than later.
            self._trust(state, result.information.certificate)
            log.info("certificate pinned", worker_id=state.worker_id, address=address, sha256=state.certificate)
        return True

    async def _read(self, query: ServerQuery, result: CmlQueryResult, deadline: float) -> ServerReading | None:
        """None if there is no time left to ask the server, which says nothing about it."""
        left = deadline - asyncio.get_running_loop().time()
        if left > 0.0:
            return await self._cml.read_server(query, left)
        result.is_unknown = result.information is None
        result.errors.append(self._timeout_error)
        return None

    def _take_information(self, reading: ServerReading, result: CmlQueryResult) -> None:
        if reading.information is not None:
            result.information = reading.information
        error = reading.information_error
        if error is not None:
            if isinstance(error, CMLCertificateChangedError):
                result.presented = error.presented
            result.errors.append(error.cause)

    async def _account(self, state: CmlServerState, result: CmlQueryResult, deadline: float) -> Credentials | None:
        """The account to sign in with; None if there is none, or it cannot be read now."""
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(deadline):
                return await self._accounts.get(state.worker)
        except NotAdoptedError:
            result.account_withheld = True
        except ClientError as error:
            result.errors.append(f"the account to sign in with cannot be read: {error}")
        except TimeoutError:
            cause = f"the control plane did not respond within {max(0.0, deadline - began):.3g} s"
            result.errors.append(f"the account to sign in with cannot be read: {cause}")
        return None

    def _take_parts(
        self, state: CmlServerState, account: Credentials, reading: ServerReading, result: CmlQueryResult
    ) -> None:
        """What was read with the account. Where health or definitions failed, what is known of them stays."""
        for error in (reading.stats_error, reading.license_error, reading.health_error, reading.definitions_error):
            self._account_refused(state, account, error)
        result.stats, result.labs_counted = reading.stats, reading.labs_counted
        if reading.stats_error is not None:
            if isinstance(reading.stats_error, CMLAuthenticationError | CMLUnauthorizedError):
                result.refusal = f"CML refuses the account {account.username!r}: {reading.stats_error.cause}"
            result.errors.append(f"statistics: {reading.stats_error.cause}")
        if reading.license_began is not None:
            result.license_call_began = reading.license_began
        result.license_state = reading.license_state
        if reading.license_error is not None:
            result.errors.append(f"license: {reading.license_error.cause}")
        result.kvm_enabled, result.definitions = reading.kvm_enabled, reading.definitions
        if reading.health_error is not None:
            log.info("health cannot be read", worker_id=state.worker_id, error=str(reading.health_error))
        if reading.definitions_error is not None:
            error_text = str(reading.definitions_error)
            log.info("node definitions cannot be read", worker_id=state.worker_id, error=error_text)

    def _account_refused(self, state: CmlServerState, account: Credentials | None, error: Exception | None) -> None:
        """A refused account may have been changed: read it again, but only once for each account."""
        if isinstance(error, CMLAuthenticationError) and account is not None and account != state.refused:
            state.refused = account
            self._accounts.drop(state.worker_id)

    @property
    def _timeout_error(self) -> str:
        return f"no complete response within {self._query_timeout:g} s"

    # Identity of a server

    def _state(self, worker: Worker) -> CmlServerState | None:
        """The state of this server; None for a record that is older than one already used.

        Lists lag behind: the address in an old record may belong to another instance by now.
        """
        state_before = self._states.get(worker.id)
        address = None if worker.instance_id is None else self._address_of(worker)
        if state_before is not None:
            if (state_before.instance_id, state_before.address) == (worker.instance_id, address):
                if worker.version >= state_before.worker.version:
                    if worker.version != state_before.worker.version:
                        state_before.worker = ServerOwner.of(worker)
                    if worker.cml_certificate is not None:
                        self._trust(state_before, worker.cml_certificate)
                return state_before
            if worker.version < state_before.worker.version:
                return None
            self._leave(state_before)
        state = self._states[worker.id] = CmlServerState(ServerOwner.of(worker), address)
        if address is not None:
            if address in self._worker_by_address:
                self._cml.forget(address)  # another worker had this address before
            self._worker_by_address[address] = worker.id
            if worker.cml_certificate is not None:
                self._trust(state, worker.cml_certificate)
        return state

    def _trust(self, state: CmlServerState, certificate: str) -> None:
        state.certificate = certificate
        if state.address is not None:
            self._cml.trust(state.address, certificate)

    def _current(self, state: CmlServerState) -> bool:
        """Whether the worker still has that instance and address; both may have changed during a wait."""
        return self._states.get(state.worker_id) is state

    def _leave(self, state: CmlServerState) -> None:
        """Close the sessions with a server, so that none of them reaches the next owner of its address."""
        if state.address is not None and self._worker_by_address.get(state.address) == state.worker_id:
            del self._worker_by_address[state.address]
            self._cml.forget(state.address)
