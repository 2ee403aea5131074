"""Resolves the parameters of a launch (template, region, image, tags), and finds earlier launches."""

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
    METADATA_HOP_LIMIT,
    WORKER_TAG,
    LaunchParameters,
    launch_token,
)
from lcm.controllers.worker.observe.observation import LaunchedInstances, LaunchResolution
from lcm.model.worker.conditions import TYPE_NOT_OFFERED

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
    """Which images may be launched. A template may override the name pattern, but not the owners."""

    name_pattern: str = "cml-*"
    owners: tuple[str, ...] = ("self",)


class LaunchResolver:
    """Resolves a launch once per attempt, and finds instances of earlier attempts."""

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
        self._templates: dict[str, tuple[int, WorkerTemplate]] = {}  # by worker, with the version that it was read with

    async def installation(self) -> str:
        """The id of this installation. Only instances with its tag are ours."""
        if self._installation is None:
            self._installation = (await self._internal.installation()).installation_id
        return self._installation

    async def launched_instances(self, worker: Worker) -> LaunchedInstances:
        """All instances that this installation launched for a worker."""
        installation_id = await self.installation()
        if worker.aws_region not in self._sites:
            return LaunchedInstances(complete=True)  # no launch is possible in a region without access
        search = await self._cloud.find_launched(worker.aws_region, worker.id)
        matches = tuple(
            instance for instance in search.instances.values() if instance.tags.get(INSTALLATION_TAG) == installation_id
        )
        return LaunchedInstances(search.complete, matches, search.began_at, search.error)

    def offer_template(self, worker: Worker, template: WorkerTemplate | None) -> None:
        """Use a template that was read together with this version of a worker. Each is used once: it may change."""
        if template is None:
            self._templates.pop(worker.id, None)
        else:
            self._templates[worker.id] = (worker.version, template)

    async def resolve(
        self,
        worker: Worker,
        attempt: int,
        discovery_tag: tuple[str, str],
        unsupported: Mapping[tuple[str, str | None], str],
    ) -> LaunchResolution:
        """The parameters of a launch attempt, or the error that prevents it.

        `unsupported` has EC2's message for each type and subnet whose zone does not offer the type.
        """
        site = self._sites.get(worker.aws_region)
        if site is None:
            configured = ", ".join(sorted(self._sites))
            message = f"region {worker.aws_region} is not configured here; configured regions: {configured}"
            return LaunchResolution(error=message, permanent=True)
        if worker.template_name is None:
            return LaunchResolution(error="the worker has no template to launch from", permanent=True)
        try:
            template = await self._template(worker, worker.template_name)
        except NotFoundError:
            return LaunchResolution(error=f"template {worker.template_name} does not exist", permanent=True)
        pattern = template.ami_name_pattern or self._images.name_pattern
        try:
            images = await self._cloud.find_images(worker.aws_region, pattern, self._images.owners)
        except CloudError as error:
            return LaunchResolution(
                error=f"images cannot be listed: {error}",
                permanent=isinstance(error, CloudRefusedError),
                condition_reason=error.condition_reason,
            )
        if not images:
            owners = ", ".join(self._images.owners)
            message = f"no image named {pattern!r} of owner {owners} is available in {worker.aws_region}"
            return LaunchResolution(error=message, permanent=True)
        refusals = {subnet: text for (kind, subnet), text in unsupported.items() if kind == template.instance_type}
        subnets = [subnet for subnet in _rotated(site.subnet_ids, attempt) if subnet not in refusals]
        if not subnets:
            listed = "; ".join(
                f"{subnet or 'default subnet'}: {text}" for subnet, text in sorted(refusals.items(), key=str)
            )
            message = f"no configured subnet in {worker.aws_region} offers {template.instance_type}: {listed}"
            return LaunchResolution(error=message, permanent=True, condition_reason=TYPE_NOT_OFFERED)
        tags = await self._tags(worker, attempt, site, discovery_tag)
        return LaunchResolution(_launch_parameters(worker, attempt, template, site, subnets[0], images[0].id, tags))

    async def _template(self, worker: Worker, name: str) -> WorkerTemplate:
        offered = self._templates.pop(worker.id, None)
        if offered is not None and offered[0] == worker.version:
            return offered[1]
        return await self._internal.template(name)

    async def _tags(
        self, worker: Worker, attempt: int, site: RegionLaunchSettings, discovery_tag: tuple[str, str]
    ) -> dict[str, str]:
        own_tags = {
            key: value for key, value in worker.tags.items() if not key.lower().startswith(_RESERVED_TAG_PREFIXES)
        }
        return {
            "Name": worker.name,
            "template_name": worker.template_name or "",
            discovery_tag[0]: discovery_tag[1],
            **site.default_tags,
            **own_tags,
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
    subnet_id: str | None,
    image_id: str,
    tags: dict[str, str],
) -> LaunchParameters:
    return LaunchParameters(
        region=worker.aws_region,
        client_token=launch_token(worker.id, attempt),
        image_id=image_id,
        instance_type=template.instance_type,
        subnet_id=subnet_id,
        security_group_ids=site.security_group_ids,
        key_name=site.key_name,
        tags=tags,
        root_volume_gb=round(template.capacity.storage_gb) or None,
        instance_profile=site.instance_profile,
        metadata_hop_limit=METADATA_HOP_LIMIT,
        nested_virtualization=template.nested_virtualization,
    )


def _rotated(subnets: Sequence[str], attempt: int) -> list[str | None]:
    """Each attempt begins with the next subnet, which may have capacity; a replay of an attempt keeps its subnet."""
    if not subnets:
        return [None]
    first = (attempt - 1) % len(subnets)
    return [*subnets[first:], *subnets[:first]]
