"""Three hosts on loopback, set up by the scripts that docs/operations.md quotes: etcd, MongoDB, balancer and LCM."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from deploy.image_test.downloads import mongosh
from tests.support.aws.credentials import CREDENTIALS, REGION
from tests.support.servers import etcd, mongod
from tools.debian_packages import find

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent
HOSTS = ("127.77.0.1", "127.77.0.2", "127.77.0.3")
BALANCER = "127.77.0.10:8443"
STATUS = "127.77.0.10:8404"
ADMIN = "a" * 32
CONTROLLERS = ("worker-controller", "resource-scheduler", "lablet-controller")
"""In the order in which docs/operations.md upgrades them."""
_PORTS = {"control-plane": 8080, "worker-controller": 8083, "resource-scheduler": 8081, "lablet-controller": 8082}
PATIENCE = 240.0
_FIRST_HOST = ("--host", "localhost", "--tls", "--tlsCAFile", "ca.crt", "--quiet")


def wait_until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> float:
    """Wait for a condition; returns the seconds. The limit is generous because hosts are busy."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < patience, f"did not happen: {what}"
        time.sleep(0.1)
    return time.monotonic() - began


class Service:
    """A process of one host, with its log in a file."""

    def __init__(self, site: Site, host: int, name: str, *command: str | Path, env: dict[str, str]) -> None:
        self.host = host
        self.name = name
        self.env = env
        self._site = site
        self._command = [str(each) for each in command]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Service:
        with (self._site.folder / f"{self.name}-{self.host}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._site.folder,
                env=self._site.environment(self.host) | self.env,
                stdout=log,
                stderr=log,
            )
        return self

    def start_again_if_it_ended(self) -> None:
        """As systemd does by `Restart=always`: a busy MongoDB may not respond in time to one that starts."""
        if self._process is not None and self._process.poll() is not None:
            self.start()

    def wait(self) -> int:
        """Wait until it ends by itself; returns its exit code."""
        assert self._process is not None
        return self._process.wait(PATIENCE)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, such as the one that suspends it."""
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it and wait; returns its exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self.wait()


class Site:
    """All hosts. `source` is the folder of LCM's code, of one version or another."""

    def __init__(self, folder: Path, aws_url: str, proxy_url: str, source: Path) -> None:
        self.folder = folder
        self.source = source
        self.data = [folder / f"host{number}" for number in range(1, len(HOSTS) + 1)]
        for each in self.data:
            each.mkdir()
        self._aws = {**CREDENTIALS, "AWS_ENDPOINT_URL": aws_url, "CML_PROXY_URL": proxy_url}
        self.settings = {
            "ETCD_ENDPOINTS": ",".join(f"https://{host}:2379" for host in HOSTS),
            # LCM_CA_FILE would do for both, but the version to upgrade from may not have it.
            "ETCD_CA_FILE": str(folder / "ca.crt"),
            "ETCD_CERT_FILE": str(folder / "lcm.crt"),
            "ETCD_KEY_FILE": str(folder / "lcm.key"),
            "STORE_URL": f"mongodb://lcm:lcm-password@{','.join(HOSTS)}/?replicaSet=lcm&tls=true&authSource=admin"
            f"&tlsCAFile={folder}/ca.crt",
            "LCM_BOOTSTRAP_TOKEN": ADMIN,
            "LCM_CONTROLLER_TOKEN": "c" * 32,
            "LCM_SECRET_KEY": "a" * 43 + "=",
            "FORWARDED_ALLOW_IPS": "127.0.0.1",
            "AWS_DEFAULT_REGION": REGION,
            "CML_DEFAULT_PASSWORD": "simulated",
            "RETRY_INTERVAL": "1",
            "RECONCILE_INTERVAL": "5",
            **self._aws,
        }
        self.services: list[Service] = []

    def environment(self, host: int) -> dict[str, str]:
        """What a script reads on a host, numbered from 1."""
        programs = {str(path.parent) for path in (etcd.binary(), mongod.binary(), mongosh())}
        path = ":".join([str(Path(sys.executable).parent), *sorted(programs), os.environ["PATH"]])
        hosts = {f"HOST{number}": address for number, address in enumerate(HOSTS, 1)}
        passwords = {f"{user}_PASSWORD": f"{user.lower()}-password" for user in ("ROOT", "LCM", "BACKUP")}
        bind = f"{HOSTS[0]},localhost" if host == 1 else HOSTS[host - 1]
        own = {"NAME": f"etcd{host}", "HOST": HOSTS[host - 1], "BIND": bind, "DATA": str(self.data[host - 1])}
        return {"PATH": path, "HOME": str(self.folder), **hosts, **passwords, **own}

    def script(self, name: str, **env: str) -> None:
        """Run a script to its end, on the first host."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", str(SCRIPTS / name)],
            cwd=self.folder,
            env=self.environment(1) | env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def add(self, host: int, name: str, *command: str | Path, **env: str) -> Service:
        self.services.append(Service(self, host, name, *command, env=env))
        return self.services[-1].start()

    def remove(self, service: Service) -> None:
        """End it for good."""
        assert service.end() == 0
        self.services.remove(service)

    def of(self, *names: str) -> list[Service]:
        """The services of these kinds, kind by kind."""
        return [each for name in names for each in self.services if each.name == name]

    # From nothing to a running site

    def start_stores(self) -> None:
        """etcd and MongoDB of all hosts, with their users."""
        self.start_mongods()
        for host in (1, 2, 3):
            self.add(host, "etcd", "bash", SCRIPTS / "etcd.sh")
        assert self.make_replica_set()

    def start_mongods(self) -> None:
        """Until there are users, each lets only its own host in."""
        names = ",".join(f"IP:{host}" for host in (*HOSTS, BALANCER.partition(":")[0]))
        self.script("certificates.sh", HOSTS=names)
        for host in (1, 2, 3):
            self.add(host, "mongod", "bash", SCRIPTS / "mongod.sh")
        ping = [str(mongosh()), *_FIRST_HOST, "--eval", "db.hello().ok"]
        wait_until(lambda: self._ends_well(ping), "mongod responds")

    def make_replica_set(self) -> bool:
        """Whether the script for it ends well."""
        return self._ends_well([str(mongosh()), *_FIRST_HOST, str(SCRIPTS / "replica-set.js")])

    def _ends_well(self, command: list[str]) -> bool:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment(1), capture_output=True, text=True, check=False
        )
        (self.folder / "mongosh.log").write_text(done.stdout + done.stderr)
        return done.returncode == 0

    def start_balancers(self) -> None:
        """The one of people, and on each host that of its controllers."""
        people = {
            "bind :443": f"bind {BALANCER}",
            "127.0.0.1:8404": STATUS,
            "/etc/lcm/server.pem": f"{self.folder}/server.pem",
        }
        self._start_haproxy(3, "haproxy", ROOT / "deploy" / "haproxy.cfg", people)
        for host in (1, 2):
            own = {"127.0.0.1:8090": f"{HOSTS[host - 1]}:8090"}
            self._start_haproxy(host, "haproxy-of-controllers", ROOT / "deploy" / "systemd" / "haproxy.cfg", own)

    def _start_haproxy(self, host: int, name: str, example: Path, own: dict[str, str]) -> None:
        text = example.read_text()
        for general, here in own.items():
            assert general in text
            text = text.replace(general, here)
        text = re.sub(r"10\.0\.0\.1([12])", r"127.77.0.\1", text)
        (self.folder / f"{name}-{host}.cfg").write_text(text)
        haproxy = find("haproxy")
        assert haproxy is not None
        self.add(host, name, haproxy, "-f", f"{name}-{host}.cfg")

    def lcm_settings(self, host: int, source: Path | None = None) -> dict[str, str]:
        own = {"BIND_HOST": HOSTS[host - 1], "LCM_DATA_DIR": str(self.data[host - 1] / "lcm"), "LOG_FORMAT": "json"}
        own["CONTROL_PLANE_API_URL"] = f"http://{HOSTS[host - 1]}:8090"  # not through the balancer of people
        return {**self.settings, **own, "PYTHONPATH": str(source or self.source)}

    def add_lcm(self, host: int, service: str, **env: str) -> Service:
        return self.add(host, service, sys.executable, "-m", "lcm", service, **(self.lcm_settings(host) | env))

    def restart(self, service: Service, source: Path) -> None:
        """As an upgrade does it on one host: stop, another version, wait until it is ready and the balancer uses it."""
        assert service.end() == 0
        service.env["PYTHONPATH"] = str(source)
        service.start()
        wait_until(lambda: self.is_ready(service), f"{service.name} on host {service.host} is ready")
        if service.name == "control-plane":
            wait_until(lambda: self._is_used(service), "the balancer uses it again")

    def _is_used(self, service: Service) -> bool:
        rows = csv.DictReader(self.get(f"http://{STATUS}/;csv").removeprefix("# ").splitlines())
        return any(row["svname"] == f"control-plane-{service.host}" and row["status"] == "UP" for row in rows)

    def is_ready(self, service: Service) -> bool:
        service.start_again_if_it_ended()
        return '"ready":true' in self._get_from(service, "/ready")

    def leads(self, service: Service) -> bool:
        """Whether a controller leads those of its kind."""
        return '"is_leader":true' in self._get_from(service, "/health")

    def _get_from(self, service: Service, path: str) -> str:
        return self.get(f"http://{HOSTS[service.host - 1]}:{_PORTS[service.name]}{path}")

    def stop(self) -> None:
        for service in reversed(self.services):
            service.end(signal.SIGKILL)

    # Requests

    def get(self, url: str) -> str:
        done = subprocess.run(
            ["curl", "-s", "-m", "20", "--cacert", "ca.crt", url], cwd=self.folder, capture_output=True, check=False
        )
        return done.stdout.decode()

    def lcm(self, *arguments: str, url: str = f"https://{BALANCER}", **env: str) -> Any:
        """A command of a person, through the balancer."""
        ca = {"LCM_CA_FILE": str(self.folder / "ca.crt"), "LCM_URL": url, "LCM_TOKEN": ADMIN}
        done = subprocess.run(
            [sys.executable, "-m", "lcm", *arguments, "-o", "json"],
            env=self.environment(1) | ca | env,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return json.loads(done.stdout or "null")

    def status(self, name: str, **options: str) -> str:
        try:
            found = self.lcm("workers", "list", **options)
        except RuntimeError:
            return "unknown"
        return next((str(each["status"]) for each in found if each["name"] == name), "missing")

    def define_lablets(self) -> None:
        """What `run_lablet` creates lablets from."""
        definition = yaml.safe_load((ROOT / "examples" / "two-routers.yaml").read_text())
        few = {"cpu_cores": 0.1, "memory_gb": 0.1, "storage_gb": 1}
        file = self.folder / "definition.yaml"
        needs = definition["requirements"] | few | {"license": False}
        file.write_text(yaml.safe_dump(definition | {"name": "drill", "requirements": needs}))
        self.lcm("definitions", "create", "-f", str(file))

    def run_lablet(self, name: str) -> float:
        """Create a lablet and end it when it runs, which needs all three kinds of controllers; returns the seconds."""
        self.lcm("lablets", "create", "drill", "--name", name)
        seconds = wait_until(lambda: self._lablet_status(name) == "RUNNING", f"the lablet {name} runs")
        self.lcm("lablets", "terminate", name, "--yes")
        return seconds

    def _lablet_status(self, name: str) -> str:
        try:
            found = self.lcm("lablets", "list")
        except RuntimeError:
            return "unknown"
        return next((str(each["status"]) for each in found if each["name"] == name), "missing")
