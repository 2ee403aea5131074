"""The SQLite file: its process lock, connections, schema migrations, the tables of each kind, and error messages."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lcm.control_plane.store.port import StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lcm.control_plane.store.port import Kind


APPLICATION_ID = 0x4C434D31  # "LCM1": distinguishes a store from other SQLite files
PROBE_WRITE = "UPDATE head SET checks = checks + 1"
_ROOM = hashlib.shake_128(b"room").digest(
    256 * 1024
)  # not compressible, so that it takes as much space as it has bytes
WAL_LIMIT = 32 * 1024 * 1024
_CACHE_KIBIBYTES = 32 * 1024
_BUSY_MILLISECONDS = 500


_SCHEMA_V1 = """
CREATE TABLE head (revision INTEGER NOT NULL, cursor INTEGER NOT NULL, checks INTEGER NOT NULL);
INSERT INTO head VALUES (0, 0, 0);
CREATE TABLE uniques (
    kind TEXT, field TEXT, value TEXT, owner TEXT NOT NULL, PRIMARY KEY (kind, field, value)
) WITHOUT ROWID;
CREATE INDEX uniques_owner ON uniques (kind, owner);
CREATE TABLE journal (
    cursor INTEGER PRIMARY KEY, topic TEXT NOT NULL, subject TEXT NOT NULL, at INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE INDEX journal_topic ON journal (topic, cursor);
CREATE INDEX journal_subject ON journal (subject, cursor);
CREATE TABLE samples (
    n INTEGER PRIMARY KEY, series TEXT NOT NULL, subject TEXT NOT NULL, at INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE INDEX samples_subject ON samples (series, subject, at);
CREATE INDEX samples_at ON samples (series, at)
"""


def _create_v1(connection: sqlite3.Connection) -> None:
    for statement in _SCHEMA_V1.split(";"):
        connection.execute(statement)


def _add_teams_v2(connection: sqlite3.Connection) -> None:
    """Journal entries have a team and an owner."""
    for column in ("team", "owner"):
        connection.execute(f"ALTER TABLE journal ADD COLUMN {column} TEXT NOT NULL DEFAULT ''")


# MIGRATIONS[n] upgrades version n to n + 1
MIGRATIONS: Sequence[Callable[[sqlite3.Connection], None]] = (_create_v1, _add_teams_v2)


def open_writer(path: Path, kinds: Sequence[Kind]) -> sqlite3.Connection:
    """Open the only connection that writes, and migrate the schema."""
    if not path.exists():
        path.touch(mode=0o600)  # SQLite would let others read it; its other files get the permissions of this one
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        _require_lcm_file(connection, path)
        for pragma in (
            "journal_mode = WAL",
            "synchronous = FULL",
            f"journal_size_limit = {WAL_LIMIT}",
            f"cache_size = -{_CACHE_KIBIBYTES}",
            f"busy_timeout = {_BUSY_MILLISECONDS}",
        ):
            connection.execute(f"PRAGMA {pragma}")
        _migrate(connection, path)
        with _transaction(connection):
            for kind in kinds:
                _prepare_kind(connection, kind)
            # SQLite opens a read-only file without an error and fails at the first write.
            connection.execute(PROBE_WRITE)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """Open a read-only connection, so that it never checkpoints beside the writer."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIBIBYTES}")
    return connection


def probe_write(connection: sqlite3.Connection, path: Path) -> None:
    """Write as a record would be written, or raise the reason why that is impossible.

    A small write alone proves little: a page that exists can be written on a full disk. So the file must be able to
    grow, and so must the files beside it, by what a large record needs. Neither leaves anything behind.
    """
    room = path.with_name(f"{path.name}-room")
    try:
        try:
            room.write_bytes(_ROOM)
        finally:
            room.unlink(missing_ok=True)
    except OSError as error:
        explanation = _EXPLANATIONS["SQLITE_FULL" if error.errno in _NO_ROOM else "SQLITE_IOERR"]
        raise StoreUnavailableError(f"{path}: {explanation} ({error.strerror})") from error
    pages, most, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "max_page_count", "freelist_count", "page_size")
    )
    if (most - pages + free) * size < len(_ROOM):
        raise StoreUnavailableError(f"{path}: {_EXPLANATIONS['SQLITE_FULL']} (the file has reached its largest size)")
    connection.execute(PROBE_WRITE)


def document_table(kind: Kind) -> str:
    """The name of the kind's table."""
    return f"d_{kind.name}"


def field_index(kind: Kind, field: str) -> str:
    """The name of the index of one field."""
    return f"{document_table(kind)}__{field}"


def search_index(kind: Kind) -> str:
    """The name of the index that a search reads from end to end: the texts alone, a fraction of the table."""
    return f"{document_table(kind)}__search"


def body_table(kind: Kind) -> str:
    """The name of the table of the kind's bodies. They are apart so that scans over the fields are short."""
    return f"b_{kind.name}"


def _require_lcm_file(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and tables:
        raise StoreError(f"{path} is an SQLite file of another program: use another file")


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} was written by a newer LCM (schema {version}, this version supports {len(MIGRATIONS)}):"
            " run that version, or restore a backup made before it"
        )
    for number, step in enumerate(MIGRATIONS[version:], version + 1):
        with _transaction(connection):
            step(connection)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {number}")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _prepare_kind(connection: sqlite3.Connection, kind: Kind) -> None:
    """Create the kind's tables, add columns for new fields, and create and drop indexes as the kind declares.

    Columns have no type, so that values are stored and compared as they are. The default is None, as in `queries`.
    """
    name = document_table(kind)
    columns = {f"f_{field}": "NOT NULL DEFAULT -9e999" for field in kind.fields}
    columns |= {f"t_{field}": "" for field in kind.fields}
    fixed = "n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, revision INTEGER NOT NULL"
    connection.execute(f"CREATE TABLE IF NOT EXISTS {name} ({fixed})")
    connection.execute(f"CREATE TABLE IF NOT EXISTS {body_table(kind)} (n INTEGER PRIMARY KEY, body BLOB NOT NULL)")
    present = {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
    for column, default in columns.items():
        if column not in present:
            connection.execute(f"ALTER TABLE {name} ADD COLUMN {column} {default}")
    declared: dict[str, tuple[str, ...]] = {
        field_index(kind, field): (f"f_{field}", "id") for field in kind.fields if field not in kind.searched
    }
    if kind.grouped:
        declared[f"{name}__by__{'__'.join(kind.grouped)}"] = tuple(f"f_{field}" for field in kind.grouped)
    if kind.searched:
        excluded = tuple(f"f_{field}" for field, _ in kind.archived)
        declared[search_index(kind)] = (*excluded, *(f"t_{field}" for field in kind.searched))
    existing = {row[1] for row in connection.execute(f"PRAGMA index_list({name})") if row[3] == "c"}
    for index in sorted(existing - set(declared)):
        connection.execute(f"DROP INDEX {index}")
    for index, indexed in declared.items():
        connection.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {name} ({', '.join(indexed)})")


class ProcessLock:
    """A lock file beside the store, so that one process owns it. The kernel releases it whenever the process ends.

    SQLite's own locks are not enough: before 3.51.3, two processes that write or checkpoint can corrupt the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock_path = path.with_name(f"{path.name}.lock")
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, or raise an error that names the process that has it."""
        try:
            descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"{self._path}: the file or its folder is not writable ({error.strerror})."
                " Check that the folder exists, its owner and permissions"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreError(
                f"{self._path} is in use by process {owner}: only one control plane can use it."
                " Stop that process or use MongoDB"
            ) from None
        # The lock file is never removed: otherwise two processes could lock two files of the same name.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_EXPLANATIONS = {
    "SQLITE_FULL": "the disk is full; nothing was written. Free disk space",
    "SQLITE_READONLY": "the file or its folder is not writable. Check its owner and permissions",
    "SQLITE_PERM": "the file or its folder is not writable. Check its owner and permissions",
    "SQLITE_CANTOPEN": "the file cannot be opened or created. Check that its folder exists and is writable",
    "SQLITE_CORRUPT": "the file is corrupt. Restore a backup",
    "SQLITE_NOTADB": "the file is not a store, or it is corrupt. Use another file or restore a backup",
    "SQLITE_BUSY": "another program has locked the file. Stop it",
    "SQLITE_LOCKED": "another program has locked the file. Stop it",
    "SQLITE_IOERR": "reading or writing the disk failed. Check the disk",
}


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def translate_error(path: Path, error: sqlite3.Error) -> StoreUnavailableError:
    """The error with its cause and what to do about it."""
    name = str(getattr(error, "sqlite_errorname", ""))
    explanation = next((text for prefix, text in _EXPLANATIONS.items() if name.startswith(prefix)), "SQLite failed")
    return StoreUnavailableError(f"{path}: {explanation} ({error})")
