"""One of the processes that run tests, forked from the one that collected them."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from ctypes import CDLL
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

if TYPE_CHECKING:
    import warnings
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from _pytest.terminal import TerminalReporter

NAME = "worker"  # of the plugin that each worker is, and the process that collects is not
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
# Servers of the session are stopped within it.
_END = 120.0


@dataclass(frozen=True)
class Asks:
    """The worker is ready for a file, or for a test that is handed out alone."""


@dataclass(frozen=True)
class Started:
    """A test begins."""

    test: int


@dataclass(frozen=True)
class Reported:
    """What pytest's hooks have to say about a test: whether its parts passed, and warnings."""

    reports: list[dict[str, Any]]
    warned: list[dict[str, Any]]


@dataclass(frozen=True)
class Broke:
    """Not a test failed but the run itself."""

    why: str


class Worker:
    """Runs batch after batch, and tells the process that collected them how it went."""

    def __init__(self, session: pytest.Session, connection: Connection, name: str) -> None:
        self._session = session
        self._config = session.config
        self._connection = connection
        self._name = name
        self._reports: list[dict[str, Any]] = []
        self._warned: list[dict[str, Any]] = []

    def run(self) -> NoReturn:
        """Run what the parent hands out until nothing is left."""
        code = 1
        try:
            self._become_a_worker()
            last = self._run_batches()
            faulthandler.dump_traceback_later(_END, exit=True)
            if last is not None:
                self._end_session(last)
            code = 0
        except KeyboardInterrupt:
            pass
        except BaseException:  # noqa: BLE001 - whatever it is, the run must say so
            self._connection.send(Broke(traceback.format_exc()))
        finally:
            os._exit(code)  # what the parent registered for its own end is not ours

    def _become_a_worker(self) -> None:
        CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() == 1:
            os._exit(1)  # it died before we asked
        plugins = self._config.pluginmanager
        capture = plugins.get_plugin("capturemanager")
        if capture is not None:  # the files that take what tests print are the parent's
            capture.stop_global_capturing()
            capture.start_global_capturing()
            capture.suspend_global_capture(in_=False)
        reporter = plugins.get_plugin("terminalreporter")
        assert reporter is not None
        plugins.unregister(reporter)
        plugins.register(_Silent(reporter), "terminalreporter")
        plugins.register(self, NAME)
        factory = self._config._tmp_path_factory  # type: ignore[attr-defined]
        factory._basetemp = factory.getbasetemp() / self._name
        factory._basetemp.mkdir(0o700)

    def _run_batches(self) -> pytest.Item | None:
        item = None
        while tests := self._next_batch():
            items = [self._session.items[test] for test in tests]
            # What belongs to the file is torn down at its end, what belongs to the session is kept for the next.
            following = [*items[1:], cast("pytest.Item", self._session)]
            for test, item, nextitem in zip(tests, items, following, strict=True):
                self._connection.send(Started(test))
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
                self._report()
        return item

    def _next_batch(self) -> Sequence[int]:
        self._connection.send(Asks())
        tests: Sequence[int] = self._connection.recv()
        return tests

    def _end_session(self, item: pytest.Item) -> None:
        """Tear down what the session shares. The last test answers for it."""
        call = pytest.CallInfo.from_call(lambda: self._session._setupstate.teardown_exact(None), "teardown")
        report = item.ihook.pytest_runtest_makereport(item=item, call=call)
        if not report.passed:
            self.pytest_runtest_logreport(report)
        self._report()

    def _report(self) -> None:
        self._connection.send(Reported(self._reports, self._warned))
        self._reports, self._warned = [], []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook
        self._reports.append(hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        where = {"filename": warning_message.filename, "lineno": warning_message.lineno}
        self._warned.append({"text": text, "where": where, "when": when, "nodeid": nodeid, "location": location})


class _Silent:
    """In place of the reporter: the parent prints. A test that takes too long still shows its stacks."""

    def __init__(self, reporter: TerminalReporter) -> None:
        self._tw = reporter._tw
        self._tw._file = sys.stderr
