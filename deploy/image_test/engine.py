"""podman with a network namespace and storage of its own: what runs on the machine is not touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tests.support.servers import etcd, mongod

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "image-test"
BIN = Path(sys.executable).parent
PYTHON_IMAGE = "docker.io/library/python:3.13-slim"
IMAGE = "localhost/lcm:0.1.0"
SERVERS = "localhost/servers"
_SUITE = "trixie"  # its Python is that of the image
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "any")
_MONGOSH = "mongosh@2.12.0"
_CONTAINERS = f"""\
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
network_config_dir = "{FOLDER}/networks"
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
"""


class CommandFailedError(Exception):
    """A command ended with an error."""


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT, seconds: float = 1800) -> str:
    """Run a command; its output is shown only if it fails."""
    words = [str(each) for each in command]
    done = subprocess.run(
        words, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=seconds, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        raise CommandFailedError(f"{' '.join(words)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def wait_until(condition: Callable[[], bool], what: str, patience: float = 300.0) -> float:
    """Wait for a condition; returns the seconds it took. The limit is generous because hosts are busy."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < patience, f"did not happen: {what}"
        time.sleep(0.5)
    return time.monotonic() - began


def kept(name: str, make: Callable[[Path], Any]) -> Path:
    """A file or folder that later runs use again, and others at the same time; a half-made one is never used."""
    path = FOLDER / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="draft-", dir=FOLDER) as own:
            draft = Path(own) / path.name
            make(draft)
            with suppress(OSError):  # another run was faster
                draft.rename(path)
        assert path.exists()
    return path


def mongosh() -> Path:
    """MongoDB's shell, installed once."""
    made = kept("servers/mongosh", lambda folder: run("npm", "install", "--no-audit", "--prefix", folder, _MONGOSH))
    return made / "node_modules" / ".bin" / "mongosh"


class Engine:
    """Commands of podman and podman-compose. Close it: that removes all containers and images."""

    def __init__(self) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(FOLDER / "networks", ignore_errors=True)  # of a run that was killed
        storage = f'[storage]\ndriver = "overlay"\ngraphroot = "{FOLDER}/storage"\nrunroot = "{FOLDER}/run"\n'
        (FOLDER / "containers.conf").write_text(_CONTAINERS)
        (FOLDER / "storage.conf").write_text(storage)
        self._env = {
            **os.environ,
            "CONTAINERS_CONF": str(FOLDER / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(FOLDER / "storage.conf"),
        }
        # Whoever joins the namespace of this process has no network but what podman makes in it.
        self._namespace = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
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

    def import_base(self, tag: str, packages: str) -> None:
        """A minimal Debian with some packages."""

        def make(tar: Path) -> None:
            run("mmdebstrap", "--variant=minbase", "--format=tar", f"--include={packages}", _SUITE, tar)

        self.podman("import", "--quiet", kept(f"{tag.rpartition('/')[2].replace(':', '-')}.tar", make), tag)

    def build_lcm(self) -> None:
        """The image by its recipe, unchanged. pip takes the wheels from a folder, so the build needs no network."""
        wheels = FOLDER / "wheels"
        only = [f"--platform={each}" for each in _PLATFORMS]
        download: list[str | Path] = [
            BIN / "python",
            "-m",
            "pip",
            "download",
            "--quiet",
            "--require-hashes",
            "--only-binary=:all:",
        ]
        run(*download, "--python-version=3.13", *only, "-r", "requirements/deploy.txt", "-d", wheels)
        (FOLDER / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
        mounts = ("-v", f"{wheels}:/wheels:ro", "-v", f"{FOLDER}/pip.conf:/etc/pip.conf:ro")
        recipe = ("--format", "docker", "-f", "deploy/Containerfile", "-t", IMAGE)
        self.podman("build", "--quiet", "--network", "none", *mounts, *recipe, ".")

    def build_servers(self) -> None:
        """An image with etcd, MongoDB and a simulated cloud."""
        self.import_base("localhost/servers-base", "python3,nodejs,libcurl4t64,ca-certificates")
        context = FOLDER / "servers"
        (context / "bin").mkdir(parents=True, exist_ok=True)
        programs = (etcd.binary(), etcd.binary("etcdctl"), mongod.binary(), Path(__file__).with_name("entrypoint.sh"))
        for each in programs:
            shutil.copy(each, context / "bin" / each.name)
        mongosh()
        packages = ("moto[ec2,cloudwatch,server]", f"lcm-fleet[aws] @ {ROOT}")
        target = ("--python-version=3.13", "--python-platform=x86_64-manylinux_2_28", "-c", "requirements/dev.txt")
        run(BIN / "uv", "pip", "install", "--quiet", "--target", context / "site", *target, *packages)
        recipe = Path(__file__).with_name("Servers.Containerfile")
        # A layer for each step would be packed each time, which takes minutes on a busy host.
        self.podman("build", "--quiet", "--layers=false", "--network", "none", "-f", recipe, "-t", SERVERS, context)
