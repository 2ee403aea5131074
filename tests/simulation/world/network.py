"""The links between nodes, and their faults."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.simulation.world.wire import Fate

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from lcm.http.transport import HttpRequest
    from tests.simulation.invariants.during import Ledger
    from tests.simulation.world.loop import Node, SeededLoop


@dataclass
class LinkQuality:
    """The quality of a link: probabilities between 0 and 1, and the maximum delay in seconds."""

    lose_there: float = 0.0
    lose_back: float = 0.0
    silent: float = 0.5
    slowest: float = 0.02


class Line:
    """The link from one node to another."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.cut = False
        self.quality = LinkQuality()
        self.queueing = 0.0  # how long a mutating call may wait in its process before it is sent
        self._chance = chance
        self._breaks = 0
        self._seen = 0
        self._wake = asyncio.Event()

    def delay(self) -> float:
        """The delay in one direction."""
        return self._chance.uniform(0.0005, self.quality.slowest)

    def queue_seconds(self) -> float:
        """How long a mutating call waits before it is sent."""
        return self._chance.uniform(0.0, self.queueing)

    def loses_reply(self) -> bool:
        """Whether the response to a write is lost."""
        return self.cut or (self.quality.lose_back > 0 and self._chance.random() < self.quality.lose_back)

    def fate(self) -> Fate:
        """The fate of one HTTP request."""
        there, back = self.delay(), self.delay()
        if self.cut:
            return Fate(there, back, lost_there="silent" if self._chance.random() < 0.5 else "refused")
        quality = self.quality
        if quality.lose_there and self._chance.random() < quality.lose_there:
            return Fate(there, back, lost_there=self._how())
        if quality.lose_back and self._chance.random() < quality.lose_back:
            return Fate(there, back, lost_back=self._how())
        return Fate(there, back)

    def break_watches(self) -> None:
        """End the streams over this link."""
        self._breaks += 1
        self.nudge()

    def nudge(self) -> None:
        """Wake all waiters of this link."""
        wake, self._wake = self._wake, asyncio.Event()
        wake.set()

    def watch_broken(self) -> bool:
        """Whether streams were cut since the last call."""
        broken, self._seen = self._breaks > self._seen, self._breaks
        return broken

    async def woken(self, changed: asyncio.Event) -> None:
        """Wait for a change of the server or of the link."""
        wake = self._wake
        waits = [asyncio.ensure_future(event.wait()) for event in (changed, wake)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _how(self) -> str:
        return "silent" if self._chance.random() < self.quality.silent else "broken"


class Network:
    """All links to the control plane, and the node that serves it."""

    def __init__(self, loop: SeededLoop, ledger: Ledger) -> None:
        self.loop = loop
        self._ledger = ledger
        self._lines: dict[tuple[str, str], Line] = {}
        self.server: tuple[Node, Any] | None = None
        self.deaf_to = ""  # requests to this part of the internal API are lost
        self.requests = 0
        self.by_path: dict[str, int] = {}

    def line(self, here: str, there: str) -> Line:
        """The link from one node to another, created on first use."""
        key = (here, there)
        if key not in self._lines:
            self._lines[key] = Line(f"{here}-{there}", self.loop.stream(f"line {here} {there}"))
        return self._lines[key]

    def lines(self) -> list[Line]:
        """All links."""
        return list(self._lines.values())

    def fate(self, client: str, request: HttpRequest) -> Fate:
        """The fate of a request."""
        self.requests += 1
        if self.deaf_to and _reads(urlsplit(request.url).path, self.deaf_to):
            return Fate(lost_there="broken")
        return self.line(client, "plane").fate()

    def arrived(self, request: HttpRequest) -> Callable[[int], None]:
        """See `wire.Network`."""
        term, path = request.headers.get("X-LCM-Leader-Term"), urlsplit(request.url).path
        known = self._ledger.arrived(term, request.headers.get("X-LCM-Controller"))
        outdated = term is not None and path.endswith(("/status", "/launch")) and self._is_outdated(path, request)
        return lambda status: self._ledger.responded(path, term, known, status, outdated=outdated)

    def _is_outdated(self, path: str, request: HttpRequest) -> bool:
        """Whether the writer has read an older version than the stored one."""
        version = json.loads(request.body or b"{}").get("version")
        now = self._ledger.version_of(path.split("/")[-2])
        return version is not None and now is not None and version < now

    def serving(self) -> tuple[Node, Any] | None:
        """The node that serves now."""
        if self.server is None or self.server[0].dead:
            return None
        return self.server


def _reads(path: str, part: str) -> bool:
    """Whether a request reads this part of the internal API; what a pass reads contains settings and templates."""
    if path.endswith("/context") and part in ("settings", "worker-templates"):
        return True
    return path.startswith(f"/api/internal/{part}")
