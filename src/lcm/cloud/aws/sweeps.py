"""Looking at instances: whole regions page by page, some by id, one worker's by tag.

Small regions are read in a thread, in pages that hardly hold up the interpreter. As soon as there is more than a page
of these, the rest is read by the poller process in pages of a thousand, and so is the next sweep from its beginning.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lcm.cloud.aws.poller import InstancePage
from lcm.cloud.aws.rows import instance_from_row, rows_from_response
from lcm.cloud.errors import CloudError, CloudUnreachableError
from lcm.cloud.types import WORKER_TAG, Instance, InstanceSelection, Sweep
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from lcm.cloud.aws.gateway import AwsGateway
    from lcm.cloud.aws.iam import AccountIdentity
    from lcm.cloud.aws.poller import Poller

DESCRIBE_INSTANCES = "DescribeInstances"
MAX_FILTER_VALUES = 200


class InstanceReader:
    """Looks at the instances of one region."""

    def __init__(self, gateway: AwsGateway, identity: AccountIdentity, poller: Poller) -> None:
        self._gateway = gateway
        self._identity = identity
        self._poller = poller
        self._seen: dict[InstanceSelection, int] = {}

    async def sweep(self, selection: InstanceSelection) -> Sweep:
        """All instances of the selection."""
        queries = [
            *_filters("tag-key", selection.tag_keys),
            *_filters("image-id", selection.image_ids),
        ]
        if not queries:
            raise ValueError("a sweep must select by tag or image: without either it would be of the whole account")
        async with self._gateway.sweeping:
            above = self._gateway.tuning.poller_above
            look = _SweepBuilder(self._gateway.region.region, process_above=above)
            look.by_process = self._seen.get(selection, 0) > above
            found = await self._look(look, queries)
        if found.complete:
            self._seen[selection] = len(found.instances)
        return found

    async def describe(self, instance_ids: Collection[str]) -> Sweep:
        """These instances, by filter."""
        wanted = sorted(set(instance_ids))
        found = await self._look(_SweepBuilder(self._gateway.region.region), list(_filters("instance-id", wanted)))
        return _matching(found, lambda instance: instance.id in instance_ids)

    async def find_launched(self, worker_id: str) -> Sweep:
        """All instances of a worker."""
        found = await self._look(
            _SweepBuilder(self._gateway.region.region), list(_filters(f"tag:{WORKER_TAG}", [worker_id]))
        )
        # A filter's value may hold wildcards; an id that does must not bring in another worker's instances.
        return _matching(found, lambda instance: instance.worker_id == worker_id)

    async def _look(self, look: _SweepBuilder, queries: Sequence[dict[str, Any]]) -> Sweep:
        account, trouble = "", ""
        try:
            account = await self._identity.account_id()
            for query in queries:
                await self._pages(look, query)
        except CloudError as error:
            trouble = str(error)
        return look.result(account, trouble)

    async def _pages(self, look: _SweepBuilder, query: dict[str, Any]) -> None:
        token: str | None = None
        while True:
            page = await self._page(look, {"Filters": [query], **({"NextToken": token} if token else {})})
            look.saw(page)
            if not page.next_token:
                return
            if page.next_token == token:
                raise CloudUnreachableError(
                    f"{DESCRIBE_INSTANCES} in {look.region}: pages go round in a circle", operation=DESCRIBE_INSTANCES
                )
            token = page.next_token

    async def _page(self, look: _SweepBuilder, parameters: dict[str, Any]) -> InstancePage:
        tuning = self._gateway.tuning
        await self._gateway.pay(DESCRIBE_INSTANCES)
        look.sends()
        if look.by_process:
            return await self._poller.page(self._gateway, {**parameters, "MaxResults": tuning.process_page})
        request = {**parameters, "MaxResults": tuning.thread_page}
        answer = await self._gateway.call_without_wait(DESCRIBE_INSTANCES, lambda: request)
        assert answer is not None
        return InstancePage([instance_from_row(row) for row in rows_from_response(answer)], answer.get("NextToken"))


class _SweepBuilder:
    """What one look has shown so far."""

    def __init__(self, region: str, process_above: int | None = None) -> None:
        self.region = region
        self.by_process = False
        self._process_above = process_above
        self._instances: dict[str, Instance] = {}
        self._calls = 0
        self._began_at: float | None = None

    def sends(self) -> None:
        self._calls += 1
        if self._began_at is None:
            self._began_at = clock.boottime()

    def saw(self, page: InstancePage) -> None:
        self._instances.update((instance.id, instance) for instance in page.instances)
        if self._process_above is not None and page.next_token and len(self._instances) >= self._process_above:
            self.by_process = True

    def result(self, account: str, trouble: str) -> Sweep:
        return Sweep(
            region=self.region,
            instances=self._instances,
            complete=not trouble,
            began_at=clock.boottime() if self._began_at is None else self._began_at,
            account_id=account,
            trouble=trouble,
            calls=self._calls,
        )


def _filters(name: str, values: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Filters that ask for all of the values, as many as EC2 takes at a time."""
    for start in range(0, len(values), MAX_FILTER_VALUES):
        yield {"Name": name, "Values": list(values[start : start + MAX_FILTER_VALUES])}


def _matching(sweep: Sweep, wanted: Callable[[Instance], bool]) -> Sweep:
    kept = {identifier: instance for identifier, instance in sweep.instances.items() if wanted(instance)}
    return replace(sweep, instances=kept)
