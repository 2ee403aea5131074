"""The SQLite file: how it is opened, its schema version, the steps from one version to the next, a table per kind."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lcm.control_plane.store.port import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lcm.control_plane.store.port import Kind

APPLICATION_ID = 0x4C434D31  # "LCM1": tells a store from any other SQLite file
PROBE_WRITE = "UPDATE head SET checks = checks + 1"
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


MIGRATIONS: Sequence[Callable[[sqlite3.Connection], None]] = (_create_v1,)  # STEPS[n] makes version n + 1 of version n


def open_writer(path: Path, kinds: Sequence[Kind]) -> sqlite3.Connection:
    """The one connection that writes, with the file brought up to date."""
    if not path.exists():
        path.touch(mode=0o600)  # SQLite would let others read it; its other files get the rights of this one
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
            # SQLite opens a file that cannot be written without a word, and fails at the first write.
            connection.execute(PROBE_WRITE)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that can only read, so that it never checkpoints beside the writer."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIBIBYTES}")
    return connection


def document_table(kind: Kind) -> str:
    """The name of the kind's table."""
    return f"d_{kind.name}"


def body_table(kind: Kind) -> str:
    """The name of the table of the kind's bodies, which are apart so that a look through the fields is short."""
    return f"b_{kind.name}"


def _require_lcm_file(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    if application != APPLICATION_ID and tables:
        raise StoreError(f"{path} is an SQLite file of another program: name another file")


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} was written by a newer LCM (schema {version}, this one knows {len(MIGRATIONS)}):"
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
    """Make the kind's tables, add columns for fields that are new, and make the indexes what the kind declares.

    Columns have no type, so that values are kept and compared as they are; the default is None as sqlite_sql keeps it.
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
    wanted: dict[str, tuple[str, ...]] = {f"{name}__{field}": (f"f_{field}", "id") for field in kind.fields}
    if kind.grouped:
        wanted[f"{name}__by__{'__'.join(kind.grouped)}"] = tuple(f"f_{field}" for field in kind.grouped)
    made = {row[1] for row in connection.execute(f"PRAGMA index_list({name})") if row[3] == "c"}
    for index in sorted(made - set(wanted)):
        connection.execute(f"DROP INDEX {index}")
    for index, indexed in wanted.items():
        connection.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {name} ({', '.join(indexed)})")
