"""The system client against a server over HTTPS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcm.cml.client.tls import PinnedCertificate
from lcm.cml.errors import CMLConflictError, CMLInvalidRequestError
from lcm.cml.simulator import CmlSimulator, SimulatorSettings
from lcm.cml.simulator.state.faults import Fault, FaultKind
from lcm.cml.simulator.state.license import LicensingMode
from lcm.cml.types import DeregistrationResult, LicensePhase, LicenseProgress
from tests.integration.cml.conftest import ADDRESS, ADMIN, FAST, Clients, clients, control, eventually

if TYPE_CHECKING:
    from lcm.cml.simulator.listener import ServerIdentity


async def phase(cml: Clients) -> LicensePhase:
    return LicenseProgress.of(await cml.system.get_license(ADDRESS, ADMIN)).phase


async def reach(cml: Clients, expected: LicensePhase) -> None:
    async def reached() -> bool:
        return await phase(cml) is expected

    await eventually(reached, expected)


@pytest.mark.parametrize(
    ("version", "reported"),
    [("2.7", "2.7.2+build.26"), ("2.8", "2.8.1+build.14"), ("2.9", "2.9.1+build.7"), ("2.10", "2.10.0+build.3")],
)
async def test_responses_of_all_versions_are_parsed(identity: ServerIdentity, version: str, reported: str) -> None:
    simulator = CmlSimulator(SimulatorSettings(version=version, speed=FAST, boot_seconds=0), identity=identity)
    await simulator.start()
    lab = simulator.world.start_user_lab("student")
    async with clients(PinnedCertificate(identity.pem), lambda _address: simulator.url) as cml:
        information = await cml.system.get_system_information(ADDRESS)
        assert (information.version, information.ready) == (reported, True)
        health = await cml.system.get_system_health(ADDRESS, ADMIN)
        assert (health.valid, health.is_licensed, health.controller_valid) == (True, False, True)
        assert health.computes[0].admission_state == "READY"

        async def running() -> bool:
            return (await cml.system.get_system_stats(ADDRESS, ADMIN)).running_nodes == 2

        await eventually(running, "both nodes run")
        stats = await cml.system.get_system_stats(ADDRESS, ADMIN)
        assert (stats.labs, stats.nodes, stats.cpu_count) == (1, 2, 16)
        assert stats.memory is not None
        assert 0 < stats.memory.percent < 100
        assert "alpine" in await cml.system.get_node_definitions(ADDRESS, ADMIN)
        activity = await cml.system.get_activity_events(ADDRESS, ADMIN)
        assert {event.lab_id for event in activity.events if event.category == "start_lab"} == {lab.id}
        assert activity.skipped == 0
    await simulator.stop()


async def test_a_license_is_registered_and_deregistered(simulator: CmlSimulator, cml: Clients) -> None:
    assert await phase(cml) is LicensePhase.UNREGISTERED
    await cml.system.register_license(ADDRESS, ADMIN, "GoodToken")
    await reach(cml, LicensePhase.REGISTERED)
    assert (await control(simulator, "GET", "/state"))[1]["license"]["registered_now"] == 1
    assert await cml.system.deregister_license(ADDRESS, ADMIN) is DeregistrationResult.DONE
    assert await phase(cml) is LicensePhase.UNREGISTERED
    assert await cml.system.deregister_license(ADDRESS, ADMIN) is DeregistrationResult.WAS_NOT_REGISTERED
    state = (await control(simulator, "GET", "/state"))[1]["license"]
    assert (state["registered_now"], state["registered_ever"]) == (0, 1)


async def test_a_bad_token_is_accepted_and_fails_later(cml: Clients) -> None:
    await cml.system.register_license(ADDRESS, ADMIN, "badToken")
    await reach(cml, LicensePhase.FAILED)
    progress = LicenseProgress.of(await cml.system.get_license(ADDRESS, ADMIN))
    assert "not valid" in progress.reason


async def test_a_token_with_invalid_characters_is_rejected_at_once(cml: Clients) -> None:
    with pytest.raises(CMLInvalidRequestError, match="characters"):
        await cml.system.register_license(ADDRESS, ADMIN, "no such token!")


async def test_a_busy_server_is_a_conflict(simulator: CmlSimulator, cml: Clients) -> None:
    await control(simulator, "PUT", "/licensing", {"mode": "busy"})
    with pytest.raises(CMLConflictError):
        await cml.system.register_license(ADDRESS, ADMIN, "GoodToken")
    with pytest.raises(CMLConflictError):
        await cml.system.deregister_license(ADDRESS, ADMIN)


async def test_registration_retries_while_cisco_does_not_respond(simulator: CmlSimulator, cml: Clients) -> None:
    simulator.world.licensing.mode = LicensingMode.RETRY
    await cml.system.register_license(ADDRESS, ADMIN, "GoodToken")

    async def retries() -> bool:
        return (await cml.system.get_license(ADDRESS, ADMIN)).registration == "RETRY_IN_PROGRESS"

    await eventually(retries, "retry")
    assert await phase(cml) is LicensePhase.REGISTERING
    simulator.world.licensing.mode = LicensingMode.NORMAL
    await reach(cml, LicensePhase.REGISTERED)


async def test_a_local_deregistration_is_distinguished(simulator: CmlSimulator, cml: Clients) -> None:
    await cml.system.register_license(ADDRESS, ADMIN, "GoodToken")
    await reach(cml, LicensePhase.REGISTERED)
    simulator.world.licensing.mode = LicensingMode.SSMS_TIMEOUT
    assert await cml.system.deregister_license(ADDRESS, ADMIN) is DeregistrationResult.LOCAL_ONLY
    assert (await control(simulator, "GET", "/state"))[1]["license"]["registered_now"] == 1


async def test_a_rejection_for_another_reason_is_not_a_deregistration(simulator: CmlSimulator, cml: Clients) -> None:
    await cml.system.register_license(ADDRESS, ADMIN, "GoodToken")
    await reach(cml, LicensePhase.REGISTERED)
    simulator.world.faults.add(Fault(FaultKind.STATUS, path="/api/v0/licensing/deregistration", status=400, count=1))
    with pytest.raises(CMLInvalidRequestError):
        await cml.system.deregister_license(ADDRESS, ADMIN)


async def test_the_activity_of_users_is_read(simulator: CmlSimulator, cml: Clients) -> None:
    await control(simulator, "POST", "/people/labs", {"username": "student"})
    activity = await cml.system.get_activity_events(ADDRESS, ADMIN)
    assert {"import_lab", "start_lab", "queue_node", "user_activity"} <= {event.category for event in activity.events}
