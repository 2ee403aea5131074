"""Reads instances: whole regions page by page, some by id, those of one worker by tag.

Small regions are read in a thread, in pages small enough not to block the interpreter. As soon as a region has more
instances than that, the poller process reads the rest in pages of a thousand, and the next sweep from its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from lcm.cloud.errors import CloudError, CloudUnreachableError
from lcm.cloud.types import WORKER_TAG, Instance, InstanceSelection, InstanceState, Sweep
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from lcm.cloud.aws.gateway import AwsGateway
    from lcm.cloud.aws.iam import AccountIdentity
    from lcm.cloud.aws.poller import Poller


DESCRIBE_INSTANCES = "DescribeInstances"
MAX_FILTER_VALUES = 200


class InstanceReader:
    """Reads the instances of one region."""

    def __init__(self, gateway: AwsGateway, identity: AccountIdentity, poller: Poller) -> None:
        self._gateway = gateway
        self._identity = identity
        self._poller = poller
        self._seen: dict[InstanceSelection, int] = {}

    async def sweep(self, selection: InstanceSelection) -> Sweep:
        """Return all instances of the selection."""
        filters = [
            *_filters("tag-key", selection.tag_keys),
            *_filters("image-id", selection.image_ids),
        ]
        if not filters:
            raise ValueError("a sweep must select by tag or image; without either it would cover the whole account")
        async with self._gateway.sweeping:
            above = self._gateway.tuning.poller_above
            builder = _SweepBuilder(self._gateway.region.region, process_above=above)
            builder.by_process = self._seen.get(selection, 0) > above
            found = await self._read(builder, filters)
        if found.complete:
            self._seen[selection] = len(found.instances)
        return found

    async def describe(self, instance_ids: Collection[str]) -> Sweep:
        """Return these instances, by filter."""
        ids = sorted(set(instance_ids))
        found = await self._read(_SweepBuilder(self._gateway.region.region), list(_filters("instance-id", ids)))
        return _matching(found, lambda instance: instance.id in instance_ids)

    async def find_launched(self, worker_id: str) -> Sweep:
        """Return all instances of a worker."""
        found = await self._read(
            _SweepBuilder(self._gateway.region.region), list(_filters(f"tag:{WORKER_TAG}", [worker_id]))
        )
        # Filter values may contain wildcards; such an id must not match instances of other workers.
        return _matching(found, lambda instance: instance.worker_id == worker_id)

    async def _read(self, builder: _SweepBuilder, filters: Sequence[dict[str, Any]]) -> Sweep:
        account, problem = "", ""
        try:
            account = await self._identity.account_id()
            for filter_ in filters:
                await self._pages(builder, filter_)
        except CloudError as error:
            problem = str(error)
        return builder.result(account, problem)

    async def _pages(self, builder: _SweepBuilder, filter_: dict[str, Any]) -> None:
        token: str | None = None
        while True:
            page = await self._page(builder, {"Filters": [filter_], **({"NextToken": token} if token else {})})
            builder.add_page(page)
            if not page.next_token:
                return
            if page.next_token == token:
                raise CloudUnreachableError(
                    f"{DESCRIBE_INSTANCES} in {builder.region}: the pagination token repeats",
                    operation=DESCRIBE_INSTANCES,
                )
            token = page.next_token

    async def _page(self, builder: _SweepBuilder, parameters: dict[str, Any]) -> InstancePage:
        tuning = self._gateway.tuning
        await self._gateway.wait_for_token(DESCRIBE_INSTANCES)
        builder.count_call()
        if builder.by_process:
            return await self._poller.page(self._gateway, {**parameters, "MaxResults": tuning.process_page})
        request = {**parameters, "MaxResults": tuning.thread_page}
        response = await self._gateway.call_without_wait(DESCRIBE_INSTANCES, lambda: request)
        assert response is not None
        return InstancePage([instance_from_row(row) for row in rows_from_response(response)], response.get("NextToken"))


class _SweepBuilder:
    """The instances that were read so far."""

    def __init__(self, region: str, process_above: int | None = None) -> None:
        self.region = region
        self.by_process = False
        self._process_above = process_above
        self._instances: dict[str, Instance] = {}
        self._calls = 0
        self._began_at: float | None = None

    def count_call(self) -> None:
        self._calls += 1
        if self._began_at is None:
            self._began_at = clock.boottime()

    def add_page(self, page: InstancePage) -> None:
        self._instances.update((instance.id, instance) for instance in page.instances)
        if self._process_above is not None and page.next_token and len(self._instances) >= self._process_above:
            self.by_process = True

    def result(self, account: str, problem: str) -> Sweep:
        return Sweep(
            region=self.region,
            instances=self._instances,
            complete=not problem,
            began_at=clock.boottime() if self._began_at is None else self._began_at,
            account_id=account,
            error=problem,
            calls=self._calls,
        )


def _filters(name: str, values: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Return filters for all values, each with as many as EC2 accepts."""
    for start in range(0, len(values), MAX_FILTER_VALUES):
        yield {"Name": name, "Values": list(values[start : start + MAX_FILTER_VALUES])}


def _matching(sweep: Sweep, condition: Callable[[Instance], bool]) -> Sweep:
    matches = {identifier: instance for identifier, instance in sweep.instances.items() if condition(instance)}
    return replace(sweep, instances=matches)


Row: TypeAlias = "list[Any]"

# The members of an EC2 instance that are read; the poller process parses nothing else.
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


def rows_from_response(response: Mapping[str, Any]) -> Iterator[Row]:
    """Iterate over the rows of a DescribeInstances response."""
    for reservation in response.get("Reservations", ()):
        for instance in reservation.get("Instances", ()):
            yield row_from_description(instance)


def row_from_description(described: Mapping[str, Any]) -> Row:
    """Return the row of an instance as described by EC2."""
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
    """Return the instance of a row."""
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
    """Parse an EC2 state name; an unrecognized one is UNKNOWN."""
    try:
        return InstanceState(word)
    except ValueError:
        return InstanceState.UNKNOWN


@dataclass(frozen=True, slots=True)
class InstancePage:
    """A page of instances, and the token of the next page."""

    instances: list[Instance]
    next_token: str | None
