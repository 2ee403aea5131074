"""Runs tests in several processes: `--workers 4`.

All tests are collected once, then the workers are forked: reading hundreds of files takes long, and would take as long
in each worker. A worker that has none is handed a file, or a single test where tests share no server. A worker that
crashed or was stuck ends the run, and is named by the test that it ran.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

import pytest

from tests.support.run.order import Batches
from tests.support.run.worker import NAME, Asks, Broke, Reported, Started, Worker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from _pytest.terminal import TerminalReporter


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, metavar="N", help="run tests in N processes")


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """A folder that all workers of this run share."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if pytestconfig.pluginmanager.has_plugin(NAME) else folder


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    """Run all tests in workers; without `--workers`, pytest runs them itself."""
    config = session.config
    count = config.getoption("--workers")
    if not count or config.option.collectonly or session.testsfailed:
        return None  # also when a file cannot be read: pytest then says so, and runs nothing
    run = _Run(session)
    try:
        run.start(count)
        run.finish()
    finally:
        run.kill()
    return True


@dataclass
class _Process:
    pid: int
    ended: int  # readable when it has
    connection: Connection
    test: int | None = None  # the one that it runs, or ran last
    batch: str | None = None
    is_done: bool = False


def _reporter(config: pytest.Config) -> TerminalReporter:
    reporter: TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    return reporter


class _Run:
    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._config = session.config
        in_order = self._config.getoption("--shuffle") is not None
        self._batches = Batches([item.nodeid for item in session.items], in_order=in_order)
        self._processes: list[_Process] = []

    def start(self, count: int) -> None:
        _reporter(self._config).showfspath = False  # tests of many files come mixed
        sys.stdout.flush()
        sys.stderr.flush()
        self._config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all
        for number in range(count):
            ours, theirs = Pipe()
            pid = os.fork()
            if pid == 0:
                for connection in (ours, *(process.connection for process in self._processes)):
                    connection.close()  # only the parent may hold them: it must hear when a worker ends
                Worker(self._session, theirs, f"worker{number}").run()
            theirs.close()
            self._processes.append(_Process(pid, os.pidfd_open(pid), ours))

    def finish(self) -> None:
        """Hand out batches and take reports until all workers have ended."""
        while running := [process for process in self._processes if not process.is_done]:
            ready = set(wait([handle for process in running for handle in (process.connection, process.ended)]))
            for process in running:
                if ready & {process.connection, process.ended}:
                    self._hear(process)

    def _hear(self, process: _Process) -> None:
        ended = bool(select.select([process.ended], [], [], 0)[0])  # asked first: all that it sent is there then
        with suppress(EOFError, ConnectionResetError):
            while process.connection.poll():
                self._take(process, process.connection.recv())
        if ended:
            process.is_done = True
            _, status = os.waitpid(process.pid, 0)
            if status != 0:
                self._crashed(process, os.waitstatus_to_exitcode(status))

    def _take(self, process: _Process, message: object) -> None:
        match message:
            case Asks():
                process.batch = None
                process.batch = self._batches.take(
                    [other.batch for other in self._processes if other.batch is not None]
                )
                process.connection.send(self._batches.tests(process.batch) if process.batch is not None else [])
            case Started(test):
                process.test = test
            case Reported():
                self._log(message)
            case Broke(why):
                self._end(process, why)

    def _log(self, message: Reported) -> None:
        hook = self._config.hook
        for data in message.reports:
            report = hook.pytest_report_from_serializable(config=self._config, data=data)
            hook.pytest_runtest_logreport(report=report)
        for data in message.warned:
            warning = warnings.WarningMessage(UserWarning(data.pop("text")), UserWarning, **data.pop("where"))
            hook.pytest_warning_recorded.call_historic(kwargs={"warning_message": warning, **data})
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _crashed(self, process: _Process, code: int) -> None:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._end(process, f"the process that ran this test {how}")

    def _end(self, process: _Process, why: str) -> None:
        """A failure that belongs to no assertion: name the test, and end the run."""
        if process.test is None:
            _reporter(self._config).write_line(why)
            raise self._session.Failed(why)
        item = self._session.items[process.test]
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        self._config.hook.pytest_runtest_logreport(report=report)
        self._session.shouldfail = f"{item.nodeid}: {why}"
        raise self._session.Failed(self._session.shouldfail)

    def kill(self) -> None:
        """Leave no worker behind. What those have started, the watchdog ends."""
        for process in self._processes:
            if not process.is_done:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
                os.waitpid(process.pid, 0)
            process.connection.close()
            os.close(process.ended)
