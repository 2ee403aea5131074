"""The control port: plain HTTP for the operator of the simulator, separate from the API for CML clients."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lcm.cml.simulator.http.app import EXCEPTION_HANDLERS
from lcm.cml.simulator.http.requests import read_json_object
from lcm.cml.simulator.state.faults import Fault, FaultKind, SimulatorApiError
from lcm.cml.simulator.state.license import LicensingMode
from lcm.cml.simulator.state.sessions import CMLAccount
from lcm.cml.simulator.state.world import BootPhase

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from lcm.cml.simulator.state.world import World

E = TypeVar("E", bound=StrEnum)

MAX_SECONDS = 31_536_000
MAX_OLDER_EVENTS = 10_000_000
_MINUTES_OF_A_DAY = 24 * 60

_DELAY_SETTERS: dict[str, Callable[[World, float], None]] = {
    "login_seconds": lambda world, value: setattr(world, "login_seconds", value),
    "register_seconds": lambda world, value: setattr(world.licensing, "register_seconds", value),
    "deregister_seconds": lambda world, value: setattr(world.licensing, "deregister_seconds", value),
    "token_seconds": lambda world, value: setattr(world.sessions, "token_seconds", value),
    "boot_seconds": lambda world, value: setattr(world.boot, "seconds", value),
}


class ControllableSimulator(Protocol):
    """The simulator behind the control port."""

    world: World

    async def power_on(self) -> None: ...

    async def power_off(self) -> None: ...

    async def replace_certificate(self) -> None: ...


def make_control_app(simulator: ControllableSimulator) -> Starlette:
    """Create the application of the control port."""
    app = Starlette(routes=ROUTES, exception_handlers=EXCEPTION_HANDLERS)
    app.state.simulator = simulator
    return app


def _simulator(request: Request) -> ControllableSimulator:
    simulator: ControllableSimulator = request.app.state.simulator
    return simulator


def _state_response(request: Request) -> Response:
    return JSONResponse(_simulator(request).world.state())


async def get_state(request: Request) -> Response:
    """A summary of the state."""
    return _state_response(request)


async def set_speed(request: Request) -> Response:
    """`{"speed": 60}`: simulated seconds per real second."""
    world = _simulator(request).world
    world.time.advance()
    try:
        world.time.set_speed(_number(await read_json_object(request), "speed"))
    except ValueError as error:
        raise SimulatorApiError(400, str(error)) from None
    return _state_response(request)


async def set_power(request: Request) -> Response:
    """`{"on": false}` cuts the power, `{"on": true}` boots."""
    on = (await read_json_object(request)).get("on")
    if not isinstance(on, bool):
        raise SimulatorApiError(400, "on: must be true or false")
    await (_simulator(request).power_on() if on else _simulator(request).power_off())
    return _state_response(request)


async def hold_phase(request: Request) -> Response:
    """`{"phase": "gateway"}` holds a boot phase, `{"phase": null}` follows the time again."""
    value = (await read_json_object(request)).get("phase")
    held = None if value is None else _choice(BootPhase, value, "phase")
    if held is BootPhase.OFF:
        raise SimulatorApiError(400, "phase: use /power to switch the server off")
    _simulator(request).world.boot.hold(held)
    return _state_response(request)


async def add_fault(request: Request) -> Response:
    """`{"kind": "html", "path": "/api/v0/system_stats", "method": "GET", "count": 2, "status": 500, "seconds": 29}`."""
    body = await read_json_object(request)
    path, method, count, status = (body.get(key) for key in ("path", "method", "count", "status"))
    seconds = _number(body, "seconds") if "seconds" in body else Fault.seconds
    if not 0 <= seconds <= MAX_SECONDS:
        raise SimulatorApiError(400, f"seconds: must be between 0 and {MAX_SECONDS}")
    if count is not None and (not isinstance(count, int) or count < 1):
        raise SimulatorApiError(400, "count: must be an integer of at least 1, or omitted")
    _simulator(request).world.faults.add(
        Fault(
            kind=_choice(FaultKind, body.get("kind"), "kind"),
            path=path if isinstance(path, str) else "/",
            method=method if isinstance(method, str) else None,
            count=count,
            status=status if isinstance(status, int) and 400 <= status <= 599 else 500,
            seconds=seconds,
        )
    )
    return _state_response(request)


async def clear_faults(request: Request) -> Response:
    """Remove all faults."""
    _simulator(request).world.faults.clear()
    return _state_response(request)


async def set_licensing_mode(request: Request) -> Response:
    """`{"mode": "busy"}`: how the licensing service behaves."""
    mode = _choice(LicensingMode, (await read_json_object(request)).get("mode"), "mode")
    _simulator(request).world.licensing.mode = mode
    return _state_response(request)


async def set_delays(request: Request) -> Response:
    """`{"login_seconds": 2.2}` and other delays."""
    body = await read_json_object(request)
    world = _simulator(request).world
    for name in body:
        if name not in _DELAY_SETTERS:
            raise SimulatorApiError(400, f"{name}: must be one of {', '.join(_DELAY_SETTERS)}")
        value = _number(body, name)
        if not 0 <= value <= MAX_SECONDS:
            raise SimulatorApiError(400, f"{name}: must be between 0 and {MAX_SECONDS}")
        _DELAY_SETTERS[name](world, value)
    return _state_response(request)


async def set_telemetry(request: Request) -> Response:
    """`{"older_events": 1000000, "utc_offset_minutes": -300}`: a long list of events, in the server's local time."""
    body = await read_json_object(request)
    telemetry = _simulator(request).world.telemetry
    if "older_events" in body:
        count = _number(body, "older_events")
        if not 0 <= count <= MAX_OLDER_EVENTS:
            raise SimulatorApiError(400, f"older_events: must be between 0 and {MAX_OLDER_EVENTS}")
        telemetry.older_events = int(count)
    if "utc_offset_minutes" in body:
        minutes = _number(body, "utc_offset_minutes")
        if abs(minutes) > _MINUTES_OF_A_DAY:
            raise SimulatorApiError(400, "utc_offset_minutes: must be at most a day")
        telemetry.utc_offset = timedelta(minutes=minutes)
    return _state_response(request)


async def set_kvm(request: Request) -> Response:
    """`{"enabled": false}`: what the server reports of KVM; null: it does not say."""
    body = await read_json_object(request)
    enabled = body.get("enabled")
    if "enabled" not in body or not (enabled is None or isinstance(enabled, bool)):
        raise SimulatorApiError(400, "enabled: must be true, false or null")
    _simulator(request).world.kvm = enabled
    return _state_response(request)


async def replace_certificate(request: Request) -> Response:
    """Present another certificate from now on, as after a reinstallation."""
    await _simulator(request).replace_certificate()
    return _state_response(request)


async def expire_sessions(request: Request) -> Response:
    """Invalidate all tokens issued so far."""
    _simulator(request).world.sessions.expire_all()
    return _state_response(request)


async def set_account(request: Request) -> Response:
    """`{"username": "ops", "password": "…", "admin": true}` creates an account or changes its password."""
    body = await read_json_object(request)
    username, password = body.get("username"), body.get("password")
    if not isinstance(username, str) or not isinstance(password, str):
        raise SimulatorApiError(400, "username and password are required")
    accounts = _simulator(request).world.sessions.accounts
    known = accounts.setdefault(username, CMLAccount(username, password))
    known.password, known.admin = password, body.get("admin", True) is True
    return _state_response(request)


async def create_user_lab(request: Request) -> Response:
    """`{"username": "student"}` creates and starts a small lab, or the given `topology`, on behalf of a user."""
    body = await read_json_object(request)
    username, topology = body.get("username"), body.get("topology")
    world = _simulator(request).world
    world.time.advance()
    name = username if isinstance(username, str) else "student"
    lab = world.start_user_lab(name, topology) if isinstance(topology, str) else world.start_user_lab(name)
    return JSONResponse({"id": lab.id}, status_code=201)


def _number(body: dict[str, Any], name: str) -> float:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SimulatorApiError(400, f"{name}: must be a number")
    return float(value)


def _choice(kind: type[E], value: Any, name: str) -> E:
    try:
        return kind(value)
    except ValueError:
        raise SimulatorApiError(400, f"{name}: must be one of {', '.join(kind)}") from None


ROUTES = [
    Route("/state", get_state),
    Route("/speed", set_speed, methods=["PUT"]),
    Route("/power", set_power, methods=["PUT"]),
    Route("/phase", hold_phase, methods=["PUT"]),
    Route("/faults", add_fault, methods=["POST"]),
    Route("/faults", clear_faults, methods=["DELETE"]),
    Route("/licensing", set_licensing_mode, methods=["PUT"]),
    Route("/delays", set_delays, methods=["PUT"]),
    Route("/telemetry", set_telemetry, methods=["PUT"]),
    Route("/kvm", set_kvm, methods=["PUT"]),
    Route("/certificate", replace_certificate, methods=["PUT"]),
    Route("/sessions", expire_sessions, methods=["DELETE"]),
    Route("/accounts", set_account, methods=["PUT"]),
    Route("/people/labs", create_user_lab, methods=["POST"]),
]
