"""A running fleet of any size: matching worker records and machines in the simulated cloud.

Nothing about a worker contradicts its machine or its CML, so a controller that finds them has nothing to write.
"""

from __future__ import annotations

import ipaddress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from benchmarks.store import REGIONS
from lcm.cloud.simulated import SimulatedCloud, Timing
from lcm.cloud.simulated.machine import Machine
from lcm.cloud.simulated.monitoring import put_metrics
from lcm.cloud.simulated.world import ACCOUNT_ID, PUBLIC_NETWORK
from lcm.cloud.types import (
    ATTEMPT_TAG,
    INSTALLATION_TAG,
    MANAGED_BY,
    MANAGED_BY_TAG,
    WORKER_TAG,
    InstanceMetrics,
    InstanceState,
)
from lcm.cml.simulator.state.topology import NODE_DEFINITIONS
from lcm.cml.simulator.state.world import SimulatorSettings, find_version_profile
from lcm.control_plane.records.kinds import WORKERS, worker_fields, worker_unique_keys
from lcm.control_plane.store.port import Put
from lcm.core import clock
from lcm.model.worker.conditions import Condition, ConditionStatus, ConditionType
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus
from lcm.model.worker.template import Capacity

if TYPE_CHECKING:
    from datetime import datetime

INSTALLATION: Final = "benchmark"
CML_VERSION: Final = find_version_profile(SimulatorSettings.version).version
CML_DEFINITIONS: Final = tuple(sorted(NODE_DEFINITIONS))

_IMAGE: Final = "ami-0123456789abcdef0"
_TYPE: Final = "c5.12xlarge"
_AGE: Final = timedelta(days=1)
_SIZE: Final = Capacity(cpu_cores=48, memory_gb=96.0, storage_gb=512.0, max_nodes=200)
_PUBLIC: Final = ipaddress.ip_network(PUBLIC_NETWORK)
# Requests have no latency, as the time until they are sent is measured. Machines are fast for the same reason.
_TIMING: Final = Timing(pending=(1.0, 2.0), stopping=(1.0, 2.0), latency=(0.0, 0.0))
_HELD: Final = (
    (ConditionType.INSTANCE_READY, ConditionStatus.TRUE, "Running"),
    (ConditionType.CML_READY, ConditionStatus.TRUE, "Ready"),
    (ConditionType.LICENSED, ConditionStatus.FALSE, "NoToken"),
)


def worker_id(number: int) -> str:
    """The id of a worker."""
    return f"w-{number:012}"


def instance_id(number: int) -> str:
    """The id of a worker's machine."""
    return f"i-{number:017x}"


def record(number: int) -> Put:
    """A running worker as the control plane writes it."""
    now = clock.now()
    since = now - _AGE
    worker = Worker(
        id=worker_id(number),
        name=f"worker-{number:05}",
        template_name=("small", "medium", "large")[number % 3],
        aws_region=_region(number),
        aws_account_id=ACCOUNT_ID,
        status=WorkerStatus.RUNNING,
        status_since=since,
        conditions=tuple(_condition(*held, since) for held in _HELD),
        instance_id=instance_id(number),
        instance_since=since,
        instance_type=_TYPE,
        ami_id=_IMAGE,
        public_ip=_public_ip(number),
        private_ip=_private_ip(number),
        launch_attempt=1,
        tags={f"tag-{tag}": f"value {tag} of a worker" for tag in range(8)},
        # Idle checks are spread out, as in a fleet that has run for a while.
        last_idle_check_at=now - timedelta(seconds=number % 300),
        last_activity_at=now,
        last_resumed_at=since,
        capacity=_SIZE,
        cost_per_hour_usd=2.04,
        cml_version=CML_VERSION,
        node_definitions=CML_DEFINITIONS,
        created_at=since,
        updated_at=since,
    )
    body = worker.model_dump_json().encode()
    return Put(WORKERS, worker.id, body, None, worker_fields(worker), worker_unique_keys(worker))


def simulated_cloud(count: int) -> SimulatedCloud:
    """A cloud in which all machines run; their CloudWatch metrics are constant."""
    world = SimulatedCloud(timing=_TIMING, load=False)
    for name in REGIONS:
        world.add_region(name)
    now = clock.now()
    for number in range(count):
        place = world.regions[_region(number)]
        place.serials += 1
        place.add(_machine(number, place.serials, (now - _AGE).timestamp()))
        put_metrics(place, InstanceMetrics(instance_id(number), now, 12.5, 40.0, 20.0, 1e5, 2e5, 3e4, 4e4))
    world.addresses_assigned = count
    return world


def _machine(number: int, serial: int, since: float) -> Machine:
    return Machine(
        id=instance_id(number),
        serial=serial,
        instance_type=_TYPE,
        image_id=_IMAGE,
        subnet_id=None,
        tags={
            WORKER_TAG: worker_id(number),
            ATTEMPT_TAG: "1",
            MANAGED_BY_TAG: MANAGED_BY,
            INSTALLATION_TAG: INSTALLATION,
            "cml-managed": "true",
            "Name": f"worker-{number:05}",
            **{f"tag-{tag}": f"value {tag} of a worker" for tag in range(8)},
        },
        launched_at=since,
        visible_at=since,
        private_ip=_private_ip(number),
        public_ip=_public_ip(number),
        state=InstanceState.RUNNING,
    )


def _condition(kind: ConditionType, status: ConditionStatus, reason: str, since: datetime) -> Condition:
    return Condition(type=kind, status=status, reason=reason, message="", since=since)


def _region(number: int) -> str:
    return REGIONS[number % len(REGIONS)]


def _public_ip(number: int) -> str:
    return str(_PUBLIC[1 + number])


def _private_ip(number: int) -> str:
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
