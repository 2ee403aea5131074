"""What holds for every test run: nothing is skipped, nothing is left running, and the last line says how it went."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
import structlog
from hypothesis import HealthCheck, settings

from tests.support.run import sockets, tasks, watchdog
from tests.support.run.order import longest_first
from tests.support.run.shuffle import shuffled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterator

_started = time.monotonic()
os.environ["TZ"] = "UTC"  # commands print times in the local zone
time.tzset()

pytest_plugins = ("tests.support.run.garbage", "tests.support.run.shared_servers", "tests.support.run.workers")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests of each, in a random order")
    parser.addoption(
        "--booking-sets", type=int, default=200, help="how many random sets of bookings are checked by brute force"
    )
    parser.addoption(
        "--all-zones", action="store_true", help="test the calendar in every time zone, not only in odd ones"
    )


def pytest_configure() -> None:
    # A background job of a shell starts with SIGINT ignored, and so would every process that a test starts: a test that
    # sends Ctrl-C to one would wait for ever. A handler is not inherited; children get the default again.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    watchdog.start()
    # By default an example that takes 200 ms fails: a busy host needs that now and then.
    settings.register_profile("any-speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any-speed")
    # By default a logged traceback is rendered by rich, which takes seconds each.
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], renderer])


@pytest.fixture(autouse=True)
def no_socket_is_left() -> Iterator[None]:
    """A socket that outlives its test fails that test. Fixtures of a wider scope are set up before this one."""
    before = sockets.open_sockets()
    yield
    left = sockets.left_open(before)
    assert not left, f"sockets outlive the test: {left}"


@pytest_asyncio.fixture
async def no_task_is_left() -> AsyncIterator[None]:
    """A task that outlives its test fails that test."""
    yield
    await tasks.assert_none_is_left()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if os.environ.get("CI") and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped or expected to fail, which CI does not allow: {report.longrepr}"
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run long files first, so that no worker is left with one at the end, and give every test a name of its own.

    Of several tests that share a name, only the first would be handed to a worker.
    """
    seed = config.getoption("--shuffle")
    if seed is None:
        items[:] = longest_first(items, lambda item: item.nodeid)
    else:
        items[:] = shuffled(items, lambda item: item.path, seed)
    for item in items:
        if pytest_asyncio.is_async_test(item) and "no_task_is_left" not in item.fixturenames:  # cases share the list
            # Set up before all others, so that it looks after them; sockets are looked at when the loop is closed too.
            item.fixturenames.insert(item.fixturenames.index("no_socket_is_left") + 1, "no_task_is_left")
    seen: Counter[str] = Counter()
    for item in items:
        seen[item.nodeid] += 1
        if seen[item.nodeid] > 1:
            item._id = type(item.id).parse(f"{item.nodeid}[{seen[item.nodeid]}]")
    assert len({item.nodeid for item in items}) == len(items)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print the outcome as the last line of the run."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    if (seed := config.getoption("--shuffle")) is not None:
        reporter.write_line(f"the order was --shuffle {seed}")
    passed = len(reporter.stats.get("passed", ()))
    failed = len(reporter.stats.get("failed", ())) + len(reporter.stats.get("error", ()))
    reporter.write_line(f"{passed} passed, {failed} failed, {time.monotonic() - _started:.0f} seconds")
