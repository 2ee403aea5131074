"""What `lcm lablets` shows, and the examples in its errors."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from lcm.cli.commands.lablet.changes import extend_lablet
from lcm.cli.commands.lablets import _workers, read_with_access, terminate_lablet
from lcm.cli.errors import UsageError
from lcm.cli.output.durations import parse_duration, parse_time
from lcm.model.change_preview import ChangePreview
from lcm.model.lablet.access import describe_access
from lcm.model.lablet.status import LabletStatus
from tests.support.records.lablet_records import a_lablet, a_ready_worker
from tests.support.records.workers import NOW

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from lcm.cli.runtime.session import Session
    from lcm.client import Client
    from lcm.model.lablet.access import LabletAccess
    from lcm.model.lablet.record import Lablet
    from lcm.model.worker.record import Worker


class Lablets:
    """Answers from one record that changes after it was read once."""

    def __init__(self, *states: Lablet) -> None:
        self._states = list(states)

    def _next(self) -> Lablet:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]

    async def get(self, _: str) -> Lablet:
        return self._next()

    async def access(self, _: str) -> LabletAccess:
        return describe_access(self._next(), None, ())


async def test_a_lablet_and_its_access_are_of_the_same_moment() -> None:
    pending = a_lablet(status=LabletStatus.PENDING_SCHEDULING, worker_id=None, version=1)
    ended = pending.model_copy(update={"status": LabletStatus.TERMINATED, "version": 2})
    client = cast("Client", SimpleNamespace(lablets=Lablets(ended)))
    shown, access = await read_with_access(client, pending)
    assert (shown.status, access.state) == (LabletStatus.TERMINATED, "released")


async def test_workers_without_their_labs_are_found_also_among_many() -> None:
    """A list that looked nothing up would say that labs run on workers that are stopped."""
    workers = {f"w-{number}": a_ready_worker(id=f"w-{number}") for number in range(40)}
    workers |= {
        "w-39": a_ready_worker(id="w-39", status="STOPPED"),
        "w-old": a_ready_worker(id="w-old", status="TERMINATED"),
    }

    async def listed(*, exclude_statuses: Iterable[str], page_size: int) -> AsyncGenerator[Worker, None]:
        assert page_size == 500
        for worker in workers.values():
            if worker.status not in exclude_statuses:
                yield worker

    async def get(worker_id: str) -> Worker:
        return workers[worker_id]

    client = SimpleNamespace(workers=SimpleNamespace(list=listed, get=get))
    session = cast("Session", SimpleNamespace(client=client))
    lablets = [a_lablet(worker_id=each) for each in workers]
    assert await _workers(session, lablets) == {"w-39": workers["w-39"]}
    assert await _workers(session, lablets[:3]) == {each: workers[each] for each in ("w-0", "w-1", "w-2")}


async def test_the_error_of_an_extension_without_an_end_has_examples_that_can_be_typed() -> None:
    with pytest.raises(UsageError) as refused:
        await extend_lablet(cast("Session", None), "one")
    found = re.search(r"such as --by (\S+), .* such as --until (\S+)$", str(refused.value))
    assert found is not None
    assert parse_duration(found[1], "--by")
    assert parse_time(found[2], NOW, "--until").year == 2026


async def test_the_end_of_a_failed_seat_says_that_it_is_not_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = a_lablet(status=LabletStatus.FAILED, booking_id="b-1", version=4)
    said: list[str] = []

    async def same(*_: object) -> Lablet:
        return failed

    async def preview(_: str) -> ChangePreview:
        return ChangePreview(action="end", effect="It has failed.")

    async def terminate(*_: object) -> Lablet:
        return failed.model_copy(update={"wanted": False, "version": 5})

    monkeypatch.setattr("lcm.cli.runtime.lookup.find_lablet", same)
    lablets = SimpleNamespace(preview_termination=preview, terminate=terminate)
    printer = SimpleNamespace(line=said.append, item=lambda item, _, show: show(item))
    session = SimpleNamespace(client=SimpleNamespace(lablets=lablets), printer=printer, dry_run=False, forecast=[])
    await terminate_lablet(cast("Session", session), failed.name, None, yes=True)
    assert said == [f"{failed.name} is FAILED and will not be made anew."]
