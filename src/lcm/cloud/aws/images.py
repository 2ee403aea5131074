"""Finds machine images by name and owner, and what instance types offer.

Anyone can publish an image under any name. So a search without an owner is rejected, and images of other owners are
left out even if the server returns them.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lcm.cloud.errors import InvalidCloudRequestError
from lcm.cloud.types import Image, InstanceTypeInfo
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lcm.cloud.aws.gateway import AwsGateway
    from lcm.cloud.aws.iam import AccountIdentity

DESCRIBE_IMAGES = "DescribeImages"
DESCRIBE_INSTANCE_TYPES = "DescribeInstanceTypes"
_TYPES_PER_CALL = 100
_NESTED_VIRTUALIZATION = "nested-virtualization"
_MIB_PER_GB = 1024
_PAGE_SIZE = 1000
_OWNER_ALIASES = frozenset({"amazon", "aws-marketplace"})


class ImageCatalog:
    """The images of one region."""

    def __init__(self, gateway: AwsGateway, identity: AccountIdentity) -> None:
        self._gateway = gateway
        self._identity = identity
        self._lock = asyncio.Lock()
        self._found: dict[tuple[str, tuple[str, ...]], tuple[float, tuple[Image, ...]]] = {}
        self._root_devices: dict[str, str] = {}

    async def find(self, name_pattern: str, owners: Sequence[str]) -> Sequence[Image]:
        """Return available images, newest first; what was found is cached for a while, that nothing was found is not.

        An image that is published because of "no image" must be found by the next retry.
        """
        if not owners:
            raise InvalidCloudRequestError(f"{DESCRIBE_IMAGES}: an owner is required", operation=DESCRIBE_IMAGES)
        key = (name_pattern, tuple(sorted(set(owners))))
        fresh = self._fresh(key)
        if fresh is not None:
            return fresh
        async with self._lock:
            # Another caller may have fetched it in the meantime.
            fresh = self._fresh(key)
            if fresh is not None:
                return fresh
            images = await self._fetch(*key)
            if images:
                self._found[key] = (clock.boottime(), images)
            return images

    def _fresh(self, key: tuple[str, tuple[str, ...]]) -> tuple[Image, ...] | None:
        at, images = self._found.get(key, (0.0, None))
        return images if clock.boottime() - at <= self._gateway.tuning.images_fresh_seconds else None

    async def root_device(self, image_id: str) -> str:
        """Return the name of an image's root device, which never changes."""
        if image_id not in self._root_devices:
            response = await self._gateway.call(DESCRIBE_IMAGES, {"ImageIds": [image_id]})
            device = next((image.get("RootDeviceName") for image in response.get("Images", ())), None)
            if not device:
                raise InvalidCloudRequestError(
                    f"{DESCRIBE_IMAGES}: {image_id} has no root device whose size could be set",
                    operation=DESCRIBE_IMAGES,
                )
            self._root_devices[image_id] = device
        return self._root_devices[image_id]

    async def _fetch(self, name_pattern: str, owners: tuple[str, ...]) -> tuple[Image, ...]:
        ours = await self._identity.account_id() if "self" in owners else ""
        allowed = {ours if owner == "self" else owner for owner in owners}
        request: dict[str, Any] = {
            "Owners": list(owners),
            "Filters": [{"Name": "name", "Values": [name_pattern]}, {"Name": "state", "Values": ["available"]}],
            "MaxResults": _PAGE_SIZE,
        }
        images: list[Image] = []
        while True:
            response = await self._gateway.call(DESCRIBE_IMAGES, request)
            images.extend(
                _image_from_description(image) for image in response.get("Images", ()) if _is_trusted(image, allowed)
            )
            if not response.get("NextToken"):
                break
            request = {**request, "NextToken": response["NextToken"]}
        return tuple(sorted(images, key=lambda image: (image.created_at, image.id), reverse=True))


def _is_trusted(image: Mapping[str, Any], allowed: set[str]) -> bool:
    if image.get("State", "available") != "available":
        return False
    alias = image.get("ImageOwnerAlias")
    return image.get("OwnerId") in allowed or (alias in _OWNER_ALIASES and alias in allowed)


def _image_from_description(image: Mapping[str, Any]) -> Image:
    created = datetime.fromisoformat(image["CreationDate"])
    return Image(
        id=image["ImageId"],
        name=image.get("Name", ""),
        owner_id=image["OwnerId"],
        created_at=created if created.tzinfo else created.replace(tzinfo=UTC),
    )


class InstanceTypeCatalog:
    """What instance types offer, which never changes: each is asked for once."""

    def __init__(self, gateway: AwsGateway) -> None:
        self._gateway = gateway
        self._known: dict[str, InstanceTypeInfo] = {}

    async def find(self, names: Collection[str]) -> Mapping[str, InstanceTypeInfo]:
        """Return those that EC2 knows. By filter: an unknown name is no error, and does not hide the others."""
        missing = sorted(set(names) - self._known.keys())
        for begin in range(0, len(missing), _TYPES_PER_CALL):
            by_name = {"Name": "instance-type", "Values": missing[begin : begin + _TYPES_PER_CALL]}
            await self._read({"Filters": [by_name]})
        return {name: self._known[name] for name in names if name in self._known}

    async def _read(self, parameters: Mapping[str, Any]) -> None:
        token: str | None = None
        while True:
            page = parameters if token is None else {**parameters, "NextToken": token}
            response = await self._gateway.call(DESCRIBE_INSTANCE_TYPES, page)
            for each in response.get("InstanceTypes", ()):
                found = _instance_type(each)
                self._known[found.name] = found
            token = response.get("NextToken")
            if not token:
                return


def _instance_type(described: Mapping[str, Any]) -> InstanceTypeInfo:
    return InstanceTypeInfo(
        str(described["InstanceType"]),
        int(described["VCpuInfo"]["DefaultVCpus"]),
        int(described["MemoryInfo"]["SizeInMiB"]) / _MIB_PER_GB,
        _NESTED_VIRTUALIZATION in described.get("ProcessorInfo", {}).get("SupportedFeatures", ()),
    )
