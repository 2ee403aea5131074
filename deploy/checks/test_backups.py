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


@SHELLS
def test_a_second_restore_keeps_what_the_first_one_put_aside(tmp_path: Path, options: str) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    copy.write_text("the store")
    ends = []
    for content in ("first", "second"):
        (data / "lcm.db").write_text(content)
        ends.append(run("restore-sqlite.sh", tmp_path, options=options, DATA=str(data)).returncode)
    assert ends[0] == 0 != ends[1]
    assert (data / "before-restore" / "lcm.db").read_text() == "first"
    assert (data / "lcm.db").read_text() == "second"
