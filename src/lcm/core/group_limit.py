"""A limit for keys of the same group: only so many are busy at once, and the others wait aside, in order."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from lcm.core.workqueue import Priority

K = TypeVar("K")


class GroupLimit(Generic[K]):
    """How many keys of each group are busy, and which wait aside until one of them is done.

    `group_of` is asked when a key is about to become busy. A group without a name has no limit.
    """

    def __init__(self, group_of: Callable[[K], str], limit: int) -> None:
        self._group_of = group_of
        self._limit = limit
        self._busy: dict[K, str] = {}
        self._counts: dict[str, int] = {}
        self._aside: dict[str, OrderedDict[K, tuple[float, Priority]]] = {}
        self._group_aside: dict[K, str] = {}

    def admit(self, key: K, since: float, priority: Priority) -> bool:
        """Whether the key may become busy; otherwise it waits aside."""
        group = self._group_of(key)
        if not group:
            return True
        count = self._counts.get(group, 0)
        if count >= self._limit:
            self._aside.setdefault(group, OrderedDict())[key] = (since, priority)
            self._group_aside[key] = group
            return False
        self._busy[key], self._counts[group] = group, count + 1
        return True

    def leave(self, key: K) -> tuple[K, float, Priority] | None:
        """The key is done. Returns one that waited aside for that: since when, and with which priority."""
        group = self._busy.pop(key, "")
        if not group:
            return None
        self._counts[group] -= 1
        if not self._counts[group]:
            del self._counts[group]
        aside = self._aside.get(group)
        if not aside:
            return None
        following, (since, priority) = aside.popitem(last=False)
        del self._group_aside[following]
        if not aside:
            del self._aside[group]
        return following, since, priority

    def waits_aside(self, key: K) -> bool:
        """Whether the key waits until another one of its group is done."""
        return key in self._group_aside

    def set_priority(self, key: K, priority: Priority) -> None:
        """Change the priority of a key that waits aside."""
        aside = self._aside[self._group_aside[key]]
        aside[key] = (aside[key][0], priority)

    def clear_waiting(self) -> None:
        """Drop all keys that wait aside; busy ones stay busy."""
        self._aside.clear()
        self._group_aside.clear()

    def group_of_busy(self, key: K) -> str:
        """The group under which a busy key was admitted."""
        return self._busy.get(key, "")
