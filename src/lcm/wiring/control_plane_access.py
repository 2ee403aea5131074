"""Controllers and the control plane: how they reach it, whether it serves them, and what they close at the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
from prometheus_client import REGISTRY, CollectorRegistry

from lcm.client.client import Client
from lcm.client.errors import ClientError
from lcm.core.hosting import HostedService, keep_running
from lcm.model.access import Role
from lcm.settings import ControllerTokenSettings, ControlPlaneAddressSettings, SettingsConflict
from lcm.wiring.controllers import StandaloneControllerSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

log = structlog.get_logger(__name__)

_CHECK_INTERVAL = 5.0
_CHECK_TIMEOUT = 4.0


class InvalidSettingsError(Exception):
    """Settings that only their user can judge are wrong; the text says how."""


class ControlPlaneClientSettings(ControlPlaneAddressSettings, ControllerTokenSettings):
    """What a controller must know to be let in by the control plane."""


class BuiltinControllerSettings(StandaloneControllerSettings, ControlPlaneClientSettings):
    """What a controller of ours in a process of its own is told."""

    def conflicts(self) -> Iterator[SettingsConflict]:
        """Besides the rules of the groups: it must be let in."""
        yield from super().conflicts()
        token = self.lcm_controller_token
        if token is None:
            yield SettingsConflict("lcm_controller_token", rule="must be set: the one that the control plane was given")
        elif not _printable(token.get_secret_value()):
            yield SettingsConflict("lcm_controller_token", rule="must be printable ASCII without spaces")


def make_control_plane_client(settings: ControlPlaneClientSettings, registry: CollectorRegistry = REGISTRY) -> Client:
    """The control plane, as controllers see it."""
    token = settings.lcm_controller_token
    try:
        return Client(
            settings.control_plane_api_url, None if token is None else token.get_secret_value(), registry=registry
        )
    except ValueError as error:
        raise InvalidSettingsError(f"CONTROL_PLANE_API_URL: {error}") from None


class CloseOnStop(HostedService):
    """Closes connections to the outside, after everybody who uses them has stopped."""

    def __init__(self, closing: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        super().__init__("outside")
        self._closing = closing

    async def start(self) -> None:
        """Nothing to do: connections are made when they are first needed."""

    async def stop(self) -> None:
        for name, close in self._closing.items():
            try:
                await close()
            except Exception:
                log.exception("a connection did not close cleanly", to=name)


class ControlPlaneCheck(HostedService):
    """Asks the control plane now and then whether it answers us, and as whom."""

    def __init__(self, control: Client, *, every: float = _CHECK_INTERVAL) -> None:
        super().__init__("control-plane")
        self._control = control
        self._every = every
        self._trouble = "has not been asked yet"
        self._checking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._checking = self._spawn(keep_running("control plane check", self._check_on), "check")

    async def stop(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking])

    def readiness(self) -> list[str]:
        """Whether the control plane let us in when it was last asked."""
        return [f"control plane: {self._trouble}"] if self._trouble else []

    async def _check_on(self) -> None:
        while True:
            trouble = await self._ask()
            if trouble and trouble != self._trouble:
                log.warning("the control plane does not serve us", error=trouble)
            elif self._trouble and not trouble:
                log.info("the control plane serves us")
            self._trouble = trouble
            await asyncio.sleep(self._every)

    async def _ask(self) -> str:
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT):
                me = await self._control.access.whoami()
        except (ClientError, TimeoutError) as error:
            return str(error) or f"no answer within {_CHECK_TIMEOUT:g} s"
        if me.role is not Role.CONTROLLER:
            return f"LCM_CONTROLLER_TOKEN is of {me.name}, whose role is {me.role}, not controller"
        return ""


def _printable(token: str) -> bool:
    return all("!" <= letter <= "~" for letter in token)
