"""The scripts of backups where something goes wrong, with a program in place of the one that reads the store."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from deploy.checks.conftest import DEPLOY

if TYPE_CHECKING:
    from pathlib import Path

SERVICE_USER = (12345, 12345) if os.geteuid() == 0 else (os.getuid(), os.getgid())
"""Root restores the store of another user."""
STORE = "the store\n" * 10_000
"""More than a pipe holds."""


def run(script: str, folder: Path, *, options: str = "-euo pipefail", **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script; `python` writes STORE to its last argument, or fails if that file is there."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name, text in {
        "python": 'target="${@: -1}"\ntest ! -e "$target" && ${FAILS:-true} && printf "$STORE" > "$target"\n',
        "container": '"$@"\n',
        "broken": '"$@" | head -c 3\nexit 1\n',
    }.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}")
        (programs / name).chmod(0o755)
    (folder / "tmp").mkdir(exist_ok=True)
    place = {
        "STORE": STORE,
        "PATH": f"{programs}:/usr/bin:/bin",
        "TMPDIR": str(folder / "tmp"),
        "COPY": str(folder / "copy"),
    }
    return subprocess.run(
        ["bash", *options.split(), "-c", (DEPLOY / "drills" / script).read_text(encoding="utf-8")],
        cwd=folder,
        env=place | env,
        capture_output=True,
        text=True,
        check=False,
    )


def left(folder: Path) -> list[str]:
    """What a backup left behind, in the container and here."""
    return sorted(path.name for path in (*(folder / "tmp").iterdir(), *folder.glob("copy*")))


def test_a_backup_from_a_container_is_whole_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    done = run("backup-container.sh", tmp_path, RUN="container")
    assert (done.returncode, left(tmp_path)) == (0, ["copy"]), done.stderr
    assert (tmp_path / "copy").read_text() == STORE
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600


# People paste the commands into a shell that goes on after an error.
SHELLS = pytest.mark.parametrize("options", ["-euo pipefail", "-u"], ids=["script", "pasted"])


@SHELLS
@pytest.mark.parametrize("failure", [{"RUN": "broken"}, {"RUN": "container", "FAILS": "false"}], ids=["pipe", "store"])
def test_a_backup_that_failed_leaves_nothing_and_the_next_one_works(
    tmp_path: Path, failure: dict[str, str], options: str
) -> None:
    assert run("backup-container.sh", tmp_path, options=options, **failure).returncode != 0
    assert left(tmp_path) == []
    assert run("backup-container.sh", tmp_path, options=options, RUN="container").returncode == 0


@SHELLS
def test_a_backup_from_a_container_overwrites_no_file(tmp_path: Path, options: str) -> None:
    (tmp_path / "copy").write_text("an older backup")
    done = run("backup-container.sh", tmp_path, options=options, RUN="container")
    assert done.returncode != 0
    assert "copy already exists" in done.stderr
    assert (tmp_path / "copy").read_text() == "an older backup"
    assert left(tmp_path) == ["copy"]


@SHELLS
def test_the_service_can_open_the_file_that_root_restored(tmp_path: Path, options: str) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    (data / "lcm.db").write_text("the newer store")
    os.chown(data, *SERVICE_USER)
    copy.write_text("the store")
    done = run("restore-sqlite.sh", tmp_path, options=options, DATA=str(data))
    assert done.returncode == 0, done.stderr
    restored = (data / "lcm.db").stat()
    assert (data / "lcm.db").read_text() == "the store"
    assert (restored.st_uid, restored.st_gid, restored.st_mode & 0o777) == (*SERVICE_USER, 0o600)


def aside(data: Path) -> list[dict[str, str]]:
    """What restores put aside, each in a folder of its own."""
    folders = (folder for folder in data.glob("before-restore*") if any(folder.iterdir()))
    return [{path.name: path.read_text() for path in folder.iterdir()} for folder in folders]


@SHELLS
def test_a_second_restore_keeps_what_the_first_one_put_aside(tmp_path: Path, options: str) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    for content in ("first", "second"):
        (data / "lcm.db").write_text(content)
        copy.write_text(f"restored after the {content}")
        done = run("restore-sqlite.sh", tmp_path, options=options, DATA=str(data))
        assert done.returncode == 0, done.stderr
        assert (data / "lcm.db").read_text() == copy.read_text()
    assert sorted(files["lcm.db"] for files in aside(data)) == ["first", "second"]


@SHELLS
@pytest.mark.parametrize("there", [(), ("lcm.db-wal", "lcm.db-shm"), ("lcm.db", "lcm.db-wal", "lcm.db-shm")])
@pytest.mark.parametrize("link", [False, True])
def test_a_restore_needs_no_store_and_leaves_no_log_of_one(
    tmp_path: Path, there: tuple[str, ...], link: bool, options: str
) -> None:
    """On a new host the folder is empty. SQLite would apply a log that stays."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    for name in there:
        (data / name).write_text("older")
    (data / "secret.key").write_text("the key")
    copy.write_text("the store")
    (tmp_path / "link").symlink_to(data)
    done = run("restore-sqlite.sh", tmp_path, options=options, DATA=str(tmp_path / "link" if link else data))
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_text() for path in data.iterdir() if path.is_file()} == {
        "lcm.db": "the store",
        "secret.key": "the key",
    }
    assert aside(data) == ([dict.fromkeys(there, "older")] if there else [])


FAIL_AT = """#!/bin/bash
# The program of this name, but the run with the number FAIL_AT among all of them fails.
echo >> "$RUNS"
test "$(wc -l < "$RUNS")" != "$FAIL_AT" && exec "/usr/bin/${0##*/}" "$@"
exit 1
"""


@SHELLS
def test_a_restore_that_failed_anywhere_is_repeated(tmp_path: Path, options: str) -> None:
    ends: list[int] = []
    for number in range(1, 10):
        folder = tmp_path / str(number)
        data, copy, programs = folder / "data", folder / "copy", folder / "programs"
        data.mkdir(parents=True)
        (data / "lcm.db").write_text("older")
        (data / "lcm.db-wal").write_text("its log")
        copy.write_text("the store")
        programs.mkdir()
        for name in ("install", "chown", "mkdir", "mktemp", "find", "mv"):
            (programs / name).write_text(FAIL_AT)
            (programs / name).chmod(0o755)
        place = {"DATA": str(data), "RUNS": str(folder / "runs")}
        ends.append(run("restore-sqlite.sh", folder, options=options, FAIL_AT=str(number), **place).returncode)
        done = run("restore-sqlite.sh", folder, options=options, FAIL_AT="0", **place)
        assert done.returncode == 0, (number, done.stderr)
        assert (data / "lcm.db").read_text() == "the store"
        assert {"lcm.db": "older", "lcm.db-wal": "its log"} in aside(data), "nothing is lost"
    failed = len([end for end in ends if end != 0])
    assert failed >= 5, "each step has failed once"
    assert ends == [*ends[:failed], *[0] * (9 - failed)]
