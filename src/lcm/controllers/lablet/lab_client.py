"""The labs on the workers' CML servers: selects account and address, and shares one list among concurrent callers."""

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
    """All labs of a server, with the start of the call (boot-time clock)."""

    labs: tuple[LabState, ...]
    began: float


class WorkerLabClient:
    """Labs by worker. Only addresses of workers are used; sessions end when another instance gets an address."""

    def __init__(
        self,
        session: CMLSession,
        accounts: CmlAccounts,
        address_of: Callable[[Worker], str | None],
        forget: Callable[[str], None],
    ) -> None:
        self._session = session
        self._labs = CMLLabsClient(session)
        self._accounts = accounts
        self._address_of = address_of
        self._forget = forget
        self._instance_by_address: dict[str, str] = {}  # the instance last contacted at an address
        self._rejected_accounts: dict[str, Credentials] = {}  # the account that a worker's CML rejected last
        self._lists: Singleflight[str, _LabListing] = Singleflight()

    async def labs(self, worker: Worker) -> tuple[LabState, ...]:
        """All labs, from a list that began after this call: an older one may miss labs created since."""
        requested_at, key = clock.boottime(), f"{worker.instance_id} {self._address_of(worker)}"
        while True:
            listing = await self._lists.run(key, lambda: self._list(worker), f"labs:{worker.id}")
            if listing.began >= requested_at:
                return listing.labs

    async def lab(self, worker: Worker, lab_id: str) -> LabState:
        """One lab."""
        return await self._call(worker, lambda at, account: self._labs.get_lab(at, account, lab_id))

    async def converged(self, worker: Worker, lab_id: str) -> bool:
        """Whether no node is changing its state."""
        return await self._call(worker, lambda at, account: self._labs.has_converged(at, account, lab_id))

    async def nodes(self, worker: Worker, lab_id: str) -> list[NodeState]:
        """The nodes of a lab."""
        return await self._call(worker, lambda at, account: self._labs.nodes(at, account, lab_id))

    async def addresses(self, worker: Worker, lab_id: str) -> list[NodeAddress]:
        """The observed addresses of its nodes."""
        return await self._call(worker, lambda at, account: self._labs.node_addresses(at, account, lab_id))

    async def import_lab(self, worker: Worker, topology: str, *, title: str, marker: str) -> ImportedLab:
        """Create a lab."""
        return await self._call(
            worker,
            lambda at, account: self._labs.import_lab(at, account, topology, title=title, marker=marker),
        )

    async def change(self, worker: Worker, call: LabOperation, lab_id: str) -> None:
        """Start, stop, wipe or delete a lab. Deleting a lab that is already gone succeeds."""
        operations: dict[str, _ClientCall[object]] = {
            "start": lambda at, account: self._labs.start_lab(at, account, lab_id),
            "stop": lambda at, account: self._labs.stop_lab(at, account, lab_id),
            "wipe": lambda at, account: self._labs.wipe_lab(at, account, lab_id),
            "delete": lambda at, account: self._labs.delete_lab(at, account, lab_id),
        }
        await self._call(worker, operations[call.value])

    async def _list(self, worker: Worker) -> _LabListing:
        began = clock.boottime()
        labs = await self._call(worker, self._labs.list_labs)
        return _LabListing(tuple(labs), began)

    async def _call(self, worker: Worker, call: _ClientCall[R]) -> R:
        address = self._address(worker)
        account = await self._accounts.get(worker)
        try:
            return await call(address, account)
        except CMLAuthenticationError:
            # The account may have changed: read it again, but only once per account.
            if self._rejected_accounts.get(worker.id) != account:
                self._rejected_accounts[worker.id] = account
                self._accounts.drop(worker.id)
            raise

    def _address(self, worker: Worker) -> str:
        address = self._address_of(worker)
        if address is None or worker.instance_id is None:
            raise CMLNotReadyError(worker.name, "the worker has no address")
        before = self._instance_by_address.get(address)
        if before is not None and before != worker.instance_id:
            self._forget(address)  # another instance used this address before
        self._instance_by_address[address] = worker.instance_id
        if worker.cml_certificate is not None:
            self._session.trust(address, worker.cml_certificate)
        return address
