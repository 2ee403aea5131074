"""`lcm cml-simulator`: one simulated CML server in a process of its own."""

from __future__ import annotations

import asyncio
import signal
import sys

from lcm.cli.main import FAILED, OK, USAGE
from lcm.cml.simulator import CmlSimulator, WorldSettings
from lcm.cml.simulator.serving import CannotListen

_LARGEST_PORT = 65_535


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
    """Run until SIGTERM or SIGINT; returns the exit code. What is wrong is said in one line."""
    settings = WorldSettings(
        version=version, username=username, password=password, speed=speed, boot_seconds=boot_seconds
    )
    try:
        _check(settings, port, control_port)
        return asyncio.run(_serve(settings, host, port, control_port))
    except ValueError as error:
        return _complain(str(error), USAGE)
    except CannotListen as error:
        return _complain(str(error), FAILED)


def _check(settings: WorldSettings, port: int, control_port: int) -> None:
    for name, number in (("port", port), ("control port", control_port)):
        if not 0 <= number <= _LARGEST_PORT:
            raise ValueError(f"{name} {number}: must lie between 0 (any free one) and {_LARGEST_PORT}")
    if not settings.username or not settings.password:
        raise ValueError("user name and password must not be empty")


def _complain(text: str, code: int) -> int:
    sys.stderr.write(f"lcm: {text}\n")
    return code


async def _serve(settings: WorldSettings, host: str, port: int, control_port: int) -> int:
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
            "Ctrl-C stops it.\n"
        )
        sys.stdout.flush()
        await stop.wait()
    finally:
        await simulator.stop()
    return OK
