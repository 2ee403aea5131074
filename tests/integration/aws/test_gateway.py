"""The gateway never blocks the loop, never exceeds its threads, and serves every waiting call."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.awsrequest import AWSHTTPConnection
from botocore.signers import RequestSigner

from lcm.cloud.aws import clients, gateway
from lcm.cloud.errors import CloudOutcomeUnknownError, CloudThrottledError, CloudUnreachableError
from lcm.cloud.types import InstanceSelection
from lcm.core import clock
from lcm.core.authorization import NotAuthorizedError, SendAuthorization, authorized
from tests.support.aws.conformance import ALWAYS, DESCRIBE, IDENTITY, RUN, STATUS, STOP, Refusal
from tests.support.aws.conformance_aws import TUNING, open_bed

if TYPE_CHECKING:
    from tests.support.aws.conformance_aws import AwsBed

THREADS = TUNING.threads


def threads_of_ours() -> int:
    return sum(thread.name.startswith("lcm-aws") for thread in threading.enumerate())


async def turns(number: int = 200) -> None:
    """Let the loop run until nothing is left to do."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_the_loop_runs_while_a_call_waits_for_its_response(bed: AwsBed) -> None:
    hold = bed.server.hold(DESCRIBE)
    sweep = asyncio.create_task(bed.cloud.sweep(bed.region, InstanceSelection()))
    await bed.eventually(lambda: hold.arrived == 1, "the call has arrived")
    await turns()
    assert not sweep.done()
    hold.release()
    assert (await sweep).complete


async def test_clients_are_made_in_threads(bed: AwsBed, monkeypatch: pytest.MonkeyPatch) -> None:
    makers: list[str] = []
    make = clients.new_client

    def watched(*args: Any, **kwargs: Any) -> Any:
        makers.append(threading.current_thread().name)
        return make(*args, **kwargs)

    monkeypatch.setattr(gateway, "new_client", watched)
    await bed.cloud.sweep(bed.region, InstanceSelection())
    await bed.cloud.launch_instance(bed.parameters("w1"))
    assert len(makers) == 3, "sts, ec2 for reads, ec2 for changes"
    assert all(name.startswith("lcm-aws") for name in makers)


async def test_calls_at_once_are_bounded(bed: AwsBed) -> None:
    await bed.cloud.account_id(bed.region)
    hold = bed.server.hold(DESCRIBE)
    asked = [asyncio.create_task(bed.cloud.find_launched(bed.region, f"w{number}")) for number in range(20)]
    await bed.eventually(lambda: hold.arrived == THREADS, "all threads are busy")
    await turns()
    assert bed.calls()[DESCRIBE] == THREADS
    assert threads_of_ours() <= THREADS
    hold.release()
    assert all(sweep.complete for sweep in await asyncio.gather(*asked))
    assert bed.calls()[DESCRIBE] == 20


async def test_giving_up_costs_neither_a_thread_nor_a_turn(bed: AwsBed) -> None:
    await bed.cloud.account_id(bed.region)
    for _ in range(3):
        hold = bed.server.hold(DESCRIBE)
        asked = [asyncio.create_task(bed.cloud.find_launched(bed.region, "w1")) for _ in range(2 * THREADS)]
        await bed.eventually(lambda hold=hold: hold.arrived == THREADS, "all threads are busy")  # type: ignore[misc]
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        hold.release()
        bed.server.clear()
    assert (await bed.cloud.find_launched(bed.region, "w1")).complete
    again = [bed.cloud.find_launched(bed.region, "w1") for _ in range(THREADS)]
    assert all(sweep.complete for sweep in await asyncio.gather(*again))
    assert threads_of_ours() <= THREADS
    # Calls that were cancelled while waiting for a thread were never sent.
    assert bed.calls()[DESCRIBE] == 3 * THREADS + 1 + THREADS


async def test_a_mutation_cancelled_before_it_is_sent_is_never_sent(bed: AwsBed) -> None:
    instance = await bed.cloud.launch_instance(bed.parameters("w1"))
    await bed.eventually(lambda: bed.state(instance.id) == "running", "it runs")
    await bed.cloud.account_id(bed.region)
    hold = bed.server.hold(DESCRIBE)
    busy = [asyncio.create_task(bed.cloud.find_launched(bed.region, "w1")) for _ in range(THREADS)]
    await bed.eventually(lambda: hold.arrived == THREADS, "all threads are busy")
    stop = asyncio.create_task(bed.cloud.stop_instance(bed.region, instance.id))
    await asyncio.sleep(2 * TUNING.gather_seconds)
    stop.cancel()
    await asyncio.gather(stop, return_exceptions=True)
    hold.release()
    await asyncio.gather(*busy)
    await bed.cloud.health(bed.region)
    assert STOP not in bed.calls()
    assert bed.state(instance.id) == "running"


async def test_one_sweep_at_a_time(bed: AwsBed) -> None:
    await bed.cloud.account_id(bed.region)
    hold = bed.server.hold(DESCRIBE)
    sweeps = [asyncio.create_task(bed.cloud.sweep(bed.region, InstanceSelection())) for _ in range(3)]
    await bed.eventually(lambda: hold.arrived == 1, "the first has begun")
    await turns()
    assert bed.calls()[DESCRIBE] == 1
    hold.release()
    assert all(sweep.complete for sweep in await asyncio.gather(*sweeps))


async def test_reads_are_tried_five_times_and_changes_once() -> None:
    async with open_bed(replace(TUNING, read_attempts=5)) as bed:
        bed.refuse(STATUS, Refusal.INTERNAL, ALWAYS)
        with pytest.raises(CloudUnreachableError):
            await bed.cloud.health(bed.region)
        assert bed.calls()[STATUS] == 5
        bed.refuse(RUN, Refusal.INTERNAL, ALWAYS)
        with pytest.raises(CloudOutcomeUnknownError):
            await bed.cloud.launch_instance(bed.parameters("w1"))
        assert bed.calls()[RUN] == 1


async def test_a_missing_response_times_out() -> None:
    async with open_bed(replace(TUNING, read_attempts=1, read_timeout=2.0)) as bed:
        bed.server.hold(STATUS)
        with pytest.raises(CloudUnreachableError):
            await bed.cloud.health(bed.region)
        # It is executed, but its response is lost.
        bed.server.hold(RUN, after=True)
        with pytest.raises(CloudOutcomeUnknownError):
            await bed.cloud.launch_instance(bed.parameters("w1"))

        async def launched() -> bool:
            return len(await bed.live_instances()) == 1

        await bed.eventually(launched, "it is executed")


async def test_calls_go_out_no_faster_than_nine_tenths_of_the_documented_limits(bed: AwsBed) -> None:
    """On a slow computer too, the number of calls is bounded by the time that has passed."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    looks = [bed.cloud.find_launched(bed.region, f"w{number}") for number in range(130)]
    launches = [bed.cloud.launch_instance(bed.parameters(f"w{number}")) for number in range(10)]
    await asyncio.gather(*looks, *launches)
    passed = loop.time() - began
    assert 0.9 * (5 + 2 * passed) + 1 >= 10
    assert 0.9 * (100 + 20 * passed) + 1 >= 130
    assert len(await bed.live_instances()) == 10


async def test_calls_are_counted_by_outcome(bed: AwsBed) -> None:
    await bed.cloud.account_id(bed.region)
    bed.throttle(STATUS, 1)
    await bed.cloud.health(bed.region)
    bed.throttle(RUN, 1)
    with pytest.raises(CloudThrottledError):
        await bed.cloud.launch_instance(bed.parameters("w1"))

    def counted(name: str, **labels: str) -> float | None:
        return bed.registry.get_sample_value(name, labels)

    assert counted("lcm_aws_calls_total", operation=IDENTITY, outcome="ok") == 1
    assert counted("lcm_aws_calls_total", operation=STATUS, outcome="ok") == 3
    assert counted("lcm_aws_calls_total", operation=RUN, outcome="throttled") == 1
    assert counted("lcm_aws_throttled_total", operation=STATUS) == 1, "also when the retry succeeds"
    assert counted("lcm_aws_throttled_total", operation=RUN) == 1
    assert counted("lcm_aws_call_seconds_count", operation=STATUS) == 3


async def test_after_closing_every_call_says_so(bed: AwsBed) -> None:
    await bed.cloud.close()
    with pytest.raises(CloudUnreachableError, match="closed"):
        await bed.cloud.launch_instance(bed.parameters("w1"))
    sweep = await bed.cloud.sweep(bed.region, InstanceSelection())
    assert not sweep.complete
    assert not bed.calls()


async def test_closing_while_a_call_waits_ends(bed: AwsBed) -> None:
    await bed.cloud.account_id(bed.region)
    hold = bed.server.hold(DESCRIBE)
    asked = asyncio.create_task(bed.cloud.find_launched(bed.region, "w1"))
    await bed.eventually(lambda: hold.arrived == 1, "the call has arrived")
    closing = asyncio.create_task(bed.cloud.close())
    await turns()
    hold.release()
    await closing
    assert (await asked).complete


# Authorization, and regions that do not respond


async def test_a_mutation_is_not_sent_once_its_lease_is_over_while_it_waits_for_a_thread(bed: AwsBed) -> None:
    await bed.cloud.account_id(bed.region)
    hold = bed.server.hold(DESCRIBE)
    busy = [asyncio.create_task(bed.cloud.find_launched(bed.region, "w1")) for _ in range(THREADS)]
    await bed.eventually(lambda: hold.arrived == THREADS, "all threads are busy")
    lease = [60.0]
    with authorized(SendAuthorization(clock.boottime(), 60.0, lambda: lease[0])):
        launch = asyncio.create_task(bed.cloud.launch_instance(bed.parameters("w1")))
    await turns()
    lease[0] = 0.0
    hold.release()
    await asyncio.gather(*busy)
    with pytest.raises(NotAuthorizedError):
        await launch
    assert RUN not in bed.calls()
    waiting = bed.registry.get_sample_value("lcm_aws_calls_waiting", {"region": bed.region})
    assert waiting == 0


@pytest.mark.parametrize("step", ["connect", "sign"])
async def test_a_mutation_is_not_sent_if_its_lease_ends_in_the_last_step_before_its_bytes(
    bed: AwsBed, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A handshake or a refresh of credentials may take a minute, and the process may be suspended in it."""
    lease = [60.0]
    where, name = {
        "connect": (AWSHTTPConnection, "connect"),
        "sign": (RequestSigner, "sign"),
    }[step]
    real = getattr(where, name)

    def slow(self: Any, *args: Any, **options: Any) -> Any:
        result = real(self, *args, **options)
        lease[0] = 0.0
        return result

    monkeypatch.setattr(where, name, slow)
    with authorized(SendAuthorization(clock.boottime(), 60.0, lambda: lease[0])), pytest.raises(NotAuthorizedError):
        await bed.cloud.launch_instance(bed.parameters("w1"))
    assert RUN not in bed.calls()
    monkeypatch.undo()
    assert (await bed.cloud.launch_instance(bed.parameters("w1"))).id, "the gateway goes on"


async def test_a_region_that_swallows_requests_keeps_no_other_waiting() -> None:
    async with open_bed(TUNING, more_regions=("eu-west-3",)) as bed:
        await asyncio.gather(*(bed.cloud.account_id(region) for region in bed.cloud.regions))
        hold = bed.server.hold(DESCRIBE, times=THREADS)
        sick = [asyncio.create_task(bed.cloud.find_launched(bed.region, f"w{number}")) for number in range(3 * THREADS)]
        await bed.eventually(lambda: hold.arrived == THREADS, "all threads of a region are busy")
        assert (await bed.cloud.find_launched("eu-west-3", "w1")).complete
        threads = bed.registry.get_sample_value("lcm_aws_threads_busy", {"region": bed.region})
        waiting = bed.registry.get_sample_value("lcm_aws_calls_waiting", {"region": bed.region})
        assert (threads, waiting) == (THREADS, 2 * THREADS)
        hold.release()
        await asyncio.gather(*sick)


async def test_a_read_ends_at_its_total_deadline_and_frees_its_thread() -> None:
    """Five attempts of thirty seconds each would keep a thread busy for minutes."""
    async with open_bed(replace(TUNING, read_attempts=5, read_timeout=30.0, read_deadline=1.0)) as bed:
        await bed.cloud.account_id(bed.region)
        bed.server.hold(STATUS)
        with pytest.raises(CloudUnreachableError):
            await bed.cloud.health(bed.region)
        assert bed.calls()[STATUS] == 1
        busy = bed.registry.get_sample_value("lcm_aws_threads_busy", {"region": bed.region})
        assert busy == 0
