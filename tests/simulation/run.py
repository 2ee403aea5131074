"""One run: plays the script of a seed from beginning to end and checks all invariants."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lcm.client.errors import ClientError
from tests.simulation.faults.injector import Adversary
from tests.simulation.invariants.at_end import complaints
from tests.simulation.invariants.decision_rules import count_rules
from tests.simulation.invariants.during import SICKENING, Ledger
from tests.simulation.scenarios.catalog import script_of
from tests.simulation.script import MINUTE, NODES
from tests.simulation.world.loop import Node, SeededLoop
from tests.simulation.world.people import People
from tests.simulation.world.platform import Platform, quiet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.simulation.script import Event, Script

SETTLE = 50 * MINUTE
"""Time to converge after the last fault: the only instance of a region is gone after thirty minutes without it; then
there may be a drain of ten, and a timeout that expired just before."""
_LOOK_SECONDS = 2.0


@dataclass
class Result:
    """The result of a run."""

    seed: int | str
    trace: str
    violations: list[str]
    log: list[str]
    covered: Counter[str] = field(default_factory=Counter)
    simulated: float = 0.0
    cpu: float = 0.0
    steps: int = 0
    script: Script | None = None


def run(seed: int | str, script: Script | None = None, *, settle: float = SETTLE) -> Result:
    """Play a script; by default that of the seed."""
    script = script or script_of(seed)
    quiet(long=script.long)
    loop = SeededLoop(seed)
    loop.begins = script.begins or loop.begins
    asyncio.set_event_loop(loop)
    ledger = Ledger(loop)
    count_rules(ledger.covered)
    gc.disable()  # the time of a garbage collection depends on earlier runs
    began = time.process_time()
    try:
        world = Node(loop, "world")
        loop.run_until_complete(world.run(_play(loop, ledger, script, settle), "world"))
    except Exception as error:  # noqa: BLE001 - whatever it is, the seed shows it
        ledger.violated(f"the run broke: {type(error).__name__}: {error}")
    ledger.violations += [f"uncaught: {_words(each)}" for each in loop.failures]
    return Result(
        seed,
        loop.trace,
        ledger.violations,
        ledger.log,
        ledger.covered,
        loop.now - 1000.0,
        time.process_time() - began,
        loop.steps,
        script,
    )


async def _play(loop: SeededLoop, ledger: Ledger, script: Script, settle: float) -> None:
    platform = Platform(loop, ledger, polls=script.polls, lease=script.lease, rules=script.classes, long=script.long)
    await platform.start_plane()
    for name in NODES:
        await platform.start_controller(name, rate=script.rates[name], offset=script.offsets[name])
    ledger.other_faults = any(event.kind not in SICKENING for event in script.faults)
    people, adversary = People(platform, ledger), Adversary(platform, script)
    await people.prepare(script.settings, script.classes)
    acts = [_at(event, people.do, ledger) for event in script.people]
    acts += [_at(event, adversary.do, ledger) for event in script.faults]
    tasks = [asyncio.ensure_future(act) for act in acts]
    ledger.classes.trouble.begin(script.people, script.faults)
    if script.classes is not None:
        tasks.append(asyncio.ensure_future(_watch_processes(platform, ledger)))
    await asyncio.sleep(script.span + MINUTE)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    ledger.note("nothing goes wrong any more")
    await adversary.heal()
    await people.release_all()
    if not settle:
        return
    await people.instructors.cancel_all()
    if script.classes is not None:
        await people.raise_limits()
    schedules = await people.settle_schedules()
    leaks_end = await people.leaks_end()
    since = loop.now
    said = ["it has just begun"]
    while (said and loop.now < since + settle) or loop.now < since + script.patience:
        await asyncio.sleep(MINUTE)
        await people.confirm_losses()
        with suppress(ClientError):
            await people.trust_all()
        said = complaints(platform, ledger, schedules, leaks_end=leaks_end)
    for each in said:
        ledger.violated(each)


async def _watch_processes(platform: Platform, ledger: Ledger) -> None:
    while True:
        if any(node.dead or node.paused_until is not None for node in platform.nodes.values()):
            ledger.classes.trouble.down_at = platform.loop.now
        await asyncio.sleep(_LOOK_SECONDS)


async def _at(event: Event, do: Callable[[Event], Awaitable[str]], ledger: Ledger) -> None:
    await asyncio.sleep(event.at)
    ledger.covered[f"event {event.kind}"] += 1
    ledger.note(f"* {event.kind} {event.facts}")
    result = await do(event)
    ledger.note(f"  {event.kind}: {result}")


def _words(context: dict[str, object]) -> str:
    error = context.get("exception")
    return f"{context.get('message')}: {type(error).__name__}: {error}" if error else str(context.get("message"))
