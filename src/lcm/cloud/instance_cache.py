"""What has been seen of a region's instances, by whichever look, and what may be concluded from not seeing one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lcm.cloud.types import InstanceState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lcm.cloud.types import Instance, Sweep

# So long after a launch or import a provider may still not show an instance that exists.
VISIBILITY_GRACE_SECONDS: Final = 300.0
_GONE_RETENTION_SECONDS: Final = 86400.0


class _CachedInstance(NamedTuple):
    instance: Instance
    began_at: float


class _Absence(NamedTuple):
    """A complete sweep without the instance, and a look by id after it that did not find it either."""

    sweep_began_at: float
    asked_at: float


class InstanceLookup(NamedTuple):
    """What a look found of an instance, and when it began."""

    instance: Instance | None
    began_at: float


class InstanceCache:
    """A memory of looks. A later look counts more than an earlier one, in whatever order their answers arrive."""

    def __init__(self) -> None:
        self.latest: Sweep | None = None
        self.latest_complete: Sweep | None = None
        self._complete_since = 0.0
        self._seen: dict[str, _CachedInstance] = {}
        self._absent: dict[str, _Absence] = {}
        self._ended: dict[str, float] = {}
        self._answers: dict[str, InstanceLookup] = {}

    def instance(self, instance_id: str) -> Instance | None:
        """As it was last seen."""
        sighting = self._seen.get(instance_id)
        return None if sighting is None else sighting.instance

    def settled_since(self, instance_id: str, moment: float) -> bool:
        """Whether a look that began then or later showed it at rest."""
        sighting = self._seen.get(instance_id)
        return sighting is not None and sighting.began_at >= moment and not sighting.instance.state.in_transition

    def answer(self, instance_id: str, not_before: float) -> InstanceLookup | None:
        """What a complete look by id found that began at that moment or later, within this sweep's time."""
        answer = self._answers.get(instance_id)
        return answer if answer is not None and answer.began_at >= not_before else None

    def last_lookup(self, instance_id: str) -> InstanceLookup | None:
        """The latest look that showed it or, asked by its id, did not find it; None: nobody has looked for it yet.

        A sweep that does not show it is no such look: it may only lack the tags that sweeps ask for.
        """
        looks: list[InstanceLookup] = []
        if (answer := self._answers.get(instance_id)) is not None:
            looks.append(answer)
        if (absence := self._absent.get(instance_id)) is not None:
            looks.append(InstanceLookup(None, absence.asked_at))
        if (sighting := self._seen.get(instance_id)) is not None:
            looks.append(InstanceLookup(sighting.instance, sighting.began_at))
        # Of two that began at one moment, the one that shows it counts: not to be seen is less than to be seen.
        return max(looks, key=lambda look: (look.began_at, look.instance is not None), default=None)

    def record_sweep(self, sweep: Sweep, now: float) -> Sequence[Instance]:
        """Remember a sweep that ended now; what is new or changed in it. An incomplete one tells only what it shows."""
        self.latest = sweep
        self._answers.clear()
        changed = self._see(sweep)
        if sweep.complete:
            self.latest_complete = sweep
            self._complete_since = now
            self._forget(sweep, now)
        return changed

    def record_description(self, asked: Collection[str], look: Sweep) -> Sequence[Instance]:
        """Remember a look by id; what is new or changed in it."""
        changed = self._see(look)
        if look.complete:
            for instance_id in asked:
                instance = look.instances.get(instance_id)
                self._answers[instance_id] = InstanceLookup(instance, look.began_at)
                if instance is None:
                    self._miss(instance_id, look)
        return changed

    def is_gone(self, instance_id: str, since: float, now: float) -> bool:
        """Whether it is certainly gone; anything less is only "not visible".

        Gone is what the provider called terminated, or what a complete sweep and then a look by its id did not show,
        both begun longer after `since`, the launch call or import by the boot-time clock, than a provider may lag.
        """
        if instance_id in self._ended:
            return True
        absence = self._absent.get(instance_id)
        if absence is None or now - since <= VISIBILITY_GRACE_SECONDS:
            return False
        return absence.sweep_began_at - since > VISIBILITY_GRACE_SECONDS

    def _see(self, look: Sweep) -> list[Instance]:
        changed = []
        for instance_id, instance in look.instances.items():
            known = self._seen.get(instance_id)
            if known is not None and known.began_at > look.began_at:
                continue
            self._seen[instance_id] = _CachedInstance(instance, look.began_at)
            absence = self._absent.get(instance_id)
            if absence is not None and absence.sweep_began_at <= look.began_at:
                del self._absent[instance_id]
            if instance.state is InstanceState.TERMINATED:
                self._ended.setdefault(instance_id, look.began_at)
            elif instance_id in self._ended:
                # It cannot be, but what is seen counts more than what cannot be.
                del self._ended[instance_id]
            if known is None or (known.instance is not instance and known.instance != instance):
                changed.append(instance)
        return changed

    def _miss(self, instance_id: str, look: Sweep) -> None:
        seen = self._seen.get(instance_id)
        if seen is not None:
            if seen.began_at > look.began_at:
                return
            del self._seen[instance_id]
        sweep = self.latest_complete
        # The look must have followed the sweep: two glances at one moment of a lagging provider are one glance.
        if sweep is not None and look.began_at >= self._complete_since and instance_id not in sweep.instances:
            self._absent[instance_id] = _Absence(sweep.began_at, look.began_at)

    def _forget(self, sweep: Sweep, now: float) -> None:
        """Let go of what ended and is shown no more, so that the memory does not grow with the years."""
        over = [i for i in self._ended if i not in sweep.instances]
        for instance_id in over:
            self._seen.pop(instance_id, None)
            if now - self._ended[instance_id] > _GONE_RETENTION_SECONDS:
                del self._ended[instance_id]
        old = now - _GONE_RETENTION_SECONDS
        self._absent = {i: absence for i, absence in self._absent.items() if absence.asked_at > old}
