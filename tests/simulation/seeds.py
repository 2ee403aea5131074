"""Runs many seeds in parallel, each in a process forked from one that is warmed up.

Every child starts from the same state, so a seed gives the same trace whatever ran before it.
"""

from __future__ import annotations

import gc
import os
import pickle
import selectors
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.run import Result, run
from tests.simulation.script import write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.simulation.script import Script

_WARMING_MINUTES = 3.0
_WARM: list[bool] = []


def warm_up() -> None:
    """Play one script in this process, so that modules, caches and the app are ready for all children."""
    if not _WARM:
        _WARM.append(True)
        script = write("warm")
        run("warm", replace(script, faults=(), people=script.people[:3], span=_WARMING_MINUTES * 60), settle=0.0)
        gc.freeze()  # children need not look through what is here already


def run_all(seeds: Iterable[int | str], *, jobs: int, keep_log: bool = False) -> Iterator[Result]:
    """Results in the order of completion."""
    yield from run_scripts(((seed, None) for seed in seeds), jobs=jobs, keep_log=keep_log)


def run_scripts(
    work: Iterable[tuple[int | str, Script | None]], *, jobs: int, keep_log: bool = False
) -> Iterator[Result]:
    """Play scripts, each with the seed for all other decisions."""
    warm_up()
    waiting = iter(work)
    open_ones = selectors.DefaultSelector()
    under_way: dict[int, tuple[int, int | str, bytearray]] = {}

    def begin() -> bool:
        for seed, script in waiting:
            reader, child = _fork(seed, script, keep_log=keep_log)
            under_way[reader] = (child, seed, bytearray())
            open_ones.register(reader, selectors.EVENT_READ)
            return True
        return False

    while len(under_way) < jobs and begin():
        pass
    while under_way:
        for key, _ in open_ones.select():
            reader = key.fd
            child, seed, data = under_way[reader]
            piece = os.read(reader, 1 << 20)
            if piece:
                data += piece
                continue
            open_ones.unregister(reader)
            os.close(reader)
            os.waitpid(child, 0)
            del under_way[reader]
            begin()
            yield pickle.loads(data) if data else Result(seed, "", ["the process ended without a result"], [])


def _fork(seed: int | str, script: Script | None, *, keep_log: bool) -> tuple[int, int]:
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return reader, child
    os.close(reader)
    try:
        result = run(seed, script)
        if not keep_log and not result.violations:
            result.log = []
    except BaseException:  # noqa: BLE001 - the parent must hear of it
        result = Result(seed, "", [f"the run broke: {traceback.format_exc()}"], [])
    data = pickle.dumps(result)
    while data:
        data = data[os.write(writer, data) :]
    os._exit(0)  # without cleanup: leftovers of dead nodes must not start to run
