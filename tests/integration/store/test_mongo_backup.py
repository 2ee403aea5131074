"""Backups of MongoDB during writes are consistent. Only a whole one is restored, into a database that is not in use."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import bson
import httpx
import pytest
from pymongo import MongoClient

from lcm.control_plane.store.mongo import backup
from lcm.control_plane.store.mongo.backup import BackupError, restore, save
from lcm.control_plane.store.mongo.database import CHECK_ID, HEAD, JOURNAL, META, RESTORE_ID
from lcm.control_plane.store.mongo.store import MongoStore
from lcm.control_plane.store.port import StoreError
from tests.support.records.store_documents import KINDS, NOTES, body, entry, note
from tests.support.servers.control_plane import ADMIN, ControlPlaneProcess
from tests.support.servers.mongod import database_name
from tests.support.servers.processes import ROOT, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.servers.etcd import EtcdServer


@pytest.fixture
def url(mongodb_uri: str) -> str:
    return address(mongodb_uri)


@pytest.fixture
def client(mongodb_uri: str) -> Iterator[MongoClient[Any]]:
    with MongoClient[Any](mongodb_uri) as made:
        yield made


@pytest.fixture(autouse=True)
def _short_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """In most tests nothing uses the database."""
    monkeypatch.setattr(backup, "_LISTEN_SECONDS", 0.0)


def address(mongodb_uri: str) -> str:
    return mongodb_uri.replace("/?", f"/{database_name()}?")


def name_in(url: str) -> str:
    return url.rpartition("/")[2].partition("?")[0]


def run(url: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lcm.control_plane.store.mongo.backup", *map(str, arguments)]
    env = {**os.environ, "STORE_URL": url}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=180, check=False)


def saved_records(file: Path) -> list[dict[str, Any]]:
    with gzip.open(file) as opened:
        return list(bson.decode_file_iter(opened))  # type: ignore[call-overload]


async def filled(mongodb_url: str, *names: str) -> None:
    store = MongoStore(mongodb_url, name_in(mongodb_url))
    await store.open(KINDS)
    try:
        for number, name in enumerate(names):
            await store.commit([note(name, body=number)], entries=[entry(name, number)])
    finally:
        await store.close()


async def contents(mongodb_url: str) -> dict[str, Any]:
    store = MongoStore(mongodb_url, name_in(mongodb_url))
    await store.open(KINDS)
    try:
        return {each.id: await body(store, NOTES, each.id) for each in (await store.find(NOTES)).items}
    finally:
        await store.close()


def test_a_control_plane_continues_from_a_backup_that_was_made_during_writes(
    tmp_path: Path, etcd_server: EtcdServer, mongodb_uri: str
) -> None:
    urls = [address(mongodb_uri), address(mongodb_uri)]
    planes = []
    for number, each in enumerate(urls):
        folder = tmp_path / f"plane{number}"
        folder.mkdir()
        more = {"STORE_URL": each, "LCM_SECRET_KEY": "a" * 43 + "="}
        planes.append(ControlPlaneProcess(folder, etcd_server, f"mongo-backup-{number}", **more))
    first, second = planes
    written: list[str] = []
    enough = threading.Event()

    def write() -> None:
        while not enough.is_set():
            create(first, f"worker-{len(written)}")
            written.append(f"worker-{len(written)}")

    writer = threading.Thread(target=write)
    try:
        first.start()
        writer.start()
        wait_until(lambda: len(written) > 20, "some workers are there")
        surely = set(written)
        done = run(urls[0], "save", tmp_path / "copy")
        assert done.returncode == 0, done.stderr
        refused = run(urls[0], "restore", tmp_path / "copy")
        assert (refused.returncode, "a control plane uses database" in refused.stderr) == (1, True)
        enough.set()
        writer.join()
        done = run(urls[1], "restore", tmp_path / "copy")
        assert done.returncode == 0, done.stderr
        second.start()
        assert surely <= names(second) <= names(first)
        rotated = ask(second, "POST", "/api/secrets/rotate").json()
        assert (rotated["unreadable"], rotated["already"]) == ([], len(names(second)))
        create(second, "after-the-restore")
        about = [ask(each, "GET", "/info").json()["installation_id"] for each in planes]
        assert about[0] == about[1]
    finally:
        enough.set()
        if writer.ident is not None:
            writer.join()
        for plane in planes:
            plane.process.end()


def ask(plane: ControlPlaneProcess, method: str, path: str, **options: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {ADMIN}"}
    return httpx.request(method, f"{plane.url}{path}", headers=headers, timeout=60, verify=False, **options)


def create(plane: ControlPlaneProcess, name: str) -> None:
    request = {"name": name, "template_name": "small", "license_token": f"token-of-{name}"}
    assert ask(plane, "POST", "/api/workers", json=request).status_code == 201


def names(plane: ControlPlaneProcess) -> set[str]:
    return {worker["name"] for worker in ask(plane, "GET", "/api/workers?limit=500").json()["items"]}


async def test_all_collections_are_of_one_moment(
    url: str, client: MongoClient[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit between the reads of two collections is in neither of them."""
    await filled(url, "a", "b")
    database = client[name_in(url)]
    read = backup._documents

    def read_and_write(source: Any, name: str, session: Any) -> Any:
        for document in read(source, name, session):
            database[META].update_one({"_id": HEAD}, {"$inc": {"cursor": 1}})
            database[JOURNAL].insert_one({"_id": 1000 + database[JOURNAL].count_documents({})})
            yield document

    monkeypatch.setattr(backup, "_documents", read_and_write)
    save(url, tmp_path / "copy")
    records = saved_records(tmp_path / "copy")
    journal = [each["document"]["_id"] for each in records if each.get("collection") == JOURNAL and "document" in each]
    (head,) = [each["document"] for each in records if each.get("document", {}).get("_id") == HEAD]
    assert (len(journal), head["cursor"]) == (2, 2)


async def test_what_came_after_the_backup_is_gone_and_indexes_are_back(
    url: str, client: MongoClient[Any], tmp_path: Path
) -> None:
    await filled(url, "a", "b")
    database = client[name_in(url)]
    indexes = {name: set(database[name].index_information()) for name in database.list_collection_names()}
    save(url, tmp_path / "copy")
    assert (tmp_path / "copy").stat().st_mode & 0o077 == 0
    await filled(url, "later")
    database["d_later"].insert_one({"_id": "of a kind that the backup does not know"})
    restore(url, tmp_path / "copy")
    assert {name: set(database[name].index_information()) for name in database.list_collection_names()} == indexes
    assert await contents(url) == {"a": 0, "b": 1}
    client.drop_database(database.name)
    restore(url, tmp_path / "copy")
    assert await contents(url) == {"a": 0, "b": 1}


async def test_a_damaged_file_changes_nothing(url: str, tmp_path: Path) -> None:
    await filled(url, "a", "b")
    copy = tmp_path / "copy"
    save(url, copy)
    whole = copy.read_bytes()
    records = saved_records(copy)
    parts = (records[:-1], (*records[:-2], records[-1]))
    shorter = [gzip.compress(b"".join(map(bson.encode, part))) for part in parts]
    damaged = [whole[: len(whole) // 2], b"", b"no backup", gzip.compress(b"no backup"), *shorter]
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    await filled(url, "c")
    for content in (*damaged, bytes(flipped)):
        copy.write_bytes(content)
        with pytest.raises(BackupError, match="copy"):
            restore(url, copy)
    assert await contents(url) == {"a": 0, "b": 1, "c": 0}


async def test_no_control_plane_opens_half_a_restore_and_repeating_it_completes_it(
    url: str, client: MongoClient[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(url, "a", "b")
    save(url, tmp_path / "copy")
    put = backup._restore_collection

    def interrupted(database: Any, name: str, records: Any) -> None:
        if name == JOURNAL:
            raise KeyboardInterrupt
        put(database, name, records)

    monkeypatch.setattr(backup, "_restore_collection", interrupted)
    with pytest.raises(KeyboardInterrupt):
        restore(url, tmp_path / "copy")
    assert client[name_in(url)][META].find_one({"_id": RESTORE_ID})
    with pytest.raises(StoreError, match="repeat the restore"):
        await contents(url)
    monkeypatch.setattr(backup, "_restore_collection", put)
    restore(url, tmp_path / "copy")
    assert await contents(url) == {"a": 0, "b": 1}


async def test_a_database_that_is_in_use_is_not_replaced(
    url: str, client: MongoClient[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(url, "a")
    save(url, tmp_path / "copy")
    await filled(url, "b")

    def write(_: float) -> None:
        client[name_in(url)][META].update_one({"_id": CHECK_ID}, {"$inc": {"checks": 1}}, upsert=True)

    monkeypatch.setattr("lcm.control_plane.store.mongo.backup.time.sleep", write)
    with pytest.raises(BackupError, match="stop all controllers and control planes"):
        restore(url, tmp_path / "copy")
    assert await contents(url) == {"a": 0, "b": 0}


def test_what_cannot_be_done_is_one_line(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept"
    kept.write_text("a backup")
    for address_given, arguments, code, words in (
        (url, ("save", kept), 1, "already exists"),
        (url, ("save", tmp_path / "empty"), 1, "has no store of LCM"),
        (url, ("save", tmp_path / "missing" / "copy"), 1, "cannot be written"),
        (url, ("restore", tmp_path / "missing"), 1, "cannot be read"),
        ("mongodb://u:p@[", ("save", tmp_path / "copy"), 1, "STORE_URL is no valid MongoDB URI"),
        (url, ("copy",), 2, "usage:"),
        ("", ("save", tmp_path / "copy"), 2, "usage: STORE_URL="),
    ):
        monkeypatch.setenv("STORE_URL", address_given)
        assert backup.main([str(each) for each in arguments]) == code
        (line,) = capsys.readouterr().err.splitlines()
        assert words in line
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert kept.read_text() == "a backup"
