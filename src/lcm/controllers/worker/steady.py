"""Workers about which nothing is to be done: while nothing changes, the last decision stands.

In a fleet at rest almost every pass reads the same record and observes the same facts. Deciding is a pure function, so
only the time could change its result. It is therefore decided ahead once: if the decision at the end of a few cycles is
the same in every detail, it is the same until then. Deadlines pass once and in one direction.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Final
from zlib import crc32

from lcm.controllers.worker.observe.observation import CmlObservation, InstanceObservation, Observation
from lcm.core.controller.resources import Outcome
from lcm.model.calendar.schedule import next_boundary
from lcm.model.worker.conditions import ConditionType
from lcm.model.worker.status import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lcm.controllers.worker.decision import Decision
    from lcm.controllers.worker.deps import Policy
    from lcm.controllers.worker.observe.observation import HealthObservation
    from lcm.model.worker.record import Worker

CYCLES_AHEAD: Final = range(3, 7)
"""How many cycles ahead is decided; what comes and goes within that time would not be seen.

It depends on the worker, so that a fleet does not have to be decided about anew in a single cycle.
"""

# When something was observed is no fact about a running worker; that it was observed at all is.
_FACTS: Final = attrgetter(*({field.name for field in fields(Observation)} - {"instance", "cml", "health", "boottime"}))
_INSTANCE_FACTS: Final = attrgetter(*({field.name for field in fields(InstanceObservation)} - {"began_at"}))
_CML_FACTS: Final = attrgetter(*({field.name for field in fields(CmlObservation)} - {"queried_at"}))

_HEALTH: Final = frozenset({ConditionType.MAINTENANCE, ConditionType.IMPAIRED})


@dataclass(frozen=True, slots=True)
class SteadyDecision:
    """From what it was decided that nothing is to be done, and for which time."""

    worker: Worker
    observed: Observation
    policy: Policy
    since: datetime
    until: datetime

    def covers(self, worker: Worker, observed: Observation, policy: Policy, now: datetime) -> bool:
        """Whether a pass would decide the same now, and would foresee the same for the next one."""
        return (
            worker is self.worker
            and policy is self.policy
            and self.since <= now <= self.until
            and same_facts(worker, observed, self.observed)
        )


def same_facts(worker: Worker, one: Observation, other: Observation) -> bool:
    """Whether two observations of a worker differ in nothing but their times."""
    return (
        _same_cml(one.cml, other.cml)
        and _INSTANCE_FACTS(one.instance) == _INSTANCE_FACTS(other.instance)
        and (one.health == other.health or _no_news(worker, one.health, other.health))
        and _FACTS(one) == _FACTS(other)
    )


def _no_news(worker: Worker, *read: HealthObservation | None) -> bool:
    """Whether the health of an instance, read or not read yet, leaves everything as the record has it.

    The first read of a term says of almost all instances that nothing is announced. None is decided about for that.
    """
    recorded = (
        worker.maintenance is not None
        or worker.maintenance_restarts
        or not _HEALTH.isdisjoint(condition.type for condition in worker.conditions)
    )
    return not recorded and all(health is None or health.is_healthy for health in read)


def _same_cml(one: CmlObservation, other: CmlObservation) -> bool:
    if one is other:
        return True
    return (one.queried_at is None) == (other.queried_at is None) and _CML_FACTS(one) == _CML_FACTS(other)


def find_steady(
    worker: Worker,
    observed: Observation,
    policy: Policy,
    now: datetime,
    decided: Decision,
    decide: Callable[[Worker, Observation, Policy, datetime], Decision],
) -> SteadyDecision | None:
    """The decision as one that stands; None if something is to be done, or will be soon."""
    if (
        worker.status is not WorkerStatus.RUNNING
        or decided.outcome is not Outcome.SUCCESS
        or decided.actions
        or decided.held
        or decided.drift
    ):
        return None
    ahead = policy.check_interval * CYCLES_AHEAD[crc32(worker.id.encode()) % len(CYCLES_AHEAD)]
    boundary = next_boundary(worker, policy.schedules, now) if policy.schedules else None
    if boundary is not None and boundary <= now + timedelta(seconds=ahead):
        return None  # windows may close and open again within the time
    later = replace(observed, boottime=observed.boottime + ahead)
    if decide(worker, later, policy, now + timedelta(seconds=ahead)) != decided:
        return None
    return SteadyDecision(worker, observed, policy, now, now + timedelta(seconds=ahead - policy.check_interval))
