"""Simulated licensing: requests are accepted at once, take effect later, and are counted in the Smart Account."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lcm.cml.client.system import parse_license
from lcm.cml.simulator.state.faults import SimulatorApiError
from lcm.cml.simulator.state.license import (
    BAD_TOKEN_REASON,
    NO_RESPONSE_REASON,
    NODE_FEATURE,
    LicensingMode,
    SmartAccount,
)
from lcm.cml.simulator.state.world import SimulatorSettings, World
from lcm.cml.types import LicensePhase, LicenseProgress


def world(account: SmartAccount | None = None) -> World:
    return World(SimulatorSettings(), account)


def progress(of: World) -> LicenseProgress:
    of.time.advance()
    return LicenseProgress.of(parse_license(of.licensing.payload()))


async def test_a_good_token_registers_and_deregisters() -> None:
    simulated = world()
    assert progress(simulated).phase is LicensePhase.UNREGISTERED
    simulated.licensing.register("GoodToken", reregister=False)
    assert progress(simulated).phase is LicensePhase.REGISTERING
    assert not simulated.account.holders
    await asyncio.sleep(9)
    assert progress(simulated) == LicenseProgress(LicensePhase.REGISTERED)
    assert (len(simulated.account.holders), simulated.account.total_registrations) == (1, 1)
    assert await simulated.licensing.deregister()
    assert progress(simulated).phase is LicensePhase.UNREGISTERED
    assert (len(simulated.account.holders), simulated.account.total_registrations) == (0, 1)


async def test_a_bad_token_is_accepted_and_fails_later() -> None:
    simulated = world()
    simulated.licensing.register("badToken", reregister=False)
    await asyncio.sleep(9)
    assert progress(simulated) == LicenseProgress(LicensePhase.FAILED, BAD_TOKEN_REASON)
    simulated.licensing.register("GoodToken", reregister=False)
    await asyncio.sleep(9)
    assert progress(simulated) == LicenseProgress(LicensePhase.REGISTERED)


async def test_registration_retries_until_the_service_responds() -> None:
    simulated = world()
    simulated.licensing.mode = LicensingMode.RETRY
    simulated.licensing.register("GoodToken", reregister=False)
    await asyncio.sleep(100)
    assert progress(simulated) == LicenseProgress(LicensePhase.REGISTERING, NO_RESPONSE_REASON)
    simulated.licensing.mode = LicensingMode.NORMAL
    await asyncio.sleep(31)
    assert progress(simulated).phase is LicensePhase.REGISTERED


async def test_local_deregistration_leaks_the_license() -> None:
    simulated = world()
    simulated.licensing.register("GoodToken", reregister=False)
    await asyncio.sleep(9)
    simulated.time.advance()
    simulated.licensing.mode = LicensingMode.SSMS_TIMEOUT
    assert await simulated.licensing.deregister() is False
    assert progress(simulated).phase is LicensePhase.UNREGISTERED
    assert len(simulated.account.holders) == 1


async def test_requests_are_rejected_while_busy() -> None:
    simulated = world()
    simulated.licensing.mode = LicensingMode.BUSY
    with pytest.raises(SimulatorApiError) as caught:
        simulated.licensing.register("GoodToken", reregister=False)
    assert caught.value.code == 409
    simulated.licensing.mode = LicensingMode.NORMAL
    simulated.licensing.register("GoodToken", reregister=False)
    with pytest.raises(SimulatorApiError) as caught:
        simulated.licensing.register("GoodToken", reregister=False)
    assert caught.value.code == 409


async def test_invalid_licensing_requests_are_rejected() -> None:
    simulated = world()
    licensing = simulated.licensing
    refused: list[Any] = [
        lambda: licensing.register("no token!", reregister=False),
        lambda: licensing.register("x" * 257, reregister=False),
        lambda: licensing.set_product("CML_Free"),
        lambda: licensing.set_product("CML_Enterprise"),
        lambda: licensing.set_transport("proxy"),
        lambda: licensing.set_features("all"),
        lambda: licensing.set_features([{"id": NODE_FEATURE, "count": 301}]),
        lambda: licensing.set_features([{"id": "other", "count": 1}]),
        licensing.renew,
    ]
    for call in refused:
        with pytest.raises(SimulatorApiError) as caught:
            call()
        assert caught.value.code == 400
    with pytest.raises(SimulatorApiError):
        await licensing.deregister()


async def test_reregistration_must_be_explicit_and_counts_one_holder() -> None:
    simulated = world()
    for reregister in (False, True):
        simulated.licensing.register("GoodToken", reregister=reregister)
        await asyncio.sleep(9)
        simulated.time.advance()
    with pytest.raises(SimulatorApiError, match="Already registered"):
        simulated.licensing.register("GoodToken", reregister=False)
    assert (len(simulated.account.holders), simulated.account.total_registrations) == (1, 2)


async def test_servers_may_share_an_account() -> None:
    account = SmartAccount()
    servers = [world(account) for _ in range(3)]
    for server in servers:
        server.licensing.register("GoodToken", reregister=False)
    await asyncio.sleep(9)
    for server in servers:
        server.time.advance()
    await servers[0].licensing.deregister()
    assert (len(account.holders), account.total_registrations) == (2, 3)
