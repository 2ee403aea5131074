"""Small fakes with delays and failures: CML servers, the control plane's secrets and the cloud's metrics."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pydantic import SecretStr

from lcm.client.errors import NotFoundError
from lcm.cloud.types import InstanceMetrics
from lcm.cml.errors import CMLAuthenticationError, CMLCertificateChangedError, CMLConflictError, CMLNotReadyError
from lcm.cml.reading import read_server
from lcm.cml.types import (
    CMLActivity,
    CMLActivityEvent,
    ComputeHealth,
    Credentials,
    DeregistrationResult,
    LicenseState,
    SystemHealth,
    SystemInformation,
    SystemStats,
    Usage,
)
from lcm.core import clock
from lcm.core.authorization import check_may_send, wait_while_authorized
from lcm.model.access import CmlCredentials

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lcm.cml.reading import ServerQuery, ServerReading

DEFAULT = Credentials("admin", "default-pw-7b3")
STATS = SystemStats(3, 12, 7, 8, 41.5, Usage(4_000, 16_000), Usage(10_000, 100_000))
UNREGISTERED = LicenseState("NOT_REGISTERED", "EVAL", "CML_Enterprise", True, (), "", None, False)


@dataclass
class FakeServer:
    """One CML. An operation takes `seconds`, fails with its entry in `failures`, or hangs while named in `hanging`.

    The entry `all` of `failures` concerns every operation without one of its own.
    """

    version: str = "2.9.1+build.7"
    ready: bool = True
    seconds: float = 0.1
    stats: SystemStats = STATS
    license: LicenseState = UNREGISTERED
    registers_in: float = 5.0
    good_token: str = "good-token"
    deregistration: DeregistrationResult = DeregistrationResult.DONE
    events: tuple[CMLActivityEvent, ...] = ()
    definitions: tuple[str, ...] = ()
    kvm: bool | None = None
    account: Credentials = DEFAULT
    certificate: str = "c0" * 32
    boot_certificate: str = "b0" * 32  # presented until it was ready for the first time
    booted: bool = False
    failures: dict[str, Exception] = field(default_factory=dict)
    hanging: set[str] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)
    labs_counted: int = 0  # together with the statistics

    async def serve(self, operation: str) -> None:
        self.calls[operation] += 1
        await asyncio.sleep(self.seconds)
        while operation in self.hanging:
            await asyncio.sleep(1)
        failure = self.failures.get(operation, self.failures.get("all"))
        if failure is not None:
            raise failure


class FakeCml:
    """`CMLSystemSPI` for servers by address; other addresses are not ready."""

    def __init__(self, **servers: FakeServer) -> None:
        self.servers = servers
        self.forgotten: list[str] = []
        self._pins: dict[str, str] = {}
        self.dialled: list[str] = []
        self.busy = 0  # calls in progress
        self.most_at_once = 0

    async def get_system_information(self, address: str) -> SystemInformation:
        server = await self._at(address, "information")
        return SystemInformation(server.version, server.ready, _presented(server))

    async def get_system_health(self, address: str, credentials: Credentials) -> SystemHealth:
        server = await self._at(address, "health", credentials)
        compute = ComputeHealth("cml", is_controller=True, valid=True, admission_state="READY", kvm_enabled=server.kvm)
        return SystemHealth(True, None, None, None, (compute,))

    async def read_server(self, query: ServerQuery, seconds: float) -> ServerReading:
        return await read_server(self, query, seconds)

    async def get_system_stats(self, address: str, credentials: Credentials, *, with_labs: bool = True) -> SystemStats:
        stats = (await self._at(address, "stats", credentials)).stats
        if not with_labs:
            return replace(stats, labs=None)
        self.servers[address].labs_counted += 1
        return stats

    async def count_labs(self, address: str, credentials: Credentials) -> int | None:
        return (await self._at(address, "labs", credentials)).stats.labs

    async def get_license(self, address: str, credentials: Credentials) -> LicenseState:
        return (await self._at(address, "license", credentials)).license

    async def register_license(
        self, address: str, credentials: Credentials, token: str, *, reregister: bool = False
    ) -> None:
        check_may_send()
        server = await self._at(address, "register", credentials)
        if server.license.registration == "COMPLETED" and not reregister:
            raise CMLConflictError(address, "it is registered already")
        # Like the real one: any token is accepted, and the license state shows later whether it was valid.
        end = ("COMPLETED", "") if token == server.good_token else ("FAILED", "no such token")
        server.license = replace(server.license, registration="IN_PROGRESS")
        asyncio.get_running_loop().call_later(server.registers_in, self._settle, server, *end)

    async def deregister_license(self, address: str, credentials: Credentials) -> DeregistrationResult:
        check_may_send()
        server = await self._at(address, "deregister", credentials)
        if server.license.registration == "IN_PROGRESS":
            raise CMLConflictError(address, "a registration is under way")
        if server.license.registration != "COMPLETED":
            return DeregistrationResult.WAS_NOT_REGISTERED
        server.license = replace(server.license, registration="NOT_REGISTERED")
        return server.deregistration

    async def get_activity_events(self, address: str, credentials: Credentials) -> CMLActivity:
        server = await self._at(address, "activity", credentials)
        return CMLActivity(server.events, len(server.events), 0)

    async def get_node_definitions(self, address: str, credentials: Credentials) -> tuple[str, ...]:
        return (await self._at(address, "definitions", credentials)).definitions

    async def get_own_user_id(self, address: str, credentials: Credentials) -> str | None:
        await self._at(address, "users", credentials)
        return f"id-of-{credentials.username}"

    def trust(self, address: str, certificate: str) -> None:
        self.pins[address] = certificate

    def forget(self, address: str) -> None:
        self.forgotten.append(address)
        self.pins.pop(address, None)

    @property
    def pins(self) -> dict[str, str]:
        """The pinned certificates of this process, by address."""
        return self._pins

    async def _check_certificate(self, address: str, server: FakeServer, credentials: Credentials | None) -> None:
        pinned = self.pins.get(address)
        if pinned is None and credentials is not None:
            raise CMLNotReadyError(address, "its certificate is not pinned yet")
        presented = _presented(server)
        if pinned is not None and pinned != presented:
            await asyncio.sleep(server.seconds)
            raise CMLCertificateChangedError(address, pinned, presented)

    async def _at(self, address: str, operation: str, credentials: Credentials | None = None) -> FakeServer:
        self.dialled.append(address)
        self.busy += 1
        self.most_at_once = max(self.most_at_once, self.busy)
        try:
            server = self.servers.get(address)
            if server is None:
                await asyncio.sleep(5)
                raise CMLNotReadyError(address, "no connection within 5 s")
            await self._check_certificate(address, server, credentials)
            await server.serve(operation)
        finally:
            self.busy -= 1
        if credentials is not None and credentials != server.account:
            raise CMLAuthenticationError(address, f"user name or password of {credentials.username!r} rejected")
        return server

    @staticmethod
    def _settle(server: FakeServer, registration: str, failure: str) -> None:
        server.license = replace(server.license, registration=registration, failure=failure)


def _presented(server: FakeServer) -> str:
    server.booted = server.booted or server.ready
    return server.certificate if server.booted else server.boot_certificate


class FakeSecrets:
    """The control plane's secrets of workers. `failure` is raised instead of a response."""

    def __init__(self) -> None:
        self.accounts: dict[str, Credentials] = {}
        self.tokens: dict[str, str] = {}
        self.has_list = True  # earlier versions cannot say which workers have an account
        self.failure: Exception | None = None
        self.seconds = 0.05
        self.calls: Counter[str] = Counter()

    async def cml_credentials(self, worker_id: str) -> CmlCredentials:
        await self._ask(f"account {worker_id}")
        if worker_id not in self.accounts:
            raise NotFoundError(404, "not_found", f"worker {worker_id} has no cml username")
        account = self.accounts[worker_id]
        return CmlCredentials(username=account.username, password=SecretStr(account.password))

    async def cml_accounts(self) -> frozenset[str]:
        await self._ask("accounts")
        if not self.has_list:
            raise NotFoundError(404, "not_found", "there is no such route")
        return frozenset(self.accounts)

    async def license_token(self, worker_id: str) -> SecretStr:
        await self._ask(f"token {worker_id}")
        if worker_id not in self.tokens:
            raise NotFoundError(404, "not_found", f"worker {worker_id} has no license token")
        return SecretStr(self.tokens[worker_id])

    async def _ask(self, what: str) -> None:
        self.calls[what] += 1
        await asyncio.sleep(self.seconds)
        if self.failure is not None:
            raise self.failure


class FakeInstanceMetrics:
    """`MetricsSPI`: the same metrics for every instance except for unknown ones.

    `failures` and `hanging` name a region, or the first instance of a batch.
    """

    def __init__(self, **figures: float) -> None:
        self.figures = figures or {"cpu_utilization": 20.0, "network_in": 1_000.0}
        self.unknown: set[str] = set()
        self.failures: dict[str, Exception] = {}
        self.hanging: set[str] = set()
        self.seconds = 0.5
        self.calls: list[tuple[str, int]] = []
        self.busy = 0

    async def get_instance_metrics(self, region: str, instance_ids: Sequence[str]) -> dict[str, InstanceMetrics]:
        self.calls.append((region, len(instance_ids)))
        self.busy += 1
        try:
            await asyncio.sleep(self.seconds)
            while self.hanging & {region, *instance_ids[:1]}:
                await asyncio.sleep(1)
        finally:
            self.busy -= 1
        for each in (region, *instance_ids[:1]):
            if each in self.failures:
                raise self.failures[each]
        known = [i for i in instance_ids if i not in self.unknown]
        return {i: InstanceMetrics(i, clock.now(), **self.figures) for i in known}


class FakeSharedMetrics(FakeInstanceMetrics):
    """`SharedMetricsSPI` of one replica. `ends` are the windows that were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.account = "123456789012"
        self.read: list[str] = []
        self.ends: list[datetime | None] = []
        self.taken = 0  # instances whose calls were taken from the rate limit, for another process

    async def account_id(self, region: str) -> str:
        return self.account

    async def wait_for_metrics_calls(self, region: str, instances: int) -> None:
        self.taken += instances

    async def get_instance_metrics(
        self, region: str, instance_ids: Sequence[str], end: datetime | None = None
    ) -> dict[str, InstanceMetrics]:
        await wait_while_authorized(asyncio.sleep(0))
        self.read += instance_ids
        self.ends.append(end)
        return await super().get_instance_metrics(region, instance_ids)
