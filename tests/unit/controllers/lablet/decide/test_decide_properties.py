"""Invariants of all decisions, for arbitrary observations."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from lcm.controllers.common.actions import ActionKind
from lcm.controllers.lablet.decide import decide
from lcm.controllers.lablet.decide.decision import ChangeLab, ImportLab, LabOperation, ReleaseReservation, WriteStatus
from lcm.controllers.lablet.decide.predicates import is_reachable, worker_lost_reason
from lcm.controllers.lablet.deps import LabletPolicy
from lcm.controllers.lablet.observation import LabObservation, Observation, ResolvedTopology, Visibility
from lcm.model.lablet.status import FINAL_LABLET_STATUSES, LabletStatus, LostWorkerPolicy, check_lablet_transition
from lcm.model.worker.conditions import ConditionStatus
from lcm.model.worker.record import Hold
from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.support.records.workers import NOW
from tests.unit.controllers.lablet.builders import LAB, a_lablet, a_ready_worker, ago, cml_ready_condition

if TYPE_CHECKING:
    from lcm.model.lablet.record import Lablet

MOMENTS = st.sampled_from([-10_000.0, -1000, -100, -1, 0, 1, 100, 10_000]).map(lambda s: NOW + timedelta(seconds=s))
PAST = st.sampled_from([ago(0), ago(100), ago(901), ago(2000)])
WORKERS = st.none() | st.builds(
    a_ready_worker,
    status=st.sampled_from(WorkerStatus),
    desired_status=st.sampled_from(DesiredStatus),
    conditions=st.sampled_from(ConditionStatus).map(cml_ready_condition) | st.just(()),
    instance_id=st.sampled_from([None, "i-1", "i-2"]),
    last_resumed_at=st.none() | PAST,
    hold=st.none() | st.just(Hold(reason="later", by="anna", since=NOW)),
)
LABLETS = st.builds(
    a_lablet,
    st.sampled_from(LabletStatus),
    wanted=st.booleans(),
    ending=st.none() | st.sampled_from(sorted(FINAL_LABLET_STATUSES)),
    lab_id=st.none() | st.just(LAB),
    instance_id=st.none() | st.just("i-1"),
    lab_started_at=st.none() | PAST,
    status_since=PAST,
    running_since=st.none() | PAST,
    ends_at=st.none() | MOMENTS,
    time_to_live_minutes=st.none() | st.just(5.0),
    lost_worker_policy=st.sampled_from(LostWorkerPolicy),
)
LABS = st.builds(
    LabObservation,
    visibility=st.sampled_from(Visibility),
    id=st.just(LAB),
    state=st.sampled_from(["DEFINED_ON_CORE", "STOPPED", "STARTED", "SOMETHING"]),
    nodes=st.none() | st.integers(0, 2),
    booted=st.none() | st.integers(0, 2),
    converged=st.none() | st.booleans(),
    error=st.sampled_from(["", "HTTP 502"]),
)
SEEN = st.builds(
    Observation,
    worker=WORKERS,
    lab=LABS,
    topology=st.none() | st.builds(ResolvedTopology, error=st.sampled_from(["", "none"]), is_permanent=st.booleans()),
    unready_since=st.none() | PAST,
    import_may_complete=st.booleans(),
    last_error=st.sampled_from(["", "no"]),
    recent_operations=st.frozensets(st.sampled_from([call.value for call in LabOperation])),
)
POLICIES = st.builds(LabletPolicy, workers_verified=st.booleans())


@given(lablet=LABLETS, observed=SEEN, policy=POLICIES)
@settings(max_examples=400, deadline=None)
def test_invariants_of_every_decision(lablet: Lablet, observed: Observation, policy: LabletPolicy) -> None:
    decision = decide(lablet, observed, policy, NOW)
    worker, lab = observed.worker, observed.lab
    status = lablet.status
    for action in decision.actions:
        if isinstance(action, WriteStatus | ReleaseReservation):
            check_lablet_transition(status, action.status)
            status = action.status
            assert action.reason
        if isinstance(action, ReleaseReservation) and not lablet.wanted:
            assert action.status in FINAL_LABLET_STATUSES, "a lablet that is to end must not be scheduled again"
        if action.kind is ActionKind.WORLD:
            assert worker is not None
            assert not worker_lost_reason(lablet, worker)
            assert policy.workers_verified
            assert worker.ready or (lablet.status is LabletStatus.STOPPING and is_reachable(worker))
        if action.kind is not ActionKind.RECORD:
            assert worker is None or worker.hold is None
        if isinstance(action, ImportLab):
            assert lablet.status is LabletStatus.INSTANTIATING
            assert lab.visibility is Visibility.ABSENT
            assert lablet.lab_id is None
            assert not observed.import_may_complete
        if isinstance(action, ChangeLab):
            assert lab.visibility is Visibility.SEEN
            assert action.lab_id == lablet.lab_id, "only a recorded lab may be changed"
            if action.call in (LabOperation.STOP, LabOperation.WIPE, LabOperation.DELETE):
                assert lablet.status is LabletStatus.STOPPING
    assert decision.after is None or decision.after >= 0
    assert decision.rule
    assert decision.reason or lab.error == ""
