"""A forked `lcm` process behaves like one that is started by `python -m lcm`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.servers.etcd import free_ports
from tests.support.servers.forked_lcm import fork_server
from tests.support.servers.processes import PATIENCE, ROOT, LcmProcess, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping


def forked(folder: Path, *arguments: str, **env: str) -> tuple[int, str, str]:
    out, err = folder / "out", folder / "err"
    out.unlink(missing_ok=True)
    err.unlink(missing_ok=True)
    process = fork_server().start(arguments, own(folder, env), out=str(out), err=str(err))
    return process.wait(PATIENCE), out.read_text(), err.read_text()


def started(folder: Path, *arguments: str, **env: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "lcm", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=own(folder, env), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def own(folder: Path, env: Mapping[str, str]) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONUTF8": "1", **env}


@pytest.mark.parametrize(
    "arguments", [("--version",), ("workers", "lst"), ("workers", "list", "--server", "ftp://x"), ("contexts", "list")]
)
def test_output_and_exit_code_are_the_same(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert forked(tmp_path, *arguments) == started(tmp_path, *arguments)


def test_each_has_an_environment_of_its_own(tmp_path: Path) -> None:
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert nowhere in forked(tmp_path, "whoami", LCM_URL=nowhere, LCM_TOKEN="t")[2]
    assert nowhere not in forked(tmp_path, "whoami")[2]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 0), (signal.SIGTERM, 0)])
def test_it_hears_signals(tmp_path: Path, number: signal.Signals, code: int) -> None:
    log = tmp_path / "log"
    port, control_port = free_ports(2)
    ports = ("--port", str(port), "--control-port", str(control_port))
    process = fork_server().start(("cml-simulator", *ports), own(tmp_path, {}), out=str(log), err=str(log))
    wait_until(lambda: log.exists() and str(port) in log.read_text(), "it runs")
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(PATIENCE) == code
    assert not Path(f"/proc/{process.pid}").exists()


def test_a_process_that_has_ended_can_be_signalled_and_ended_again(tmp_path: Path) -> None:
    process = LcmProcess(tmp_path, "quick", "--version", env={}).start()
    wait_until(lambda: not Path(f"/proc/{process.pid}").exists(), "its parent has removed it")
    process.signal(signal.SIGKILL)
    process.signal(signal.SIGCONT)
    process.end()
    assert process.wait() == 0
