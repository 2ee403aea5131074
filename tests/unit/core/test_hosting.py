"""Start order, graceful stop, signals and failures of a host."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lcm.core.backoff import Backoff
from lcm.core.hosting import STOP_SIGNALS, Host, HostedService, cancel_and_wait, keep_running, run_process

if TYPE_CHECKING:
    from collections.abc import Iterator


class Service(HostedService):
    def __init__(self, name: str, diary: list[str], *, stop_takes: float = 0.0) -> None:
        super().__init__(name)
        self.diary = diary
        self.stop_takes = stop_takes
        self.fail_start = False
        self.fail_stop = False

    async def start(self) -> None:
        if self.fail_start:
            raise RuntimeError("port taken")
        self.diary.append(f"start {self.name}")

    async def stop(self) -> None:
        await asyncio.sleep(self.stop_takes)
        if self.fail_stop:
            raise RuntimeError("stuck")
        self.diary.append(f"stop {self.name}")

    def fail_later(self, seconds: float) -> None:
        async def work() -> None:
            await asyncio.sleep(seconds)
            raise ValueError("a mistake of ours")

        self._spawn(work(), "doomed")


def later(seconds: float, number: signal.Signals) -> None:
    asyncio.get_running_loop().call_later(seconds, os.kill, os.getpid(), number)


@pytest.fixture
def _inherited_ignored() -> Iterator[None]:
    """Signals ignored, as a background job of a shell inherits SIGINT."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_inherited_ignored")
@pytest.mark.parametrize("number", STOP_SIGNALS)
async def test_a_signal_that_was_inherited_as_ignored_still_stops_it(number: signal.Signals) -> None:
    diary: list[str] = []
    later(5, number)
    assert await asyncio.wait_for(Host([Service("a", diary)]).run(), 60) == 0
    assert diary == ["start a", "stop a"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_services_start_in_order_and_stop_in_reverse_on_a_signal(number: signal.Signals) -> None:
    diary: list[str] = []
    host = Host([Service("a", diary), Service("b", diary)])
    later(5, number)
    assert await host.run() == 0
    assert diary == ["start a", "start b", "stop b", "stop a"]


async def test_a_failed_start_stops_what_was_started_and_is_raised() -> None:
    diary: list[str] = []
    broken = Service("b", diary)
    broken.fail_start = True
    with pytest.raises(RuntimeError, match="port taken"):
        await Host([Service("a", diary), broken, Service("c", diary)]).run()
    assert diary == ["start a", "stop a"]


async def test_a_service_that_does_not_stop_is_given_up_after_the_grace() -> None:
    diary: list[str] = []
    host = Host([Service("a", diary), Service("slow", diary, stop_takes=1e6)], grace=8)
    later(1, signal.SIGTERM)
    began = asyncio.get_running_loop().time()
    assert await host.run() == 0
    assert asyncio.get_running_loop().time() - began == pytest.approx(9, abs=0.1)


async def test_a_second_signal_stops_the_waiting() -> None:
    diary: list[str] = []
    host = Host([Service("slow", diary, stop_takes=1e6)], grace=600)
    later(1, signal.SIGTERM)
    later(3, signal.SIGINT)
    began = asyncio.get_running_loop().time()
    await host.run()
    assert asyncio.get_running_loop().time() - began == pytest.approx(3, abs=0.1)


async def test_a_background_failure_ends_the_process_with_exit_code_1() -> None:
    diary: list[str] = []
    failing = Service("failing", diary)
    failing.fail_later(5)
    with capture_logs() as logs:
        assert await Host([Service("a", diary), failing]).run() == 1
    assert diary == ["start a", "start failing", "stop failing", "stop a"]
    assert any(entry["event"] == "background task failed" and entry["service"] == "failing" for entry in logs)


async def test_a_stop_that_fails_does_not_keep_others_from_stopping() -> None:
    diary: list[str] = []
    broken = Service("broken", diary)
    broken.fail_stop = True
    later(1, signal.SIGTERM)
    assert await Host([Service("a", diary), broken]).run() == 0
    assert diary == ["start a", "start broken", "stop a"]


async def test_a_loop_that_fails_is_started_again_after_a_growing_delay() -> None:
    starts: list[float] = []

    async def run() -> None:
        starts.append(asyncio.get_running_loop().time())
        if len(starts) < 5:
            raise ValueError("no")

    await keep_running("loop", run, Backoff(jitter=0))
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert gaps == pytest.approx([1, 2, 4, 8])


async def test_a_loop_that_ran_well_for_long_starts_again_soon() -> None:
    starts: list[float] = []

    async def run() -> None:
        starts.append(asyncio.get_running_loop().time())
        await asyncio.sleep(100)
        if len(starts) < 4:
            raise ValueError("no")

    await keep_running("loop", run, Backoff(jitter=0))
    assert [later - earlier for earlier, later in itertools.pairwise(starts)] == pytest.approx([101] * 3)


async def test_a_task_whose_cancellation_was_swallowed_is_cancelled_again() -> None:
    async def deaf_once() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        await asyncio.sleep(3600)

    deaf, usual = asyncio.create_task(deaf_once()), asyncio.create_task(asyncio.sleep(3600))
    ended = asyncio.create_task(asyncio.sleep(0))
    await asyncio.sleep(1)
    async with asyncio.timeout(60):
        await cancel_and_wait([deaf, usual, ended])
    assert deaf.cancelled()
    assert usual.cancelled()
    assert not ended.cancelled()


async def test_a_cancelled_task_may_clean_up() -> None:
    cleaned = []

    async def careful() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(4)
            cleaned.append(True)

    task = asyncio.create_task(careful())
    await asyncio.sleep(1)
    await cancel_and_wait([task])
    assert cleaned


def test_processes_run_on_uvloop() -> None:
    async def main() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert run_process(main()) == "uvloop"
