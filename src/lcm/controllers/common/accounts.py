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
    from lcm.model.access import CmlCredentials

CACHE_SECONDS: Final = 300.0


class CredentialsSource(Protocol):
    """Provides the workers' own accounts: the control plane."""

    async def cml_credentials(self, worker_id: str) -> CmlCredentials:
        """The credentials for a worker's CML; `NotFoundError` if the worker has none of its own."""


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

    An imported worker does so only after a person has adopted it: until then, all that is known of it is a tag, which
    anyone with access to the AWS account may set on a server of their own.
    """

    def __init__(self, internal: CredentialsSource, default: Credentials) -> None:
        self._internal = internal
        self._default = default
        self._cache: dict[str, _CachedAccount] = {}
        self._requests: Singleflight[str, Credentials | None] = Singleflight()

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

    async def _own_account(self, worker_id: str) -> Credentials | None:
        cached = self._cache.get(worker_id)
        if cached is not None and clock.boottime() < cached.until:
            return cached.own
        return await self._requests.run(worker_id, lambda: self._fetch(worker_id), f"cml-account:{worker_id}")

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
