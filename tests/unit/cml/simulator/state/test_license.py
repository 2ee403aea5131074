"""The simulated licence: taken at once, true later, and counted where Cisco counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lcm.cml.licensing import LicensePhase, LicenseProgress, parse_license
from lcm.cml.simulator.state.faults import SimulatorApiError
from lcm.cml.simulator.state.license import (
    BAD_TOKEN_REASON,
    NO_RESPONSE_REASON,
    NODE_FEATURE,
    LicensingMode,
    SmartAccount,
)
from lcm.cml.simulator.state.world import SimulatorSettings, World


def world(account: SmartAccount | None = None) -> World:
    return World(SimulatorSettings(), account)


def progress(of: World) -> LicenseProgress:
    of.time.advance()
    return LicenseProgress.of(parse_license(of.licensing.told()))


async def test_a_good_token_registers_after_a_while_and_is_given_back() -> None:
    simulated = world()
    assert progress(simulated).phase is LicensePhase.UNREGISTERED
    simulated.licensing.register("GoodToken", reregister=False)
    assert progress(simulated).phase is LicensePhase.REGISTERING
    assert not simulated.account.holders
    await asyncio.sleep(9)
    assert progress(simulated) == LicenseProgress(LicensePhase.REGISTERED)
    assert (len(simulated.account.holders), simulated.account.ever) == (1, 1)
    assert await simulated.licensing.deregister()
    assert progress(simulated).phase is LicensePhase.UNREGISTERED
    assert (len(simulated.account.holders), simulated.account.ever) == (0, 1)


async def test_a_bad_token_is_taken_and_fails_later_with_the_reason() -> None:
    simulated = world()
    simulated.licensing.register("badToken", reregister=False)
    await asyncio.sleep(9)
    assert progress(simulated) == LicenseProgress(LicensePhase.FAILED, BAD_TOKEN_REASON)
    simulated.licensing.register("GoodToken", reregister=False)
    await asyncio.sleep(9)
    assert progress(simulated) == LicenseProgress(LicensePhase.REGISTERED)


async def test_it_goes_on_trying_until_the_service_answers() -> None:
    simulated = world()
    simulated.licensing.mode = LicensingMode.RETRY
    simulated.licensing.register("GoodToken", reregister=False)
    await asyncio.sleep(100)
    assert progress(simulated) == LicenseProgress(LicensePhase.REGISTERING, NO_RESPONSE_REASON)
    simulated.licensing.mode = LicensingMode.NORMAL
    await asyncio.sleep(31)
    assert progress(simulated).phase is LicensePhase.REGISTERED


async def test_giving_back_without_an_answer_leaks_the_licence() -> None:
    simulated = world()
    simulated.licensing.register("GoodToken", reregister=False)
    await asyncio.sleep(9)
    simulated.time.advance()
    simulated.licensing.mode = LicensingMode.SSMS_TIMEOUT
    assert await simulated.licensing.deregister() is False
    assert progress(simulated).phase is LicensePhase.UNREGISTERED
    assert len(simulated.account.holders) == 1


async def test_while_it_is_busy_nothing_is_taken() -> None:
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


async def test_what_makes_no_sense_is_refused() -> None:
    simulated = world()
    licensing = simulated.licensing
    refused: list[Any] = [
        lambda: licensing.register("no token!", reregister=False),
        lambda: licensing.register("x" * 257, reregister=False),
        lambda: licensing.set_product("CML_Free"),
        lambda: licensing.set_product("CML_Enterprise"),
        lambda: licensing.set_transport("proxy"),
        lambda: licensing.set_features({}),
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


async def test_registering_again_needs_to_be_asked_for_and_counts_one_holder() -> None:
    simulated = world()
    for reregister in (False, True):
        simulated.licensing.register("GoodToken", reregister=reregister)
        await asyncio.sleep(9)
        simulated.time.advance()
    with pytest.raises(SimulatorApiError, match="Already registered"):
        simulated.licensing.register("GoodToken", reregister=False)
    assert (len(simulated.account.holders), simulated.account.ever) == (1, 2)


async def test_servers_may_share_an_account() -> None:
    account = SmartAccount()
    servers = [world(account) for _ in range(3)]
    for server in servers:
        server.licensing.register("GoodToken", reregister=False)
    await asyncio.sleep(9)
    for server in servers:
        server.time.advance()
    await servers[0].licensing.deregister()
    assert (len(account.holders), account.ever) == (2, 3)
