"""Writes `docs/real-world.md` from the mutations of the simulation: `make docs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulation.evidence import REAL_WORLD
from tests.simulation.mutations import MUTATIONS

if TYPE_CHECKING:
    from tests.simulation.mutation import Mutation

PAGE = Path(__file__).with_name("real-world.md")

INTRODUCTION = """\
# The real world

Made from the code by `make docs`; do not edit.

AWS, CML, clocks, networks and processes do things that simulators do not do unless they are made to. Each row below is
one of them at which LCM once failed. The third column names faults that bring the failure back. `make mutations` puts
them into a copy of the code, one by one: each must be found by the scenario of the [simulation](simulation.md), or by
the test, in the last column. `make mutations ONLY="term 0"` tries those whose name contains the words.

| # | What happens | Fault in the code | Found by |
|---|---|---|---|
"""


def page() -> str:
    """The page as it should be."""
    known = {mutation.name: mutation for mutation in MUTATIONS}
    lines = [
        f"| {number} | {row.what} | {name} | {_finder(known[name])} |"
        for number, row in REAL_WORLD.items()
        for name in row.mutations
    ]
    return INTRODUCTION + "\n".join(lines) + "\n"


def _finder(mutation: Mutation) -> str:
    return f"`{mutation.test}`" if mutation.test else f"“{mutation.seed}”"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
