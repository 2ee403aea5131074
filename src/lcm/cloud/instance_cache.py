"""The last known state of a region's instances, and what may be concluded when one is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lcm.cloud.types import InstanceState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lcm.cloud.types import Instance, Sweep

# For so long after a launch or import, a provider may not list an instance that exists.
VISIBILITY_GRACE_SECONDS: Final = 300.0
_GONE_RETENTION_SECONDS: Final = 86400.0


class _CachedInstance(NamedTuple):
    instance: Instance
    began_at: float


class _Absence(NamedTuple):
    """A complete sweep without the instance, and a later lookup by id that did not find it either."""

    sweep_began_at: float
    asked_at: float


class InstanceLookup(NamedTuple):
    """The result of a call for one instance, and when the call began."""

    instance: Instance | None
    began_at: float


class InstanceCache:
    """The results of all calls. A later call overrides an earlier one, in whatever order their responses arrive."""

    def __init__(self) -> None:
        self.latest: Sweep | None = None
        self.latest_complete: Sweep | None = None
        self._complete_since = 0.0
        self._seen: dict[str, _CachedInstance] = {}
        self._absent: dict[str, _Absence] = {}
        self._ended: dict[str, float] = {}
        self._lookups: dict[str, InstanceLookup] = {}

    def instance(self, instance_id: str) -> Instance | None:
        """Return the instance as last seen."""
        cached = self._seen.get(instance_id)
        return None if cached is None else cached.instance

    def settled_since(self, instance_id: str, moment: float) -> bool:
        """Whether a call that began at this time or later showed the instance in no transition."""
        cached = self._seen.get(instance_id)
        return cached is not None and cached.began_at >= moment and not cached.instance.state.in_transition

    def lookup(self, instance_id: str, not_before: float) -> InstanceLookup | None:
        """Return the result of a complete lookup by id that began at this time or later, since the last sweep."""
        lookup = self._lookups.get(instance_id)
        return lookup if lookup is not None and lookup.began_at >= not_before else None

    def last_lookup(self, instance_id: str) -> InstanceLookup | None:
        """Return the latest call that found the instance, or that asked for its id in vain; None if there is none.

        A sweep without the instance does not count: the instance may only lack the tags that sweeps select by.
        """
        lookups: list[InstanceLookup] = []
        if (lookup := self._lookups.get(instance_id)) is not None:
            lookups.append(lookup)
        if (absence := self._absent.get(instance_id)) is not None:
            lookups.append(InstanceLookup(None, absence.asked_at))
        if (cached := self._seen.get(instance_id)) is not None:
            lookups.append(InstanceLookup(cached.instance, cached.began_at))
        # Of two calls that began at the same time, the one that found the instance counts.
        return max(lookups, key=lambda result: (result.began_at, result.instance is not None), default=None)

    def record_sweep(self, sweep: Sweep, now: float) -> Sequence[Instance]:
        """Store a sweep that ended now, and return the new and changed instances.

        An incomplete sweep says nothing about instances that it does not contain.
        """
        self.latest = sweep
        self._lookups.clear()
        changed = self._see(sweep)
        if sweep.complete:
            self.latest_complete = sweep
            self._complete_since = now
            self._forget(sweep, now)
        return changed

    def record_description(self, asked: Collection[str], result: Sweep) -> Sequence[Instance]:
        """Store the result of a lookup by id, and return the new and changed instances."""
        changed = self._see(result)
        if result.complete:
            for instance_id in asked:
                instance = result.instances.get(instance_id)
                self._lookups[instance_id] = InstanceLookup(instance, result.began_at)
                if instance is None:
                    self._miss(instance_id, result)
        return changed

    def is_gone(self, instance_id: str, since: float, now: float) -> bool:
        """Whether the instance is certainly gone; anything less is only "not visible".

        An instance is gone if the provider reported it as terminated, or if it was missing in a complete sweep and then
        in a lookup by id, both begun later after `since` (the launch call or import) than a provider may lag.
        """
        if instance_id in self._ended:
            return True
        absence = self._absent.get(instance_id)
        if absence is None or now - since <= VISIBILITY_GRACE_SECONDS:
            return False
        return absence.sweep_began_at - since > VISIBILITY_GRACE_SECONDS

    def _see(self, result: Sweep) -> list[Instance]:
        changed = []
        for instance_id, instance in result.instances.items():
            known = self._seen.get(instance_id)
            if known is not None and known.began_at > result.began_at:
                continue
            self._seen[instance_id] = _CachedInstance(instance, result.began_at)
            absence = self._absent.get(instance_id)
            if absence is not None and absence.sweep_began_at <= result.began_at:
                del self._absent[instance_id]
            if instance.state is InstanceState.TERMINATED:
                self._ended.setdefault(instance_id, result.began_at)
            elif instance_id in self._ended:
                # A terminated instance should not come back, but an observation counts more than that assumption.
                del self._ended[instance_id]
            if known is None or (known.instance is not instance and known.instance != instance):
                changed.append(instance)
        return changed

    def _miss(self, instance_id: str, result: Sweep) -> None:
        seen = self._seen.get(instance_id)
        if seen is not None:
            if seen.began_at > result.began_at:
                return
            del self._seen[instance_id]
        sweep = self.latest_complete
        # The lookup must begin after the sweep: two reads of the same moment of a lagging provider are one read.
        if sweep is not None and result.began_at >= self._complete_since and instance_id not in sweep.instances:
            self._absent[instance_id] = _Absence(sweep.began_at, result.began_at)

    def _forget(self, sweep: Sweep, now: float) -> None:
        """Drop terminated instances that are no longer listed, so that the cache does not grow without bound."""
        over = [i for i in self._ended if i not in sweep.instances]
        for instance_id in over:
            self._seen.pop(instance_id, None)
            if now - self._ended[instance_id] > _GONE_RETENTION_SECONDS:
                del self._ended[instance_id]
        old = now - _GONE_RETENTION_SECONDS
        self._absent = {i: absence for i, absence in self._absent.items() if absence.asked_at > old}
