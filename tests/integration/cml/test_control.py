"""The control port, and the simulator as a separate process."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from lcm.cml.client.tls import Insecure
from lcm.cml.errors import CMLNotReadyError
from lcm.cml.simulator import CmlSimulator, SimulatorSettings
from lcm.cml.simulator.listener import PortUnavailableError, ReservedPort
from lcm.cml.simulator.state.world import BootPhase
from tests.integration.cml.conftest import ADDRESS, ADMIN, Clients, clients, control, eventually
from tests.support.servers.processes import ROOT

RUN = "import sys; from lcm.cli.processes.cml_simulator import run_simulator; sys.exit(run_simulator({}))"
GOOD = '"2.10", "127.0.0.1", 0, 0, 100.0, 1.0, "admin", "simulated"'
PATIENCE = 180.0


async def test_user_activity_is_visible(simulator: CmlSimulator, cml: Clients) -> None:
    status, made = await control(simulator, "POST", "/people/labs", {"username": "student"})
    assert status == 201

    async def runs() -> bool:
        return bool((await control(simulator, "GET", "/state"))[1]["nodes_running"] == 2)

    await eventually(runs, "both nodes run")
    _, state = await control(simulator, "GET", "/state")
    assert [(lab["id"], lab["owner"], lab["state"]) for lab in state["labs"]] == [(made["id"], "student", "STARTED")]
    assert state["labs_imported"] == 1
    activity = await cml.system.get_activity_events(ADDRESS, ADMIN)
    assert made["id"] in {event.lab_id for event in activity.events}


async def test_speed_delays_accounts_and_power_can_be_set(simulator: CmlSimulator, cml: Clients) -> None:
    assert (await control(simulator, "PUT", "/speed", {"speed": 7}))[1]["speed"] == 7
    await control(simulator, "PUT", "/delays", {"login_seconds": 0, "register_seconds": 1, "boot_seconds": 0})
    assert simulator.world.login_seconds == 0
    await control(simulator, "PUT", "/accounts", {"username": "admin", "password": "simulated", "admin": False})
    assert simulator.world.sessions.accounts["admin"].admin is False
    assert (await control(simulator, "PUT", "/power", {"on": False}))[1]["phase"] == BootPhase.OFF
    assert (await control(simulator, "PUT", "/power", {"on": True}))[1]["phase"] == BootPhase.READY
    assert (await cml.system.get_system_information(ADDRESS)).ready


async def test_kvm_is_reported_as_set(simulator: CmlSimulator, cml: Clients) -> None:
    assert (await cml.system.get_system_health(ADDRESS, ADMIN)).kvm_enabled is True
    for enabled in (False, None, True):
        assert (await control(simulator, "PUT", "/kvm", {"enabled": enabled}))[1]["kvm"] is enabled
        assert (await cml.system.get_system_health(ADDRESS, ADMIN)).kvm_enabled is enabled
    for wrong in ({}, {"enabled": "no"}, {"enabled": 0}):
        status, problem = await control(simulator, "PUT", "/kvm", wrong)
        assert (status, "enabled" in str(problem)) == (400, True)


async def settled_state(simulator: CmlSimulator) -> dict[str, Any]:
    """The state without the count of events, which grows with time alone."""
    _, state = await control(simulator, "GET", "/state")
    return {name: value for name, value in state.items() if name != "events"}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/speed", {"speed": 0}),
        ("PUT", "/speed", {"speed": "fast"}),
        ("PUT", "/speed", []),
        ("PUT", "/power", {"on": "yes"}),
        ("PUT", "/phase", {"phase": "dreaming"}),
        ("PUT", "/phase", {"phase": "off"}),
        ("POST", "/faults", {"kind": "gremlins"}),
        ("POST", "/faults", {"kind": "html", "count": 0}),
        ("PUT", "/licensing", {"mode": "generous"}),
        ("PUT", "/delays", {"tea_seconds": 1}),
        ("PUT", "/delays", {"login_seconds": -1}),
        ("PUT", "/accounts", {"username": "x"}),
        ("POST", "/people/labs", {"topology": "no lab"}),
    ],
)
async def test_invalid_requests_are_rejected_with_a_reason(
    simulator: CmlSimulator, method: str, path: str, body: Any
) -> None:
    before = await settled_state(simulator)
    status, answer = await control(simulator, method, path, body)
    assert status == 400
    assert answer["description"]
    assert await settled_state(simulator) == before


async def test_cml_clients_do_not_see_the_control_port(simulator: CmlSimulator, cml: Clients) -> None:
    _, state = await control(simulator, "GET", "/state")
    assert "simulated" not in str(state), "passwords are not shown"
    assert simulator.control_url.startswith("http://127.0.0.1:")


def start(arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", RUN.format(arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def greeting(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or "Ctrl-C" not in lines[-1]:
        lines.append(process.stdout.readline())
        assert lines[-1], "the process ended early"
    return "".join(lines)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_process_runs_until_it_is_stopped(number: signal.Signals) -> None:
    process = start(GOOD)
    try:
        reported = greeting(process)
        found = re.search(r"https://\S+", reported)
        assert found is not None
        async with clients(Insecure(), lambda _address: found.group()) as cml:

            async def ready() -> bool:
                try:
                    return (await cml.system.get_system_information(ADDRESS)).ready
                except CMLNotReadyError:
                    return False

            await eventually(ready, "ready")
            assert (await cml.system.get_license(ADDRESS, ADMIN)).registration == "NOT_REGISTERED"
            process.send_signal(number)
            assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        _, complaints = process.communicate()
    assert complaints == ""
    assert re.search(r"control +http://127\.0\.0\.1:\d+/state", reported)


@pytest.mark.parametrize(
    ("wrong", "code", "why"),
    [
        (GOOD.replace("2.10", "1.6"), 2, "CML version '1.6': must be one of"),
        (GOOD.replace("100.0", "0.0"), 2, "speed 0"),
        (GOOD.replace(", 1.0,", ", -1.0,"), 2, "boot time -1"),
        (GOOD.replace("0, 0", "70000, 0"), 2, "port 70000"),
        (GOOD.replace('"simulated"', '""'), 2, "must not be empty"),
        (GOOD.replace("127.0.0.1", "203.0.113.1"), 1, "cannot listen on 203.0.113.1"),
    ],
)
def test_invalid_values_are_reported_in_one_line(wrong: str, code: int, why: str) -> None:
    process = start(wrong)
    _, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert complaints.startswith("lcm: ")
    assert why in complaints
    assert complaints.count("\n") == 1


def test_a_port_in_use_is_reported() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(PortUnavailableError, match="Address already in use"):
            ReservedPort("127.0.0.1", other.getsockname()[1])


async def test_two_simulators_never_share_a_port(simulator: CmlSimulator) -> None:
    number = int(simulator.url.rpartition(":")[2])
    for switch in (simulator.power_off, simulator.power_on):
        await switch()
        with pytest.raises(PortUnavailableError, match="Address already in use"):
            CmlSimulator(SimulatorSettings(), port=number)


async def test_a_port_can_be_reused_at_once(simulator: CmlSimulator, cml: Clients) -> None:
    assert (await cml.system.get_system_information(ADDRESS)).ready
    number = int(simulator.url.rpartition(":")[2])
    await simulator.stop()
    again = CmlSimulator(SimulatorSettings(boot_seconds=0), port=number, identity=simulator.identity)
    await again.start()
    assert (await cml.system.get_system_information(ADDRESS)).ready
    await again.stop()
