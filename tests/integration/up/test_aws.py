"""`lcm up --cloud aws` on a terminal: it observes, shows the plan, asks, and only then acts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import urllib.request
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from lcm.core import clock
from tests.support.aws.conformance import RUN
from tests.support.aws.conformance_aws import ACCOUNT, AwsBed
from tests.support.aws.credentials import CREDENTIALS, REGION, dummy_credentials
from tests.support.servers.etcd import free_ports
from tests.support.servers.processes import PATIENCE, ROOT, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def aws() -> Iterator[AwsBed]:
    with dummy_credentials():
        bed = AwsBed()
        bed._add_image("cml-2.9.1", ACCOUNT, clock.now() - timedelta(days=1), "available")
        yield bed
        asyncio.run(bed.close())


class Terminal:
    """A command on a pseudo-terminal: its output and its keyboard."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        ours, theirs = pty.openpty()
        self._terminal = ours
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=theirs, stdout=theirs, stderr=subprocess.STDOUT, start_new_session=True
        )
        os.close(theirs)
        os.set_blocking(ours, False)
        self.shown = ""

    def wait_for(self, text: str) -> None:
        """Wait until the text is on the screen."""
        deadline = time.monotonic() + PATIENCE
        while text not in self._read():
            assert time.monotonic() < deadline, f"{text!r} was not shown:\n{self.shown}"
            time.sleep(0.1)

    def type(self, text: str) -> None:
        """Type the text."""
        os.write(self._terminal, text.encode())

    def end(self, number: signal.Signals | None = signal.SIGTERM) -> int:
        """The exit code; without a signal the command must end on its own."""
        if number is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)
        deadline = time.monotonic() + PATIENCE
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end:\n{self.shown}"
            self._read()
            time.sleep(0.1)
        self._read()
        os.close(self._terminal)
        return self._process.returncode

    def kill(self) -> None:
        """Whatever state it is in."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> str:
        with contextlib.suppress(OSError):  # no new output, or the other end is closed
            self.shown += os.read(self._terminal, 65536).decode(errors="replace")
        return self.shown


@pytest.fixture
def command(tmp_path: Path, aws: AwsBed) -> Iterator[Callable[..., Terminal]]:
    ports = free_ports(4)
    started: list[Terminal] = []
    env = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("ETCD_", "LCM_", "AWS_"))},
        **CREDENTIALS,
        "AWS_ENDPOINT_URL": aws.server.url,
        "LCM_DATA_DIR": str(tmp_path / "data"),
        "CONTROL_PLANE_PORT": str(ports[0]),
        "WORKER_CONTROLLER_PORT": str(ports[1]),
        "RESOURCE_SCHEDULER_PORT": str(ports[2]),
        "LABLET_CONTROLLER_PORT": str(ports[3]),
        "LOG_LEVEL": "error",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "RECONCILE_INTERVAL": "2",
        "INITIAL_DELAY": "0.1",
    }

    def start(*more: str) -> Terminal:
        started.append(Terminal([sys.executable, "-m", "lcm", "up", "--cloud", "aws", "--region", REGION, *more], env))
        return started[-1]

    yield start
    for terminal in started:
        terminal.kill()


def launches(aws: AwsBed) -> int:
    return aws.calls().get(RUN, 0)


def test_a_no_changes_nothing(command: Callable[..., Terminal], aws: AwsBed) -> None:
    terminal = command()
    terminal.wait_for("Continue? [y/N]")
    assert f"{REGION}  account {ACCOUNT}: 0 instances, 0 workers" in terminal.shown
    assert "No planned changes." in terminal.shown
    terminal.type("n\n")
    terminal.wait_for("No changes made.")
    assert terminal.end(None) == 0
    assert launches(aws) == 0


def test_ctrl_c_at_the_question_changes_nothing_and_ends(command: Callable[..., Terminal], aws: AwsBed) -> None:
    terminal = command()
    terminal.wait_for("Continue? [y/N]")
    assert terminal.end(signal.SIGINT) == 0
    assert launches(aws) == 0


def test_after_a_yes_it_does_what_it_said(command: Callable[..., Terminal], aws: AwsBed, tmp_path: Path) -> None:
    first = command()
    first.wait_for("Continue? [y/N]")
    port = re.findall(r"API +http://127\.0\.0\.1:(\d+)", first.shown)[0]
    token = (tmp_path / "data" / "admin.token").read_text().strip()
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/workers",
        json.dumps({"name": "alpha", "template_name": "small"}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 201
    first.type("\n")
    assert first.end(None) == 0
    assert launches(aws) == 0

    second = command()
    second.wait_for("Continue? [y/N]")
    assert "alpha: An instance will be launched (t3.small in " in " ".join(second.shown.split())
    assert launches(aws) == 0
    second.type("yes\n")
    wait_until(lambda: len(asyncio.run(aws.live_instances())) == 1, "it launches after the yes")
    assert second.end() == 0
    assert len(asyncio.run(aws.live_instances())) == 1


def test_without_a_terminal_it_requires_yes(aws: AwsBed, tmp_path: Path) -> None:
    env = {**os.environ, **CREDENTIALS, "AWS_ENDPOINT_URL": aws.server.url, "LCM_DATA_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "lcm", "up", "--cloud", "aws"],
        cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--yes" in done.stderr
