"""A backup of `lcm up` is restored as docs/operations.md says: nothing happens before a person looked at it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.support.servers.etcd import free_ports
from tests.support.servers.processes import ROOT, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
SCRIPTS = ROOT / "deploy" / "drills"
PORTS = ("CONTROL_PLANE_PORT", "RESOURCE_SCHEDULER_PORT", "LABLET_CONTROLLER_PORT", "WORKER_CONTROLLER_PORT")


class Shell:
    """The terminals of a person who runs `lcm up`."""

    def __init__(self, folder: Path) -> None:
        ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        data = str(folder / "data")
        self._folder = folder
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("LCM_", "ETCD_"))},
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder),
            "LCM_DATA_DIR": data,
            **ports,
            "DATA": data,
            "COPY": str(folder / "copy"),
            "PYTHONPATH": str(ROOT / "src"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self.running: subprocess.Popen[bytes] | None = None

    def run(self, command: str) -> str:
        done = self.tried(command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def tried(self, command: str) -> subprocess.CompletedProcess[str]:
        words = ["bash", "-euo", "pipefail", "-c", command]
        return subprocess.run(words, env=self.env, cwd=self._folder, capture_output=True, text=True, check=False)

    def json(self, command: str) -> Any:
        return json.loads(self.run(f"{command} -o json"))

    def start(self, command: str) -> None:
        """Start a service in the foreground of another terminal, and wait until it responds."""
        with (self._folder / "log").open("ab") as log:
            self.running = subprocess.Popen(
                ["bash", "-c", command], env=self.env, cwd=self._folder, stdout=log, stderr=log, start_new_session=True
            )
        wait_until(lambda: self.items() is not None, f"{command} responds")
        self.run("lcm fleet")

    def items(self) -> list[dict[str, Any]] | None:
        """The workers; None while nobody responds. Each command of a shell would take a second of the processor."""
        try:
            token = Path(self.env["LCM_DATA_DIR"], "admin.token").read_text(encoding="utf-8").strip()
            url = f"http://127.0.0.1:{self.env[PORTS[0]]}/api/workers"
            answer = httpx.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=60, verify=False)
        except (OSError, httpx.HTTPError):
            return None
        found: list[dict[str, Any]] | None = answer.json()["items"] if answer.status_code == 200 else None
        return found

    def until(self, status: str) -> None:
        wait_until(lambda: [each["status"] for each in self.items() or ()] == [status], f"the worker is {status}")

    def end(self) -> None:
        if self.running is not None:
            os.killpg(self.running.pid, signal.SIGINT)
            self.running.wait()
            self.running = None


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.end()


def test_what_lcm_up_restores_waits_for_a_person(shell: Shell) -> None:
    (block,) = re.findall(r"```\n(LCM_BOOTSTRAP_TOKEN=.*?)```", PAGE, re.DOTALL)
    start, hold = [line.partition("  #")[0].strip() for line in block.splitlines()]
    shell.start("lcm up --empty")
    shell.run("lcm workers create kept --template small && lcm workers wait kept --for ready && lcm workers stop kept")
    shell.until("STOPPED")
    shell.run((SCRIPTS / "backup-sqlite.sh").read_text())
    shell.run("lcm workers start kept && lcm workers wait kept --for ready")
    shell.end()

    shell.run((SCRIPTS / "restore-sqlite.sh").read_text())
    shell.start(start)
    shell.run(hold)
    shell.end()
    shell.start("lcm up --empty")
    shell.until("RUNNING")
    assert shell.json("lcm workers get kept")["desired_status"] == "STOPPED"
    assert "waits for its release" in shell.run("lcm plan")
    shell.run("lcm fleet release")
    shell.until("STOPPED")
