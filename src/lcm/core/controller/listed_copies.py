"""Copies of resources from the last list. A pass uses one instead of reading the resource, if it is still current.

A pass that changed nothing leaves the copy to the next one, unless a change was reported meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


class ListedCopies(Generic[T]):
    """The copies, and what changed while a list is in flight."""

    def __init__(self) -> None:
        self._copies: dict[str, T] = {}
        self._taken: set[str] = set()  # by passes in progress, with copies that are still current
        self._changed: set[str] | None = None  # while a list is in flight: what changed since it started

    def begin_list(self) -> None:
        """A list is requested: what changes from now on may be outdated in it."""
        self._changed = set()

    def end_list(self) -> None:
        """The list has arrived or failed."""
        self._changed = None

    def replace(self, listed: Mapping[str, T]) -> None:
        """Keep the copies of a list that has arrived, without those that changed meanwhile."""
        outdated = self._changed or ()
        self._copies = {key: resource for key, resource in listed.items() if key not in outdated}

    def invalidate(self, key: str) -> None:
        """Do not use the copy of this resource, nor that of a list in flight: it may be outdated."""
        self._copies.pop(key, None)
        self._taken.discard(key)
        if self._changed is not None:
            self._changed.add(key)

    def take(self, key: str) -> T | None:
        """The copy of a resource, for one pass."""
        resource = self._copies.pop(key, None)
        if resource is not None:
            self._taken.add(key)
        return resource

    def put_back(self, key: str, resource: T) -> None:
        """Keep a copy for the pass that continues with it."""
        self._copies[key] = resource

    def leave(self, key: str, resource: T) -> None:
        """A pass that changed nothing leaves the copy that it took, unless it is outdated by now."""
        if key in self._taken:
            self._taken.discard(key)
            self._copies.setdefault(key, resource)  # a newer list may have arrived

    def clear(self) -> None:
        """Drop all copies."""
        self._copies.clear()
        self._taken.clear()
