"""Series of measurements over a long run, and whether each is bounded.

The first part of a run fills caches, pools and retention periods. A line through the rest must be almost level.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean, linear_regression
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WARM_UP = 0.4
"""The share of a run that is not judged."""
MIN_SAMPLES = 5
_HOUR = 3600.0
_SWING_SAMPLES = 6


@dataclass(slots=True)
class Series:
    """One quantity over time. It may grow by `slack`, or by a `share` of its mean, from the warm-up to the end.

    A quantity that `swings`, as pools fill and empty, is judged by its lowest values: what leaks never comes back.
    """

    name: str
    slack: float
    share: float = 0.1
    judged: bool = True
    swings: bool = False
    points: list[tuple[float, float]] = field(default_factory=list)

    def add(self, seconds: float, value: float) -> None:
        """A measurement, so many seconds after the beginning."""
        self.points.append((seconds, value))

    @property
    def settled(self) -> Sequence[tuple[float, float]]:
        """The measurements after the warm-up."""
        end = self.points[-1][0] if self.points else 0.0
        settled = [point for point in self.points if point[0] >= WARM_UP * end]
        if not self.swings:
            return settled
        spans = [settled[begin : begin + _SWING_SAMPLES] for begin in range(0, len(settled), _SWING_SAMPLES)]
        return [min(span, key=lambda point: point[1]) for span in spans]

    @property
    def slope(self) -> float:
        """The growth per second after the warm-up."""
        settled = self.settled
        return linear_regression(*zip(*settled, strict=True)).slope if len(settled) > 1 else 0.0

    @property
    def growth(self) -> float:
        """The growth from the end of the warm-up to the end of the run."""
        settled = self.settled
        return self.slope * (settled[-1][0] - settled[0][0]) if settled else 0.0

    @property
    def grows(self) -> bool:
        """Whether it grows without bound, as far as this run shows."""
        return self.judged and self.growth > max(self.slack, self.share * fmean(value for _, value in self.settled))

    @property
    def verdict(self) -> str:
        """For the table."""
        if not self.judged:
            return "kept by retention"
        if len(self.settled) < MIN_SAMPLES:
            return "too few samples"
        return "GROWS" if self.grows else "bounded"


def unbounded(series: Iterable[Series]) -> list[str]:
    """The names of all series that grow, or that were not measured often enough to tell."""
    return [each.name for each in series if each.judged and each.verdict != "bounded"]


def table(series: Sequence[Series]) -> str:
    """One line per series: its first and last value, its growth per hour, and the verdict."""
    rows = [("what", "first", "last", "growth per hour", "verdict")]
    for each in series:
        first, last = (each.points[0][1], each.points[-1][1]) if each.points else (0.0, 0.0)
        rows.append((each.name, f"{first:,.0f}", f"{last:,.0f}", f"{each.slope * _HOUR:+,.2f}", each.verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if number in (0, 4) else text.rjust(width)
            for number, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
