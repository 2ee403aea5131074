"""The labs on workers' CML servers: which account to use, which address to dial, one list for all who ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lcm.cml.client.labs import CMLLabsClient
from lcm.cml.errors import CMLAuthenticationError, CMLNotReadyError
from lcm.core import clock
from lcm.core.singleflight import Singleflight

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.cml.client.session import CMLSession
    from lcm.cml.types import Credentials, ImportedLab, LabState, NodeAddress, NodeState
    from lcm.controllers.common.accounts import CmlAccounts
    from lcm.controllers.lablet.decide.decision import LabOperation
    from lcm.model.worker.record import Worker

    _ClientCall = Callable[[str, Credentials], Awaitable["R"]]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _LabListing:
    """All labs of a server, as a call showed them that began at a moment of the boot-time clock."""

    labs: tuple[LabState, ...]
    began: float


class WorkerLabClient:
    """Labs by worker. Only addresses of workers are dialled, and nothing of one reaches who has its address next."""

    def __init__(
        self,
        session: CMLSession,
        accounts: CmlAccounts,
        address_of: Callable[[Worker], str | None],
        forget: Callable[[str], None],
    ) -> None:
        self._labs = CMLLabsClient(session)
        self._accounts = accounts
        self._address_of = address_of
        self._forget = forget
        self._holders: dict[str, str] = {}  # which instance was last dialled at an address
        self._refused: dict[str, Credentials] = {}  # the account that a worker's CML refused last
        self._lists: Singleflight[str, _LabListing] = Singleflight()

    async def labs(self, worker: Worker) -> tuple[LabState, ...]:
        """All labs, by a list that began after this was asked: an older one may lack what was made since."""
        asked, key = clock.boottime(), f"{worker.instance_id} {self._address_of(worker)}"
        while True:
            found = await self._lists.ask(key, lambda: self._list(worker), f"labs:{worker.id}")
            if found.began >= asked:
                return found.labs

    async def lab(self, worker: Worker, lab_id: str) -> LabState:
        """One lab."""
        return await self._ask(worker, lambda at, account: self._labs.get_lab(at, account, lab_id))

    async def converged(self, worker: Worker, lab_id: str) -> bool:
        """Whether no node is on its way."""
        return await self._ask(worker, lambda at, account: self._labs.has_converged(at, account, lab_id))

    async def nodes(self, worker: Worker, lab_id: str) -> list[NodeState]:
        """Its nodes."""
        return await self._ask(worker, lambda at, account: self._labs.nodes(at, account, lab_id))

    async def addresses(self, worker: Worker, lab_id: str) -> list[NodeAddress]:
        """What its nodes were seen to use."""
        return await self._ask(worker, lambda at, account: self._labs.node_addresses(at, account, lab_id))

    async def import_lab(self, worker: Worker, topology: str, *, title: str, marker: str) -> ImportedLab:
        """Make a lab."""
        return await self._ask(
            worker,
            lambda at, account: self._labs.import_lab(at, account, topology, title=title, marker=marker),
        )

    async def change(self, worker: Worker, call: LabOperation, lab_id: str) -> None:
        """Start, stop, wipe or delete a lab; one that is deleted already is fine."""
        made: dict[str, _ClientCall[object]] = {
            "start": lambda at, account: self._labs.start_lab(at, account, lab_id),
            "stop": lambda at, account: self._labs.stop_lab(at, account, lab_id),
            "wipe": lambda at, account: self._labs.wipe_lab(at, account, lab_id),
            "delete": lambda at, account: self._labs.delete_lab(at, account, lab_id),
        }
        await self._ask(worker, made[call.value])

    async def _list(self, worker: Worker) -> _LabListing:
        began = clock.boottime()
        labs = await self._ask(worker, self._labs.list_labs)
        return _LabListing(tuple(labs), began)

    async def _ask(self, worker: Worker, call: _ClientCall[R]) -> R:
        address = self._address(worker)
        account = await self._accounts.get(worker.id)
        try:
            return await call(address, account)
        except CMLAuthenticationError:
            # It may have been changed: it is asked for anew, but only once for each account.
            if self._refused.get(worker.id) != account:
                self._refused[worker.id] = account
                self._accounts.drop(worker.id)
            raise

    def _address(self, worker: Worker) -> str:
        address = self._address_of(worker)
        if address is None or worker.instance_id is None:
            raise CMLNotReadyError(worker.name, "it has no address to ask at")
        before = self._holders.get(address)
        if before is not None and before != worker.instance_id:
            self._forget(address)  # another machine was there before
        self._holders[address] = worker.instance_id
        return address
