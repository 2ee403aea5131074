"""When CI runs the tests of the image, when it leaves them out, and how it ends them."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools import image_test
from tools.debian_packages import PackageMissingError

ROOT = Path(__file__).parents[3]
ENOUGH = float(image_test.NEEDED + image_test.RESERVE)


@pytest.mark.parametrize(
    ("is_root", "refusal", "room", "left", "expected"),
    [
        (True, "", image_test.ROOM, ENOUGH, ""),
        (True, "", math.inf, math.inf, ""),
        (False, "Operation not permitted", 0.0, 0.0, "you are not root. Type: sudo make image-test"),
        (True, "mount: permission denied", math.inf, ENOUGH, "mount: permission denied"),
        (True, "", 1.25, ENOUGH, f"1.2 GB are free on the disk of {ROOT}, and it may need {image_test.ROOM}."),
        (True, "", math.inf, ENOUGH - 1, "39 of CI's 90 minutes are left, and it may need 40. Type: make image-test"),
    ],
)
def test_it_is_left_out_only_where_it_cannot_run(
    is_root: bool, refusal: str, room: float, left: float, expected: str
) -> None:
    reason = image_test.why_not(is_root, refusal, room, left)
    assert expected in reason
    assert bool(reason) is bool(expected)


@pytest.mark.parametrize("left", [ENOUGH, 70 * 60.0, 90 * 60.0])
def test_it_ends_before_ci_does_and_has_time_to(left: float) -> None:
    seconds = image_test.seconds_for(left)
    assert image_test.NEEDED <= seconds <= left - image_test.RESERVE
    assert image_test.RESERVE > image_test.GRACE


class Machine:
    """What the tool asks of the machine, and what it runs there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.codes = {"downloads": [0], "pytest": [0]}
        self.silent: list[str] = []
        self.packages_fail = 0
        self.ran: list[str] = []
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(image_test, "refusal", lambda: "")
        monkeypatch.setattr(image_test, "ROOM", 0)  # whatever this machine has
        monkeypatch.setattr(image_test, "install_packages", self.install)
        monkeypatch.setattr(image_test, "silent_registries", lambda: self.silent)
        monkeypatch.setattr(image_test, "run_apart", self.run)
        monkeypatch.setattr(image_test, "PAUSE", 0.0)
        monkeypatch.delenv(image_test.BEGAN, raising=False)

    def install(self) -> None:
        if self.packages_fail:
            self.packages_fail -= 1
            raise PackageMissingError("no podman")

    def run(self, command: list[str], seconds: float) -> int:
        name = next(each for each in self.codes if any(each in word for word in command))
        self.ran.append(name)
        codes = self.codes[name]
        return codes.pop(0) if len(codes) > 1 else codes[0]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_it_downloads_and_then_tests(machine: Machine) -> None:
    assert image_test.main(["--ci"]) == 0
    assert machine.ran == ["downloads", "pytest"]


def test_a_failure_of_the_tests_is_one_of_ci(machine: Machine) -> None:
    machine.codes["pytest"] = [3]
    assert image_test.main(["--ci"]) == 3


def test_downloads_are_tried_again(machine: Machine) -> None:
    machine.packages_fail = 1
    machine.codes["downloads"] = [1, 0]
    assert image_test.main(["--ci"]) == 0
    assert machine.ran == ["downloads", "downloads", "pytest"]


def test_it_is_left_out_with_one_line_if_a_registry_is_silent(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.codes["downloads"], machine.silent = [1], ["Debian", "npm"]
    assert image_test.main(["--ci"]) == 0
    assert machine.ran == ["downloads"] * image_test.TRIES
    assert capsys.readouterr().out == (
        "image-test is left out: no answer from Debian and npm. Type: make image-test, when there is one\n"
    )


def test_downloads_that_fail_although_all_registries_answer_fail_ci(machine: Machine) -> None:
    machine.codes["downloads"] = [1]
    assert image_test.main(["--ci"]) == 1
    assert "pytest" not in machine.ran


def test_a_registry_that_answers_again_after_the_tries_does_not_fail_ci(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.codes["downloads"] = [1]
    monkeypatch.setattr(image_test, "silent_registries", lambda: ["PyPI"] if len(machine.ran) == 1 else [])
    assert image_test.main(["--ci"]) == 0
    assert "left out: no answer from PyPI." in capsys.readouterr().out


def test_downloads_that_hang_are_not_begun_again_and_do_not_fail_ci(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """A registry may answer a question and send its packages byte by byte."""
    machine.codes["downloads"] = [image_test.HUNG]
    assert image_test.main(["--ci"]) == 0
    assert machine.ran == ["downloads"]
    assert "left out: downloads took too long" in capsys.readouterr().out


def test_tests_are_not_begun_that_would_be_cut_off(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a slow network would make CI fail, in the middle of a test."""
    began = time.monotonic()
    monkeypatch.setenv(image_test.BEGAN, str(time.time() - image_test.LIMIT + ENOUGH + 60))
    slow = image_test.NEEDED - image_test.TESTS_NEED + 120

    def run(command: list[str], seconds: float) -> int:
        monkeypatch.setattr(time, "monotonic", lambda: began + slow)
        return machine.run(command, seconds)

    monkeypatch.setattr(image_test, "run_apart", run)
    assert image_test.main(["--ci"]) == 0
    assert machine.ran == ["downloads"]


def test_it_is_left_out_on_a_system_that_lacks_a_package(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.packages_fail = image_test.TRIES
    assert image_test.main(["--ci"]) == 0
    assert not machine.ran
    assert "left out: no podman" in capsys.readouterr().out


def test_asking_the_registries_does_not_take_the_reserve() -> None:
    asked = len(image_test.REGISTRIES) * image_test.ASK_WITHIN + image_test.PAUSE
    assert asked + image_test.GRACE < image_test.RESERVE


def test_a_kernel_that_does_not_answer_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_test, "APART", ("sh", "-c", "sleep 600"))
    monkeypatch.setattr(image_test, "ASK_WITHIN", 0.1)
    assert "timed out" in image_test.refusal()


def test_a_signal_during_downloads_is_no_reason_to_try_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*_: object) -> int:
        raise SystemExit(143)

    monkeypatch.setattr(image_test, "run_apart", end)
    with pytest.raises(SystemExit, match="143"):
        image_test.main(["--ci"])


def test_it_is_left_out_if_ci_has_little_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(image_test.BEGAN, str(time.time() - 80 * 60))
    assert image_test.main(["--ci"]) == 0
    assert not machine.ran
    assert capsys.readouterr().out.startswith("image-test is left out: ")


def test_it_is_left_out_on_a_disk_that_is_nearly_full(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(image_test, "ROOM", 10**9)
    assert image_test.main(["--ci"]) == 0
    assert not machine.ran
    assert "GB are free" in capsys.readouterr().out


def test_a_person_who_asks_for_it_gets_it_or_an_error(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(image_test.BEGAN, "0")  # of a CI that ended long ago
    assert image_test.main([]) == 0
    monkeypatch.setattr(image_test, "refusal", lambda: "mount: permission denied")
    assert image_test.main([]) == 1
    assert "mount: permission denied" in capsys.readouterr().err


STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('up', flush=True)
time.sleep(600)
"""
POLITE = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); time.sleep(600)"


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without namespaces, which only root may make."""
    monkeypatch.setattr(image_test, "APART", ())


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("script", [STUBBORN, POLITE])
def test_a_run_that_hangs_is_ended_and_its_processes_are_named(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(image_test, "GRACE", 1.0)
    monkeypatch.setattr(image_test, "processes", lambda _: ["conmon", "mongod"])
    assert image_test.run_apart([sys.executable, "-c", script], 1.0) == image_test.HUNG
    assert "did not end within 1 seconds and is ended. It ran: conmon, mongod" in capsys.readouterr().err


@pytest.mark.usefixtures("together")
def test_the_exit_code_is_that_of_the_command() -> None:
    assert image_test.run_apart([sys.executable, "-c", "raise SystemExit(5)"], 600.0) == 5


MAIN = f"""
import sys
from tools import image_test
image_test.APART = ()
image_test.listen()
image_test.run_apart([sys.executable, "-c", {STUBBORN!r}], 600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_what_it_runs(number: signal.Signals) -> None:
    script = MAIN.replace("image_test.APART = ()", "image_test.APART = (); image_test.GRACE = 0.2")
    tool = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert tool.stdout is not None
    assert tool.stdout.readline() == "up\n"
    tool.send_signal(number)
    assert tool.stdout.read() == "", "the end of the pipe comes when the last process that has it is gone"
    assert tool.wait() == 128 + number
    tool.stdout.close()


def test_ci_runs_it_after_the_tests_and_says_when_it_began() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert f"export {image_test.BEGAN}=" in script
    assert script.splitlines()[-1].startswith("exec make ")
    assert script.split()[-2:] == ["test", "image-test-ci"]
    printed = subprocess.run(
        ["make", "--dry-run", "image-test-ci"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "-m tools.image_test --ci" in printed


@pytest.mark.usefixtures("together")
def test_empty_control_groups_of_its_containers_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """podman leaves them where the kernel has the first version of them."""
    monkeypatch.setattr(image_test, "CGROUPS", tmp_path)
    of_others = tmp_path / "memory" / "libpod_parent" / "libpod-1"
    of_others.mkdir(parents=True)
    script = "mkdir -p cpu/libpod_parent/libpod-2/a libpod_parent/libpod-3 memory/libpod_parent/libpod-4 cpu/other"
    assert image_test.run_apart(["sh", "-c", f"cd {tmp_path} && {script}"], 600.0) == 0
    left = {str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")}
    assert left == {"cpu", "cpu/other", "memory", "memory/libpod_parent", "memory/libpod_parent/libpod-1"}
