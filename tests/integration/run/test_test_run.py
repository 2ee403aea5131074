"""A test run never hangs, leaves nothing behind, and says how it went: pytest in pytest, with our own conftest."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.run import watchdog
from tests.support.servers.processes import PATIENCE, ROOT, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

WITHOUT = ("-p", "no:schemathesis", "-p", "no:anyio")  # plugins that these tests do not need are half of their start
CONFTEST = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.conftest import *  # noqa: F403\n"


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start pytest on a file of tests, as a run of its own."""

    def start(
        source: str,
        *arguments: str,
        file: str = "test_it.py",
        sigint_ignored: bool = False,
        own_session: bool = False,
    ) -> subprocess.Popen[str]:
        (tmp_path / "conftest.py").write_text(CONFTEST)
        (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout_method = thread\n")
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(source)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            *WITHOUT,
            *arguments,
            str(tmp_path),
        ]
        before = signal.signal(signal.SIGINT, signal.SIG_IGN) if sigint_ignored else None
        try:
            return subprocess.Popen(
                command,
                env=environment,
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=own_session,
            )
        finally:
            if before is not None:
                signal.signal(signal.SIGINT, before)

    return start


def test_the_last_line_says_how_it_went(run: Callable[..., subprocess.Popen[str]]) -> None:
    output, _ = run("def test_good(): pass\ndef test_bad(): assert False\n").communicate(timeout=PATIENCE)
    last = output.strip().splitlines()[-1]
    assert last.startswith("1 passed, 1 failed, ")
    assert last.endswith(" seconds")


def test_children_hear_an_interrupt_although_the_run_was_started_with_it_ignored(
    run: Callable[..., subprocess.Popen[str]],
) -> None:
    source = """
import signal, subprocess, sys
def test_interrupt():
    child = subprocess.Popen([sys.executable, "-c", "print('up', flush=True); import time; time.sleep(60)"], stdout=-1)
    assert child.stdout.readline() == b"up\\n"
    child.send_signal(signal.SIGINT)
    assert child.wait(180) == -signal.SIGINT
"""
    output, _ = run(source, sigint_ignored=True).communicate(timeout=PATIENCE)
    assert "1 passed, 0 failed" in output


def test_a_stuck_worker_ends_the_run_and_is_named(run: Callable[..., subprocess.Popen[str]]) -> None:
    source = "import time\ndef test_stuck(): time.sleep(1000)\ndef test_good(): pass\n"
    stuck = run(source, "--workers", "2", "--timeout", "3")
    output, _ = stuck.communicate(timeout=PATIENCE)
    assert "FAILED test_it.py::test_stuck" in output
    assert "time.sleep(1000)" in output  # the stacks, where it is stuck
    assert stuck.returncode == 1


def test_a_worker_that_crashed_ends_the_run_and_is_named(run: Callable[..., subprocess.Popen[str]]) -> None:
    source = """
import os, signal, time
def test_good(): pass
def test_crashes(): os.kill(os.getpid(), signal.SIGKILL)
def test_never(): pass
"""
    crashed = run(source, "--workers", "1")
    output, _ = crashed.communicate(timeout=PATIENCE)
    assert "FAILED test_it.py::test_crashes" in output
    assert "the process that ran this test was ended by SIGKILL" in output
    assert output.strip().splitlines()[-1].startswith("1 passed, 1 failed, ")
    assert crashed.returncode == 1


def test_workers_report_failures_warnings_and_the_end_of_the_session(run: Callable[..., subprocess.Popen[str]]) -> None:
    source = """
import warnings
import pytest
@pytest.fixture(scope="session")
def server():
    yield
    raise ValueError("the server does not stop")
def test_good(server, tmp_path): warnings.warn("mind this")
def test_bad(): assert "left" == "right"
"""
    output, _ = run(source, "--workers", "1").communicate(timeout=PATIENCE)
    assert "UserWarning: mind this" in output
    assert "FAILED test_it.py::test_bad - AssertionError: assert 'left' == 'right'" in output
    assert "ERROR test_it.py::test_bad - ValueError: the server does not stop" in output
    assert output.strip().splitlines()[-1].startswith("1 passed, 2 failed, ")


@pytest.mark.parametrize("arguments", [(), ("--workers", "2")], ids=["alone", "workers"])
def test_a_run_that_is_interrupted_says_how_it_went(
    run: Callable[..., subprocess.Popen[str]], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    note = tmp_path / "note"
    source = f"""
import os, time
def test_good(): pass
def test_long():
    with open({str(note)!r}, "w") as file:
        file.write(f"{{os.getpid()}}\\n")
    time.sleep(1000)
"""
    running = run(source, *arguments, own_session=True)
    wait_until(lambda: note.exists() and note.read_text().endswith("\n"), "the test runs")
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does, to all processes of the run
    output, _ = running.communicate(timeout=PATIENCE)
    assert re.fullmatch(r"[01] passed, 0 failed, \d+ seconds", output.strip().splitlines()[-1]), output
    assert "KeyboardInterrupt" in output
    assert running.returncode == 2
    assert not Path(f"/proc/{note.read_text().strip()}").exists()


def test_tests_that_share_no_server_run_side_by_side_and_share_what_one_of_them_made(
    run: Callable[..., subprocess.Popen[str]],
) -> None:
    source = f"""
import os, time
import pytest
from tests.support.run.once import once
@pytest.mark.parametrize(("mine", "other"), [("first", "second"), ("second", "first")])
def test_both(run_folder, mine, other):
    (run_folder / mine).touch()
    deadline = time.monotonic() + {PATIENCE}
    while not (run_folder / other).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    def make():
        with (run_folder / "calls").open("a") as calls:
            calls.write("made ")
        return "text"
    assert once(run_folder / "made.txt", make) == "text"
    assert (run_folder / "calls").read_text() == "made "
"""
    output, _ = run(source, "--workers", "2", file="tests/platform/test_both.py").communicate(timeout=2 * PATIENCE)
    assert "2 passed, 0 failed, " in output, output


def test_nothing_is_left_of_a_killed_run(run: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    source = f"""
import os, subprocess, time
def test_long():
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with open({str(tmp_path / "note")!r}, "w") as file:
        file.write(f"{{os.getpid()}} {{os.environ['{watchdog.VARIABLE}']}}\\n")
    time.sleep(1000)
"""
    running = run(source, "--workers", "1")
    note = tmp_path / "note"
    wait_until(lambda: note.exists() and note.read_text().endswith("\n"), "the test runs")
    worker, marker = note.read_text().split()
    assert watchdog.marked(marker) != []
    running.kill()
    running.communicate()
    wait_until(lambda: not Path(f"/proc/{worker}").exists(), "the worker has ended")
    wait_until(lambda: watchdog.marked(marker) == [], "everything of the run has ended")


def test_nothing_is_left_of_a_run_whose_make_was_killed(tmp_path: Path) -> None:
    """CI ends what it started, which is make, and pytest must not go on alone."""
    note = tmp_path / "note"
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(
        f"""
import os, time
def test_long():
    with open({str(note)!r}, "w") as file:
        file.write(f"{{os.getppid()}} {{os.environ['{watchdog.VARIABLE}']}}\\n")
    time.sleep(1000)
"""
    )
    command = " ".join([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *WITHOUT, "--workers", "1"])
    (tmp_path / "Makefile").write_text(f"test:\n\t{command}\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    make = subprocess.Popen(["make", "test"], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    wait_until(lambda: note.exists() and note.read_text().endswith("\n"), "the test runs")
    pytest_process, marker = note.read_text().split()
    make.kill()
    make.wait()
    wait_until(lambda: not Path(f"/proc/{pytest_process}").exists(), "pytest has ended")
    wait_until(lambda: watchdog.marked(marker) == [], "everything of the run has ended")


def test_a_socket_that_outlives_its_test_fails_that_test(run: Callable[..., subprocess.Popen[str]]) -> None:
    source = """
import socket
from tests.support.run import sockets
sockets.patience = 0.1
kept = []
def test_before(): socket.socket().close()
def test_leaves_one(): kept.append(socket.create_server(("127.0.0.1", 0)))
def test_after(): assert kept[0].fileno() >= 0
"""
    output, _ = run(source).communicate(timeout=PATIENCE)
    assert "ERROR test_it.py::test_leaves_one - AssertionError: sockets outlive the test" in output
    assert "3 passed, 1 failed, " in output


def test_a_task_that_outlives_its_test_fails_that_test(run: Callable[..., subprocess.Popen[str]]) -> None:
    source = """
import asyncio
from tests.support.run import tasks
tasks.patience = 0.1
kept = []
async def forever(): await asyncio.Event().wait()
async def test_leaves_one(): kept.append(asyncio.create_task(forever()))
async def test_after(): await asyncio.sleep(0)
"""
    output, _ = run(source, "--asyncio-mode", "auto").communicate(timeout=PATIENCE)
    assert "ERROR test_it.py::test_leaves_one - AssertionError: tasks outlive" in output
    assert "2 passed, 1 failed, " in output


def test_a_slow_example_of_a_property_does_not_fail(run: Callable[..., subprocess.Popen[str]]) -> None:
    source = """
import time
from hypothesis import given, settings, strategies
@given(strategies.integers())
@settings(max_examples=2)
def test_slow(number): time.sleep(0.3)
"""
    output, _ = run(source).communicate(timeout=PATIENCE)
    assert "1 passed, 0 failed, " in output


def test_the_same_seed_shuffles_to_the_same_order(run: Callable[..., subprocess.Popen[str]]) -> None:
    source = "import pytest\n@pytest.mark.parametrize('number', range(40))\ndef test_it(number): pass\n"

    def order(*arguments: str) -> list[str]:
        output, _ = run(source, "-v", *arguments).communicate(timeout=PATIENCE)
        assert "40 passed, 0 failed, " in output
        if arguments:
            assert f"the order was {' '.join(arguments)}" in output
        return re.findall(r"test_it\[(\d+)\]", output)

    first = order("--shuffle", "1")
    assert first == order("--shuffle", "1")
    assert len({tuple(first), tuple(order("--shuffle", "2")), tuple(order())}) == 3
