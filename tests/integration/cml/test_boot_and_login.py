"""Booting, logins and permissions."""

from __future__ import annotations

import asyncio

import pytest

from lcm.cml.client.tls import Insecure
from lcm.cml.errors import CMLAuthenticationError, CMLNotReadyError
from lcm.cml.simulator import CmlSimulator, SimulatorSettings
from lcm.cml.simulator.state.sessions import CMLAccount
from lcm.cml.simulator.state.world import BootPhase
from lcm.cml.types import Credentials
from tests.integration.cml.conftest import ADDRESS, ADMIN, Clients, clients, control, eventually


async def test_a_server_is_not_ready_in_any_boot_phase() -> None:
    simulator = CmlSimulator(SimulatorSettings(speed=1, boot_seconds=3600), control_port=0)
    await simulator.start()
    seen = {}
    async with clients(Insecure(), lambda _address: simulator.url) as cml:

        async def answers(what: str) -> bool:
            try:
                seen[what] = str((await cml.system.get_system_information(ADDRESS)).ready)
            except CMLNotReadyError as error:
                seen[what] = error.cause
            return what in seen[what]

        await eventually(lambda: answers("cannot connect"), "refused while nothing listens")
        for phase, what in ((BootPhase.GATEWAY, "502"), (BootPhase.STARTING, "False"), (BootPhase.READY, "True")):
            status, _ = await control(simulator, "PUT", "/phase", {"phase": phase.value})
            assert status == 200
            await eventually(lambda what=what: answers(what), f"{what} in {phase}")  # type: ignore[misc]
        await control(simulator, "PUT", "/power", {"on": False})
        await eventually(lambda: answers("cannot connect"), "refused after the power was cut")
    await simulator.stop()


async def test_a_server_boots_by_itself_and_again_after_a_power_cut() -> None:
    simulator = CmlSimulator(SimulatorSettings(speed=100, boot_seconds=20))
    await simulator.start()
    url = simulator.url
    async with clients(Insecure(), lambda _address: url) as cml:

        async def ready() -> bool:
            try:
                return (await cml.system.get_system_information(ADDRESS)).ready
            except CMLNotReadyError:
                return False

        await eventually(ready, "ready")
        await simulator.power_off()
        assert not await ready()
        await simulator.power_on()
        await eventually(ready, "ready again, at the same address")
    await simulator.stop()


async def test_one_login_per_session(simulator: CmlSimulator, cml: Clients) -> None:
    await asyncio.gather(*(cml.system.get_system_health(ADDRESS, ADMIN) for _ in range(10)))
    assert simulator.world.sessions.logins == 1
    await control(simulator, "DELETE", "/sessions")
    health = await asyncio.gather(*(cml.system.get_system_health(ADDRESS, ADMIN) for _ in range(10)))
    assert all(entry.valid for entry in health)
    assert simulator.world.sessions.logins == 2


async def test_a_mutating_call_succeeds_after_the_session_expired(simulator: CmlSimulator, cml: Clients) -> None:
    await cml.system.get_license(ADDRESS, ADMIN)
    simulator.world.sessions.expire_all()
    await cml.system.register_license(ADDRESS, ADMIN, "GoodToken")
    assert simulator.world.licensing.status != "NOT_REGISTERED"


async def test_a_wrong_password_fails_and_is_not_retried(simulator: CmlSimulator, cml: Clients) -> None:
    wrong = Credentials("admin", "wrong")
    for _ in range(3):
        with pytest.raises(CMLAuthenticationError, match="user name or password of 'admin'"):
            await cml.system.get_license(ADDRESS, wrong)
    assert cml.registry.get_sample_value("lcm_cml_call_seconds_count", {"operation": "authenticate"}) == 1
    assert simulator.world.sessions.logins == 0


async def test_missing_permissions_are_not_retried(simulator: CmlSimulator, cml: Clients) -> None:
    simulator.world.sessions.accounts["student"] = CMLAccount("student", "pass", admin=False)
    with pytest.raises(CMLAuthenticationError, match="administrators"):
        await cml.system.register_license(ADDRESS, Credentials("student", "pass"), "GoodToken")
    assert simulator.world.sessions.logins == 1


async def test_forget_causes_a_new_login(simulator: CmlSimulator, cml: Clients) -> None:
    await cml.system.get_license(ADDRESS, ADMIN)
    cml.system.forget(ADDRESS)
    await cml.system.get_license(ADDRESS, ADMIN)
    assert simulator.world.sessions.logins == 2
