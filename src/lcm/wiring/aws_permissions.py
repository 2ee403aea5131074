"""Dry runs of the AWS calls by which a worker controller makes changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lcm.cloud.aws.iam import DryRunOutcome, DryRunResult, PermissionChecker
from lcm.cloud.types import (
    ATTEMPT_TAG,
    INSTALLATION_TAG,
    MANAGED_BY,
    MANAGED_BY_TAG,
    METADATA_HOP_LIMIT,
    WORKER_TAG,
    LaunchParameters,
    launch_token,
)
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from lcm.cloud.types import Instance, RegionLaunchSettings
    from lcm.model.worker.template import WorkerTemplate

__all__ = [
    "NONEXISTENT_INSTANCE",
    "DryRunOutcome",
    "DryRunResult",
    "LaunchCheck",
    "PermissionChecker",
    "check_instance_actions",
    "check_launches",
]

NONEXISTENT_INSTANCE: Final = "i-00000000000000000"
_CHECK_NAME: Final = "config-check"


@dataclass(frozen=True, slots=True)
class LaunchCheck:
    """The launch to check."""

    site: RegionLaunchSettings
    template: WorkerTemplate
    image_id: str


async def check_launches(
    permissions: PermissionChecker, launch: LaunchCheck
) -> AsyncIterator[tuple[str | None, DryRunResult]]:
    """Each subnet of the region, and whether a launch into it is allowed; None is the account's default subnet."""
    for subnet in launch.site.subnet_ids or (None,):
        yield subnet, await permissions.launch(_parameters(launch, subnet))


async def check_instance_actions(
    permissions: PermissionChecker, instances: Iterable[Instance]
) -> tuple[str, list[DryRunResult]]:
    """The instance that was used, and the results. Without a managed instance, a nonexistent one is used."""
    ours = [one.id for one in instances if one.state.live and one.tags.get(MANAGED_BY_TAG) == MANAGED_BY]
    chosen = min(ours, default=NONEXISTENT_INSTANCE)
    return chosen, list(await permissions.changes(chosen))


def _parameters(launch: LaunchCheck, subnet: str | None) -> LaunchParameters:
    """Parameters as for a worker, with all tags: policies may depend on them."""
    site, worker_id = launch.site, clock.new_id(_CHECK_NAME)
    return LaunchParameters(
        region=site.region,
        client_token=launch_token(worker_id, 1),
        image_id=launch.image_id,
        instance_type=launch.template.instance_type,
        subnet_id=subnet,
        security_group_ids=site.security_group_ids,
        key_name=site.key_name,
        tags={
            "Name": _CHECK_NAME,
            "template_name": launch.template.name,
            **site.default_tags,
            WORKER_TAG: worker_id,
            ATTEMPT_TAG: "1",
            MANAGED_BY_TAG: MANAGED_BY,
            INSTALLATION_TAG: _CHECK_NAME,
        },
        root_volume_gb=round(launch.template.capacity.storage_gb) or None,
        instance_profile=site.instance_profile,
        metadata_hop_limit=METADATA_HOP_LIMIT,
        nested_virtualization=launch.template.nested_virtualization,
    )
