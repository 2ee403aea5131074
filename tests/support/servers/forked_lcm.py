"""`lcm` processes without their start-up: forked from one process that has imported all of LCM.

A process that a test starts would spend a second on imports otherwise. A forked one is as real: it has arguments,
environment and files of its own, hears signals, can be killed or suspended, and exits with a code.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from fcntl import ioctl
from functools import cache
from importlib import import_module
from pathlib import Path
from termios import TIOCSCTTY
from typing import TYPE_CHECKING, Any, NoReturn

import lcm
from lcm.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_ROOT = Path(__file__).parents[3]
# What LCM imports when it is first used.
_LATE = ("boto3", "rich.live", "yaml")


class ForkedProcess:
    """One `lcm` process, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid

    def poll(self) -> int | None:
        """The exit code, if it has ended."""
        return self._server.exit_code(self.pid)

    def send_signal(self, number: signal.Signals) -> None:
        """Do nothing if it has ended: its parent may have removed it from the process table at any moment."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, timeout: float) -> int:
        """Wait for its end; returns the exit code."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"lcm process {self.pid}", timeout)
            time.sleep(0.005)
        return code


class ForkServer:
    """The process that has imported everything, as its tests see it."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.support.servers.forked_lcm"]
        environment = {**os.environ, "PYTHONUTF8": "1"}
        self._process = subprocess.Popen(
            command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._lock = threading.Lock()
        self._unread = b""
        self._codes: dict[int, int] = {}
        atexit.register(self.close)

    def start(self, arguments: Sequence[str], env: Mapping[str, str], **files: str) -> ForkedProcess:
        """Run `lcm`. Its output is added to the files `out` and `err`, or it has the `terminal` of this name."""
        order = {"arguments": arguments, "env": dict(env), **files}
        with self._lock:
            assert self._process.stdin is not None
            _write_line(self._process.stdin.fileno(), order)
            while True:
                for event in self._events():
                    if "started" in event:
                        return ForkedProcess(self, event["started"])

    def exit_code(self, pid: int) -> int | None:
        """The exit code of a process that has ended."""
        with self._lock:
            assert self._process.stdout is not None
            while pid not in self._codes and select.select([self._process.stdout], [], [], 0)[0]:
                list(self._events())
            return self._codes.get(pid)

    def close(self) -> None:
        """End it, but not the processes that it forked."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _events(self) -> Iterator[dict[str, int]]:
        """Wait for what the process says next. Exit codes are noted."""
        assert self._process.stdout is not None
        data = os.read(self._process.stdout.fileno(), 65_536)
        assert data, "the process that forks lcm processes has ended"
        *lines, self._unread = (self._unread + data).split(b"\n")
        events: list[dict[str, int]] = [json.loads(line) for line in lines]
        self._codes |= {event["ended"]: event["code"] for event in events if "ended" in event}
        yield from events


@cache
def fork_server() -> ForkServer:
    """The one of this pytest worker, started on first use."""
    return ForkServer()


def _write_line(descriptor: int, value: object) -> None:
    data = json.dumps(value).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


def serve() -> None:
    """Fork a process for each line of input; say when one was started and when one has ended."""
    before = dict(os.environ)
    ours = [module.name for module in pkgutil.walk_packages(lcm.__path__, "lcm.") if module.name != "lcm.__main__"]
    for name in (*ours, *_LATE):
        import_module(name)
    set_by_imports = {name: value for name, value in os.environ.items() if before.get(name) != value}
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy all of it
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    unread = b""
    while True:
        ready, _, _ = select.select([0, reader], [], [])
        if reader in ready:
            os.read(reader, 4096)
            _say_which_ended()
        if 0 in ready:
            data = os.read(0, 65_536)
            if not data:
                return  # the tests have ended
            *orders, unread = (unread + data).split(b"\n")
            for line in orders:
                pid = os.fork()
                if pid == 0:
                    os.close(reader)
                    os.close(writer)
                    _become_lcm(json.loads(line), set_by_imports)
                _write_line(1, {"started": pid})


def _say_which_ended() -> None:
    with suppress(ChildProcessError):  # none is left
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _write_line(1, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _become_lcm(order: dict[str, Any], set_by_imports: dict[str, str]) -> NoReturn:
    """In the forked process: be as if started by `python -m lcm`."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if "terminal" in order:
        os.setsid()
        descriptors = [os.open(order["terminal"], os.O_RDWR)] * 3
        ioctl(descriptors[0], TIOCSCTTY, 0)
    else:
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        descriptors = [
            os.open(os.devnull, os.O_RDONLY),
            os.open(order["out"], append, 0o644),
            os.open(order["err"], append, 0o644),
        ]
    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)
    for descriptor in set(descriptors):
        os.close(descriptor)
    os.environ.clear()
    os.environ.update({**set_by_imports, **order["env"]})
    time.tzset()
    sys.argv = ["lcm", *order["arguments"]]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = open(1, "w", buffering=1 if os.isatty(1) else -1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    code = 1
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:  # noqa: BLE001 - shown as the interpreter shows it
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    os._exit(code)  # the end of the interpreter would visit all that was imported


if __name__ == "__main__":
    serve()
