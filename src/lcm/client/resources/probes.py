"""What anybody may ask of the process: is it alive, can it work, what is it, what did it count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lcm.client.base import Group
from lcm.client.resources.answers import Facts, Readiness
from lcm.client.responses import Call

if TYPE_CHECKING:
    from typing import Any


class Probes(Group):
    """These need no token."""

    async def health(self) -> dict[str, Any]:
        """What the process says of its health."""
        return (await self._ask(Call("probes.health", "GET", "/health"), Facts)).model_dump()

    async def ready(self) -> Readiness:
        """Whether it can do its work now; a 503 with reasons is an answer, not an error."""
        return await self._ask(Call("probes.ready", "GET", "/ready", answers=(200, 503)), Readiness)

    async def info(self) -> dict[str, Any]:
        """What this process is."""
        return (await self._ask(Call("probes.info", "GET", "/info"), Facts)).model_dump()

    async def metrics(self) -> str:
        """Prometheus metrics, as text."""
        return (await self._transport.read(Call("probes.metrics", "GET", "/metrics"))).decode()
