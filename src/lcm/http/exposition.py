"""Metrics in Prometheus text format, rendered in pieces so that the event loop is never blocked for long."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client import CollectorRegistry

SAMPLES_PER_CHUNK: Final = 500
_HEADER_LINES: Final = 2  # what a family is, and of which type


class Row(NamedTuple):
    """One series of a large family: the values of its first labels, in their order."""

    suffix: str
    labels: tuple[str, ...]
    value: float


class LargeFamily(Metric):
    """A family with thousands of series, one or more for each worker.

    Its rows become text without an object for each sample: a scrape of 100,000 series takes a quarter of the time.
    """

    def __init__(
        self, name: str, documentation: str, kind: str, labels: Sequence[str], rows: Callable[[], Iterable[Row]]
    ) -> None:
        super().__init__(name, documentation, kind)
        self._labels = tuple(labels)
        # As other families have it, for those who list metrics before there is a series.
        self._labelnames = tuple(each for each in labels if each != "le")
        self._rows = rows

    @property
    def samples(self) -> list[Sample]:
        """Created only for those who read them: the renderer does not."""
        return [
            Sample(self.name + row.suffix, dict(zip(self._labels, row.labels, strict=False)), row.value)
            for row in self._rows()
        ]

    @samples.setter
    def samples(self, empty: list[Sample]) -> None:
        """The base class begins with an empty list."""

    def lines(self) -> Iterator[str]:
        """One line for each series."""
        names = self._labels
        sorted_by_name = [
            [(names[at] + '="', at) for at in sorted(range(count), key=names.__getitem__)]
            for count in range(len(names) + 1)
        ]
        name = self.name
        for suffix, labels, value in self._rows():
            pairs = '",'.join([begin + _escape(labels[at]) for begin, at in sorted_by_name[len(labels)]])
            number = f"{value}.0" if type(value) is int else floatToGoString(value)  # type: ignore[no-untyped-call]
            yield f'{name}{suffix}{{{pairs}"}} {number}\n'


def _escape(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return text


class _SingleFamilyCollector(Collector):
    """A single metric family, rendered like a whole registry."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


async def render_metrics(registry: CollectorRegistry) -> bytes:
    """A registry in Prometheus text format."""
    text = bytearray()
    for family in registry.collect():
        if isinstance(family, LargeFamily):
            await _render_large(family, text)
            continue
        for begin in range(0, max(1, len(family.samples)), SAMPLES_PER_CHUNK):
            piece = _render(family, family.samples[begin : begin + SAMPLES_PER_CHUNK])
            text += piece.split(b"\n", _HEADER_LINES)[-1] if begin else piece
            await asyncio.sleep(0)
    return bytes(text)


def _render(family: Metric, samples: list[Sample]) -> bytes:
    some = Metric(family.name, family.documentation, family.type, family.unit)
    some.samples = samples
    return generate_latest(_SingleFamilyCollector(some))


async def _render_large(family: LargeFamily, text: bytearray) -> None:
    text += _render(family, [])
    lines = family.lines()
    while some := list(islice(lines, SAMPLES_PER_CHUNK)):
        text += "".join(some).encode()
        await asyncio.sleep(0)
