"""What a launch is made of: template, region, image and tags, resolved once per attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lcm.client.errors import NotFoundError
from lcm.cloud.errors import CloudError, CloudRefusedError
from lcm.cloud.types import (
    ATTEMPT_TAG,
    INSTALLATION_TAG,
    MANAGED_BY,
    MANAGED_BY_TAG,
    WORKER_TAG,
    LaunchParameters,
    launch_token,
)
from lcm.controllers.worker.observe.observation import LaunchedInstances, LaunchResolution

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lcm.client.resources.internal import InternalApi
    from lcm.cloud.spi import CloudProviderSPI
    from lcm.cloud.types import RegionLaunchSettings
    from lcm.model.worker.record import Worker
    from lcm.model.worker.template import WorkerTemplate

_RESERVED_TAG_PREFIXES = ("lcm:", "aws:")


@dataclass(frozen=True, slots=True)
class ImageFilter:
    """Which images are launched. A template may have a pattern of its own; the owners never change."""

    name_pattern: str = "cml-*"
    owners: tuple[str, ...] = ("self",)


class LaunchResolver:
    """Resolves launches and finds what was launched before."""

    def __init__(
        self,
        internal: InternalApi,
        cloud: CloudProviderSPI,
        sites: Mapping[str, RegionLaunchSettings],
        images: ImageFilter,
    ) -> None:
        self._internal = internal
        self._cloud = cloud
        self._sites = sites
        self._images = images
        self._installation: str | None = None

    async def installation(self) -> str:
        """The id of our installation: only its instances are ours."""
        if self._installation is None:
            self._installation = (await self._internal.installation()).installation_id
        return self._installation

    async def traces(self, worker: Worker) -> LaunchedInstances:
        """All instances that this installation launched for a worker."""
        ours = await self.installation()
        if worker.aws_region not in self._sites:
            return LaunchedInstances(complete=True)  # nothing can have been launched where we have no access
        look = await self._cloud.find_launched(worker.aws_region, worker.id)
        found = tuple(instance for instance in look.instances.values() if instance.tags.get(INSTALLATION_TAG) == ours)
        return LaunchedInstances(look.complete, found, look.began_at, look.trouble)

    async def resolve(self, worker: Worker, attempt: int, discovery_tag: tuple[str, str]) -> LaunchResolution:
        """The parameters of an attempt, or what stands in the way."""
        site = self._sites.get(worker.aws_region)
        if site is None:
            known = ", ".join(sorted(self._sites))
            trouble = f"region {worker.aws_region} is not configured here; configured are {known}"
            return LaunchResolution(trouble=trouble, lasting=True)
        if worker.template_name is None:
            return LaunchResolution(trouble="it has no template to launch from", lasting=True)
        try:
            template = await self._internal.template(worker.template_name)
        except NotFoundError:
            return LaunchResolution(trouble=f"there is no template {worker.template_name}", lasting=True)
        pattern = template.ami_name_pattern or self._images.name_pattern
        try:
            images = await self._cloud.find_images(worker.aws_region, pattern, self._images.owners)
        except CloudError as error:
            return LaunchResolution(
                trouble=f"images cannot be listed: {error}", lasting=isinstance(error, CloudRefusedError)
            )
        if not images:
            owners = ", ".join(self._images.owners)
            trouble = f"no image named {pattern!r} of owner {owners} is available in {worker.aws_region}"
            return LaunchResolution(trouble=trouble, lasting=True)
        tags = await self._tags(worker, attempt, site, discovery_tag)
        return LaunchResolution(_launch_parameters(worker, attempt, template, site, images[0].id, tags))

    async def _tags(
        self, worker: Worker, attempt: int, site: RegionLaunchSettings, discovery_tag: tuple[str, str]
    ) -> dict[str, str]:
        own = {key: value for key, value in worker.tags.items() if not key.lower().startswith(_RESERVED_TAG_PREFIXES)}
        return {
            "Name": worker.name,
            "template_name": worker.template_name or "",
            discovery_tag[0]: discovery_tag[1],
            **site.default_tags,
            **own,
            WORKER_TAG: worker.id,
            ATTEMPT_TAG: str(attempt),
            MANAGED_BY_TAG: MANAGED_BY,
            INSTALLATION_TAG: await self.installation(),
        }


def _launch_parameters(
    worker: Worker,
    attempt: int,
    template: WorkerTemplate,
    site: RegionLaunchSettings,
    image_id: str,
    tags: dict[str, str],
) -> LaunchParameters:
    return LaunchParameters(
        region=worker.aws_region,
        client_token=launch_token(worker.id, attempt),
        image_id=image_id,
        instance_type=template.instance_type,
        subnet_id=_subnet(site.subnet_ids, attempt),
        security_group_ids=site.security_group_ids,
        key_name=site.key_name,
        tags=tags,
        root_volume_gb=round(template.capacity.storage_gb) or None,
        instance_profile=site.instance_profile,
    )


def _subnet(subnets: Sequence[str], attempt: int) -> str | None:
    """Another attempt may find room in another subnet; a replay of the same one never changes it."""
    return subnets[(attempt - 1) % len(subnets)] if subnets else None
