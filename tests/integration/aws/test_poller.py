"""The poller process: it reads the same as threads do, and its death is detected, reported and repaired."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lcm.cloud.aws import poller
from lcm.cloud.types import InstanceSelection
from tests.support.aws import child_process
from tests.support.aws.conformance import ALWAYS, DESCRIBE, Refusal
from tests.support.aws.conformance_aws import TUNING, AwsBed, open_bed
from tests.support.run.suspension import suspend
from tests.support.servers.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

COUNT = 12
# Every sweep after the first uses the process from its first page.
POLLING = replace(TUNING, thread_page=5, process_page=5, poller_above=0)


@pytest.fixture
async def bed() -> AsyncIterator[AwsBed]:
    async with open_bed(POLLING) as opened:
        reservation = opened.ec2.run_instances(
            opened.parameters("w").image_id,
            COUNT,
            None,
            [],
            instance_type="t3.large",
            is_instance_type_default=False,
            region_name=opened.region,
            tags={"instance": dict(opened.parameters("w").tags)},
        )
        assert len(reservation.instances) == COUNT
        yield opened


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return False
    # A zombie counts as dead too.
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


async def polled(bed: AwsBed) -> int:
    """Return the process id after a sweep has started the process."""
    await complete_sweep(bed)
    await complete_sweep(bed)
    pid = bed.cloud.poller_pid(bed.region)
    assert pid is not None
    return pid


async def complete_sweep(bed: AwsBed) -> None:
    """On a busy host the process may take longer to start than a page may take."""

    async def complete() -> bool:
        return (await bed.cloud.sweep(bed.region, InstanceSelection())).complete

    await bed.eventually(complete, "a sweep is complete")


async def test_it_reads_the_same_as_threads(bed: AwsBed) -> None:
    await polled(bed)
    by_process = await bed.cloud.sweep(bed.region, InstanceSelection())
    by_thread = await bed.cloud.describe(bed.region, list(by_process.instances))
    assert len(by_process.instances) == COUNT
    assert by_process.instances == by_thread.instances
    assert by_process.calls == 3
    assert by_process.account_id == bed.account_id


async def test_a_few_instances_need_no_process() -> None:
    async with open_bed(replace(TUNING, poller_above=TUNING.thread_page)) as small:
        assert (await small.cloud.sweep(small.region, InstanceSelection())).complete
        assert (await small.cloud.sweep(small.region, InstanceSelection())).complete
        assert small.cloud.poller_pid(small.region) is None


async def test_killed_in_the_middle_the_sweep_is_incomplete_and_the_next_is_not(bed: AwsBed) -> None:
    pid = await polled(bed)
    before = bed.calls()[DESCRIBE]
    # The first page gets a response, the second one waits.
    first = bed.server.hold(DESCRIBE, times=1)
    sweeping = asyncio.create_task(bed.cloud.sweep(bed.region, InstanceSelection()))
    await bed.eventually(lambda: first.arrived == 1, "the first page is asked for")
    second = bed.server.hold(DESCRIBE)
    first.release()
    await bed.eventually(lambda: second.arrived == 1, "the second page is asked for")
    os.kill(pid, signal.SIGKILL)
    sweep = await sweeping
    assert not sweep.complete
    assert "poller process" in sweep.error
    assert len(sweep.instances) == 5
    assert bed.calls()[DESCRIBE] == before + 2
    bed.server.clear()
    again = await bed.cloud.sweep(bed.region, InstanceSelection())
    assert again.complete
    assert len(again.instances) == COUNT
    assert bed.cloud.poller_pid(bed.region) not in (None, pid)


async def test_killed_between_sweeps_it_is_replaced(bed: AwsBed) -> None:
    pid = await polled(bed)
    os.kill(pid, signal.SIGKILL)

    await complete_sweep(bed)
    assert bed.cloud.poller_pid(bed.region) != pid


async def test_one_that_hangs_is_replaced(bed: AwsBed, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = await polled(bed)
    suspend(pid)
    with monkeypatch.context() as impatient:
        impatient.setattr(poller, "page_timeout", lambda _tuning: 0.5)
        sweep = await bed.cloud.sweep(bed.region, InstanceSelection())
    assert not sweep.complete
    assert "no response from the poller process" in sweep.error
    assert not alive(pid)
    await complete_sweep(bed)


def test_it_is_given_longer_than_it_takes_to_give_up_a_page_itself() -> None:
    slowest = TUNING.read_deadline + poller.MAX_BACKOFF
    assert poller.page_timeout(TUNING) > slowest


async def test_a_cancelled_sweep_does_not_affect_the_next(bed: AwsBed) -> None:
    pid = await polled(bed)
    hold = bed.server.hold(DESCRIBE, times=1)
    sweeping = asyncio.create_task(bed.cloud.sweep(bed.region, InstanceSelection()))
    await bed.eventually(lambda: hold.arrived == 1, "the page is asked for")
    sweeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sweeping
    hold.release()
    sweep = await bed.cloud.sweep(bed.region, InstanceSelection())
    assert sweep.complete
    assert len(sweep.instances) == COUNT
    assert bed.cloud.poller_pid(bed.region) == pid


async def test_its_failures_are_reported_and_counted(bed: AwsBed) -> None:
    await polled(bed)
    bed.refuse(DESCRIBE, Refusal.DENIED, 1)
    sweep = await bed.cloud.sweep(bed.region, InstanceSelection())
    assert not sweep.complete
    assert "UnauthorizedOperation" in sweep.error
    bed.throttle(DESCRIBE, ALWAYS)
    assert "RequestLimitExceeded" in (await bed.cloud.sweep(bed.region, InstanceSelection())).error
    counted = bed.registry.get_sample_value
    assert counted("lcm_aws_calls_total", {"operation": DESCRIBE, "outcome": "denied"}) == 1
    assert counted("lcm_aws_throttled_total", {"operation": DESCRIBE}) == TUNING.read_attempts


async def test_closing_ends_it(bed: AwsBed) -> None:
    pid = await polled(bed)
    await bed.cloud.close()
    assert not alive(pid)


async def test_it_does_not_outlive_its_parent(bed: AwsBed) -> None:
    child = child_process.start("sweep", bed.region, bed.server.url)
    assert child.stdout is not None
    try:
        pid = int(await asyncio.to_thread(child.stdout.readline))
        assert alive(pid)
        child.kill()
        child.wait()
        await asyncio.to_thread(wait_until, lambda: not alive(pid), "the poller process has ended")
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
