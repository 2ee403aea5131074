"""Output of benchmark results."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def report(name: str, value: float, unit: str, *, aim: str = "", beside: str = "") -> None:
    """Print one line: name, value, unit, target, and a comparison."""
    number = f"{value:,.0f}" if value >= 1000 else f"{value:,.3g}"
    notes = "  ".join(note for note in (f"aim {aim}" if aim else "", beside) if note)
    print(f"{name:<58} {number:>12} {unit:<8} {notes}".rstrip(), flush=True)


def percentile(values: Sequence[float], share: float) -> float:
    """The percentile of the values."""
    return statistics.quantiles(values, n=100, method="inclusive")[round(share) - 1]
