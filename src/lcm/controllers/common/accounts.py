"""Which account to use on a worker's CML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from lcm.client.errors import NotFoundError
from lcm.cml.types import Credentials
from lcm.core import clock
from lcm.core.singleflight import Singleflight

if TYPE_CHECKING:
    from lcm.model.access import CmlCredentials

CACHE_SECONDS: Final = 300.0


class CredentialsSource(Protocol):
    """Where workers' own accounts are kept: the control plane."""

    async def cml_credentials(self, worker_id: str) -> CmlCredentials:
        """What to sign in to a worker's CML with; `NotFoundError` where it has no account of its own."""


@dataclass(frozen=True, slots=True)
class _CachedAccount:
    account: Credentials
    until: float


class CmlAccounts:
    """Accounts by worker, kept for a short while. A worker without one of its own has the default."""

    def __init__(self, internal: CredentialsSource, default: Credentials) -> None:
        self._internal = internal
        self._default = default
        self._known: dict[str, _CachedAccount] = {}
        self._asking: Singleflight[str, Credentials] = Singleflight()

    async def get(self, worker_id: str) -> Credentials:
        """The account of a worker; raises what the control plane's client raises when that cannot be told.

        No answer is no reason to try the default: it would show a password to a server that does not know it.
        """
        known = self._known.get(worker_id)
        if known is not None and clock.boottime() < known.until:
            return known.account
        return await self._asking.ask(worker_id, lambda: self._ask(worker_id), f"cml-account:{worker_id}")

    def drop(self, worker_id: str) -> None:
        """Ask anew next time; an answer that is on its way counts only for those who wait for it already."""
        self._known.pop(worker_id, None)
        self._asking.part(worker_id)

    async def _ask(self, worker_id: str) -> Credentials:
        asked_at = clock.boottime()
        try:
            answer = await self._internal.cml_credentials(worker_id)
            account = Credentials(answer.username, answer.password.get_secret_value())
        except NotFoundError:
            account = self._default
        if self._asking.mine(worker_id):
            self._known[worker_id] = _CachedAccount(account, asked_at + CACHE_SECONDS)
        return account
