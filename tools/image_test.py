"""Runs the tests of the image and of the compose file: `make image-test`, and the last part of `.ci/run`.

Whatever they start has process ids and mounts of its own, and ends with this process, also if that is killed. With
`--ci` their time is limited, and they are left out, with a line that says why, where they cannot run at all.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from deploy.image_test.downloads import FOLDER, ROOT
from tools import debian_packages

if TYPE_CHECKING:
    from collections.abc import Sequence

BEGAN = "CI_BEGAN"
"""When CI began, in seconds of the Unix epoch."""
LIMIT = 90 * 60
"""Seconds that CI may take."""
RESERVE = 5 * 60
"""Seconds to end in before CI would be ended."""
NEEDED = 35 * 60
"""Seconds that downloads and tests may take on a busy machine: twice the longest that was seen."""
TESTS_NEED = 25 * 60
"""Seconds of them for the tests."""
MOST = 50 * 60
"""After these seconds something hangs, however much time is left."""
ROOM = 6
"""GB that downloads, images and containers may take: twice the most that was seen."""
GRACE = 90.0
"""Seconds from SIGTERM to SIGKILL: containers are removed in them."""
TRIES, PAUSE = 3, 20.0
ASK_WITHIN = 60.0
"""Seconds in which the kernel, and each registry, has to answer."""
HUNG = 124
"""The exit code of a run that was ended, as with `timeout`."""
PACKAGES = ("podman", "runc", "netavark", "aardvark-dns", "iptables", "mmdebstrap", "npm")
# bash is process 1 there: it collects the processes that have lost their parent. In these folders, podman shares notes
# with all others on the machine, whatever its storage.
_OWN = "/run/netns /run/libpod /run/containers /run/runc /dev/shm"
_INSIDE = f'for each in {_OWN}; do mkdir -p $each && mount -t tmpfs tmpfs $each || exit; done; "$@"; exit $?'
APART = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("bash", "-c", _INSIDE, "image-test"),
)
_PYTHON = (sys.executable, "-m")
REGISTRIES = {
    "Debian": ("apt-get", "-o", "APT::Update::Error-Mode=any", "-o", "Acquire::Retries=0", "update"),
    "PyPI": (*_PYTHON, "pip", "--no-cache-dir", "index", "versions", "pip"),
    "npm": ("npm", "ping"),
}
CGROUPS = Path("/sys/fs/cgroup")
_TYPE = "Type: make image-test"


class DownloadsFailedError(Exception):
    """Downloads failed, although all registries answer."""


def why_not(is_root: bool, refusal: str, room: float, left: float) -> str:
    """Why the tests cannot run, and what to do; empty if they can. `room` is in GB, `left` in seconds."""
    if not is_root:
        return "you are not root. Type: sudo make image-test"
    if refusal:
        return f"the kernel refuses namespaces or mounts ({refusal}). {_TYPE}, as root of a machine that allows them"
    if room < ROOM:
        return f"{room:.1f} GB are free on the disk of {ROOT}, and it may need {ROOM}. {_TYPE}, when they are"
    if left < NEEDED + RESERVE:
        needed = (NEEDED + RESERVE) // 60
        return f"{left // 60:.0f} of CI's {LIMIT // 60} minutes are left, and it may need {needed}. {_TYPE}"
    return ""


def seconds_for(left: float) -> float:
    """How long downloads and tests may take."""
    return min(MOST, left - RESERVE)


def refusal() -> str:
    """What the kernel says to namespaces, mounts and files of other users; empty if it allows what containers need."""
    overlay = "mount -t overlay overlay -o lowerdir=a,upperdir=b,workdir=c d"
    command = [*APART, "unshare", "--net", "sh", "-c", f"mkdir a b c d && chown 65534:42 a && {overlay}"]
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="draft-", dir=FOLDER) as own:  # where podman is going to make overlays
            tried = subprocess.run(command, cwd=own, capture_output=True, text=True, check=False, timeout=ASK_WITHIN)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return " ".join(tried.stderr.split()) or f"exit code {tried.returncode}" if tried.returncode else ""


def install_packages() -> None:
    """Install what the tests need of Debian."""
    for package in PACKAGES:
        if debian_packages.find(package) is None:
            debian_packages.install(package, package)


def silent_registries() -> list[str]:
    """The registries of packages that do not answer."""
    # pip would otherwise be content with packages in a folder.
    env = {**os.environ, "PIP_FIND_LINKS": "/nowhere", "PIP_EXTRA_INDEX_URL": "file:///nowhere"}
    return [name for name, command in REGISTRIES.items() if not _succeeds(command, env)]


def _succeeds(command: Sequence[str], env: dict[str, str]) -> bool:
    try:
        return subprocess.run(command, env=env, capture_output=True, check=False, timeout=ASK_WITHIN).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def why_no_downloads(deadline: float) -> str:
    """Get all packages; returns why the machine or its network cannot, if all tries fail. Empty if everything is there.

    A registry that was silent after any of the tries may be why. Ours is what fails although all of them answer.
    """
    reason, silent = "", dict[str, None]()
    for number in range(TRIES):
        if number:
            time.sleep(PAUSE)
        try:
            install_packages()
        except debian_packages.PackageMissingError as problem:
            reason = str(problem)
            continue
        reason = ""
        code = run_apart([*_PYTHON, "deploy.image_test.downloads"], deadline - time.monotonic())
        if code == 0:
            return ""
        if code == HUNG:
            return f"downloads took too long. {_TYPE}"
        silent |= dict.fromkeys(silent_registries())
    if silent:
        return f"no answer from {' and '.join(silent)}. {_TYPE}, when there is one"
    if reason:
        return reason
    raise DownloadsFailedError


def run_apart(command: Sequence[str], seconds: float) -> int:
    """Run a command with process ids and mounts of its own; returns its exit code, or HUNG if it took too long."""
    before = set(cgroups())
    process = subprocess.Popen([*APART, *command], start_new_session=True)
    try:
        return process.wait(None if seconds == math.inf else max(seconds, 0.0))
    except subprocess.TimeoutExpired:
        names = ", ".join(processes(process.pid)) or "nothing that has a name"
        print(
            f"image-test: {' '.join(command)} did not end within {seconds:.0f} seconds and is ended. It ran: {names}",
            file=sys.stderr,
            flush=True,
        )
        return HUNG
    finally:
        _end(process)
        for each in cgroups():
            if each not in before:
                with suppress(OSError):  # it is of somebody else, and in use
                    each.rmdir()


def cgroups() -> list[Path]:
    """The control groups of containers, each before the one it is in. podman leaves them when they are empty."""
    found = [each for start in ("", "*/") for each in CGROUPS.glob(f"{start}libpod_parent/**/")]
    return sorted(found, reverse=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM for a run that removes its containers, SIGKILL for one that does not end: then all its processes end."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def processes(pid: int) -> list[str]:
    """The names of the processes that share the process ids of the children of this one."""
    with suppress(OSError):
        theirs = Path(f"/proc/{pid}/ns/pid_for_children").readlink()
        return sorted(_name(each) for each in Path("/proc").glob("[0-9]*") if _namespace(each) == theirs)
    return []


def _namespace(process: Path) -> Path | None:
    with suppress(OSError):
        return (process / "ns" / "pid").readlink()
    return None


def _name(process: Path) -> str:
    with suppress(OSError):
        return (process / "comm").read_text().strip()
    return "one that has just ended"


def listen() -> None:
    """End in an orderly way on signals, also on those that a shell has its background jobs ignore."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def _refuse(reason: str, is_ci: bool) -> int:
    if is_ci:
        print(f"image-test is left out: {reason}")
        return 0
    print(f"make image-test: {reason}", file=sys.stderr)
    return 1


def main(arguments: Sequence[str]) -> int:
    """Download and test; returns the exit code."""
    is_ci = "--ci" in arguments
    left = LIMIT - (time.time() - float(os.environ.get(BEGAN, time.time()))) if is_ci else math.inf
    is_root = os.geteuid() == 0
    room = shutil.disk_usage(ROOT).free / 1e9
    if reason := why_not(is_root, refusal() if is_root else "", room, left):
        return _refuse(reason, is_ci)
    deadline = time.monotonic() + (seconds_for(left) if is_ci else math.inf)
    try:
        reason = why_no_downloads(deadline)
    except DownloadsFailedError:
        print("image-test: downloads failed, although Debian, PyPI and npm answer", file=sys.stderr)
        return 1
    if not reason and deadline - time.monotonic() < TESTS_NEED:
        reason = f"downloads took so long that the tests would not end in CI's time. {_TYPE}"
    if reason:
        return _refuse(reason, is_ci)
    return run_apart([*_PYTHON, "pytest", "-v", "-s", "deploy/image_test"], deadline - time.monotonic())


if __name__ == "__main__":
    listen()
    sys.exit(main(sys.argv[1:]))
