"""Launching: the stored parameters, put into one RunInstances that may be sent again, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lcm.cloud.aws.rows import instance_of, row_of
from lcm.cloud.errors import OutcomeUnknown, TokenSpent
from lcm.cloud.types import InstanceState

if TYPE_CHECKING:
    from lcm.cloud.aws.gateway import Gateway
    from lcm.cloud.aws.images import Images
    from lcm.cloud.types import Instance, LaunchParameters

OPERATION = "RunInstances"


class Launches:
    """Launches in one region."""

    def __init__(self, gateway: Gateway, images: Images) -> None:
        self._gateway = gateway
        self._images = images

    async def launch(self, parameters: LaunchParameters) -> Instance:
        """Send it once. The same parameters always make the same request, or EC2 would refuse the token."""
        request = await self.request(parameters)
        answer = await self._gateway.call_prepared(OPERATION, lambda: request, instances=1)
        assert answer is not None
        launched = answer.get("Instances", ())
        if len(launched) != 1:
            raise OutcomeUnknown(
                f"{OPERATION} in {parameters.region}: answered with {len(launched)} instances instead of one",
                operation=OPERATION,
            )
        instance = instance_of(row_of(launched[0]))
        if instance.state is InstanceState.TERMINATED:
            raise TokenSpent(
                f"{OPERATION} in {parameters.region}: token {parameters.client_token} launched {instance.id}, "
                "which has terminated",
                operation=OPERATION,
            )
        return instance

    async def request(self, parameters: LaunchParameters) -> dict[str, Any]:
        """What is sent for these parameters."""
        root_device = None
        if parameters.root_volume_gb is not None:
            root_device = await self._images.root_device(parameters.image_id)
        return run_request(parameters, root_device)


def run_request(parameters: LaunchParameters, root_device: str | None) -> dict[str, Any]:
    """The request, a function of its arguments alone."""
    tags = [{"Key": key, "Value": value} for key, value in sorted(parameters.tags.items())]
    request: dict[str, Any] = {
        "ImageId": parameters.image_id,
        "InstanceType": parameters.instance_type,
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": parameters.client_token,
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
    }
    if parameters.subnet_id is not None:
        request["SubnetId"] = parameters.subnet_id
    if parameters.security_group_ids:
        request["SecurityGroupIds"] = list(parameters.security_group_ids)
    if parameters.key_name is not None:
        request["KeyName"] = parameters.key_name
    if parameters.instance_profile is not None:
        kind = "Arn" if parameters.instance_profile.startswith("arn:") else "Name"
        request["IamInstanceProfile"] = {kind: parameters.instance_profile}
    if parameters.root_volume_gb is not None:
        assert root_device is not None
        volume = {"VolumeSize": parameters.root_volume_gb, "DeleteOnTermination": True}
        request["BlockDeviceMappings"] = [{"DeviceName": root_device, "Ebs": volume}]
    return request
