"""The state of a simulated server, without the network and in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcm.cml.client.telemetry import parse_activity
from lcm.cml.simulator.state.clock import SimulatedClock
from lcm.cml.simulator.state.faults import Fault, FaultInjector, FaultKind, SimulatorApiError
from lcm.cml.simulator.state.sessions import MAX_LOGINS_PER_MINUTE
from lcm.cml.simulator.state.topology import parse_topology
from lcm.cml.simulator.state.world import SAMPLE_TOPOLOGY, BootPhase, SimulatorSettings, World
from lcm.core import clock

if TYPE_CHECKING:
    from lcm.cml.simulator.state.labs import Lab


def world(**settings: Any) -> World:
    return World(SimulatorSettings(**settings))


def states(of: World, lab: Lab) -> list[str]:
    of.time.advance()
    return [node.state for node in lab.nodes.values()]


async def test_time_is_continuous_when_the_speed_changes() -> None:
    time = SimulatedClock(speed=10)
    await asyncio.sleep(3)
    assert time.now == pytest.approx(30)
    time.set_speed(1)
    await asyncio.sleep(3)
    assert time.now == pytest.approx(33)


async def test_late_callbacks_run_in_order_and_see_their_due_time() -> None:
    time = SimulatedClock(speed=2)
    began = clock.now()
    seen: list[tuple[str, float, float]] = []

    def happen(name: str) -> None:
        seen.append((name, time.now, (time.wall_time() - began).total_seconds()))
        if name == "a":
            time.call_later(1, lambda: happen("b"))

    time.call_later(10, lambda: happen("c"))
    time.call_later(4, lambda: happen("a"))
    await asyncio.sleep(60)
    assert seen == []
    time.advance()
    assert [name for name, _, _ in seen] == ["a", "b", "c"]
    assert [at for _, at, _ in seen] == pytest.approx([4, 5, 10])
    assert [real for _, _, real in seen] == pytest.approx([2, 2.5, 5])


@pytest.mark.parametrize("speed", [0, -1, 1e9, float("nan")])
async def test_invalid_speeds_are_rejected(speed: float) -> None:
    with pytest.raises(ValueError, match="speed"):
        SimulatedClock(speed)


async def test_booting_passes_all_phases_and_power_off_ends_it() -> None:
    simulated = world(boot_seconds=100)
    assert simulated.boot.phase is BootPhase.OFF
    simulated.power_on()
    seen = []
    for _ in range(11):
        seen.append(simulated.boot.phase)
        await asyncio.sleep(10)
    assert list(dict.fromkeys(seen)) == [BootPhase.REFUSING, BootPhase.GATEWAY, BootPhase.STARTING, BootPhase.READY]
    simulated.power_off()
    assert simulated.boot.phase is BootPhase.OFF


async def test_a_phase_can_be_held() -> None:
    simulated = world(boot_seconds=0)
    simulated.power_on()
    seen = []
    for held in (BootPhase.GATEWAY, None):
        simulated.boot.hold(held)
        seen.append(simulated.boot.phase)
    assert seen == [BootPhase.GATEWAY, BootPhase.READY]


async def test_nodes_are_queued_started_and_booted_in_time() -> None:
    simulated = world()
    lab = simulated.start_user_lab("student")
    assert states(simulated, lab) == ["QUEUED", "QUEUED"]
    assert not lab.converged
    await asyncio.sleep(1.3)
    assert states(simulated, lab) == ["BOOTED", "STARTED"]
    await asyncio.sleep(8)
    assert states(simulated, lab) == ["BOOTED", "BOOTED"]
    assert lab.converged
    assert lab.state == "STARTED"


async def test_only_a_stopped_and_wiped_lab_can_be_deleted() -> None:
    simulated = world()
    lab = simulated.start_user_lab("student")
    person = lab.owner
    await asyncio.sleep(20)
    simulated.time.advance()
    for refused in (simulated.labs.wipe, lambda lab, _by: simulated.labs.remove(lab)):
        with pytest.raises(SimulatorApiError) as caught:
            refused(lab, person)
        assert caught.value.code == 400
    simulated.labs.stop(lab, person)
    assert not lab.converged
    await asyncio.sleep(3)
    assert states(simulated, lab) == ["STOPPED", "STOPPED"]
    simulated.labs.wipe(lab, person)
    await asyncio.sleep(1)
    assert states(simulated, lab) == ["DEFINED_ON_CORE", "DEFINED_ON_CORE"]
    simulated.labs.remove(lab)
    with pytest.raises(SimulatorApiError, match="Lab not found: " + lab.id):
        simulated.labs.get(lab.id)


async def test_a_stop_overrides_a_boot_in_progress() -> None:
    simulated = world()
    lab = simulated.start_user_lab("student")
    await asyncio.sleep(2)
    simulated.time.advance()
    simulated.labs.stop(lab, lab.owner)
    await asyncio.sleep(60)
    assert states(simulated, lab) == ["STOPPED", "STOPPED"]


@given(st.lists(st.sampled_from(["start", "stop", "wipe", "power", "wait"]), max_size=12))
def test_a_lab_converges_after_any_operations(orders: list[str]) -> None:
    ticks = [0.0]
    simulated = World(SimulatorSettings(), read=lambda: ticks[0])
    lab = simulated.import_lab(SAMPLE_TOPOLOGY, simulated.sessions.accounts["admin"])
    for order in orders:
        simulated.time.advance()
        if order == "power":
            simulated.power_off()
        elif order == "wait":
            ticks[0] += 1.5
        else:
            with contextlib.suppress(SimulatorApiError):
                getattr(simulated.labs, order)(lab, lab.owner)
    ticks[0] += 1000
    simulated.time.advance()
    assert lab.converged
    assert {node.state for node in lab.nodes.values()} <= {"DEFINED_ON_CORE", "STOPPED", "BOOTED"}


async def test_telemetry_contains_user_and_background_events() -> None:
    simulated = world()
    lab = simulated.start_user_lab("student")
    await asyncio.sleep(3600)
    simulated.time.advance()
    activity = parse_activity(simulated.telemetry.events)
    assert activity.skipped == 0
    persons = [event for event in activity.events if event.user_id == lab.owner.id]
    assert [event.category for event in persons[:2]] == ["import_lab", "start_lab"]
    assert {"queue_node", "start_node", "boot_node"} <= {event.category for event in persons}
    assert max(event.at.replace(tzinfo=UTC) for event in persons) < clock.now() - timedelta(minutes=59)
    assert sum(event.category == "system_stats" for event in activity.events) == 12


@pytest.mark.parametrize("version", ["2.7", "2.8", "2.9", "2.10"])
async def test_timestamps_of_all_versions_are_parsed(version: str) -> None:
    simulated = world(version=version)
    simulated.telemetry.record("start_lab")
    (event,) = parse_activity(simulated.telemetry.events).events
    assert abs((event.at if event.at.tzinfo else event.at.replace(tzinfo=UTC)) - clock.now()) <= timedelta(seconds=1)


async def test_load_follows_the_nodes() -> None:
    simulated = world()
    idle = simulated.load()
    simulated.start_user_lab("student")
    await asyncio.sleep(20)
    simulated.time.advance()
    assert all(busy > before for busy, before in zip(simulated.load(), idle, strict=True))


async def test_power_off_stops_nodes_and_sessions_but_keeps_labs() -> None:
    simulated = world()
    lab = simulated.start_user_lab("student")
    _, token = simulated.sessions.log_in("admin", "simulated")
    await asyncio.sleep(20)
    simulated.power_off()
    assert states(simulated, lab) == ["STOPPED", "STOPPED"]
    with pytest.raises(SimulatorApiError) as caught:
        simulated.sessions.check(token)
    assert caught.value.code == 401
    assert simulated.labs.all == [lab]


async def test_tokens_expire_by_time_and_on_request() -> None:
    simulated = world(token_seconds=100, speed=50)
    account, token = simulated.sessions.log_in("admin", "simulated")
    assert simulated.sessions.check(token) is account
    await asyncio.sleep(99)
    assert simulated.sessions.check(token) is account
    await asyncio.sleep(2)
    with pytest.raises(SimulatorApiError, match="expired"):
        simulated.sessions.check(token)
    _, second = simulated.sessions.log_in("admin", "simulated")
    simulated.sessions.expire_all()
    with pytest.raises(SimulatorApiError, match="expired"):
        simulated.sessions.check(second)


@given(st.text())
def test_any_other_text_is_rejected_as_a_token(text: str) -> None:
    with pytest.raises(SimulatorApiError) as caught:
        world().sessions.check(text)
    assert caught.value.code == 401


async def test_wrong_passwords_return_403_and_too_many_logins_429() -> None:
    simulated = world()
    attempts: list[tuple[Any, Any]] = [("admin", "wrong"), ("unknown", "simulated"), (None, None), (["admin"], {})]
    for attempt in attempts:
        with pytest.raises(SimulatorApiError) as caught:
            simulated.sessions.log_in(*attempt)
        assert caught.value.code == 403
    for _ in range(MAX_LOGINS_PER_MINUTE - 4):
        simulated.sessions.log_in("admin", "simulated")
    with pytest.raises(SimulatorApiError) as caught:
        simulated.sessions.log_in("admin", "simulated")
    assert caught.value.code == 429
    await asyncio.sleep(61)
    simulated.sessions.log_in("admin", "simulated")


def test_faults_are_matched_and_counted() -> None:
    faults = FaultInjector()
    faults.add(Fault(FaultKind.HTML, path="/api/v0/labs", method="GET", count=2))
    assert faults.take("PUT", "/api/v0/labs") is None
    assert faults.take("GET", "/api/v0/users") is None
    assert [faults.take("GET", "/api/v0/labs/x") is not None for _ in range(3)] == [True, True, False]
    faults.add(Fault(FaultKind.HANG))
    assert faults.take("GET", "/") is faults.take("PUT", "/anything")
    faults.clear()
    assert faults.all == []


@pytest.mark.parametrize(
    ("topology", "why"),
    [
        ("[", "Not YAML"),
        ("", "must be a mapping"),
        ("nodes: []", "lab must be a mapping"),
        ("lab: {}", "Schema version None"),
        ("lab: {version: 9.9.9}", "Schema version 9.9.9"),
        ("lab: {version: 0.3.1}", "Schema version 0.3.1"),
        ("lab: {version: 0.2.2}\nnodes: 3", "nodes must be a list"),
        ("lab: {version: 0.2.2}\nnodes: [{id: a}]", "label"),
        ("lab: {version: 0.2.2}\nlinks: [{id: l, n1: a, i1: b, n2: c, i2: d}]", "does not exist"),
        ("lab: {version: 0.2.2, title: " + "x" * 65 + "}", "longer than 64"),
        ("lab: !!python/object/apply:os.system [true]", "Not YAML"),
    ],
)
def test_invalid_topologies_are_rejected(topology: str, why: str) -> None:
    with pytest.raises(SimulatorApiError, match=why) as caught:
        parse_topology(topology, "0.2.2", None)
    assert caught.value.code == 400


def test_unknown_node_definitions_cause_a_warning() -> None:
    plan = parse_topology("lab: {version: 0.2.2}\nnodes: [{id: a, label: a, node_definition: abacus}]", "0.3.0", "Mine")
    assert plan.title == "Mine"
    assert plan.warnings == ["Node definition abacus is not known on this server"]


def test_unsupported_versions_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"must be one of 2\.7, 2\.8, 2\.9, 2\.10"):
        world(version="1.6")
