"""Another order of the tests, the same for the same seed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

T = TypeVar("T")


def shuffled(items: Sequence[T], file_of: Callable[[T], Hashable], seed: int) -> list[T]:
    """Shuffle files, and the tests of each file. The tests of a file stay together: they share servers."""
    order = random.Random(seed)
    files: dict[Hashable, list[T]] = {}
    for item in items:
        files.setdefault(file_of(item), []).append(item)
    groups = list(files.values())
    order.shuffle(groups)
    for group in groups:
        order.shuffle(group)
    return [item for group in groups for item in group]
