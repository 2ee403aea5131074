"""The part of a replica that reads CML servers and CloudWatch metrics for the leader."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator  # noqa: TC003 - FastAPI reads the annotations
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from lcm.cml.errors import CMLError, CMLPollerError
from lcm.controllers.common.admin_api import AdminRequestError
from lcm.controllers.worker.readers.messages import (
    SIGN_OF_LIFE,
    InvalidMessageError,
    MetricsRequest,
    ReadFailedError,
    ReadResult,
    decode_requests,
    encode_result,
)
from lcm.core import clock
from lcm.core.authorization import SendAuthorization, authorized
from lcm.core.hosting import cancel_and_wait
from lcm.model.access import Role
from lcm.model.problems import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.cloud.spi import SharedMetricsSPI
    from lcm.cloud.types import InstanceMetrics
    from lcm.cml.spi import CMLSystemSPI
    from lcm.cml.types import CMLActivity
    from lcm.controllers.common.admin_auth import AdminAuthenticator
    from lcm.controllers.worker.readers.directory import ReaderDirectory
    from lcm.controllers.worker.readers.messages import AnyRequest, ReadRequest

READ_PATH: Final = "/readers/read"
SIGN_OF_LIFE_SECONDS: Final = 2.0
MAX_READS_BYTES: Final = 1024 * 1024
MAX_ADDRESSES: Final = 100_000


class ServerReader:
    """Reads on behalf of the leader, for as long as this replica is registered.

    `metrics` is None where the cloud cannot be read by several processes.
    """

    def __init__(self, cml: CMLSystemSPI, directory: ReaderDirectory, metrics: SharedMetricsSPI | None = None) -> None:
        self._cml = cml
        self._directory = directory
        self._metrics = metrics
        self._owners: OrderedDict[str, str] = OrderedDict()  # the instance that had an address when it was last read

    @property
    def is_registered(self) -> bool:
        """Whether the leader may use this replica."""
        return self._directory.is_registered

    async def results(self, requests: Sequence[AnyRequest | ReadResult]) -> AsyncIterator[bytes]:
        """A line for each request, in the order in which they end, and signs of life in between.

        For a request that is invalid, its result is given instead.
        """
        tasks = {asyncio.create_task(self._line(request), name="read") for request in requests}
        try:
            while tasks:
                done, tasks = await asyncio.wait(
                    tasks, timeout=SIGN_OF_LIFE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                yield b"".join(task.result() for task in done) or SIGN_OF_LIFE
        finally:
            await cancel_and_wait(list(tasks))

    async def _line(self, request: AnyRequest | ReadResult) -> bytes:
        """Empty without a lease: it may have been suspended, and the leader has the rest read by another."""
        if not self._directory.is_registered:
            return b""
        if isinstance(request, ReadResult):
            return encode_result(request)
        return await (self._read_metrics(request) if isinstance(request, MetricsRequest) else self._read(request))

    async def _read_metrics(self, request: MetricsRequest) -> bytes:
        """The line of one batch. Each call to AWS checks once more that this replica is registered."""
        lease = SendAuthorization(clock.boottime(), request.seconds, self._directory.lease_remaining)
        try:
            async with asyncio.timeout(request.seconds):
                with authorized(lease):
                    return encode_result(ReadResult(request.number, await self._metrics_of(request)))
        except TimeoutError:
            failure = f"no response within {request.seconds:g} s"
        except Exception as error:  # noqa: BLE001 - the leader reports it, and reads the batch itself
            failure = f"{type(error).__name__}: {error}"
        return encode_result(ReadResult(request.number, error=ReadFailedError(failure)))

    async def _metrics_of(self, request: MetricsRequest) -> Mapping[str, InstanceMetrics]:
        """Instances of another account would look like instances without metrics, so the accounts must be the same."""
        if self._metrics is None:
            raise ReadFailedError("this replica has a cloud of its own")
        account_id = await self._metrics.account_id(request.region)
        if account_id != request.account_id:
            raise ReadFailedError(f"this replica uses account {account_id} in {request.region}")
        return await self._metrics.get_instance_metrics(request.region, request.instance_ids, request.end)

    async def _read(self, request: ReadRequest) -> bytes:
        """The line of one server. Whatever fails concerns one server: the other lines of the response arrive."""
        address = request.query.address
        try:
            return encode_result(await self._result(request))
        except CMLError as error:
            failure = error
        except TimeoutError:
            failure = CMLPollerError(address, f"no response within {request.seconds:g} s")
        except Exception as error:  # noqa: BLE001 - the leader reports it
            failure = CMLPollerError(address, f"the reader failed: {type(error).__name__}: {error}")
        return encode_result(ReadResult(request.number, error=failure))

    async def _result(self, request: ReadRequest) -> ReadResult:
        address = request.query.address
        if self._owners.get(address, request.owner) != request.owner:
            self._cml.forget(address)
        self._owners[address] = request.owner
        self._owners.move_to_end(address)
        if len(self._owners) > MAX_ADDRESSES:
            self._cml.forget(self._owners.popitem(last=False)[0])
        if request.pin is not None:
            self._cml.trust(address, request.pin)
        if not request.method:
            return ReadResult(request.number, await self._cml.read_server(request.query, request.seconds))
        async with asyncio.timeout(request.seconds):
            return ReadResult(request.number, await self._call(request))

    async def _call(self, request: ReadRequest) -> CMLActivity | str | None:
        account = request.query.account
        if account is None:
            raise CMLPollerError(request.query.address, "the request has no account")
        if request.method == "get_activity_events":
            return await self._cml.get_activity_events(request.query.address, account)
        return await self._cml.get_own_user_id(request.query.address, account)


def reader_routes(reader: ServerReader, authenticator: AdminAuthenticator) -> APIRouter:
    """The route that the leader calls. Only controllers may."""
    router = APIRouter(tags=["readers"])

    @router.post(READ_PATH)
    async def read(request: Request) -> StreamingResponse:
        """Read CML servers or metrics, and return a line of JSON for each read as soon as it is done."""
        client = request.client.host if request.client else ""
        await authenticator.authenticate(request.headers.get("Authorization"), Role.CONTROLLER, client=client)
        if not reader.is_registered:
            raise AdminRequestError(ProblemCode.UNAVAILABLE, "This replica is not registered as a reader.")
        try:
            requests = decode_requests(await request.body())
        except InvalidMessageError as error:
            raise AdminRequestError(ProblemCode.INVALID, f"body: {error}") from None
        return StreamingResponse(reader.results(requests), media_type="application/x-ndjson")

    return router
