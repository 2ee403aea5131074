"""What the instance types of imported workers offer. EC2 may not say it at the import; then it is asked again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import structlog

from lcm.cloud.errors import CloudError
from lcm.model.worker.status import WorkerOrigin

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lcm.cloud.types import InstanceTypeInfo
    from lcm.model.worker.record import Worker

log = structlog.get_logger(__name__)


class DescribeInstanceTypes(Protocol):
    """Asks the provider what instance types offer."""

    async def __call__(self, region: str, names: Collection[str]) -> Mapping[str, InstanceTypeInfo]: ...


def is_incomplete(worker: Worker) -> bool:
    """Whether it was imported while EC2 did not say what its instance type offers."""
    return (
        worker.origin is WorkerOrigin.IMPORTED
        and worker.instance_cpu_cores is None
        and worker.instance_type is not None
        and worker.instance_id is not None
    )


async def describe_types(
    describe: DescribeInstanceTypes | None, region: str, names: set[str]
) -> Mapping[str, InstanceTypeInfo]:
    """What these instance types offer, as far as EC2 says it now. An error never stops an import."""
    named = sorted(names - {""})
    if not named or describe is None:
        return {}
    try:
        return await describe(region, named)
    except CloudError as error:
        log.warning("instance types cannot be described; the next scan asks again", region=region, error=str(error))
        return {}
