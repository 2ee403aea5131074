"""Storing and restoring a simulated server: every part of its state, and operations in progress."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.cml.simulator import persistence
from lcm.cml.simulator.state.faults import Fault, FaultKind
from lcm.cml.simulator.state.license import NODE_FEATURE, LicensingMode, SmartAccount
from lcm.cml.simulator.state.sessions import CMLAccount
from lcm.cml.simulator.state.world import BootPhase, SimulatorSettings, World
from lcm.core import clock

DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError)


def world(account: SmartAccount | None = None, **settings: Any) -> World:
    return World(SimulatorSettings(**settings), account)


def kept(of: World) -> Any:
    """A snapshot as it is read back from disk."""
    return json.loads(json.dumps(persistence.snapshot(of)))


def restarted(of: World, **settings: Any) -> World:
    again = world(of.account, **settings)
    persistence.restore(again, kept(of))
    return again


async def test_running_labs_are_restored() -> None:
    first = world(boot_seconds=5)
    first.power_on()
    lab = first.start_user_lab("ada", title="Mine")
    await asyncio.sleep(60)
    other = first.start_user_lab("grace")
    first.labs.start(other, other.owner)
    await asyncio.sleep(60)
    first.time.advance()
    first.labs.stop(other, other.owner)
    await asyncio.sleep(60)
    second = restarted(first, boot_seconds=5)
    assert second.state() == first.state() | {"faults": []}
    assert [each.plan for each in second.labs.all] == [each.plan for each in first.labs.all]
    assert [each.events for each in second.labs.all] == [each.events for each in first.labs.all]
    again = second.labs.get(lab.id)
    assert (again.owner, again.created, list(again.nodes)) == (lab.owner, lab.created, list(lab.nodes))
    assert [node.state for node in again.nodes.values()] == ["BOOTED", "BOOTED"]
    assert again.owner is second.sessions.accounts["ada"]
    link = again.plan.links[0]
    assert link.ends[0] is again.plan.nodes[0].interfaces["i0"], "one interface, not two equal ones"
    assert second.load() == first.load()


async def test_identity_and_accounts_are_restored() -> None:
    first = world()
    first.opt_in = False
    first.sessions.accounts["ops"] = CMLAccount("ops", "word", admin=False)
    first.sessions.log_in("ops", "word")
    second = restarted(first)
    assert (second.compute_id, second.opt_in) == (first.compute_id, False)
    assert second.sessions.accounts == first.sessions.accounts
    assert second.sessions.logins == 1
    second.sessions.log_in("ops", "word")


async def test_booting_continues_and_a_switched_off_server_stays_off() -> None:
    first = world(boot_seconds=100)
    assert restarted(first, boot_seconds=100).boot.phase is BootPhase.OFF
    first.power_on()
    await asyncio.sleep(50)
    stored = kept(first)
    await asyncio.sleep(25)
    second = world(boot_seconds=100)
    persistence.restore(second, stored)
    seen = [second.boot.phase]  # after seventy-five seconds, including the time while stored
    second.power_on()
    await asyncio.sleep(25)
    assert [*seen, second.boot.phase] == [BootPhase.STARTING, BootPhase.READY]


async def test_a_license_is_restored_and_not_counted_twice() -> None:
    account = SmartAccount()
    first = world(account)
    first.licensing.set_product("CML_Education")
    first.licensing.set_features([{"id": NODE_FEATURE, "count": 40}])
    first.licensing.set_transport({"ssms": "https://here.invalid", "proxy": None})
    first.licensing.register("good-token", reregister=False)
    await asyncio.sleep(10)
    first.time.advance()
    first.licensing.renew()
    second = restarted(first)
    assert second.licensing.payload() == first.licensing.payload()
    assert (second.licensing.registered, account.total_registrations, len(account.holders)) == (True, 1, 1)
    await asyncio.sleep(100)
    second.time.advance()
    assert account.total_registrations == 1
    assert await second.licensing.deregister()
    assert not account.holders


@pytest.mark.parametrize(("token", "ends"), [("good-token", "COMPLETED"), ("bad-token", "FAILED")])
async def test_a_registration_in_progress_completes(token: str, ends: str) -> None:
    first = world()
    first.licensing.mode = LicensingMode.RETRY if ends == "COMPLETED" else LicensingMode.NORMAL
    first.licensing.register(token, reregister=False)
    if ends == "COMPLETED":
        await asyncio.sleep(10)
    assert token not in json.dumps(kept(first))
    second = restarted(first)
    assert second.licensing.status == first.licensing.status != ends
    second.licensing.mode = LicensingMode.NORMAL
    await asyncio.sleep(60)
    second.time.advance()
    assert second.licensing.status == ends
    assert second.account.total_registrations == (ends == "COMPLETED")


@pytest.mark.parametrize("asleep", [0.0, 5.0, 600.0])
async def test_pending_nodes_complete_on_time_while_stored(asleep: float) -> None:
    first = world(speed=2)
    lab = first.start_user_lab("ada")  # alpine boots in nine seconds, at this speed in four and a half
    stopping = first.start_user_lab("grace")
    began = clock.now()
    await asyncio.sleep(2)
    first.time.advance()
    first.labs.stop(stopping, stopping.owner)
    stored = kept(first)
    await asyncio.sleep(asleep)
    second = world(speed=2)
    persistence.restore(second, stored)
    assert second.labs.get(lab.id).converged == (asleep >= 5)
    await asyncio.sleep(5)
    second.time.advance()
    assert {node.state for node in second.labs.get(lab.id).nodes.values()} == {"BOOTED"}
    assert {node.state for node in second.labs.get(stopping.id).nodes.values()} == {"STOPPED"}
    assert second.labs.get(lab.id).converged
    last = [event for event in second.telemetry.events if event["category"] == "boot_node"][-1]
    assert last["timestamp"] == (began + timedelta(seconds=4.5)).replace(tzinfo=None).isoformat(timespec="seconds")


async def test_user_events_are_not_displaced_by_system_events() -> None:
    first = world(speed=1000)
    first.start_user_lab("ada")
    await asyncio.sleep(300)
    first.time.advance()
    assert len(first.telemetry.events) > 1000
    second = restarted(first, speed=1000)
    events = second.telemetry.events
    before, after = (
        [event for event in each if "user_id" in event["data"]] for each in (first.telemetry.events, events)
    )
    assert after == before
    assert len(events) == len(after) + persistence.MAX_SYSTEM_EVENTS
    assert events[-1] == first.telemetry.events[-1]
    assert [event["timestamp"] for event in events] == sorted(event["timestamp"] for event in events)


async def test_the_stored_size_is_bounded() -> None:
    first = world(speed=100)
    lab = first.start_user_lab("ada")
    for _ in range(400):
        await asyncio.sleep(1)
        first.time.advance()
        (first.labs.stop if lab.state == "STARTED" else first.labs.start)(lab, lab.owner)
    stored = kept(first)
    assert len(stored["events"]) <= persistence.MAX_USER_EVENTS + persistence.MAX_SYSTEM_EVENTS
    assert len(stored["labs"][0]["events"]) == persistence.MAX_LAB_EVENTS
    assert len(json.dumps(stored)) < 100_000


async def test_snapshots_of_an_idle_server_are_equal() -> None:
    """The files on disk must not change with every snapshot."""
    first = world()
    first.power_on()
    first.start_user_lab("ada")
    await asyncio.sleep(30)
    before = kept(first)
    await asyncio.sleep(60)
    assert kept(first) == before


@given(st.lists(st.sampled_from(["lab", "start", "stop", "wipe", "remove", "power", "license", "wait"]), max_size=15))
async def test_any_history_is_restored(steps: list[str]) -> None:
    first = world(boot_seconds=3)
    first.power_on()
    for step in steps:
        await take(first, step)
    second = restarted(first, boot_seconds=3)
    assert kept(second) == kept(first)
    await asyncio.sleep(120)
    ends = [each.state() for each in (first, second)]
    for end in ends:
        end.pop("events")
    assert ends[0] == ends[1], "both must end in the same state"


async def take(on: World, step: str) -> None:
    on.time.advance()
    admin = on.sessions.accounts["admin"]
    for lab in on.labs.all[-1:]:
        if step == "start":
            on.labs.start(lab, admin)
        elif step == "stop":
            on.labs.stop(lab, admin)
        elif step == "wipe" and lab.state != "STARTED":
            on.labs.wipe(lab, admin)
        elif step == "remove" and lab.state == "DEFINED_ON_CORE":
            on.labs.remove(lab)
    if step == "lab":
        on.start_user_lab("ada")
    elif step == "power":
        (on.power_on if on.boot.phase is BootPhase.OFF else on.power_off)()
    elif step == "license" and on.licensing.status == "NOT_REGISTERED":
        on.licensing.register("good-token", reregister=False)
        await asyncio.sleep(10)
    elif step == "wait":
        await asyncio.sleep(1.5)


async def test_faults_and_sessions_are_not_stored() -> None:
    first = world()
    first.faults.add(Fault(FaultKind.HTML))
    _, token = first.sessions.log_in("admin", "simulated")
    second = restarted(first)
    assert second.faults.all == []
    with pytest.raises(Exception, match="Unauthorized"):
        second.sessions.check(token)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 0},
        {"format": 99},
        {"version": "2.10"},
        {"labs": [{}]},
        {"labs": None},
        {"events": [1]},
        {"events": [{"category": "x"}]},
        {persistence.LICENSE_KEY: {}},
        {"accounts": [{"username": "x", "unheard": "of"}]},
        {"on_since": "yesterday"},
    ],
)
async def test_invalid_snapshots_are_rejected(change: dict[str, Any]) -> None:
    stored = kept(world()) | change
    with pytest.raises(DAMAGE):
        persistence.restore(world(), stored)


@given(st.data())
async def test_damaged_snapshots_are_rejected_or_harmless(data: st.DataObject) -> None:
    first = world()
    first.power_on()
    first.start_user_lab("ada")
    stored = kept(first)
    place, key = stored, data.draw(st.sampled_from(sorted(stored)))
    while isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(st.sampled_from(sorted(place))) if isinstance(place, dict) else len(place) - 1
    place[key] = data.draw(st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.just([]) | st.just({}))
    second = world()
    try:
        persistence.restore(second, stored)
    except DAMAGE:
        return
    persistence.snapshot(second)
