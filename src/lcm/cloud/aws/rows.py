"""An instance as a short row of plain values: all that the poller process sends back of ten kilobytes of XML."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from lcm.cloud.types import Instance, InstanceState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Row: TypeAlias = "list[Any]"

# What is read of EC2's description; the poller process parses nothing else.
INSTANCE_MEMBERS = (
    "InstanceId",
    "State",
    "InstanceType",
    "ImageId",
    "LaunchTime",
    "PublicIpAddress",
    "PrivateIpAddress",
    "SubnetId",
    "Tags",
    "StateReason",
    "StateTransitionReason",
)


def rows_from_response(answer: Mapping[str, Any]) -> Iterator[Row]:
    """The rows of an answer of DescribeInstances."""
    for reservation in answer.get("Reservations", ()):
        for instance in reservation.get("Instances", ()):
            yield row_from_description(instance)


def row_from_description(described: Mapping[str, Any]) -> Row:
    """One instance as EC2 describes it, made short."""
    return [
        described["InstanceId"],
        described.get("State", {}).get("Name", ""),
        described.get("InstanceType", ""),
        described.get("ImageId", ""),
        described["LaunchTime"].timestamp(),
        described.get("PublicIpAddress") or None,
        described.get("PrivateIpAddress") or None,
        described.get("SubnetId") or None,
        {tag["Key"]: tag.get("Value", "") for tag in described.get("Tags", ())},
        described.get("StateReason", {}).get("Message") or described.get("StateTransitionReason") or "",
    ]


def instance_from_row(row: Row) -> Instance:
    """The instance that a row stands for."""
    identifier, state, instance_type, image, launched, public, private, subnet, tags, reason = row
    return Instance(
        id=identifier,
        state=parse_instance_state(state),
        instance_type=instance_type,
        image_id=image,
        launched_at=datetime.fromtimestamp(launched, UTC),
        public_ip=public,
        private_ip=private,
        subnet_id=subnet,
        tags=tags,
        state_reason=reason,
    )


def parse_instance_state(word: str) -> InstanceState:
    """EC2's word for a state; one that nobody knows is UNKNOWN."""
    try:
        return InstanceState(word)
    except ValueError:
        return InstanceState.UNKNOWN
