"""The last known state of a region's instances, and what may be concluded when one is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from lcm.cloud.types import InstanceState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lcm.cloud.types import Instance, Sweep

# For so long after a launch or import, a provider may not list an instance that exists.
VISIBILITY_GRACE_SECONDS: Final = 300.0
# An index of the provider may lose an instance for a moment: only an absence from so many sweeps, over so long, counts.
GONE_AFTER_SWEEPS: Final = 3
GONE_AFTER_SECONDS: Final = 300.0
_GONE_RETENTION_SECONDS: Final = 86400.0


class _CachedInstance(NamedTuple):
    instance: Instance
    began_at: float


class Absence(NamedTuple):
    """Complete sweeps without the instance, each followed by a lookup by id that did not find it either.

    `sweeps` are counted from `first_sweep_at`; the last one began at `last_sweep_at`, its lookup at `asked_at`.
    """

    first_sweep_at: float
    last_sweep_at: float
    asked_at: float
    sweeps: int = 1

    @property
    def seconds(self) -> float:
        """The time from the first sweep without the instance to the last."""
        return self.last_sweep_at - self.first_sweep_at

    def proves_gone(self, seconds: float) -> bool:
        """Whether the instance was missing often enough, for at least this long."""
        return self.sweeps >= GONE_AFTER_SWEEPS and self.seconds >= seconds


class InstanceLookup(NamedTuple):
    """The result of a call for one instance, and when the call began."""

    instance: Instance | None
    began_at: float


class InstanceCache:
    """The results of all calls. A later call overrides an earlier one, in whatever order their responses arrive.

    But a state from before the last start of an instance never overrides one from after it.
    """

    def __init__(self) -> None:
        self.latest: Sweep | None = None
        self.latest_complete: Sweep | None = None
        self._complete_since = 0.0
        self._seen: dict[str, _CachedInstance] = {}
        self._absent: dict[str, Absence] = {}
        self._absences_since = float("-inf")  # earlier sweeps prove no absence
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
        if not self._lookups and not self._absent:  # as after each sweep of a region in which nothing is missing
            seen = self._seen.get(instance_id)
            return None if seen is None else InstanceLookup(seen.instance, seen.began_at)
        lookups: list[InstanceLookup] = []
        if (lookup := self._lookups.get(instance_id)) is not None:
            lookups.append(lookup)
        if (absence := self._absent.get(instance_id)) is not None:
            lookups.append(InstanceLookup(None, absence.asked_at))
        if (cached := self._seen.get(instance_id)) is not None:
            lookups.append(InstanceLookup(cached.instance, cached.began_at))
        # Of two calls that began at the same time, the one that found the instance counts.
        return max(lookups, key=lambda result: (result.began_at, result.instance is not None), default=None)

    def with_last_starts(self, result: Sweep) -> Sweep:
        """Return the result without states from before the last start of an instance: those seen last stand for them.

        Pages may show old states after new ones. A start changes the launch time of an instance, so a state with an
        earlier launch time is old; a stopped one would look like a stop outside LCM.
        """
        outdated = {
            instance_id: known.instance
            for instance_id, instance in result.instances.items()
            if (known := self._seen.get(instance_id)) is not None
            and known.instance is not instance
            and instance.launched_at < known.instance.launched_at
        }
        return replace(result, instances={**result.instances, **outdated}) if outdated else result

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

    def is_gone(self, instance_id: str, since: float, now: float, seconds: float = GONE_AFTER_SECONDS) -> bool:
        """Whether the instance is certainly gone; anything less is only "not visible".

        An instance is gone if the provider reported it as terminated, or if at least three complete sweeps over this
        many seconds did not contain it, nor a lookup by id after each, the last one later after `since` (the launch
        call or import) than a provider may lag.
        """
        if instance_id in self._ended:
            return True
        absence = self.absence(instance_id, since, now)
        return absence is not None and absence.proves_gone(seconds)

    def absence(self, instance_id: str, since: float, now: float) -> Absence | None:
        """How long the instance has been missing; None if it is not, or so new that it may not be listed yet."""
        absence = self._absent.get(instance_id)
        if absence is None or now - since <= VISIBILITY_GRACE_SECONDS:
            return None
        return absence if absence.last_sweep_at - since > VISIBILITY_GRACE_SECONDS else None

    def restart_absences(self, now: float) -> None:
        """Count absences anew, from sweeps that begin now or later."""
        self._absent.clear()
        self._absences_since = now

    def _see(self, result: Sweep) -> list[Instance]:
        changed = []
        for instance_id, instance in result.instances.items():
            known, began_at = self._seen.get(instance_id), result.began_at
            if known is not None and known.began_at > began_at:
                if instance.launched_at <= known.instance.launched_at:
                    continue
                began_at = known.began_at  # the later call showed a state from before the last start
                self._lookups.pop(instance_id, None)
            self._seen[instance_id] = _CachedInstance(instance, began_at)
            absence = self._absent.get(instance_id)
            if absence is not None and absence.first_sweep_at <= result.began_at:
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
        if sweep is None or result.began_at < self._complete_since or instance_id in sweep.instances:
            return
        if sweep.began_at < self._absences_since:
            return
        before = self._absent.get(instance_id)
        if before is None:
            self._absent[instance_id] = Absence(sweep.began_at, sweep.began_at, result.began_at)
        else:
            more = sweep.began_at > before.last_sweep_at
            self._absent[instance_id] = Absence(
                before.first_sweep_at, sweep.began_at, result.began_at, before.sweeps + more
            )

    def _forget(self, sweep: Sweep, now: float) -> None:
        """Drop terminated instances that are no longer listed, so that the cache does not grow without bound."""
        over = [i for i in self._ended if i not in sweep.instances]
        for instance_id in over:
            self._seen.pop(instance_id, None)
            if now - self._ended[instance_id] > _GONE_RETENTION_SECONDS:
                del self._ended[instance_id]
        old = now - _GONE_RETENTION_SECONDS
        self._absent = {i: absence for i, absence in self._absent.items() if absence.asked_at > old}
