"""Copies a MongoDB store that is in use, and restores such a copy.

    python -m lcm.control_plane.store.mongo.backup save FILE
    python -m lcm.control_plane.store.mongo.backup restore FILE

STORE_URL and LCM_CA_FILE are those of the control planes, and LCM's own user may do both. All collections are read at
one point in time, and no writer waits for it. A file is restored only after all of it was read and found whole.
"""

from __future__ import annotations

import gzip
import os
import sys
import time
import zlib
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

import bson
from bson.codec_options import CodecOptions
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from lcm.control_plane.store.mongo.database import CHECK_ID, META, RESTORE_ID, translate_error
from lcm.control_plane.store.mongo_address import database_name, tls_options
from lcm.core import clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pymongo.client_session import ClientSession
    from pymongo.synchronous.database import Database as SyncDatabase

    Database: TypeAlias = SyncDatabase[Any]

_USAGE = "usage: STORE_URL=mongodb://… python -m lcm.control_plane.store.mongo.backup save|restore FILE"
OK, FAILED, WRONG_USAGE = 0, 1, 2

_FORMAT: Final = "lcm-mongodb-1"
_RAW: Final = CodecOptions(document_class=RawBSONDocument)
_BATCH: Final = 500
_LISTEN_SECONDS: Final = 4.0
"""A control plane writes every second; this is long enough to notice it."""
_SNAPSHOT_CODES: Final = (239, 246)  # SnapshotTooOld, SnapshotUnavailable


class BackupError(Exception):
    """The backup or the restore failed; the message gives the cause."""


def save(url: str, target: Path, ca_file: Path | None = None) -> int:
    """Copy the store to a file that must not exist yet; returns the number of documents."""
    if target.exists():
        raise BackupError(f"{target} already exists: choose another file")
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        # Readable by its owner only from the first byte on: it contains tokens and encrypted secrets.
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            with gzip.GzipFile(fileobj=file, mode="wb") as packed, _connected(url, ca_file) as database:
                count = _write(database, packed)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(target)
    except OSError as error:
        raise BackupError(f"{target} cannot be written: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)
    return count


def _write(database: Database, file: gzip.GzipFile) -> int:
    """One BSON document a record: what the file is, the documents and indexes of each collection, their number."""
    count = 0
    with database.client.start_session(snapshot=True) as session:
        # The first read fixes the point in time. Collections that are created later have nothing of it.
        if database[META].find_one({}, session=session) is None:
            raise BackupError(f"database {database.name} has no store of LCM")
        file.write(bson.encode({"format": _FORMAT, "database": database.name, "at": clock.now()}))
        names = [each for each in database.list_collection_names() if not each.startswith("system.")]
        # META is restored last: it says what the rest is.
        for name in sorted(names, key=lambda each: (each == META, each)):
            indexes = [dict(each) for each in database[name].list_indexes() if each["name"] != "_id_"]
            file.write(bson.encode({"collection": name, "indexes": [_definition(each) for each in indexes]}))
            for document in _documents(database, name, session):
                file.write(bson.encode({"collection": name, "document": document}))
                count += 1
    file.write(bson.encode({"documents": count}))
    return count


def _documents(database: Database, name: str, session: ClientSession) -> Iterator[RawBSONDocument]:
    source = database.get_collection(name, codec_options=_RAW)
    for document in source.find({}, session=session, batch_size=_BATCH):
        if name != META or document["_id"] not in (CHECK_ID, RESTORE_ID):
            yield document


def _definition(index: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in index.items() if key not in ("v", "ns")}


def restore(url: str, source: Path, ca_file: Path | None = None) -> int:
    """Replace the store by the copy; returns the number of documents.

    Until it is complete, the database carries a mark, and no control plane opens it. After an interruption, repeat it.
    """
    count = sum("document" in record for record in _records(source))
    with _connected(url, ca_file) as database:
        _require_unused(database)
        database[META].update_one({"_id": RESTORE_ID}, {"$set": {"file": source.name}}, upsert=True)
        for name in database.list_collection_names():
            if name != META and not name.startswith("system."):
                database[name].drop()
        contents = (record for record in _records(source) if "collection" in record)
        for name, records in groupby(contents, key=lambda record: str(record["collection"])):
            _restore_collection(database, name, records)
        database[META].delete_one({"_id": RESTORE_ID})
    return count


def _restore_collection(database: Database, name: str, records: Iterator[RawBSONDocument]) -> None:
    target = database.get_collection(name, codec_options=_RAW)
    if name == META:
        target.delete_many({"_id": {"$ne": RESTORE_ID}})
    indexes = list(next(records)["indexes"])
    batch: list[RawBSONDocument] = []
    for record in records:
        batch.append(record["document"])
        if len(batch) == _BATCH:
            target.insert_many(batch)
            batch = []
    if batch:
        target.insert_many(batch)
    if indexes:
        database.command({"createIndexes": name, "indexes": indexes})


def _records(source: Path) -> Iterator[RawBSONDocument]:
    """The records of a whole file. One that is cut off or damaged raises, at the latest at its end."""
    try:
        with gzip.open(source, "rb") as file:
            yield from _checked(file, source)  # type: ignore[arg-type]
    except (EOFError, gzip.BadGzipFile, zlib.error, InvalidBSON) as error:
        raise BackupError(f"{source} is damaged or not a backup of LCM: {error}") from error
    except OSError as error:
        raise BackupError(f"{source} cannot be read: {error.strerror}") from error


def _checked(file: BinaryIO, source: Path) -> Iterator[RawBSONDocument]:
    records = bson.decode_file_iter(file, codec_options=_RAW)
    first = next(records, None)
    if first is None or first.get("format") != _FORMAT:
        raise BackupError(f"{source} is not a backup of LCM")
    documents, expected = 0, -1
    for record in records:
        documents += "document" in record
        expected = record.get("documents", -1)
        yield record
    if documents != expected:
        raise BackupError(f"{source} is incomplete: {documents} documents, {expected} expected")


def _require_unused(database: Database) -> None:
    before = database[META].find_one({"_id": CHECK_ID})
    time.sleep(_LISTEN_SECONDS)
    if database[META].find_one({"_id": CHECK_ID}) != before:
        raise BackupError(
            f"a control plane uses database {database.name}: stop all controllers and control planes, then try again"
        )


@contextmanager
def _connected(url: str, ca_file: Path | None) -> Iterator[Database]:
    limits: dict[str, Any] = {"serverSelectionTimeoutMS": 20_000, "socketTimeoutMS": 120_000, "appname": "lcm-backup"}
    majority = {"read_concern": ReadConcern("majority"), "write_concern": WriteConcern("majority")}
    try:
        client: MongoClient[Any] = MongoClient(url, **limits, **tls_options(url, ca_file))
    except (PyMongoError, ValueError) as error:
        # The driver's message may quote the URI, which may contain a password.
        raise BackupError(f"STORE_URL is no valid MongoDB URI ({type(error).__name__})") from None
    try:
        yield client.get_database(database_name(url), **majority)  # type: ignore[arg-type]
    except OperationFailure as error:
        if error.code in _SNAPSHOT_CODES:
            raise BackupError(
                "MongoDB no longer has the data of the moment at which the backup began: try again, with a larger"
                f" minSnapshotHistoryWindowInSeconds if it took longer than that ({error})"
            ) from error
        raise BackupError(str(translate_error(error))) from error
    except PyMongoError as error:
        raise BackupError(str(translate_error(error))) from error
    finally:
        client.close()


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    url, ca_file = os.environ.get("STORE_URL", ""), os.environ.get("LCM_CA_FILE")
    if len(arguments) != 2 or arguments[0] not in ("save", "restore") or not url.startswith("mongodb"):
        sys.stderr.write(f"{_USAGE}\n")
        return WRONG_USAGE
    file = Path(arguments[1]).expanduser()
    run = save if arguments[0] == "save" else restore
    try:
        count = run(url, file, Path(ca_file) if ca_file else None)
    except BackupError as problem:
        sys.stderr.write(f"{problem}\n")
        return FAILED
    sys.stdout.write(f"{file}: {count} documents {'saved' if run is save else 'restored'}\n")
    return OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
