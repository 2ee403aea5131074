"""Queries the CML servers of workers, for all parts of the controller, and keeps their last responses.

A query first reads what needs no account; only a server that reports ready is signed in to. Each part of a query fails
alone: its value is then unknown, and the error is kept as text.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from lcm.client.errors import ClientError
from lcm.cml.errors import CMLAuthenticationError, CMLCertificateChangedError, CMLError, CMLUnauthorizedError
from lcm.controllers.common.accounts import NotAdoptedError
from lcm.controllers.worker.observe.activity import ClockUnusableError, activity_events
from lcm.controllers.worker.observe.cml_state import CmlQueryResult, CmlServerState, ServerOwner
from lcm.controllers.worker.observe.observation import NO_EVENTS, CmlObservation
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
ACTIVITY_TIMEOUT: Final = 150.0
"""Seconds for a read of the activity events: long enough for a list of a million, with a sign-in before it."""
DEFINITIONS_TIMEOUT: Final = 10.0
HEALTH_TIMEOUT: Final = 10.0
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
        self._slots = asyncio.Semaphore(max_concurrent)
        self._query_timeout = query_timeout
        self._on_ready_changed = on_ready_changed
        self._activity_slots = asyncio.Semaphore(max_concurrent)  # long reads must not delay other queries
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

    async def query(self, worker: Worker, *, max_age: float, with_license: bool) -> CmlObservation:
        """The result of a query that is at most `max_age` seconds old; a failed query counts like any other.

        There is one query at a time per worker: concurrent callers share it, unless it began too long ago.
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
            await self._queries.run(state, lambda: self._query(state, address), f"cml-query:{worker.id}")
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
        async with self._slots:
            if not self._current(state):
                return
            result = CmlQueryResult(license_requested=state.querying_license)
            try:
                async with asyncio.timeout(self._query_timeout):
                    await self._read_server(state, address, result)
            except TimeoutError:
                result.errors.append(self._timeout_error)
            was_ready = state.ready
            state.update(result)
            if was_ready is not None and was_ready != state.ready:
                self._on_ready_changed(state.worker_id)  # it may have no pass of its own for long

    async def _read_server(self, state: CmlServerState, address: str, result: CmlQueryResult) -> None:
        try:
            result.information = await self._cml.get_system_information(address)
        except CMLError as error:
            if isinstance(error, CMLCertificateChangedError):
                result.presented = error.presented
            result.errors.append(error.cause)
            return
        if not result.information.ready or not self._current(state):
            return
        if state.certificate is None and result.information.certificate is not None:
            # Not earlier: a server that still boots may present another certificate than later.
            self._trust(state, result.information.certificate)
            log.info("certificate pinned", worker_id=state.worker_id, address=address, sha256=state.certificate)
        try:
            account = await self._accounts.get(state.worker)
        except NotAdoptedError:
            result.account_withheld = True
            return
        except ClientError as error:
            result.errors.append(f"the account to sign in with cannot be read: {error}")
            return
        if self._current(state):
            await self._read_with_account(state, address, account, result, result.information.version)

    async def _read_with_account(
        self, state: CmlServerState, address: str, account: Credentials, result: CmlQueryResult, version: str
    ) -> None:
        """In parallel, so that one request without a response does not use up the time of the others."""
        async with asyncio.TaskGroup() as requests:
            requests.create_task(self._read_stats(state, address, account, result))
            if result.license_requested:
                requests.create_task(self._read_license(state, address, account, result))
            if state.kvm_due():
                requests.create_task(self._read_health(state, address, account, result))
            if state.definitions_due(version):
                requests.create_task(self._read_definitions(state, address, account, result))

    async def _read_stats(
        self, state: CmlServerState, address: str, account: Credentials, result: CmlQueryResult
    ) -> None:
        try:
            result.stats = await self._cml.get_system_stats(address, account)
        except CMLError as error:
            self._account_refused(state, account, error)
            if isinstance(error, CMLAuthenticationError | CMLUnauthorizedError):
                result.refusal = f"CML refuses the account {account.username!r}: {error.cause}"
            result.errors.append(f"statistics: {error.cause}")

    async def _read_health(
        self, state: CmlServerState, address: str, account: Credentials, result: CmlQueryResult
    ) -> None:
        """On failure what is known of KVM stays, and the server still counts as ready."""
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT):
                result.kvm_enabled = (await self._cml.get_system_health(address, account)).kvm_enabled
        except (CMLError, TimeoutError) as error:
            self._account_refused(state, account, error)
            log.info("health cannot be read", worker_id=state.worker_id, error=str(error) or "too slow")

    async def _read_definitions(
        self, state: CmlServerState, address: str, account: Credentials, result: CmlQueryResult
    ) -> None:
        """On failure the known definitions stay, and the server still counts as ready."""
        try:
            async with asyncio.timeout(DEFINITIONS_TIMEOUT):
                result.definitions = await self._cml.get_node_definitions(address, account)
        except (CMLError, TimeoutError) as error:
            self._account_refused(state, account, error)
            log.info("node definitions cannot be read", worker_id=state.worker_id, error=str(error) or "too slow")

    async def _read_license(
        self, state: CmlServerState, address: str, account: Credentials, result: CmlQueryResult
    ) -> None:
        result.license_call_began, result.license_epoch = clock.boottime(), state.license_epoch
        try:
            result.license_state = await self._cml.get_license(address, account)
        except CMLError as error:
            self._account_refused(state, account, error)
            result.errors.append(f"license: {error.cause}")

    def _account_refused(self, state: CmlServerState, account: Credentials | None, error: Exception) -> None:
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
