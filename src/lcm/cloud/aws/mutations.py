"""Start, stop and terminate, many instances to a call.

What is asked for within a moment goes out together, and one instance that cannot be changed must not keep the others
from it: EC2 refuses a call as a whole, so a refused one is halved until the culprit stands alone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lcm.cloud.aws.rows import instance_from_row, parse_instance_state, row_from_description
from lcm.cloud.errors import (
    CloudError,
    CloudOutcomeUnknownError,
    CloudThrottledError,
    CloudUnreachableError,
    LaunchTokenSpentError,
)
from lcm.cloud.types import InstanceState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lcm.cloud.aws.gateway import AwsGateway, Response
    from lcm.cloud.aws.images import ImageCatalog
    from lcm.cloud.types import Instance, LaunchParameters


MAX_IDS_PER_CALL = 100

# Nothing is known of a single instance after these, so there is nothing to halve for.
_WHOLE_CALL_ERRORS = (CloudThrottledError, CloudUnreachableError, CloudOutcomeUnknownError)


@dataclass(slots=True)
class _PendingMutation:
    """One instance to be changed, and those who wait for it."""

    outcome: asyncio.Future[InstanceState] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    waiting: int = 0


class BatchedMutation:
    """One operation in one region. `answers` is the member of its reply that lists the instances."""

    def __init__(self, gateway: AwsGateway, operation: str, answers: str) -> None:
        self._gateway = gateway
        self._operation = operation
        self._answers = answers
        self._wishes: dict[str, _PendingMutation] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def ask(self, instance_id: str) -> InstanceState:
        """The state that the instance is in by the reply. Whoever gives up before it is sent has asked for nothing."""
        wish = self._wishes.setdefault(instance_id, _PendingMutation())
        self._set_timer()
        wish.waiting += 1
        try:
            return await asyncio.shield(wish.outcome)
        finally:
            wish.waiting -= 1

    def _set_timer(self) -> None:
        if len(self._wishes) >= MAX_IDS_PER_CALL:
            self._send_gathered()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._gateway.tuning.gather_seconds, self._send_gathered)

    def _send_gathered(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wishes, self._wishes = self._wishes, {}
        task = asyncio.get_running_loop().create_task(self._send(wishes))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, wishes: dict[str, _PendingMutation]) -> None:
        try:
            await self._halve(wishes, sorted(wishes))
        finally:
            for instance_id, wish in wishes.items():
                if not wish.outcome.done():
                    lost = CloudOutcomeUnknownError(
                        f"{self._operation} of {instance_id}: given up", operation=self._operation
                    )
                    _resolve(wish, lost)

    async def _halve(self, wishes: dict[str, _PendingMutation], ids: Sequence[str]) -> None:
        sent: list[str] = []

        def still_wanted() -> dict[str, list[str]] | None:
            sent[:] = [identifier for identifier in ids if wishes[identifier].waiting]
            return {"InstanceIds": sent} if sent else None

        try:
            answer = await self._gateway.call_prepared(self._operation, still_wanted, instances=len(ids))
        except CloudError as error:
            if len(sent) > 1 and not isinstance(error, _WHOLE_CALL_ERRORS):
                middle = len(sent) // 2
                await self._halve(wishes, sent[:middle])
                await self._halve(wishes, sent[middle:])
                return
            for identifier in sent:
                _resolve(wishes[identifier], error)
            return
        self._settle_all(wishes, sent, answer or {})

    def _settle_all(self, wishes: dict[str, _PendingMutation], sent: Sequence[str], answer: Response) -> None:
        states = {
            changed["InstanceId"]: parse_instance_state(changed.get("CurrentState", {}).get("Name", ""))
            for changed in answer.get(self._answers, ())
        }
        for identifier in sent:
            silence = CloudOutcomeUnknownError(
                f"{self._operation}: the reply says nothing of {identifier}", operation=self._operation
            )
            _resolve(wishes[identifier], states.get(identifier, silence))

    async def close(self) -> None:
        """Nothing more is sent; whoever still waits is told so."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        for instance_id, wish in self._wishes.items():
            _resolve(
                wish,
                CloudUnreachableError(
                    f"{self._operation} of {instance_id}: not sent, closing", operation=self._operation
                ),
            )
        self._wishes.clear()


def _resolve(wish: _PendingMutation, outcome: InstanceState | CloudError) -> None:
    if isinstance(outcome, CloudError):
        # Each instance gets an error of its own: a shared one would gather the tracebacks of all.
        wish.outcome.set_exception(type(outcome)(str(outcome), code=outcome.code, operation=outcome.operation))
        wish.outcome.exception()  # looked at: those who gave up waiting do not ask any more
    else:
        wish.outcome.set_result(outcome)


RUN_INSTANCES = "RunInstances"


class Launcher:
    """Launches in one region."""

    def __init__(self, gateway: AwsGateway, images: ImageCatalog) -> None:
        self._gateway = gateway
        self._images = images

    async def launch(self, parameters: LaunchParameters) -> Instance:
        """Send it once. The same parameters always make the same request, or EC2 would refuse the token."""
        request = await self.request(parameters)
        answer = await self._gateway.call_prepared(RUN_INSTANCES, lambda: request, instances=1)
        assert answer is not None
        launched = answer.get("Instances", ())
        if len(launched) != 1:
            raise CloudOutcomeUnknownError(
                f"{RUN_INSTANCES} in {parameters.region}: answered with {len(launched)} instances instead of one",
                operation=RUN_INSTANCES,
            )
        instance = instance_from_row(row_from_description(launched[0]))
        if instance.state is InstanceState.TERMINATED:
            raise LaunchTokenSpentError(
                f"{RUN_INSTANCES} in {parameters.region}: token {parameters.client_token} launched {instance.id}, "
                "which has terminated",
                operation=RUN_INSTANCES,
            )
        return instance

    async def request(self, parameters: LaunchParameters) -> dict[str, Any]:
        """What is sent for these parameters."""
        root_device = None
        if parameters.root_volume_gb is not None:
            root_device = await self._images.root_device(parameters.image_id)
        return run_instances_request(parameters, root_device)


def run_instances_request(parameters: LaunchParameters, root_device: str | None) -> dict[str, Any]:
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
