"""Workers that have been running for hours, with their instances: created at once instead of launched one by one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lcm.cloud.types import (
    ATTEMPT_TAG,
    INSTALLATION_TAG,
    MANAGED_BY,
    MANAGED_BY_TAG,
    WORKER_TAG,
    InstanceState,
    LaunchParameters,
    launch_token,
)
from lcm.core import clock
from lcm.model.access import Role
from lcm.model.worker.record import Worker
from lcm.model.worker.status import WorkerStatus
from tests.support.virtual.control_plane import SYSTEM

if TYPE_CHECKING:
    from lcm.cloud.simulated.machine import Machine
    from lcm.control_plane.records.unit_of_work import Transaction
    from tests.support.virtual.fleet import Fleet

_LONG_AGO = timedelta(hours=2)


def vanish(fleet: Fleet, worker: Worker) -> Machine:
    """Remove the instance from EC2. It can be added again."""
    assert worker.instance_id is not None
    place = fleet.world.regions[worker.aws_region]
    machine = place.machines.pop(worker.instance_id)
    place._in_order.remove(machine)
    return machine


def launched_by_hand(
    fleet: Fleet, name: str, tags: dict[str, str], *, instance_type: str = "t3.large", region: str = "eu-west-1"
) -> Machine:
    """An instance that was launched outside LCM long ago."""
    place = fleet.world.regions[region]
    image = next(iter(place.images))
    parameters = LaunchParameters(region, name, image, instance_type, "subnet-a", (), None, {"Name": name, **tags})
    machine = place.machines[place.run_instance(parameters, fleet.world.time()).id]
    machine.visible_at = 0.0
    machine.enter(InstanceState.RUNNING, fleet.world.time(), None)
    return machine


async def standing_workers(
    fleet: Fleet, count: int, *, region: str = "eu-west-1", ghosts: int = 0, first: int = 0
) -> list[Worker]:
    """That many workers, RUNNING for hours, numbered from `first`; the last `ghosts` have no instance any more."""
    place = fleet.world.regions[region]
    image = next(iter(place.images))
    response = await fleet.plane.ask("GET", "/api/internal/installation", role=Role.CONTROLLER)
    installation = response.json()["installation_id"]
    since = clock.now() - _LONG_AGO
    made: list[Worker] = []
    for number in range(first, first + count):
        worker_id = f"w-standing{number:05d}"
        parameters = LaunchParameters(
            region=region,
            client_token=launch_token(worker_id, 1),
            image_id=image,
            instance_type="t3.small",
            subnet_id="subnet-a",
            security_group_ids=(),
            key_name=None,
            tags={
                WORKER_TAG: worker_id,
                ATTEMPT_TAG: "1",
                MANAGED_BY_TAG: MANAGED_BY,
                INSTALLATION_TAG: installation,
                "cml-managed": "true",
            },
        )
        launched = place.run_instance(parameters, fleet.world.time())
        machine = place.machines[launched.id]
        machine.visible_at = 0.0
        machine.enter(InstanceState.RUNNING, fleet.world.time() - _LONG_AGO.total_seconds(), None)
        machine.launched_at -= _LONG_AGO.total_seconds()
        made.append(
            Worker(
                id=worker_id,
                name=f"standing-{number:05d}",
                template_name="small",
                aws_region=region,
                aws_account_id=place.account_id,
                status=WorkerStatus.RUNNING,
                status_since=since,
                instance_id=launched.id,
                instance_since=since,
                instance_type="t3.small",
                ami_id=image,
                public_ip=machine.public_ip,
                private_ip=machine.private_ip,
                launch_attempt=1,
                idle_detection_enabled=False,
                created_at=since,
                updated_at=since,
            )
        )
        if number >= first + count - ghosts:
            vanish(fleet, made[-1])

    for begin in range(0, count, 100):
        some = made[begin : begin + 100]

        async def save(tx: Transaction, some: list[Worker] = some) -> None:
            for worker in some:
                tx.save_worker(worker, "created")

        await fleet.plane.services.context.unit_of_work.run(SYSTEM, save)
    return made
