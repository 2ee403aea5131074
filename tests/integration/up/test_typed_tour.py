"""The pages as a reader types them: one `lcm up`, each command in turn, and the output printed there.

README and guide come first, as they are for a new user; then the pages for people who run LCM.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
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
OPERATIONS = {
    "lcm tokens create alice --role operator --expires 90d": "",
    "lcm tokens list": "",
    "lcm tokens revoke alice": "lcm tokens revoke alice --yes",
    "lcm tokens create wc --role controller": "",
    "lcm secrets rotate -o json": "",
    "lcm config show": "",
    "lcm sessions list": "",
    "lcm fleet": "",
    "lcm audit": "",
    "lcm audit --worker NAME": "lcm audit --worker alpha",
    "lcm audit --action leaked_instance": "",
    "lcm audit --action license_leaked": "",
    "lcm templates apply FILE": "lcm templates apply {template}",
    "lcm lablets preview DEFINITION": "lcm lablets preview campus",
    "lcm lablets get NAME": "lcm lablets get {lablet}",
    "lcm lablets history NAME": "lcm lablets history {lablet}",
    "lcm workers list": "",
    "lcm workers explain": "lcm workers explain alpha",
    "lcm workers explain NAME": "lcm workers explain alpha",
    "lcm workers history NAME": "lcm workers history alpha",
    "lcm workers trust NAME": "lcm workers trust alpha --yes",
    "lcm workers retry NAME": "lcm workers retry alpha",
    "lcm breaker reset REGION": "lcm breaker reset us-east-1 --yes",
    'lcm fleet hold --reason "restored a backup"': "",
    "lcm plan": "",
    "lcm fleet release": "",
    "lcm workers release NAME": "lcm workers release alpha",
    "lcm workers license NAME register --license-token-file FILE": (
        "lcm workers license alpha register --license-token-file {token}"
    ),
    "lcm settings set terminate_leaked_instances true": "lcm settings set terminate_leaked_instances true --yes",
    "lcm workers stop NAME": "lcm workers stop alpha",
    "lcm workers start NAME": "lcm workers start alpha",
    "lcm workers terminate NAME": "lcm workers terminate alpha --yes",
    "lcm leadership reset worker-controller": "lcm leadership reset worker-controller --yes",
}
"""Commands of operations.md and security.md, in this order, and how they are typed where they name something.

Left out are services, and what needs another service: sign-in, subscriptions and `lcm config check` have tests of their
own.
"""
GUIDE = {
    "lcm --help": "",
    "lcm contexts list": "",
    "lcm whoami": "",
    "lcm dashboard": "",
    "lcm top": "",
    "lcm plan": "",
    "lcm audit": "",
    "lcm fleet overnight": "",
    "lcm config show control-plane --changed": "",
    "lcm settings show": "",
    "lcm settings set worker_idle_timeout_minutes 45": "lcm settings set worker_idle_timeout_minutes 45 --yes",
    "lcm settings unset": "lcm settings unset worker_idle_timeout_minutes --yes",
    "lcm templates apply templates.yaml": "lcm templates apply {template}",
    "lcm tokens create NAME --role viewer|operator|admin --expires 30d": (
        "lcm tokens create guest --role viewer --expires 30d"
    ),
    "lcm workers list -o name --status failed": "",
    "lcm workers explain lima": "lcm workers explain alpha",
    "lcm workers history NAME": "lcm workers history alpha",
    "lcm workers wait NAME --for ready && …": "lcm workers wait alpha --for ready",
    "lcm workers terminate echo": "lcm workers terminate echo --dry-run",
    "lcm workers adopt NAME": "lcm workers adopt alpha",
    'lcm fleet hold --reason "…"': "",
    "lcm fleet release": "",
    "lcm definitions create -f FILE": "lcm definitions create -f examples/two-routers.yaml",
    "lcm bookings preview": ("lcm bookings preview -d two-routers --seats 1 --start {start} --zone UTC --duration 1h"),
    "lcm bookings create": (
        "lcm bookings create monday -d two-routers --seats 1 --start {start} --zone UTC --duration 1h --weeks 2"
    ),
    "lcm bookings": "lcm bookings list",
    "lcm bookings extend": "lcm bookings extend monday --by 30m",
    "lcm bookings move": "lcm bookings move monday --class 2 --start {later}",
    "lcm bookings seat-links NAME": "lcm bookings seat-links monday",
    "lcm bookings seat-links NAME --revoke": "lcm bookings seat-links monday --revoke --yes",
    "lcm bookings cancel --class": "lcm bookings cancel monday --class 2 --yes",
    "lcm bookings cancel": "lcm bookings cancel monday --yes",
    "lcm definitions disable NAME@VERSION": "lcm definitions disable two-routers@1 --yes",
    "lcm lablets list": "",
    "lcm lablets preview": "lcm lablets preview two-routers",
    "lcm lablets history NAME": "lcm lablets history my-lab",
    "lcm lablets extend NAME --by 1h": "lcm lablets extend my-lab --by 1h",
    "lcm lablets reset NAME": "lcm lablets reset my-lab --yes",
    "lcm lablets seat-link NAME": "lcm lablets seat-link my-lab",
    "lcm lablets terminate NAME": "lcm lablets terminate my-lab --yes",
    'lcm schedules preview --zone Europe/Brussels --window "mon-fri 08:00-18:00" --tag course=ccna': "",
    'lcm schedules create office-hours --zone Europe/Brussels --window "mon-fri 08:00-18:00" --tag course=ccna': "",
    'lcm schedules create net-hours --zone Europe/Brussels --window "mon-fri 08:00-18:00" --team net': "",
    "lcm schedules list": "",
    "lcm plan -o json": "",
    "lcm plan --full -o json": "",
    'lcm schedules edit office-hours --except "2026-12-24..2027-01-02 closed"': "",
}
"""What README and guide name beside their samples, and how it is typed in this fleet."""
NOT_TYPED = {
    "lcm --install-completion",
    "lcm cml-simulator",
    "lcm lablet-controller",
    "lcm resource-scheduler",
    "lcm config check control-plane",
    "lcm logout",
    "lcm subscriptions create on-call --target slack --url-file slack-url.txt",
    "lcm subscriptions get on-call",
    "lcm subscriptions test on-call",
    "lcm workers explain",
    "lcm workers stop gamma",
    "lcm workers adopt found --template large",
}
"""What goes on until it is stopped, changes a shell, needs another service, or is of the fleet of a sample."""
REJECTED = {
    "lcm workers trust NAME": "there is no certificate to trust",
    "lcm workers retry NAME": "FAILED",
    "lcm bookings seat-links NAME": "has no labs yet",
    "lcm breaker reset REGION": "no breaker is open",
    "lcm workers adopt NAME": "only an imported worker can be adopted",
}
"""What a healthy fleet has no use for: the command says so."""
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


def written_commands(page: str) -> set[str]:
    """Every `lcm` command on a page: in blocks, without comments, and in sentences."""
    text = (ROOT / page).read_text()
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    lines = [line.partition(" #")[0].strip() for line in lines]
    sentences = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    inline = [" ".join(each.split()) for each in re.findall(r"`(lcm\s[^`]+)`", sentences)]
    return {each for each in (*lines, *inline) if each.startswith("lcm ")}


def type_guide(up: LcmUpProcess, folder: Path, samples: set[str]) -> None:
    """Type what README and guide name beside their samples. A new command must be known here."""
    pages = written_commands("README.md") | written_commands("docs/guide.md")
    written = {each.partition(_PIPE)[0] for each in pages if not each.startswith(LEFT_OUT)}
    assert written - {each.partition(_PIPE)[0] for each in samples} - set(GUIDE) - NOT_TYPED == set()
    assert set(GUIDE) <= written, "the pages no longer have these commands"
    assert_done("lcm teams create net", typed(up, "lcm teams create net"))
    for command, how in GUIDE.items():
        typed_as = (how or command).format(template=template_file(folder), start=day_after(30), later=day_after(50))
        assert_done(command, typed(up, typed_as))


def day_after(days: int) -> str:
    """Noon, so many days from now, as a booking is typed."""
    return f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%d}T12:00"


def template_file(folder: Path) -> Path:
    """The template that the page for people who run LCM shows."""
    operations = (ROOT / "docs/operations.md").read_text()
    template = re.search(r"^name: nested-huge$.*?(?=^```)", operations, re.MULTILINE | re.DOTALL)
    assert template is not None
    (folder / "nested-huge.yaml").write_text(template[0])
    return folder / "nested-huge.yaml"


def assert_done(command: str, done: subprocess.CompletedProcess[str]) -> None:
    """It succeeded, or was rejected as a healthy fleet rejects it."""
    said = f"{command}: {done.stdout}{done.stderr}"
    assert done.returncode == (1 if command in REJECTED else 0), said
    assert REJECTED.get(command, "") in done.stderr, said


def type_operations(up: LcmUpProcess, folder: Path) -> None:
    """Type the commands of the pages for people who run LCM."""
    written = written_commands("docs/operations.md") | written_commands("docs/security.md")
    assert set(OPERATIONS) <= written, "the pages no longer have these commands"
    operations = (ROOT / "docs/operations.md").read_text()
    names = {
        "template": template_file(folder),
        "token": folder / "token",
        "lablet": typed(up, "lcm lablets list --all -o name").stdout.split()[0],
    }
    (folder / "token").write_text("a-license-token")
    for command, how in OPERATIONS.items():
        done = typed(up, (how or command).format(**names))
        assert_done(command, done)
        if command == "lcm secrets rotate -o json":
            printed = operations.partition(f"$ {command}\n")[2].partition("```")[0].splitlines()
            assert normal(done.stdout.splitlines()) == normal(dedent("\n".join(printed)).splitlines())


def test_pages_as_they_are_typed(up: LcmUpProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    type_guide(up, tmp_path, {command for command, _ in commands})
    type_operations(up, tmp_path)
