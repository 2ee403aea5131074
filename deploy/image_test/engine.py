"""podman with a network namespace and storage of its own: what runs on the machine is not touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.image_test.downloads import (
    BIN,
    FOLDER,
    CommandFailedError,
    mongosh,
    run,
    servers_base,
    wheels,
)
from tests.support.servers import etcd, mongod

if TYPE_CHECKING:
    from collections.abc import Callable

PYTHON_IMAGE = "docker.io/library/python:3.13-slim"
IMAGE = "localhost/lcm:0.1.0"
SERVERS = "localhost/servers"
_CONTAINERS = f"""\
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "/run/libpod/image-test"
[network]
network_backend = "netavark"
network_config_dir = "{FOLDER}/networks"
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
"""


def wait_until(condition: Callable[[], object], what: str, patience: float = 300.0) -> float:
    """Wait for a condition; returns the seconds it took. The limit is generous because hosts are busy."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < patience, f"did not happen: {what}"
        time.sleep(0.5)
    return time.monotonic() - began


class Engine:
    """Commands of podman and podman-compose. Close it: that removes all containers and images."""

    def __init__(self) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        for name in ("networks", "storage", "run"):  # of a run that was killed; its mounts ended with it
            shutil.rmtree(FOLDER / name, ignore_errors=True)
        storage = f'[storage]\ndriver = "overlay"\ngraphroot = "{FOLDER}/storage"\nrunroot = "{FOLDER}/run"\n'
        (FOLDER / "containers.conf").write_text(_CONTAINERS)
        (FOLDER / "storage.conf").write_text(storage)
        self._env = {
            **os.environ,
            "CONTAINERS_CONF": str(FOLDER / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(FOLDER / "storage.conf"),
        }
        # Whoever joins the namespace of this process has no network but what podman makes in it.
        self._namespace = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], start_new_session=True)
        wait_until(self._is_apart, "a network namespace")
        self.inside("ip", "link", "set", "lo", "up")

    def _is_apart(self) -> bool:
        own, theirs = (Path(f"/proc/{pid}/ns/net").readlink() for pid in (os.getpid(), self._namespace.pid))
        return own != theirs

    def inside(self, *command: str | Path, env: dict[str, str] | None = None) -> str:
        join = ("nsenter", "--target", str(self._namespace.pid), "--net", "nice", "-n", "5")
        return run(*join, *command, env={**self._env, **(env or {})})

    def podman(self, *arguments: str | Path) -> str:
        return self.inside("podman", *arguments)

    def compose(self, folder: Path, env: dict[str, str], *arguments: str) -> str:
        """podman-compose with the project's file, on a network that leads nowhere else."""
        files = ("-f", folder / "compose.yaml", "-f", folder / "internal.yaml")
        return self.inside(BIN / "podman-compose", *files, *arguments, env=env)

    def close(self) -> None:
        with suppress(CommandFailedError):  # a container that is just being started again cannot be removed
            self.podman("rm", "--all", "--force", "--time", "1")
        self.podman("system", "reset", "--force")
        self._namespace.kill()
        self._namespace.wait()

    # Images

    def import_base(self, tag: str, tar: Path) -> None:
        """A minimal Debian with some packages."""
        self.podman("import", "--quiet", tar, tag)

    def build_lcm(self) -> None:
        """The image by its recipe, unchanged. pip takes the wheels from a folder, so the build needs no network."""
        (FOLDER / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
        mounts = ("-v", f"{wheels()}:/wheels:ro", "-v", f"{FOLDER}/pip.conf:/etc/pip.conf:ro")
        recipe = ("--format", "docker", "-f", "deploy/Containerfile", "-t", IMAGE)
        self.podman("build", "--quiet", "--network", "none", *mounts, *recipe, ".")

    def build_servers(self) -> None:
        """An image with etcd, MongoDB and its shell; what a simulated cloud imports is mounted."""
        self.import_base("localhost/servers-base", servers_base())
        context = FOLDER / "servers"
        (context / "bin").mkdir(parents=True, exist_ok=True)
        programs = (etcd.binary(), etcd.binary("etcdctl"), mongod.binary(), Path(__file__).with_name("entrypoint.sh"))
        for each in programs:
            shutil.copy(each, context / "bin" / each.name)
        mongosh()
        recipe = Path(__file__).with_name("Servers.Containerfile")
        # A layer for each step would be packed each time, which takes minutes on a busy host.
        self.podman("build", "--quiet", "--layers=false", "--network", "none", "-f", recipe, "-t", SERVERS, context)
