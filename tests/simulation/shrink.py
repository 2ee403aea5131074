"""Shrinks a failing script: removes all events that are not needed for the violation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.scenarios.catalog import script_of
from tests.simulation.seeds import run_scripts

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.run import Result
    from tests.simulation.script import Event, Script


def kind_of(violation: str) -> str:
    """The kind of a violation: its text without names and numbers."""
    return " ".join(word for word in violation.split() if word.isalpha())[:60]


def shrink(seed: int | str, *, jobs: int, report: Callable[[str], None] = lambda _: None) -> tuple[Script, Result]:
    """Remove events, half of them at first, as long as the same kind of violation occurs."""
    script = script_of(seed)
    (failed,) = run_scripts([(seed, script)], jobs=1, keep_log=True)
    if not failed.violations:
        raise ValueError(f"seed {seed} shows no violation")
    kind = kind_of(failed.violations[0])
    parts = max(2, (len(script.people) + len(script.faults)) // 2)
    size = parts
    while size >= 1:
        smaller = _without_some(seed, script, size, kind, jobs)
        if smaller is None:
            size //= 2
            continue
        script, failed = smaller
        report(f"{len(script.people)} user actions and {len(script.faults)} faults are left")
    return script, failed


def _without_some(seed: int | str, script: Script, size: int, kind: str, jobs: int) -> tuple[Script, Result] | None:
    events = [("faults", event) for event in script.faults] + [("people", event) for event in script.people]
    candidates = []
    for begin in range(0, len(events), size):
        gone = [id(event) for _, event in events[begin : begin + size]]
        candidates.append(replace(script, faults=_kept(script.faults, gone), people=_kept(script.people, gone)))
    for result in run_scripts([(seed, each) for each in candidates], jobs=jobs, keep_log=True):
        if any(kind_of(violation) == kind for violation in result.violations):
            assert result.script is not None
            return result.script, result
    return None


def _kept(events: tuple[Event, ...], gone: list[int]) -> tuple[Event, ...]:
    return tuple(event for event in events if id(event) not in gone)
