"""The labs client against a server over HTTPS, `/ws/ui`, and many servers at once."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from lcm.cml.client.session import TokenCache
from lcm.cml.errors import CMLInvalidRequestError, CMLNotFoundError, CMLNotReadyError
from lcm.cml.simulator.state.faults import Fault, FaultKind
from lcm.cml.simulator.state.world import BootPhase
from lcm.cml.types import LicensePhase, LicenseProgress
from lcm.core import clock
from lcm.core.authorization import NotAuthorizedError, SendAuthorization, authorized
from lcm.http.network import NetworkTransport
from tests.integration.cml.conftest import ADDRESS, ADMIN, PATIENCE, Clients, eventually
from tests.support.cml.virl2_session import LAB

if TYPE_CHECKING:
    from lcm.cml.simulator import CmlSimulator, SimulatorFarm


async def all_nodes(cml: Clients, lab_id: str, state: str) -> bool:
    converged = await cml.labs.has_converged(ADDRESS, ADMIN, lab_id)
    return converged and {node.state for node in await cml.labs.nodes(ADDRESS, ADMIN, lab_id)} == {state}


async def test_the_whole_life_of_a_lab(simulator: CmlSimulator, cml: Clients) -> None:
    simulator.world.start_user_lab("student")
    imported = await cml.labs.import_lab(ADDRESS, ADMIN, LAB, title="Exam", marker="lablet-7")
    assert imported.warnings == ()
    assert {lab.marker for lab in await cml.labs.list_labs(ADDRESS, ADMIN)} == {None, "lablet-7"}
    (found,) = [lab for lab in await cml.labs.list_labs(ADDRESS, ADMIN) if lab.marker == "lablet-7"]
    assert (found.id, found.state, found.node_count) == (imported.id, "DEFINED_ON_CORE", 3)
    await cml.labs.start_lab(ADDRESS, ADMIN, found.id)
    await eventually(lambda: all_nodes(cml, found.id, "BOOTED"), "all booted")
    assert (await cml.labs.get_lab(ADDRESS, ADMIN, found.id)).state == "STARTED"
    addresses = await cml.labs.node_addresses(ADDRESS, ADMIN, found.id)
    assert len(addresses) == 2
    assert all(address.ipv4 and address.mac for address in addresses)
    elements = await cml.labs.element_states(ADDRESS, ADMIN, found.id)
    assert (len(elements.nodes), len(elements.links), len(elements.interfaces)) == (3, 2, 4)
    for early in (cml.labs.wipe_lab, cml.labs.delete_lab):
        with pytest.raises(CMLInvalidRequestError):
            await early(ADDRESS, ADMIN, found.id)
    await cml.labs.stop_lab(ADDRESS, ADMIN, found.id)
    await eventually(lambda: all_nodes(cml, found.id, "STOPPED"), "all stopped")
    assert await cml.labs.node_addresses(ADDRESS, ADMIN, found.id) == []
    await cml.labs.wipe_lab(ADDRESS, ADMIN, found.id)
    await eventually(lambda: all_nodes(cml, found.id, "DEFINED_ON_CORE"), "all wiped")
    assert await cml.labs.delete_lab(ADDRESS, ADMIN, found.id) is True
    assert await cml.labs.delete_lab(ADDRESS, ADMIN, found.id) is False
    assert len(simulator.world.labs.all) == 1, "the user's lab still exists"


async def test_every_step_may_be_repeated(simulator: CmlSimulator, cml: Clients) -> None:
    lab = (await cml.labs.import_lab(ADDRESS, ADMIN, LAB, title="Exam", marker="m")).id
    for step, state in (
        (cml.labs.start_lab, "BOOTED"),
        (cml.labs.stop_lab, "STOPPED"),
        (cml.labs.wipe_lab, "DEFINED_ON_CORE"),
    ):
        await step(ADDRESS, ADMIN, lab)
        await step(ADDRESS, ADMIN, lab)
        await eventually(lambda state=state: all_nodes(cml, lab, state), state)  # type: ignore[misc]
        await step(ADDRESS, ADMIN, lab)
        assert await all_nodes(cml, lab, state)


async def test_a_missing_lab_is_not_found(cml: Clients) -> None:
    for call in (cml.labs.get_lab, cml.labs.start_lab, cml.labs.has_converged, cml.labs.nodes):
        with pytest.raises(CMLNotFoundError, match="Lab not found: no-such-lab"):
            await call(ADDRESS, ADMIN, "no-such-lab")


async def test_a_rejected_topology_has_a_reason(cml: Clients) -> None:
    with pytest.raises(CMLInvalidRequestError, match="Schema version"):
        await cml.labs.import_lab(ADDRESS, ADMIN, "lab: {version: 9.9.9}", title="x", marker="m")


async def test_a_failed_list_raises_one_error_and_no_group(simulator: CmlSimulator, cml: Clients) -> None:
    for _ in range(3):
        simulator.world.start_user_lab("student")
    simulator.world.faults.add(Fault(FaultKind.HTML, path="/api/v0/labs/"))
    with pytest.raises(CMLNotReadyError):
        await cml.labs.list_labs(ADDRESS, ADMIN)


def listen(simulator: CmlSimulator) -> connect:
    context = ssl.create_default_context(cadata=simulator.identity.pem)
    context.check_hostname = False
    return connect(simulator.url.replace("https:", "wss:") + "/ws/ui", ssl=context, proxy=None)


async def messages(socket: ClientConnection, expected: str) -> dict[str, object]:
    """The first message of a kind."""
    async with asyncio.timeout(PATIENCE):
        async for text in socket:
            message: dict[str, object] = json.loads(text)
            if message["event_type"] == expected:
                return message
    raise AssertionError(f"no {expected}")


async def test_listeners_receive_events_of_nodes_labs_and_load(simulator: CmlSimulator) -> None:
    world = simulator.world
    _, token = world.sessions.log_in("admin", "simulated")
    async with listen(simulator) as socket:
        await socket.send(json.dumps({"token": token, "client_uuid": "c"}))
        assert (await messages(socket, "system_stats"))["data"]
        lab = world.start_user_lab("student")
        created = await messages(socket, "lab_event")
        assert (created["lab_id"], created["event"]) == (lab.id, "created")
        changed = await messages(socket, "state_change")
        assert (changed["element_type"], changed["event"], changed["lab_id"]) == ("node", "QUEUED", lab.id)
        while changed["event"] != "BOOTED":
            changed = await messages(socket, "state_change")


@pytest.mark.parametrize("first", ['{"token": "forged"}', "{}", "[]", "nonsense", None])
async def test_listeners_without_a_token_are_disconnected(simulator: CmlSimulator, first: str | None) -> None:
    if first is None:
        simulator.world.listener_seconds = 0.1
    async with listen(simulator) as socket:
        if first is not None:
            await socket.send(first)
        with pytest.raises(ConnectionClosed) as caught:
            async with asyncio.timeout(PATIENCE):
                await socket.recv()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 3000


async def test_listeners_are_rejected_during_boot(simulator: CmlSimulator) -> None:
    simulator.world.boot.hold(BootPhase.GATEWAY)
    with pytest.raises(InvalidStatus):
        await listen(simulator)


async def test_listeners_are_disconnected_when_the_server_stops(simulator: CmlSimulator) -> None:
    _, token = simulator.world.sessions.log_in("admin", "simulated")
    async with listen(simulator) as socket:
        await socket.send(json.dumps({"token": token, "client_uuid": "c"}))
        await messages(socket, "system_stats")
        async with asyncio.timeout(PATIENCE):
            await simulator.power_off()


async def test_twenty_servers_in_one_process(farm: SimulatorFarm, farm_cml: Clients) -> None:
    addresses = [f"10.0.1.{number}" for number in range(20)]
    versions = ("2.7", "2.8", "2.9", "2.10")
    await asyncio.gather(*(farm.add(address, version=versions[n % 4]) for n, address in enumerate(addresses)))

    async def license_it(address: str) -> None:
        await farm_cml.system.register_license(address, ADMIN, "GoodToken")

        async def registered() -> bool:
            state = await farm_cml.system.get_license(address, ADMIN)
            return LicenseProgress.of(state).phase is LicensePhase.REGISTERED

        await eventually(registered, address)

    await asyncio.gather(*(license_it(address) for address in addresses))
    assert (len(farm.account.holders), farm.account.total_registrations) == (20, 20)
    reported = await asyncio.gather(*(farm_cml.system.get_system_information(address) for address in addresses))
    assert len({entry.version for entry in reported}) == 4
    await farm_cml.system.deregister_license(addresses[0], ADMIN)
    await farm.remove(addresses[0])
    await farm.remove(addresses[1])
    assert len(farm.account.holders) == 19, "one was deregistered, one server was removed with its license"
    with pytest.raises(CMLNotReadyError, match="no machine at"):
        await farm_cml.system.get_system_information(addresses[1])
    with pytest.raises(ValueError, match="already"):
        await farm.add(addresses[2])


async def test_a_lab_is_not_created_if_the_lease_ends_while_the_connection_is_made(
    simulator: CmlSimulator, cml: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check is after the handshake, right before the request itself."""
    lease = [60.0]
    connect = NetworkTransport._connect

    async def slow(*args: Any, **options: Any) -> Any:
        stream = await connect(*args, **options)
        lease[0] = 0.0
        return stream

    monkeypatch.setattr(NetworkTransport, "_connect", slow)
    monkeypatch.setattr(TokenCache, "get", AsyncMock(return_value="token"))
    with authorized(SendAuthorization(clock.boottime(), 60.0, lambda: lease[0])), pytest.raises(NotAuthorizedError):
        await cml.labs.import_lab(ADDRESS, ADMIN, LAB, title="Exam", marker="lablet-7")
    assert lease == [0.0], "a connection was made"
    assert simulator.world.labs.all == []
