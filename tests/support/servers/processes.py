"""Real processes of the platform, driven by real signals."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.support.run.suspension import suspend
from tests.support.servers.etcd import free_ports
from tests.support.servers.forked_lcm import fork_server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.servers.forked_lcm import ForkedProcess

ROOT = Path(__file__).parents[3]
PATIENCE = 180.0
# A kept connection may be closed by the server just when the client sends the next request on it.
ONE_REQUEST_EACH = httpx.Limits(max_keepalive_connections=0)


def wait_until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition of another process. The timeout is generous because test hosts are busy."""
    deadline = time.monotonic() + patience
    asked = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < deadline, f"did not happen: {what}"
        # What is expensive to ask is asked less often: what happens meanwhile needs the processor too.
        time.sleep(min(max(0.05, 3 * (now - asked)), 0.5))
        asked = time.monotonic()


class LcmProcess:
    """One `lcm` process with its own settings; its log and its diary are files.

    It is forked, which is faster, unless the test is about the start of `python -m lcm` itself.
    """

    def __init__(self, folder: Path, name: str, *arguments: str, env: Mapping[str, str], forked: bool = True) -> None:
        self.name = name
        self.forked = forked
        self.port, plane_port, scheduler_port, lablets_port = free_ports(4)
        self.diary_path = folder / f"{name}.diary"
        self.log_path = folder / f"{name}.log"
        self._arguments = arguments
        self._env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("ETCD_", "LCM_"))},
            "WORKER_CONTROLLER_PORT": str(self.port),
            "CONTROL_PLANE_PORT": str(plane_port),
            "RESOURCE_SCHEDULER_PORT": str(scheduler_port),
            "LABLET_CONTROLLER_PORT": str(lablets_port),
            "WORKER_CONTROLLER_INSTANCE_ID": name,
            "LCM_DATA_DIR": str(folder / f"{name}.data"),
            "LOG_FORMAT": "json",
            "XDG_CONFIG_HOME": str(folder / f"{name}.config"),
            "DIARY": str(self.diary_path),
            "INITIAL_DELAY": "0.1",
            **env,
        }
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    def add_settings(self, **settings: str) -> None:
        """Environment variables for the next start."""
        self._env |= settings

    def start(self) -> LcmProcess:
        self.log_path.touch()
        if self.forked:
            log = str(self.log_path)
            self._process = fork_server().start(self._arguments, self._env, out=log, err=log)
            return self
        with self.log_path.open("ab") as file:
            command = [sys.executable, "-m", "lcm", *self._arguments]
            self._process = subprocess.Popen(command, cwd=ROOT, env=self._env, stdout=file, stderr=file)
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        if number is signal.SIGSTOP:
            suspend(self.pid)
        else:
            self._process.send_signal(number)

    def wait(self, patience: float = PATIENCE) -> int:
        assert self._process is not None
        return self._process.wait(patience)

    def end(self) -> None:
        """End the process in any state; SIGKILL ends a suspended one too."""
        if self.running:
            self.signal(signal.SIGKILL)
            self.wait()

    def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON of one of its HTTP routes; status 0 while it does not respond."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except OSError:
            return 0, None

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples with this name and these labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as response:
            lines = response.read().decode().splitlines()
        wanted = "".join(f"{line}\n" for line in lines if line.startswith(name))  # parsing all takes long
        samples = [sample for family in text_string_to_metric_families(wanted) for sample in family.samples]
        return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())

    @property
    def is_leader(self) -> bool:
        status, body = self.get("/health")
        return status == 200 and bool(body["is_leader"])

    def diary(self) -> list[dict[str, Any]]:
        if not self.diary_path.exists():
            return []
        lines = self.diary_path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def logged(self, event: str) -> list[dict[str, Any]]:
        # The last line may be half written.
        lines = self.log_path.read_text().splitlines(keepends=True)
        entries = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]
        return [entry for entry in entries if entry["event"] == event]


def assert_never_two_leaders(processes: list[LcmProcess]) -> list[int]:
    """Processes share a machine, so their clocks are one: the spans in which each led must not overlap.

    Returns the terms in the order of time.
    """
    spans: dict[int, tuple[float, float, str]] = {}
    for process in processes:
        for line in process.diary():
            first, last, owner = spans.get(line["term"], (line["at"], line["at"], process.name))
            assert owner == process.name, f"term {line['term']} was led by {owner} and {process.name}"
            spans[line["term"]] = (min(first, line["at"]), max(last, line["at"]), owner)
    in_time = sorted((first, last, term) for term, (first, last, _) in spans.items())
    for (_, last, term), (first, _, following) in itertools.pairwise(in_time):
        assert last < first, f"terms {term} and {following} overlap"
    terms = [term for _, _, term in in_time]
    assert terms == sorted(terms), "a term went back"
    return terms
