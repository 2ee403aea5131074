"""Daily commands at a real terminal against a real control plane: the output, and the resulting state."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lcm.model.worker.status import DesiredStatus, WorkerStatus
from tests.support.servers.processes import ROOT, wait_until
from tests.support.servers.pseudo_terminal import PseudoTerminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.servers.control_plane import ControlPlaneProcess, FakeWorkerController

    Terminal = Callable[..., PseudoTerminal]


AWAY = {"LCM_URL": "", "LCM_TOKEN": ""}


@pytest.fixture(scope="module", autouse=True)
def _first_list(plane: ControlPlaneProcess) -> None:
    """Whichever test comes first: none has created a worker yet."""
    empty = PseudoTerminal("workers", "list", env=plane.environment())
    try:
        empty.expect("No workers. Create one: lcm workers create NAME --template small")
        assert empty.end() == 0
    finally:
        empty.close()


def test_a_day_of_a_worker(plane: ControlPlaneProcess, controller: FakeWorkerController, terminal: Terminal) -> None:
    created = terminal("workers", "create", "day", "--template", "sma", "--tag", "team=blue")
    created.expect("day created in eu-west-1; desired state RUNNING.")
    assert created.end() == 0
    assert plane.worker("day").tags == {"team": "blue"}

    waiting = terminal("workers", "wait", "day", "--for", "ready", "--timeout", "5m")
    waiting.expect("day  PENDING → RUNNING  waiting for ready")
    controller.boot("day", ready=False)
    waiting.expect("RUNNING (CmlReady=False)")
    controller.cml("day")
    waiting.expect("day is ready at 192.0.2.7 after")
    assert waiting.end() == 0

    listed = terminal("workers", "list")
    listed.expect("RUNNING")
    assert listed.end() == 0
    assert "\x1b[32mRUNNING" in listed.raw, "green on a terminal"

    explained = terminal("workers", "explain", "day")
    explained.expect("day: RUNNING, ready")
    explained.expect("What happens next")
    explained.expect("CmlReady")
    explained.expect("the worker runs and CML responds (running.steady")
    assert explained.end() == 0

    stopped = terminal("workers", "stop", "day", "--reason", "the day is over")
    stopped.expect("day is RUNNING, desired state STOPPED. Next: instance i-")
    assert stopped.end() == 0
    assert plane.worker("day").desired_status is DesiredStatus.STOPPED
    controller.report("day", WorkerStatus.STOPPING)
    controller.report("day", WorkerStatus.STOPPED)

    history = terminal("workers", "history", "day")
    history.expect("PENDING")
    history.expect("bootstrap")
    history.expect("STOPPED")
    assert history.end() == 0

    started = terminal("workers", "start", "day")
    started.expect("day is STOPPED, desired state RUNNING.")
    assert started.end() == 0

    plan = terminal("plan")
    plan.expect("not decided yet")
    plan.expect("day")
    assert plan.end() == 0


def test_termination_asks_first_and_says_what_is_lost(
    plane: ControlPlaneProcess, controller: FakeWorkerController, terminal: Terminal
) -> None:
    plane.lcm("workers", "create", "doomed", "--template", "small")
    controller.boot("doomed")
    controller.measure("doomed", labs=3, nodes=12)

    refused = terminal("workers", "terminate", "doomed")
    refused.expect("It will save $0.0263 an hour")
    refused.expect("12 of 12 nodes, in 3 labs")
    refused.expect("Terminate doomed permanently? Type doomed to confirm:")
    refused.type("y\n")
    refused.expect("no changes made")
    assert refused.end() == 1
    assert plane.worker("doomed").desired_status is DesiredStatus.RUNNING

    interrupted = terminal("workers", "terminate", "doomed")
    interrupted.expect("to confirm:")
    interrupted.type("\x03")
    assert interrupted.end() == 130
    assert plane.worker("doomed").desired_status is DesiredStatus.RUNNING

    accepted = terminal("workers", "terminate", "doomed")
    accepted.expect("to confirm:")
    accepted.type("doomed\n")
    accepted.expect("doomed is RUNNING, desired state TERMINATED.")
    assert accepted.end() == 0
    assert plane.worker("doomed").desired_status is DesiredStatus.TERMINATED


def test_an_interrupt_just_before_the_prompt_is_not_lost() -> None:
    """As if another thread got the signal: the call that this thread blocks in is not interrupted."""
    program = (
        "import os, signal, sys, threading, time\n"
        "from lcm.cli.runtime.session import confirm\n"
        "def interrupt():\n"
        "    time.sleep(1)\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGINT)\n"
        "terminal, inner = os.openpty()\n"
        "sys.stdin = os.fdopen(inner)\n"
        "threading.Thread(target=interrupt).start()\n"
        "try: confirm('Well?')\n"
        "except KeyboardInterrupt: print('heard')\n"
    )
    command = [sys.executable, "-c", program]
    asked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=180)
    assert asked.stdout == "heard\n"


def test_waiting_ends_with_the_explanation(
    plane: ControlPlaneProcess, controller: FakeWorkerController, terminal: Terminal
) -> None:
    plane.lcm("workers", "create", "unlucky", "--template", "small")
    late = terminal("workers", "wait", "unlucky", "--timeout", "2s")
    late.expect("lcm: unlucky is not ready after 2s")
    late.expect("unlucky has been PENDING")
    assert late.end() == 1

    interrupted = terminal("workers", "wait", "unlucky")
    interrupted.expect("waiting for ready")
    interrupted.interrupt()
    assert interrupted.end() == 130

    failing = terminal("workers", "wait", "unlucky")
    failing.expect("waiting for ready")
    controller.report("unlucky", WorkerStatus.FAILED, "EC2 refused the launch: quota exceeded")
    failing.expect("lcm: unlucky is FAILED")
    failing.expect("quota exceeded")
    assert failing.end() == 1


def test_the_live_fleet(plane: ControlPlaneProcess, controller: FakeWorkerController, terminal: Terminal) -> None:
    for name in ("live-a", "live-b"):
        plane.lcm("workers", "create", name, "--template", "small")
    controller.boot("live-a")
    live = terminal("watch")
    live.expect("q quit")
    live.type("/")
    live.expect("Enter applies it")
    live.type("live\n")
    live.expect("filter: live")
    assert "unlucky" not in live.picture

    controller.boot("live-b")  # shown without a refresh
    wait_until(lambda: bool(_drawn(live) and re.search(r"live-b +RUNNING +yes", live.picture)), "live-b is shown ready")

    live.type("\x1b[B")
    live.type("p")
    live.expect("Stop live-b without waiting for its labs? Type its name")
    live.type("y\n")
    live.expect("No changes made.")
    assert plane.worker("live-b").desired_status is DesiredStatus.RUNNING
    live.type("plive-b\n")
    live.expect("Desired state of live-b: STOPPED.")
    assert plane.worker("live-b").desired_status is DesiredStatus.STOPPED
    live.type("\x1b[B")  # live-b is on its way now, and comes first
    live.type("e")
    live.expect("live-a: RUNNING, ready")
    live.expect("Press any key to go back.")
    live.type(" ")
    live.expect("q quit")
    live.type("\t")
    live.expect("No matching lablets.")
    live.type("\t")
    live.expect("Tab lablets")
    live.resize(60, 20)
    live.type("q")
    assert live.end() == 0
    assert live.raw.rstrip().endswith("\x1b[?25h\x1b[?1049l"), "the terminal is as it was"


def _drawn(live: PseudoTerminal) -> bool:
    live.expect("q quit")
    return True


def test_a_watched_list_is_drawn_again(plane: ControlPlaneProcess, terminal: Terminal) -> None:
    watched = terminal("workers", "list", "--name", "late-comer", "--watch")
    watched.expect("No matching workers.")
    plane.lcm("workers", "create", "late-comer", "--template", "small", "--stopped")
    watched.expect("late-comer")
    watched.interrupt()
    assert watched.end() == 130


def test_signing_in_without_showing_the_token(plane: ControlPlaneProcess, terminal: Terminal) -> None:
    token = "bootstrap-token-for-tests-0123456789"
    wrong = terminal("login", plane.url, LCM_URL="", LCM_TOKEN="")
    wrong.expect("Token: ")
    wrong.type("no-such-token-0123456789\n")
    wrong.expect("Sign in: lcm login")
    assert wrong.end() == 1

    right = terminal("login", plane.url, "--name", "here", LCM_URL="", LCM_TOKEN="")
    right.expect("Token: ")
    right.type(f"{token}\n")
    right.expect(f"Signed in to {plane.url} as bootstrap (admin). Saved as context here.")
    assert right.end() == 0
    assert token not in right.raw

    kept = plane.home / ".config" / "lcm" / "contexts.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    me = plane.lcm("whoami", env=AWAY)
    assert "context here" in me.stdout
    kept.chmod(0o644)
    refused = plane.lcm("whoami", check=False, env=AWAY)
    assert refused.returncode == 1
    assert f"chmod 600 {kept}" in refused.stderr
    kept.chmod(0o600)


def test_a_narrow_terminal_shows_what_matters_most(plane: ControlPlaneProcess, terminal: Terminal) -> None:
    plane.lcm("workers", "create", "narrow-but-with-a-name-that-is-long", "--template", "small", "--stopped")
    narrow = terminal("workers", "list", "-q", "narrow", columns=40)
    assert narrow.end() == 0
    lines = [line for line in narrow.text.splitlines() if line.strip()]
    assert all(len(line.rstrip()) <= 40 for line in lines)
    assert "STATUS" in lines[0]
    assert "LICENSE" not in lines[0]

    wide = terminal("workers", "list", "-q", "narrow", "-o", "wide", columns=40)
    assert wide.end() == 0
    assert plane.worker("narrow-but-with-a-name-that-is-long").id in wide.text, "wide leaves nothing out"

    plain = terminal("workers", "list", "-q", "narrow", NO_COLOR="1")
    assert plain.end() == 0
    assert "\x1b[3" not in plain.raw


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_ends_on_a_signal_although_it_was_started_with_interrupts_ignored(
    plane: ControlPlaneProcess, number: signal.Signals
) -> None:
    plane.lcm("workers", "create", f"waits-for-{number.name.lower()}", "--template", "small", "--stopped")
    waiting = ["workers", "wait", f"waits-for-{number.name.lower()}", "--for", "TERMINATED", "--timeout", "600"]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "lcm", *waiting],
            cwd=ROOT,
            env=plane.environment(),
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        assert process.stderr is not None
        assert process.stderr.readline()  # it waits, and says so
        process.send_signal(number)
        assert process.wait(180) in (130, -signal.SIGTERM)
