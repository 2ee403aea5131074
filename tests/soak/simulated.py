"""Simulated days: the whole platform in virtual time, in ordinary use and with faults, without a restart."""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lcm.control_plane.records.kinds import IDEMPOTENT_RESPONSES, LABLETS
from lcm.settings import StoreSettings
from lcm.wiring.control_plane import make_maintenance
from tests.simulation.faults.injector import Adversary
from tests.simulation.invariants.during import Ledger
from tests.simulation.script import NODES, Event, facts_of, write
from tests.simulation.world.loop import Node, SeededLoop
from tests.simulation.world.people import People
from tests.simulation.world.platform import Platform, quiet
from tests.soak.growth import WARM_UP, Series

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lcm.control_plane.services import Services
    from lcm.control_plane.store.port import Store
    from lcm.core.hosting import HostedService

HOUR = 3600.0
DAY = 24 * HOUR
SAMPLES = 60
_WORKERS = 4
_ACTIONS = ("stop", "start", "drain", "cancel-drain", "hold", "release", "use", "license", "lab", "lab", "end-lab")
_FAULTS = (
    *("etcd-outage", "break-watches", "compact", "cut", "flaky", "aws-outage", "throttle", "lose-replies"),
    *("stop-outside", "start-outside", "cml-down", "cml-loses", "resign", "pause", "pause-plane"),
)
"""No fault that ends a worker for good: its record would stay, as it must. Nor one that ends a process."""
_ACTIONS_PER_HOUR = 3
_FAULT_SHARE = 0.3
_MIB = 1 << 20
_STATM_PAGE = 4096


class SoakLedger(Ledger):
    """Checks all invariants and remembers nothing that grows with time."""

    def note(self, line: str) -> None:
        """The story of so many days is not kept."""

    def forget(self) -> None:
        """Drop what is only needed at the end of a short run."""
        self.confirmed.clear()
        self.requests, self.calls, self.changes = Counter(), Counter(), Counter()


class Measurements:
    """What is measured in the simulation. Everything runs in this process, the simulated world too."""

    def __init__(self, platform: Platform, days: float) -> None:
        self._platform = platform
        self._rss = Series("memory, MiB", slack=20)
        self._objects = Series("objects", slack=20_000)
        self._tasks = Series("tasks", slack=20)
        self._timers = Series("timers", slack=50)
        self._rows = Series("rows but lablets", slack=20)
        # They are kept for a day. A shorter warm-up shows them growing.
        self._responses = Series("stored responses", slack=20, judged=days * WARM_UP > 1)
        self._lablets = Series("rows of lablets", slack=0, judged=False)
        self._journal = Series("journal entries", slack=200)
        self._samples = Series("metric samples", slack=500)
        self._keys = Series("etcd keys", slack=10)
        self.all = [value for value in vars(self).values() if isinstance(value, Series)]

    def take(self, seconds: float) -> None:
        """Measure now."""
        gc.collect()
        platform, disk = self._platform, self._platform.disk
        rows = {kind: len(documents) for kind, documents in disk._documents.items()}
        self._rss.add(seconds, int(Path("/proc/self/statm").read_text().split()[1]) * _STATM_PAGE / _MIB)
        self._objects.add(seconds, len(gc.get_objects()))
        self._tasks.add(seconds, len(asyncio.all_tasks()))
        self._timers.add(seconds, len(platform.loop._timers))
        self._lablets.add(seconds, rows.pop(LABLETS.name, 0))
        self._responses.add(seconds, rows.pop(IDEMPOTENT_RESPONSES.name, 0))
        self._rows.add(seconds, sum(rows.values()))
        self._journal.add(seconds, len(disk._journal))
        self._samples.add(seconds, sum(map(len, disk._samples.values())))
        self._keys.add(seconds, len(platform.etcd.state._keys))


def soak(days: float, report: Callable[[str], None], seed: str = "soak") -> tuple[list[Series], list[str]]:
    """Simulate so many days; returns the measurements and the violated invariants."""
    quiet()
    loop = SeededLoop(seed)
    asyncio.set_event_loop(loop)
    ledger = SoakLedger(loop)
    series = loop.run_until_complete(Node(loop, "world").run(_live(loop, ledger, days, report), "world"))
    return series, [*ledger.violations, *(str(each.get("message")) for each in loop.failures)]


async def _live(loop: SeededLoop, ledger: SoakLedger, days: float, report: Callable[[str], None]) -> list[Series]:
    # Retention periods that end within the warm-up.
    kept = StoreSettings(
        journal_retention_days=days / 6, event_retention_hours=max(1.0, 24 * days / 6), metrics_retention_hours=days * 4
    )

    def upkeep(store: Store, parts: Services) -> HostedService:
        return make_maintenance(kept, store, parts)

    script = replace(write(loop.seed), rates=dict.fromkeys(NODES, 1.0))
    platform = Platform(loop, ledger, polls=60.0, lease=15, upkeep=upkeep)
    await platform.start_plane()
    for name in NODES:
        await platform.start_controller(name)
    people, adversary = People(platform, ledger), Adversary(platform, script)
    await people.prepare({"idle": {"worker_auto_pause_enabled": True}})
    chance, began, measured = random.Random(f"{loop.seed}/days"), loop.now, Measurements(platform, days)
    for number in range(_WORKERS):
        facts = {**facts_of("create", chance), "name": f"w{number}", "desired": "RUNNING", "token": "good-token"}
        await people.do(Event(0.0, "create", facts))
    every, span = days * DAY / SAMPLES, days * DAY
    driving = [
        asyncio.ensure_future(_repeat(people.do, _ACTIONS, HOUR / _ACTIONS_PER_HOUR, chance)),
        asyncio.ensure_future(_repeat(adversary.do, _FAULTS, HOUR / _ACTIONS_PER_HOUR / _FAULT_SHARE, chance)),
    ]
    while loop.now - began < span:
        await asyncio.sleep(every)
        _trim(platform, ledger)
        measured.take(loop.now - began)
        report(f"day {(loop.now - began) / DAY:.1f} of {days:g}")
    for task in driving:
        task.cancel()
    await asyncio.gather(*driving, return_exceptions=True)
    return measured.all


async def _repeat(
    do: Callable[[Event], Awaitable[str]], kinds: tuple[str, ...], every: float, chance: random.Random
) -> None:
    """One event after the other; each is over, or has had its time, before the next."""
    while True:
        await asyncio.sleep(chance.uniform(0.2, 1.8) * every)
        kind = chance.choice(kinds)
        facts = facts_of(kind, chance)
        if kind == "lab":
            facts["lives"] = facts["lives"] or 8.0
        if kind == "hold":
            facts["minutes"] = facts["minutes"] or 1
        await do(Event(0.0, kind, facts))


def _trim(platform: Platform, ledger: SoakLedger) -> None:
    """What simulators and invariants would remember for ever."""
    ledger.forget()
    for server in platform.cml.by_machine.values():
        server.events = server.events[-50:]
