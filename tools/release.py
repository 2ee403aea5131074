"""Builds what a release consists of, and tries the wheel in a new environment of each supported Python.

`make release` runs it. It writes to dist/: wheel, sdist, SBOM (CycloneDX), and SHA256SUMS, with a signature if there is
a `--key`. A tree with changes that no commit has is refused, unless `--dirty` is given.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
BIN = Path(sys.executable).parent
PYTHONS = ("3.11", "3.12", "3.13")
READY_WITHIN = 180.0
"""Seconds for `lcm up` to become ready on a loaded host."""

SIGNED_FOR = "lcm-release"
"""What a signature is good for: that of a commit by the same key is none of a release."""

_NOT_A_RELEASE = "made of what is there, which may be in no commit: do not publish it"


class ReleaseError(Exception):
    """A release cannot be made."""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run a command; its output is shown only if it fails."""
    done = subprocess.run([str(each) for each in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(str(each) for each in command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def check_tree(root: Path) -> None:
    """Refuse changes that no commit has, and files that git does not know: nobody could build the same again."""
    changes = run("git", "status", "--porcelain", cwd=root).splitlines()
    if changes:
        shown = "\n".join(f"  {each}" for each in changes[:10])
        more = f"\n  and {len(changes) - 10} more" if len(changes) > 10 else ""
        raise ReleaseError(
            f"the tree has changes that no commit has:\n{shown}{more}\ncommit them; for a trial: make release DIRTY=yes"
        )


def current_version() -> str:
    """The version that pyproject.toml says."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def has_tag(root: Path, tag: str) -> bool:
    """Whether the commit has this tag."""
    return tag in run("git", "tag", "--points-at", "HEAD", cwd=root).split()


def check_tag(root: Path, version: str) -> None:
    """Refuse the version of another commit: two packages would have one name."""
    tag = f"v{version}"
    if run("git", "tag", "--list", tag, cwd=root).strip() and not has_tag(root, tag):
        raise ReleaseError(
            f"another commit has the tag {tag}: raise the version in pyproject.toml, or release that commit"
        )


def check_key(key: Path) -> None:
    """Refuse a key that is not there: signing comes last, minutes later."""
    if not key.is_file():
        raise ReleaseError(f"there is no file {key}: KEY is the file of a key of ssh, or of its public part")


def tag_advice(root: Path, version: str, key: Path | None = None) -> str:
    """Which tag the commit has, or is to get."""
    tag = f"v{version}"
    if has_tag(root, tag):
        return f"this commit has the tag {tag}"
    signed = f"git -c gpg.format=ssh -c user.signingkey={shlex.quote(str(key))} tag -s -m {tag} {tag}"
    return f"this commit does not have the tag {tag}; when you publish it: {signed if key else f'git tag {tag}'}"


def build() -> Path:
    """Wheel and sdist; returns the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(BIN / "uv", "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", DIST)
    (DIST / ".gitignore").unlink(missing_ok=True)
    (wheel,) = DIST.glob("*.whl")
    return wheel


def write_sbom() -> Path:
    """What an installation with all extras consists of, by version and hash."""
    file = DIST / "sbom.cdx.json"
    run(BIN / "cyclonedx-py", "requirements", "requirements/deploy.txt", "--output-reproducible", "-o", file)
    if not json.loads(file.read_text(encoding="utf-8"))["components"]:
        raise ReleaseError("the SBOM is empty")
    return file


def write_checksums() -> Path:
    """The digests of all files, as `sha256sum --check` reads them."""
    names = sorted(path for path in DIST.iterdir() if path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in names]
    file = DIST / "SHA256SUMS"
    file.write_text("".join(lines), encoding="utf-8")
    return file


def sign(key: Path) -> None:
    """Sign the checksums, and with them all files, by a key of ssh; of one in an agent, `key` is the public part."""
    run("ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", SIGNED_FOR, DIST / "SHA256SUMS")


def find_python(version: str) -> str:
    """An interpreter of this version: on the PATH, or one that pyenv has."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    kept = sorted(root.glob(f"versions/{version}.*/bin/python"))
    if kept:
        return str(kept[-1])
    found = shutil.which(f"python{version}")
    if found is None:
        raise ReleaseError(f"no Python {version}: install it, or put it on the PATH")
    return found


def try_wheel(wheel: Path, version: str, folder: Path) -> float:
    """Install the wheel with pip as a user does, and run it; returns the seconds until `lcm up` was ready."""
    environment = folder / f"python{version}"
    run(find_python(version), "-m", "venv", environment)
    scripts = environment / "bin"
    run(scripts / "pip", "install", "--quiet", "--require-hashes", "-r", ROOT / "requirements" / "deploy.txt")
    run(scripts / "pip", "install", "--quiet", "--no-deps", wheel)
    run(scripts / "pip", "check")
    shown = run(scripts / "lcm", "--version", cwd=folder).strip()
    if shown != f"lcm {wheel.name.split('-')[1]}":
        raise ReleaseError(f"lcm --version prints {shown!r}")
    return serve(scripts / "lcm", folder / f"data{version}")


def serve(lcm: Path, data: Path) -> float:
    """Run `lcm up` until it is ready, then end it; it must exit with 0."""
    ports = free_ports(4)
    names = ("CONTROL_PLANE_PORT", "RESOURCE_SCHEDULER_PORT", "LABLET_CONTROLLER_PORT", "WORKER_CONTROLLER_PORT")
    settings = {name: str(port) for name, port in zip(names, ports, strict=True)}
    env = {"PATH": "/usr/bin:/bin", "HOME": str(data), "LCM_DATA_DIR": str(data), **settings}
    data.mkdir(mode=0o700)
    began = time.monotonic()
    with (data / "log").open("w") as log:
        process = subprocess.Popen([str(lcm), "up", "--empty"], env=env, cwd=data, stdout=log, stderr=log)
    try:
        while not is_ready(ports[0]):
            if process.poll() is not None or time.monotonic() - began > READY_WITHIN:
                raise ReleaseError(f"lcm up is not ready:\n{(data / 'log').read_text()}")
            time.sleep(0.2)
        seconds = time.monotonic() - began
        process.send_signal(signal.SIGTERM)
        if process.wait(60) != 0:
            raise ReleaseError(f"lcm up ended with {process.returncode}:\n{(data / 'log').read_text()}")
        return seconds
    finally:
        process.kill()
        process.wait()


def is_ready(port: int) -> bool:
    """Whether the control plane answers that it is ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def main(arguments: Sequence[str]) -> int:
    """Build and try; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make release")
    parser.add_argument("--dirty", action="store_true")
    parser.add_argument("--key", type=lambda text: Path(text).expanduser().absolute())
    options = parser.parse_args(arguments)
    if options.dirty and options.key:
        parser.error("a trial is not signed: leave KEY out, or commit your changes and leave DIRTY out")
    try:
        if options.key:
            check_key(options.key)
        if not options.dirty:
            check_tree(ROOT)
            check_tag(ROOT, current_version())
        wheel = build()
        write_sbom()
        write_checksums()
        with tempfile.TemporaryDirectory() as folder:
            for version in PYTHONS:
                seconds = try_wheel(wheel, version, Path(folder))
                print(f"Python {version}: installed, lcm up ready after {seconds:.1f} s, ended with 0")
        if options.key:
            sign(options.key)
        advice = _NOT_A_RELEASE if options.dirty else tag_advice(ROOT, current_version(), options.key)
    except ReleaseError as error:
        print(f"make release: {error}", file=sys.stderr)
        return 1
    for path in sorted(DIST.iterdir()):
        print(f"dist/{path.name}  {path.stat().st_size:,} bytes")
    print(advice)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
