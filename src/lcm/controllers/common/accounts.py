"""The CML account of each worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from lcm.client.errors import NotFoundError
from lcm.cml.errors import CMLError
from lcm.cml.types import Credentials
from lcm.core import clock
from lcm.core.singleflight import Singleflight

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from lcm.model.access import CmlCredentials

CACHE_SECONDS: Final = 300.0
LIST_SECONDS: Final = 1.0
"""Seconds between two lists of the workers with an account, at least."""
MANY_NEW: Final = 50
"""So many workers that are not known yet are worth a list: a new leader learns of its workers page by page."""


class CredentialsSource(Protocol):
    """Provides the workers' own accounts: the control plane."""

    async def cml_credentials(self, worker_id: str) -> CmlCredentials:
        """The credentials for a worker's CML; `NotFoundError` if the worker has none of its own."""

    async def cml_accounts(self) -> frozenset[str]:
        """The workers that have credentials of their own."""


class AccountOwner(Protocol):
    """What decides which account a worker has."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def is_adopted(self) -> bool: ...


class NotAdoptedError(CMLError):
    """The worker was imported, nobody has adopted it, and it has no account of its own: LCM does not sign in to it."""

    outcome = "not_adopted"

    def __init__(self, worker: AccountOwner) -> None:
        super().__init__(
            worker.name,
            "it was imported and is not adopted, so that the default account is not sent to it:"
            f" lcm workers adopt {worker.name}",
        )


@dataclass(frozen=True, slots=True)
class _CachedAccount:
    own: Credentials | None
    until: float


class CmlAccounts:
    """Accounts by worker, cached for a short time. A worker without its own account uses the default.

    Almost none has one. One request says which of the `listed` workers do, instead of one request for each of them.

    An imported worker does so only after a person has adopted it: until then, all that is known of it is a tag, which
    anyone with access to the AWS account may set on a server of their own.
    """

    def __init__(
        self,
        internal: CredentialsSource,
        default: Credentials,
        *,
        listed: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self._internal = internal
        self._default = default
        self._listed = listed
        self._cache: dict[str, _CachedAccount] = {}
        self._requests: Singleflight[str, Credentials | None] = Singleflight()
        self._list_requests: Singleflight[None, None] = Singleflight()
        self._listed_at = float("-inf")
        self._dropped: set[str] = set()  # since the list in flight was requested

    async def get(self, worker: AccountOwner) -> Credentials:
        """The account of a worker; raises the client's error if the control plane cannot be reached.

        Raises `NotAdoptedError` for an imported worker that may not have the default.
        A missing response is no reason to try the default: that would send a password to a server it is not meant for.
        """
        own = await self._own_account(worker.id)
        if own is not None:
            return own
        if not worker.is_adopted:
            raise NotAdoptedError(worker)
        return self._default

    def drop(self, worker_id: str) -> None:
        """Fetch the account again next time; a response in flight is used only by callers that already wait for it."""
        self._cache.pop(worker_id, None)
        self._requests.forget(worker_id)
        if self._list_requests.in_flight(None):
            self._dropped.add(worker_id)

    async def _own_account(self, worker_id: str) -> Credentials | None:
        cached = self._cached(worker_id)
        if cached is None and self._is_list_due() and worker_id in self._listed():
            await self._list_requests.run(None, self._find_without_own, "cml-accounts")
            cached = self._cached(worker_id)
        if cached is not None:
            return cached.own
        return await self._requests.run(worker_id, lambda: self._fetch(worker_id), f"cml-account:{worker_id}")

    def _cached(self, worker_id: str) -> _CachedAccount | None:
        cached = self._cache.get(worker_id)
        return cached if cached is not None and clock.boottime() < cached.until else None

    def _is_list_due(self) -> bool:
        """Whether to ask which workers have an account, instead of asking for one worker: also if many are new."""
        age = clock.boottime() - self._listed_at
        return age >= CACHE_SECONDS or (age >= LIST_SECONDS and len(self._listed()) > len(self._cache) + MANY_NEW)

    async def _find_without_own(self) -> None:
        """Note which workers have no account of their own. A worker that was not known before is not among them."""
        sent_at, listed = clock.boottime(), tuple(self._listed())
        self._dropped.clear()
        try:
            own = await self._internal.cml_accounts()
        except NotFoundError:  # a control plane of an earlier version: ask it for each worker
            own = frozenset(listed)
        self._listed_at = sent_at
        without = _CachedAccount(None, sent_at + CACHE_SECONDS)
        for worker_id in listed:
            if worker_id not in own and worker_id not in self._dropped:
                self._cache[worker_id] = without

    async def _fetch(self, worker_id: str) -> Credentials | None:
        sent_at = clock.boottime()
        try:
            own = await self._internal.cml_credentials(worker_id)
            account = Credentials(own.username, own.password.get_secret_value())
        except NotFoundError:
            account = None
        if self._requests.is_current(worker_id):
            self._cache[worker_id] = _CachedAccount(account, sent_at + CACHE_SECONDS)
        return account
