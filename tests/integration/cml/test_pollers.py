"""Poller processes against servers over HTTPS: the same results, each failing alone, and replaced when they do."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from lcm.cml import pollers as pollers_module
from lcm.cml.client.access import CmlAccess
from lcm.cml.client.session import CMLSession
from lcm.cml.client.system import CMLSystemClient
from lcm.cml.client.tls import Insecure, PinPerServer, TrustPolicy, fingerprint
from lcm.cml.errors import CMLAuthenticationError, CMLCertificateChangedError, CMLNotReadyError, CMLPollerError
from lcm.cml.pollers import PolledCMLClient
from lcm.cml.reading import ServerQuery, ServerReading
from lcm.cml.simulator.state.faults import Fault, FaultKind
from lcm.cml.types import Credentials
from lcm.controllers.common.accounts import CmlAccounts
from lcm.controllers.worker.observe.cml_monitor import CmlMonitor
from lcm.core import clock
from lcm.core.authorization import NotAuthorizedError, SendAuthorization, authorized
from tests.integration.cml.conftest import ADMIN, eventually
from tests.support.records.workers import a_worker
from tests.support.virtual.fake_cml import FakeSecrets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lcm.cml.pollers import PollerProcess
    from lcm.cml.simulator import SimulatorFarm

SECONDS = 120.0
FIRST, SECOND = "10.0.0.1", "10.0.0.2"  # of different processes, if there are two
EVERYTHING: dict[str, Any] = {"license": True, "health": True, "definitions": True}


@asynccontextmanager
async def polled(
    farm: SimulatorFarm, trust: TrustPolicy | None = None, *, processes: int = 2, ping_seconds: float = 1.0
) -> AsyncIterator[tuple[PolledCMLClient, CollectorRegistry]]:
    urls = {}
    for address in (FIRST, SECOND):
        urls[address] = (await farm.add(address)).url
    access = CmlAccess(trust or Insecure(), base_url_of=urls.__getitem__)
    registry, transport = CollectorRegistry(), access.open()
    session = CMLSession(transport, registry=registry)
    client = PolledCMLClient(session, access, processes, registry=registry, ping_seconds=ping_seconds)
    try:
        yield client, registry
    finally:
        await client.close_pollers()
        await transport.aclose()


async def read(client: PolledCMLClient, address: str, *, seconds: float = SECONDS) -> ServerReading:
    return await client.read_server(ServerQuery(address, ADMIN, **EVERYTHING), seconds)


def is_complete(reading: ServerReading) -> bool:
    parts = (reading.information, reading.stats, reading.license_state, reading.definitions)
    return None not in parts and reading.labs_counted and not reading.timed_out


def running_pid(poller: PollerProcess) -> int:
    assert poller.pid is not None
    return poller.pid


def replaced(registry: CollectorRegistry) -> float:
    return registry.get_sample_value("lcm_cml_poller_restarts_total") or 0.0


async def test_a_poller_reads_what_this_process_would_read(farm: SimulatorFarm) -> None:
    async with polled(farm) as (client, registry):
        farm[FIRST].world.start_user_lab("student")
        reading = await read(client, FIRST)
        transport = CmlAccess(Insecure(), base_url_of=lambda address: farm[address].url).open()
        direct = CMLSystemClient(CMLSession(transport, registry=CollectorRegistry()))
        expected = await direct.read_server(ServerQuery(FIRST, ADMIN, **EVERYTHING), SECONDS)
        assert is_complete(reading)
        assert (reading.information, reading.license_state) == (expected.information, expected.license_state)
        assert reading.definitions == expected.definitions
        assert reading.stats is not None
        assert (reading.stats.labs, reading.stats.nodes) == (1, 2)
        activity = await client.get_activity_events(FIRST, ADMIN)
        assert "start_lab" in {event.category for event in activity.events}
        assert await client.get_own_user_id(FIRST, ADMIN) == await direct.get_own_user_id(FIRST, ADMIN)
        await transport.aclose()
        labels = {"operation": "system_stats", "outcome": "ok"}
        assert registry.get_sample_value("lcm_cml_calls_total", labels) == 1, "the controller exports their calls"
        assert registry.get_sample_value("lcm_cml_pollers_running") == 1, "one is started by its first request"


async def test_errors_of_a_server_arrive_as_they_are(farm: SimulatorFarm) -> None:
    async with polled(farm) as (client, _):
        wrong = ServerQuery(FIRST, Credentials("admin", "wrong"))
        reading = await client.read_server(wrong, SECONDS)
        assert isinstance(reading.stats_error, CMLAuthenticationError)
        assert reading.information is not None
        with pytest.raises(CMLAuthenticationError, match="'admin' rejected"):
            await client.get_activity_events(FIRST, Credentials("admin", "wrong"))
        with pytest.raises(CMLPollerError, match=r"the poller failed: KeyError: '10\.9\.9\.9'"):
            await client.read_server(ServerQuery("10.9.9.9"), SECONDS)


async def test_a_killed_poller_is_replaced_and_its_read_goes_on(farm: SimulatorFarm) -> None:
    async with polled(farm) as (client, registry):
        assert is_complete(await read(client, FIRST))
        assert is_complete(await read(client, SECOND))
        first, second = client.poller_of(FIRST), client.poller_of(SECOND)
        assert first is not second
        before, other = running_pid(first), running_pid(second)
        farm[FIRST].world.faults.add(Fault(FaultKind.HANG, "/api/v0/system_stats", count=1))
        with capture_logs() as logs:
            reading = asyncio.create_task(read(client, FIRST))
            await eventually(lambda: _has_no_faults(farm), "the request hangs at the server")
            os.kill(before, signal.SIGKILL)
            assert is_complete(await read(client, SECOND)), "the others go on"
            assert is_complete(await reading), "its successor repeats the read"
        assert running_pid(first) != before
        assert running_pid(second) == other
        assert replaced(registry) == 1
        (line,) = [entry for entry in logs if entry["event"] == "a poller process ended and is replaced"]
        assert (line["reason"], line["pid"]) == ("it was ended by signal 9", before)


async def _has_no_faults(farm: SimulatorFarm) -> bool:
    return not farm[FIRST].world.faults.all


async def test_a_suspended_poller_is_replaced_and_its_servers_are_read_again(farm: SimulatorFarm) -> None:
    async with polled(farm) as (client, registry):
        assert is_complete(await read(client, FIRST))
        first = client.poller_of(FIRST)
        before = running_pid(first)
        os.kill(before, signal.SIGSTOP)
        reading = asyncio.create_task(read(client, FIRST))
        assert is_complete(await read(client, SECOND)), "the others go on"
        assert is_complete(await reading)
        assert first.pid != before
        assert replaced(registry) >= 1


async def test_the_state_of_a_worker_survives_its_poller(farm: SimulatorFarm) -> None:
    """Nothing is reported about the server: it was the poller that failed."""
    async with polled(farm, processes=1) as (client, _):
        accounts = CmlAccounts(FakeSecrets(), ADMIN)
        monitor = CmlMonitor(client, accounts, lambda worker: worker.public_ip, query_timeout=SECONDS)
        worker = a_worker(status="RUNNING", instance_id="i-1", public_ip=FIRST)
        before = await monitor.query(worker, max_age=0, with_license=True)
        assert before.ready
        for _ in range(3):
            os.kill(running_pid(client.poller_of(FIRST)), signal.SIGKILL)
            after = await monitor.query(worker, max_age=0, with_license=True)
            assert (after.ready, after.error, after.labs, after.license) == (True, "", before.labs, before.license)


async def test_a_poller_that_cannot_start_says_so_and_nothing_about_the_server(
    farm: SimulatorFarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command, reason in ((("/nonexistent",), "cannot be started"), (("/bin/false",), "it ended with exit code 1")):
        monkeypatch.setattr(pollers_module, "_COMMAND", command)
        async with polled(farm, processes=1) as (client, registry):
            poller = client.poller_of(FIRST)
            with capture_logs():
                reading = asyncio.create_task(read(client, FIRST, seconds=3))
                with pytest.raises(CMLPollerError, match=reason):
                    await reading
            assert poller.pid is None
            assert replaced(registry) >= 1
        for address in (FIRST, SECOND):
            await farm.remove(address)


async def test_a_hanging_server_delays_no_other_of_the_same_poller(farm: SimulatorFarm) -> None:
    async with polled(farm, processes=1) as (client, registry):
        assert is_complete(await read(client, SECOND))
        farm[FIRST].world.faults.add(Fault(FaultKind.HANG))
        hanging = asyncio.create_task(read(client, FIRST))
        await asyncio.gather(*(read(client, SECOND) for _ in range(20)))
        assert not hanging.done()
        hanging.cancel()
        assert replaced(registry) == 0


async def test_pins_hold_in_every_process_and_in_its_successor(farm: SimulatorFarm) -> None:
    async with polled(farm, PinPerServer()) as (client, _):
        presented = fingerprint(farm.identity.pem)
        information = (await client.read_server(ServerQuery(FIRST), SECONDS)).information
        assert information is not None
        assert information.certificate == presented
        refused = (await client.read_server(ServerQuery(FIRST, ADMIN, information=False), SECONDS)).stats_error
        assert isinstance(refused, CMLNotReadyError), "no password before the certificate is pinned"
        client.trust(FIRST, presented)
        assert is_complete(await read(client, FIRST))
        os.kill(running_pid(client.poller_of(FIRST)), signal.SIGKILL)
        assert is_complete(await read(client, FIRST))
        client.forget(FIRST)
        client.trust(FIRST, "0" * 64)
        changed = (await client.read_server(ServerQuery(FIRST), SECONDS)).information_error
        assert isinstance(changed, CMLCertificateChangedError)
        assert (changed.pinned, changed.presented) == ("0" * 64, presented)
        client.forget(FIRST)
        refused = (await client.read_server(ServerQuery(FIRST, ADMIN, information=False), SECONDS)).stats_error
        assert isinstance(refused, CMLNotReadyError), "another server has this address"


async def test_a_change_is_made_by_this_process_and_only_while_it_may(farm: SimulatorFarm) -> None:
    async with polled(farm) as (client, _):
        with authorized(SendAuthorization(clock.boottime(), 60.0, lambda: 0.0)), pytest.raises(NotAuthorizedError):
            await client.register_license(FIRST, ADMIN, "token")
        await client.register_license(FIRST, ADMIN, "token")
        assert [poller.pid for poller in client.pollers] == [None, None]


async def test_a_closed_poller_starts_no_process_and_signals_to_stop_are_its_parents_business(
    farm: SimulatorFarm,
) -> None:
    async with polled(farm) as (client, registry):
        await read(client, FIRST)
        pid = running_pid(client.poller_of(FIRST))
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(pid, number)
        assert is_complete(await read(client, FIRST))
        assert (running_pid(client.poller_of(FIRST)), replaced(registry)) == (pid, 0)
        await client.close_pollers()
        with pytest.raises(CMLPollerError, match="was stopped"):
            await read(client, FIRST)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert registry.get_sample_value("lcm_cml_pollers_running") == 0


def test_a_poller_ends_with_its_input() -> None:
    ended = subprocess.run(pollers_module._COMMAND, input=b"", capture_output=True, check=False, timeout=SECONDS)
    assert (ended.returncode, ended.stdout) == (0, b"")
    assert sys.executable == pollers_module._COMMAND[0]
