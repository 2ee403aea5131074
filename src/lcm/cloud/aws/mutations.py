"""Calls that change instances: launch, and batched start, stop and terminate.

Requests for start, stop and terminate that arrive within a short time are sent as one call. An instance that cannot be
changed must not fail the others: EC2 rejects a call as a whole, so a rejected call is halved until the instance that
causes the error is alone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lcm.cloud.aws.instances import instance_from_row, parse_instance_state, row_from_description
from lcm.cloud.errors import (
    CloudAuthenticationError,
    CloudError,
    CloudOutcomeUnknownError,
    CloudThrottledError,
    CloudUnreachableError,
    LaunchTokenSpentError,
)
from lcm.cloud.types import InstanceState
from lcm.core.authorization import NotAuthorizedError, authorized, current_authorization

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lcm.cloud.aws.gateway import AwsGateway, Response
    from lcm.cloud.aws.images import ImageCatalog
    from lcm.cloud.types import Instance, LaunchParameters
    from lcm.core.authorization import SendAuthorization


MAX_IDS_PER_CALL = 100

# These errors say nothing about a single instance, so halving would not help.
_WHOLE_CALL_ERRORS = (
    CloudAuthenticationError,
    CloudOutcomeUnknownError,
    CloudThrottledError,
    CloudUnreachableError,
)


@dataclass(slots=True)
class _PendingMutation:
    """One instance to be changed, the number of waiting callers, and the authorization of the last one."""

    outcome: asyncio.Future[InstanceState] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    waiting: int = 0
    authorization: SendAuthorization | None = None


class BatchedMutation:
    """One operation in one region. `response_member` is the member of its response that lists the instances."""

    def __init__(self, gateway: AwsGateway, operation: str, response_member: str) -> None:
        self._gateway = gateway
        self._operation = operation
        self._response_member = response_member
        self._pending: dict[str, _PendingMutation] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def submit(self, instance_id: str) -> InstanceState:
        """Return the state of the instance in the response. A caller cancelled before the call has no effect."""
        mutation = self._pending.setdefault(instance_id, _PendingMutation())
        mutation.authorization = current_authorization()
        self._set_timer()
        mutation.waiting += 1
        try:
            return await asyncio.shield(mutation.outcome)
        finally:
            mutation.waiting -= 1

    def _set_timer(self) -> None:
        if len(self._pending) >= MAX_IDS_PER_CALL:
            self._send_gathered()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._gateway.tuning.gather_seconds, self._send_gathered)

    def _send_gathered(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, {}
        task = asyncio.get_running_loop().create_task(self._send(pending))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, pending: dict[str, _PendingMutation]) -> None:
        try:
            await self._halve(pending, sorted(pending))
        except NotAuthorizedError as error:
            for mutation in pending.values():
                if not mutation.outcome.done():
                    _resolve(mutation, error)
        finally:
            for instance_id, mutation in pending.items():
                if not mutation.outcome.done():
                    lost = CloudOutcomeUnknownError(
                        f"{self._operation} of {instance_id}: cancelled", operation=self._operation
                    )
                    _resolve(mutation, lost)

    async def _halve(self, pending: dict[str, _PendingMutation], ids: Sequence[str]) -> None:
        sent: list[str] = []

        def request() -> dict[str, list[str]] | None:
            sent[:] = [identifier for identifier in ids if pending[identifier].waiting]
            return {"InstanceIds": sent} if sent else None

        try:
            with authorized(_first_to_expire(pending[identifier] for identifier in ids)):
                response = await self._gateway.call_prepared(self._operation, request, instances=len(ids))
        except CloudError as error:
            if len(sent) > 1 and not isinstance(error, _WHOLE_CALL_ERRORS):
                middle = len(sent) // 2
                await self._halve(pending, sent[:middle])
                await self._halve(pending, sent[middle:])
                return
            for identifier in sent:
                _resolve(pending[identifier], error)
            return
        self._resolve_all(pending, sent, response or {})

    def _resolve_all(self, pending: dict[str, _PendingMutation], sent: Sequence[str], response: Response) -> None:
        states = {
            changed["InstanceId"]: parse_instance_state(changed.get("CurrentState", {}).get("Name", ""))
            for changed in response.get(self._response_member, ())
        }
        for identifier in sent:
            silence = CloudOutcomeUnknownError(
                f"{self._operation}: the response does not mention {identifier}", operation=self._operation
            )
            _resolve(pending[identifier], states.get(identifier, silence))

    async def close(self) -> None:
        """Send nothing more, and fail the waiting callers."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        for instance_id, mutation in self._pending.items():
            _resolve(
                mutation,
                CloudUnreachableError(
                    f"{self._operation} of {instance_id}: not sent, closing", operation=self._operation
                ),
            )
        self._pending.clear()


def _first_to_expire(mutations: Iterable[_PendingMutation]) -> SendAuthorization | None:
    """The authorization of a call for all of them."""
    found = [mutation.authorization for mutation in mutations if mutation.authorization is not None]
    return min(found, key=lambda authorization: authorization.send_seconds(), default=None)


def _resolve(mutation: _PendingMutation, outcome: InstanceState | CloudError | NotAuthorizedError) -> None:
    if isinstance(outcome, NotAuthorizedError):
        mutation.outcome.set_exception(NotAuthorizedError(str(outcome)))
        mutation.outcome.exception()
    elif isinstance(outcome, CloudError):
        # Each instance gets its own error: a shared one would collect the tracebacks of all callers.
        mutation.outcome.set_exception(type(outcome)(str(outcome), code=outcome.code, operation=outcome.operation))
        mutation.outcome.exception()  # mark as retrieved: cancelled callers do not read it
    else:
        mutation.outcome.set_result(outcome)


RUN_INSTANCES = "RunInstances"


class Launcher:
    """Launches instances in one region."""

    def __init__(self, gateway: AwsGateway, images: ImageCatalog) -> None:
        self._gateway = gateway
        self._images = images

    async def launch(self, parameters: LaunchParameters) -> Instance:
        """Send RunInstances once. Equal parameters give equal requests; EC2 would reject the token otherwise."""
        request = await self.request(parameters)
        response = await self._gateway.call_prepared(RUN_INSTANCES, lambda: request, instances=1)
        assert response is not None
        launched = response.get("Instances", ())
        if len(launched) != 1:
            raise CloudOutcomeUnknownError(
                f"{RUN_INSTANCES} in {parameters.region}: the response has {len(launched)} instances instead of one",
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
        """Return the request for these parameters."""
        root_device = None
        if parameters.root_volume_gb is not None:
            root_device = await self._images.root_device(parameters.image_id)
        return run_instances_request(parameters, root_device)


def run_instances_request(parameters: LaunchParameters, root_device: str | None) -> dict[str, Any]:
    """Return the request, which depends on the arguments alone."""
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
    if parameters.metadata_hop_limit is not None:
        # IMDSv2 only: with IMDSv1, one forged request from within a lab would reveal the instance's credentials.
        request["MetadataOptions"] = {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": parameters.metadata_hop_limit,
        }
    if parameters.nested_virtualization:
        request["CpuOptions"] = {"NestedVirtualization": "enabled"}
    if parameters.root_volume_gb is not None:
        assert root_device is not None
        volume = {"VolumeSize": parameters.root_volume_gb, "DeleteOnTermination": True}
        request["BlockDeviceMappings"] = [{"DeviceName": root_device, "Ebs": volume}]
    return request
