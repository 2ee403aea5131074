"""Nothing of a run of these tests remains, whatever ends it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.image_test.downloads import ROOT
from deploy.image_test.engine import wait_until
from tools import image_test

pytestmark = pytest.mark.timeout(600)

TRACE = "/run/netns/left-by-a-test"
NOTE = "/dev/shm/left-by-a-test"
DAEMON = f"""
mkdir {TRACE} && mount -t tmpfs tmpfs {TRACE} && touch {NOTE}
setsid bash -c 'trap "" TERM HUP; while :; do sleep 1; done' left-behind &
while :; do sleep 1; done
"""
TOOL = f"""
from tools import image_test
image_test.GRACE = 1
image_test.listen()
image_test.run_apart(["bash", "-c", {DAEMON!r}], 600)
"""


def left_behind() -> list[str]:
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return re.findall("left-behind$", lines, re.MULTILINE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_daemons_end_with_the_tool_and_mounts_are_never_seen(number: signal.Signals) -> None:
    tool = subprocess.Popen([sys.executable, "-c", TOOL], cwd=ROOT)
    try:
        wait_until(left_behind, "the daemon runs")
        assert TRACE not in Path("/proc/self/mounts").read_text()
    finally:
        tool.send_signal(number)
        tool.wait()
    wait_until(lambda: not left_behind(), "the daemon has ended")
    assert not Path(TRACE).exists()
    assert not Path(NOTE).exists(), "locks of others are not touched"


@pytest.mark.parametrize(
    "wrapper", [("unshare", "--user", "--map-root-user"), ("setpriv", "--bounding-set=-sys_admin")]
)
def test_a_root_who_may_not_do_all_is_told_so(wrapper: tuple[str, ...]) -> None:
    """In a container without privileges, root has few users to give files to, or no mounts."""
    ask = "from tools import image_test; print(image_test.refusal())"
    done = subprocess.run([*wrapper, sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip()


def test_a_checkout_on_an_overlay_is_refused(tmp_path: Path) -> None:
    """podman makes no overlay on an overlay, which is the disk of a container that Docker runs."""
    make = f"mount -t tmpfs tmpfs {tmp_path} && cd {tmp_path} && mkdir lower upper work here"
    overlay = "mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work here"
    ask = f"from tools import image_test as it; it.FOLDER = it.Path('{tmp_path}/here'); print(it.refusal())"
    script = f'{make} && {overlay} && cd {ROOT} && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", ask]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "mount:" in done.stdout


def test_what_other_podmans_keep_is_neither_seen_nor_changed() -> None:
    """`podman system reset` would remove the state of their containers."""
    theirs = Path("/run/libpod")
    theirs.mkdir(exist_ok=True)
    note = theirs / "of-another"
    note.touch()
    try:
        folders = "/run/netns /run/libpod /run/containers /run/runc /dev/shm"
        script = f"for each in {folders}; do ls -A $each; touch $each/of-a-test; done; rm -f {note}"
        done = subprocess.run([*image_test.APART, "sh", "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout == ""
        assert note.exists()
        assert not [each for each in folders.split() if Path(each, "of-a-test").exists()]
    finally:
        for each in (note, *(Path(each, "of-a-test") for each in folders.split())):
            each.unlink(missing_ok=True)


def test_a_root_who_may_do_all_is_not_refused() -> None:
    assert image_test.refusal() == ""
