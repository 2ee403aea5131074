"""README and guide as a new user types them: one `lcm up`, each command in turn, and the output printed there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from lcm.client.base import encode_body
from lcm.wiring.simulated.demo import DEFINITIONS, first_workers
from tests.support.run import watchdog
from tests.support.servers.forked_lcm import fork_server
from tests.support.servers.lcm_up import TOKEN, LcmUpProcess, ready

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
_BLOCK = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PIPE = " | "
_VARYING = (
    (re.compile(r"https?://[\w.:]+"), "ADDRESS"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b"), "ADDRESS"),
    (re.compile(r"\b[ilw]-\w+"), "ID"),
    (re.compile(r"\b\d+[smhd](?:\d+[smhd])?\b"), "SPAN"),
    (re.compile(r"\d+(?:\.\d+)?"), "N"),
    (re.compile(r" +"), " "),
)
SAME = (
    "workers create golf",
    "workers hold echo",
    "workers stop echo",
    "workers release echo",
    "workers terminate golf",
    "workers get al",
    "workers stop alhpa",
    "workers stop mine --dry-run",
    "definitions create",
    "definitions list",
    "lablets create",
)
"""Commands whose whole output is as printed but for ids, times, addresses and numbers."""


LEFT_OUT = ("lcm up", "lcm login", "lcm watch")
"""They go on until they are stopped, or name another address."""
DAILY = ("lcm workers get al", "lcm workers stop alhpa", "lcm workers stop mine")
"""What can be typed in the fleet of the demo; the rest of the chapter shows another fleet."""
CHANGING = "  running now"
"""What the simulated users of the demo change all the time."""


def section(page: str, first: str, last: str | None = None) -> list[tuple[str, list[str]]]:
    """The commands from a heading to another one or to the end, each with the lines that are printed as its output."""
    text = (ROOT / page).read_text()
    part = text[text.index(f"# {first}\n") : None if last is None else text.index(f"# {last}\n")]
    found: list[tuple[str, list[str]]] = []
    for block in _BLOCK.findall(part):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            elif found and "$ " in block:
                found[-1][1].append(line)
            elif ".venv/bin/lcm" in line:
                found += [(each.strip().removeprefix(".venv/bin/"), []) for each in line.split("&&")]
    return [(command, output) for command, output in found if command.startswith("lcm ")]


def normal(lines: list[str]) -> list[str]:
    """The lines without what differs from run to run."""
    lines = [line for line in lines if not line.startswith(CHANGING)]
    for pattern, word in _VARYING:
        lines = [pattern.sub(word, line) for line in lines]
    return [line.rstrip() for line in lines if line.strip()]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[LcmUpProcess]:
    """The fleet of the demo, without its simulated users and disturbances, which come when they like."""
    started = LcmUpProcess(tmp_path, "up", "--empty", "--speed", "50", RECONCILE_INTERVAL="2")
    try:
        started.start()
        for definition in DEFINITIONS:
            started.ask("POST", "/api/lablet-definitions", definition.model_dump(mode="json"))
        for worker in first_workers(("us-east-1", "eu-west-1", "ap-southeast-2")):
            started.ask("POST", "/api/workers", json.loads(encode_body(worker)))
        started.ask("POST", "/api/workers", {"name": "found-by-discovery", "template_name": "small"})
        started.until(ready("alpha", "bravo", "charlie", "echo"), "the workers are ready")
        started.until(lambda workers: workers["bravo"]["license_status"] == "registered", "its license is registered")
        yield started
    finally:
        started.process.end()


def typed(up: LcmUpProcess, command: str) -> subprocess.CompletedProcess[str]:
    """What the command prints. A filter after it is left out."""
    words = shlex.split(command.partition(_PIPE)[0])[1:]
    kept = {name: os.environ[name] for name in ("PATH", "LANG", watchdog.VARIABLE) if name in os.environ}
    with TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        env = {
            **kept,
            "HOME": folder,
            "LCM_URL": up.url,
            "LCM_TOKEN": TOKEN,
            "PYTHONUTF8": "1",
            "TZ": "UTC",
            "COLUMNS": "120",
        }
        code = fork_server().start(words, env, out=str(out), err=str(err)).wait(180)
        return subprocess.CompletedProcess(words, code, out.read_text("utf-8"), err.read_text("utf-8"))


def assert_as_printed(up: LcmUpProcess, command: str, printed: list[str]) -> None:
    done = typed(up, command)
    shown = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    refused = any(line.startswith("lcm: ") for line in printed)
    assert done.returncode == (1 if refused else 0), f"{command}: {shown}"
    if any(command.startswith(f"lcm {each}") for each in SAME):
        assert normal(shown) == normal(printed), command


def test_readme_and_guide_as_they_are_typed(up: LcmUpProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    readme = section("README.md", "The first minutes", "Where to read on")
    tour = section("docs/guide.md", "First ten minutes", "The dashboard")
    daily = section("docs/guide.md", "Names", "Watching the fleet")
    lablets = section("docs/guide.md", "Creating a lablet")
    typed_here = [each for each in daily if each[0].startswith(DAILY)]
    commands = [each for each in (*readme, *tour, *typed_here, *lablets) if not each[0].startswith(LEFT_OUT)]
    assert len(commands) == 4 + 11 + 3 + 6
    for command, printed in commands:
        assert_as_printed(up, command, printed)
