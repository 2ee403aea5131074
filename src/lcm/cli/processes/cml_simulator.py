"""`lcm cml-simulator`: a simulated CML server in its own process."""

from __future__ import annotations

import asyncio
import signal
import sys

from lcm.cli.errors import FAILED, OK, USAGE, print_error
from lcm.cml.simulator import CmlSimulator, SimulatorSettings
from lcm.cml.simulator.listener import PortUnavailableError
from lcm.core.hosting import run_process

_MAX_PORT = 65_535


def run_simulator(
    version: str,
    host: str,
    port: int,
    control_port: int,
    speed: float,
    boot_seconds: float,
    username: str,
    password: str,
) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code. A problem is printed in one line."""
    settings = SimulatorSettings(
        version=version, username=username, password=password, speed=speed, boot_seconds=boot_seconds
    )
    try:
        _check_arguments(settings, port, control_port)
        return run_process(_serve(settings, host, port, control_port))
    except ValueError as error:
        return print_error(str(error), USAGE)
    except PortUnavailableError as error:
        return print_error(str(error), FAILED)


def _check_arguments(settings: SimulatorSettings, port: int, control_port: int) -> None:
    for name, number in (("port", port), ("control port", control_port)):
        if not 0 <= number <= _MAX_PORT:
            raise ValueError(f"{name} {number}: must be between 0 (any free port) and {_MAX_PORT}")
    if not settings.username or not settings.password:
        raise ValueError("user name and password must not be empty")


async def _serve(settings: SimulatorSettings, host: str, port: int, control_port: int) -> int:
    simulator = CmlSimulator(settings, host=host, port=port, control_port=control_port)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await simulator.start()
    try:
        sys.stdout.write(
            f"Simulated CML {simulator.world.profile.version}\n"
            f"  listens at     {simulator.url}\n"
            f"  control        {simulator.control_url}/state\n"
            f"  user           {settings.username}\n"
            f"  ready in       {settings.boot_seconds / settings.speed:g} s\n"
            "Press Ctrl-C to stop.\n"
        )
        sys.stdout.flush()
        await stop.wait()
    finally:
        await simulator.stop()
    return OK
