"""The drill of a suspended leader at full length: about twenty minutes. It fails if one call was sent too late."""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from benchmarks.support.output import report
from tests.support.real.suspended_leader import HEADER, SuspensionDrill
from tests.support.real.worker_platform import real_platform

ROUNDS = 20


def main() -> None:
    chance = random.Random()
    rounds, created = [], []
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory() as name, real_platform(Path(name), "one", "two") as platform:
        drill = SuspensionDrill(platform, chance)
        worker_id = platform.create()
        for number in range(ROUNDS):
            rounds.append(drill.stop(worker_id))
            print(rounds[-1], flush=True)
            done, workers = drill.launch(until_terminated=number == ROUNDS - 1)
            rounds.append(done)
            created += workers
            print(done, flush=True)
        drill.wait_until_terminated(created)
        left = drill.live_instances_of(created)
    late = sum(each.after_its_lease for each in rounds)
    report(f"suspensions, {ROUNDS} in stops and {ROUNDS} in launches", len(rounds), "")
    report("calls on the wire when the leader was suspended", sum(each.on_the_wire for each in rounds), "")
    report("calls of the old leader after its lease", late, "", aim="0")
    report("instances of TERMINATED workers", len(left), "", aim="0")
    if late or left:
        sys.exit(1)
