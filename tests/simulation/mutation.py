"""A deliberate fault in the code, and what is known to find it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """A fragment of a file under src/lcm, and its replacement. Unit tests check that it occurs exactly once.

    `seed` is the scenario or seed that is known to find it. It runs first, and all others only if it finds nothing.
    `test` is a test (a node id of pytest) that finds what the simulation has no fault for. It needs no seed.
    """

    name: str
    file: str
    old: str
    new: str
    seed: str = ""
    test: str = ""
