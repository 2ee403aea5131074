"""Backups of the SQLite store during writes are consistent and usable."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import httpx

from tests.support.servers.etcd import EtcdServer, free_ports
from tests.support.servers.processes import ROOT, LcmProcess, wait_until

if TYPE_CHECKING:
    from pathlib import Path

ADMIN = "bootstrap-token-for-tests-0123456789"
COMMAND = "python -m lcm.control_plane.store.sqlite.backup"


class Plane:
    """A control plane on a file in its own data folder."""

    def __init__(self, folder: Path, name: str, etcd: EtcdServer) -> None:
        self.data = folder / f"{name}.data"
        self.port = free_ports(1)[0]
        settings = {
            "ETCD_ENDPOINTS": etcd.endpoint,
            "ETCD_NAMESPACE": f"/backup-{name}",
            "CONTROL_PLANE_PORT": str(self.port),
            "LCM_BOOTSTRAP_TOKEN": ADMIN,
        }
        self.process = LcmProcess(folder, name, "control-plane", env=settings)

    def start(self) -> Plane:
        self.process.start()
        wait_until(lambda: self.ask("GET", "/ready").status_code == 200, "the control plane is ready")
        return self

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            headers = {"Authorization": f"Bearer {ADMIN}"}
            return httpx.request(
                method, f"http://127.0.0.1:{self.port}{path}", headers=headers, timeout=30, verify=False, **options
            )
        except httpx.TransportError:
            return httpx.Response(0)

    def create(self, name: str) -> None:
        body = {"name": name, "template_name": "small", "license_token": f"token-of-{name}"}
        assert self.ask("POST", "/api/workers", json=body).status_code == 201

    def names(self) -> set[str]:
        return {worker["name"] for worker in self.ask("GET", "/api/workers?limit=500").json()["items"]}


def back_up(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *COMMAND.split()[1:], str(source), str(target)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)


def test_a_backup_during_writes_is_consistent_and_a_control_plane_starts_from_it(
    tmp_path: Path, etcd_server: EtcdServer
) -> None:
    plane = Plane(tmp_path, "first", etcd_server).start()
    restored = Plane(tmp_path, "second", etcd_server)
    written: list[str] = []
    enough = threading.Event()

    def write() -> None:
        while not enough.is_set():
            plane.create(f"worker-{len(written)}")
            written.append(f"worker-{len(written)}")

    writer = threading.Thread(target=write)
    try:
        writer.start()
        wait_until(lambda: len(written) > 20, "some workers are there")
        surely = set(written)
        done = back_up(plane.data / "lcm.db", tmp_path / "copy.db")
        assert done.returncode == 0, done.stderr
        enough.set()
        writer.join()
        # It has everything acknowledged before and nothing unknown, and the control plane was not disturbed.
        restored.data.mkdir()
        shutil.copy(tmp_path / "copy.db", restored.data / "lcm.db")
        shutil.copy(plane.data / "secret.key", restored.data / "secret.key")
        restored.start()
        assert surely <= restored.names() <= plane.names()
        rotated = restored.ask("POST", "/api/secrets/rotate").json()
        assert rotated["unreadable"] == []
        assert rotated["already"] == len(restored.names())
        restored.create("after-the-restore")
        about = [each.ask("GET", "/info").json()["installation_id"] for each in (plane, restored)]
        assert about[0] == about[1]
    finally:
        enough.set()
        writer.join()
        plane.process.end()
        restored.process.end()


def test_a_plain_copy_lacks_the_newest_changes(tmp_path: Path, etcd_server: EtcdServer) -> None:
    """The reason for the command: a plain copy of lcm.db lacks the write-ahead log."""
    plane = Plane(tmp_path, "third", etcd_server).start()
    try:
        plane.create("alpha")
        shutil.copy(plane.data / "lcm.db", tmp_path / "plain.db")
        assert back_up(plane.data / "lcm.db", tmp_path / "copy.db").returncode == 0
        assert [_workers(tmp_path / name) for name in ("plain.db", "copy.db")] == [0, 1]
        assert (tmp_path / "copy.db").stat().st_mode & 0o077 == 0
    finally:
        plane.process.end()


def test_an_existing_file_is_not_overwritten_and_a_failure_leaves_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "kept.db"
    kept.write_text("a backup")
    assert "exists" in back_up(tmp_path / "none.db", kept).stderr
    assert kept.read_text() == "a backup"
    done = back_up(tmp_path / "none.db", tmp_path / "new.db")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE things (n)")
    other.close()
    assert "not an LCM store" in back_up(tmp_path / "other.db", tmp_path / "new.db").stderr
    assert back_up(tmp_path / "other.db", tmp_path / "none" / "new.db").returncode == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.db", "other.db"]


def test_the_former_path_of_the_command_still_works(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lcm.control_plane.store.sqlite_backup", str(tmp_path / "none.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.startswith("usage: ")) == (2, True)


def test_the_documentation_shows_this_command() -> None:
    assert f'{COMMAND} "$DATA/lcm.db" "$COPY"' in (ROOT / "docs" / "operations.md").read_text()


def _workers(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        (count,) = connection.execute("SELECT COUNT(*) FROM d_workers").fetchone()
    except sqlite3.OperationalError:
        return 0  # even the table is still in the log
    else:
        return int(count)
    finally:
        connection.close()
