"""Patches that make moto behave more like EC2: see `apply`.

Each patch replaces one method by name, so that a moto without that method fails at once and not in a test's assertion.
"""

from __future__ import annotations

import os
import re
from typing import Any

os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"

from moto import settings
from moto.cloudwatch.exceptions import ValidationError
from moto.cloudwatch.models import CloudWatchBackend
from moto.core.responses import ActionResult
from moto.core.utils import utcnow
from moto.ec2.exceptions import EC2ClientError, InvalidInstanceIdError
from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.ec2.models.instances import Instance, InstanceBackend, InstanceState
from moto.ec2.responses._base_response import EC2BaseResponse
from moto.ec2.responses.amis import AmisResponse
from moto.ec2.responses.instances import InstanceResponse
from moto.ec2.utils import filter_dict_attribute_mapping, is_tag_filter, passes_filter_dict

from tests.support.aws.ec2_rules import CODES, RULES, Token
from tests.support.aws.moto_paging import filters_of, page_of

_QUERIES = 500
_LONGEST_TOKEN = 64
_STATUS_FILTERS = ("event.code", "instance-status.status", "system-status.status", "instance-id")
_INSTANCE_ID = re.compile(r"^i-([0-9a-f]{8}|[0-9a-f]{17})$")
_ALLOWED = {
    # The state before a call and after it: None changes nothing, a missing state is rejected.
    "start": {"stopped": "pending", "pending": None, "running": None},
    "stop": {"running": "stopping", "stopping": None, "stopped": None},
    "terminate": {
        **dict.fromkeys(("pending", "running", "stopping", "stopped"), "shutting-down"),
        "shutting-down": None,
        "terminated": None,
    },
}

_run_instances = InstanceResponse.run_instances
_get_metric_data = CloudWatchBackend.get_metric_data


def apply() -> None:
    """Patch moto (idempotent): client tokens, states that take time, paging by instance, errors, health, limits."""
    settings.ENABLE_AMI_VALIDATION = True
    settings.EC2_ENABLE_INSTANCE_TYPE_VALIDATION = True
    # moto responds "pending" to every launch, also when a token is replayed an hour later.
    EC2BaseResponse.RESPONSE_KEY_PATH_TO_TRANSFORMER.pop("RunInstances.Reservation.Instances.Instance.State", None)
    for owner, replaced in _PATCHES.items():
        for name, replacement in replaced.items():
            assert name == "_state" or hasattr(owner, name), f"moto has no {owner.__name__}.{name} any more"
            setattr(owner, name, replacement)


# Models


def _read_state(self: Any) -> InstanceState:
    on_the_way = RULES.transition(self.id)
    if on_the_way is not None:
        return InstanceState(on_the_way, CODES[on_the_way])
    settled: InstanceState = self.__dict__["_settled_state"]
    return settled


def _write_state(self: Any, state: InstanceState) -> None:
    if "_settled_state" not in self.__dict__:
        # moto sets the state while it creates the instance, before anything reads it.
        RULES.born(self)
    self.__dict__["_settled_state"] = state


def _tags(self: Any) -> list[dict[str, str]]:
    """Uses one dictionary lookup; moto reads all tags of the region for each instance of a page."""
    found = self.ec2_backend.tags.get(self.id, {})
    return [{"resource_id": self.id, "key": key, "value": value} for key, value in list(found.items())]


def _by_id(self: Any, instance_id: str) -> Any:
    found = RULES.instances.get(instance_id)
    return found if found is not None and found.ec2_backend is self else None


def _limited_metric_data(self: Any, queries: list[dict[str, Any]], *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
    if len(queries) > _QUERIES:
        raise ValidationError(f"The collection MetricDataQueries must not have a size greater than {_QUERIES}.")
    return _get_metric_data(self, queries, *args, **kwargs)


# Responses


def _run(self: Any) -> ActionResult:
    token = self._get_param("ClientToken")
    if len(token) > _LONGEST_TOKEN:
        raise EC2ClientError("InvalidParameterValue", f"The client token is longer than {_LONGEST_TOKEN} characters")
    key = (self.current_account, self.region, _zone(self), token)
    parameters = {name: value for name, value in self._get_params().items() if name != "ClientToken"}
    _check_cpu_options(self)
    self.error_on_dryrun()  # which leaves the token as it was
    with RULES.lock:
        used = RULES.tokens.get(key)
        if used is not None:
            return _replay(used, parameters)
        reservation: Any = _run_instances(self).result
        RULES.tokens[key] = Token(parameters, reservation)
        for instance in reservation.instances:
            RULES.launched(instance)
        return ActionResult(reservation)


def _check_cpu_options(self: Any) -> None:
    """Moto ignores CpuOptions; EC2 refuses nested virtualization for types that do not offer it."""
    options, name = self._get_param("CpuOptions", {}), self._get_param("InstanceType")
    features = INSTANCE_TYPES.get(name, {}).get("ProcessorInfo", {}).get("SupportedFeatures", ())
    if options.get("NestedVirtualization") == "enabled" and "nested-virtualization" not in features:
        raise EC2ClientError("InvalidParameterCombination", f"{name} does not support nested virtualization")


def _zone(self: Any) -> str:
    """A client token is valid in the zone of its subnet, or without a subnet in the region."""
    subnet_id = self._get_param("SubnetId")
    return str(self.ec2_backend.get_subnet(subnet_id).availability_zone) if subnet_id else ""


def _replay(used: Token, parameters: Any) -> ActionResult:
    if used.parameters != parameters:
        raise EC2ClientError("IdempotentParameterMismatch", "The token was used with other parameters")
    for instance in used.reservation.instances:
        if instance.id not in RULES.instances or instance.state == "terminated":
            raise EC2ClientError("IdempotentInstanceTerminated", f"The instance {instance.id} has terminated")
    return ActionResult(used.reservation)


def change(backend: Any, verb: str, instance_ids: list[str]) -> list[dict[str, Any]]:
    """Start, stop or terminate all of them, or none if the state of one does not allow it."""
    with RULES.lock:
        instances = _look_up(backend, instance_ids)
        for instance in instances:
            if instance.state not in _ALLOWED[verb]:
                text = f"The instance '{instance.id}' is not in a state from which it can be {verb}ed: {instance.state}"
                raise EC2ClientError("IncorrectInstanceState", text)
        return [_changed(instance, verb) for instance in instances]


def _changed(instance: Any, verb: str) -> dict[str, Any]:
    previous = instance.state
    on_the_way = _ALLOWED[verb][previous]
    if on_the_way is not None:
        # A transition in progress is completed first: moto uses its own state.
        instance.__dict__["_settled_state"] = InstanceState(previous, CODES[previous])
        RULES.enter(instance.id, on_the_way)
        _settle_as(instance, verb)
    state = on_the_way or previous
    return {
        "InstanceId": instance.id,
        "CurrentState": {"Code": CODES[state], "Name": state},
        "PreviousState": {"Code": CODES[previous], "Name": previous},
    }


def _settle_as(instance: Any, verb: str) -> None:
    getattr(instance, verb)()
    final = {"start": "running", "stop": "stopped", "terminate": "terminated"}[verb]
    instance.__dict__["_settled_state"] = InstanceState(final, CODES[final])
    if verb == "start":
        instance.launch_time = utcnow()


def _look_up(backend: Any, instance_ids: list[str]) -> list[Any]:
    for instance_id in instance_ids:
        if not _INSTANCE_ID.match(instance_id):
            raise EC2ClientError("InvalidInstanceID.Malformed", f'Invalid id: "{instance_id}"')
    shown = {instance.id: instance for instance in RULES.visible(backend)}
    missing = [instance_id for instance_id in instance_ids if instance_id not in shown]
    if missing:
        raise InvalidInstanceIdError(missing)
    return [shown[instance_id] for instance_id in instance_ids]


def _ids_to_change(self: Any) -> list[str]:
    """Return the instances of the request; a dry run ends here."""
    ids: list[str] = self._get_param("InstanceIds", [])
    with RULES.lock:
        _look_up(self.ec2_backend, ids)
    self.error_on_dryrun()
    return ids


def _start(self: Any) -> ActionResult:
    return ActionResult({"StartingInstances": change(self.ec2_backend, "start", _ids_to_change(self))})


def _stop(self: Any) -> ActionResult:
    return ActionResult({"StoppingInstances": change(self.ec2_backend, "stop", _ids_to_change(self))})


def _terminate(self: Any) -> ActionResult:
    return ActionResult({"TerminatingInstances": change(self.ec2_backend, "terminate", _ids_to_change(self))})


def _describe(self: Any) -> ActionResult:
    self.error_on_dryrun()
    filters = filters_of(self)
    unknown = [name for name in filters if name not in filter_dict_attribute_mapping and not is_tag_filter(name)]
    if unknown:
        raise EC2ClientError("InvalidParameterValue", f"The filter '{unknown[0]}' is invalid")
    ids = self._get_param("InstanceIds", [])
    with RULES.lock:
        shown = _look_up(self.ec2_backend, ids) if ids else list(RULES.visible(self.ec2_backend))
        found = [instance for instance in shown if passes_filter_dict(instance, filters)]
        page, next_token = page_of(self, found)
        reservations = [
            {"ReservationId": f"r-{instance.id[2:]}", "OwnerId": instance.owner_id, "Instances": [instance]}
            for instance in page
        ]
        return ActionResult({"Reservations": reservations, "NextToken": next_token})


def _describe_status(self: Any) -> ActionResult:
    filters = filters_of(self)
    unknown = [name for name in filters if name not in _STATUS_FILTERS]
    if unknown:
        raise EC2ClientError("InvalidParameterValue", f"The filter '{unknown[0]}' is invalid")
    everything = self._get_bool_param("IncludeAllInstances", False)
    with RULES.lock:
        shown = [one for one in RULES.visible(self.ec2_backend) if everything or one.state == "running"]
        page, next_token = page_of(self, [one for one in shown if _status_passes(one, filters)])
        return ActionResult({"InstanceStatuses": [_status(one) for one in page], "NextToken": next_token})


def _status_passes(instance: Any, filters: dict[str, Any]) -> bool:
    status = _status(instance)
    values = {
        "event.code": {event["Code"] for event in status["Events"]},
        "instance-status.status": {status["InstanceStatus"]["Status"]},
        "system-status.status": {status["SystemStatus"]["Status"]},
        "instance-id": {instance.id},
    }
    return all(values[name] & set(wanted) for name, wanted in filters.items())


def _status(instance: Any) -> dict[str, Any]:
    return {
        "InstanceId": instance.id,
        "AvailabilityZone": instance.availability_zone,
        "InstanceState": {"Code": CODES[instance.state], "Name": instance.state},
        "InstanceStatus": _check(instance, "instance"),
        "SystemStatus": _check(instance, "system"),
        "Events": RULES.events.get(instance.id, []),
    }


def _check(instance: Any, which: str) -> dict[str, Any]:
    if instance.state != "running":
        return {"Status": "not-applicable"}
    failed = which in RULES.impaired.get(instance.id, ())
    detail = {"Name": "reachability", "Status": "failed" if failed else "passed"}
    return {"Status": "impaired" if failed else "ok", "Details": [detail]}


def _describe_images(self: Any) -> ActionResult:
    images = self.ec2_backend.describe_images(
        ami_ids=self._get_param("ImageIds", []),
        filters=filters_of(self),
        exec_users=self._get_param("ExecutableUsers", []),
        owners=[] if RULES.ignore_owners else self._get_param("Owners", []),
    )
    start = int(self._get_param("NextToken") or 0)
    end = start + min(int(self._get_param("MaxResults") or 1000), RULES.image_page)
    return ActionResult({"Images": images[start:end], "NextToken": str(end) if end < len(images) else None})


_PATCHES: dict[type[Any], dict[str, Any]] = {
    Instance: {"_state": property(_read_state, _write_state)},
    TaggedEC2Resource: {"get_tags": _tags},
    InstanceBackend: {"get_instance_by_id": _by_id},
    CloudWatchBackend: {"get_metric_data": _limited_metric_data},
    AmisResponse: {"describe_images": _describe_images},
    InstanceResponse: {
        "run_instances": _run,
        "start_instances": _start,
        "stop_instances": _stop,
        "terminate_instances": _terminate,
        "describe_instances": _describe,
        "describe_instance_status": _describe_status,
    },
}
